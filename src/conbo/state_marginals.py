"""The distribution of a single state parameter, on the unit interval in which its values are encoded."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from conbo.errors import PointError, SpaceError
from conbo.spaces import Array, Categorical, Integer, Parameter, Real, Scale
from conbo.state_distributions import MarginalRecipe, Normal, Triangular, Uniform, Weights

FAR_AWAY = 2.0  # a normal whose mean is farther from the range than this, in standard deviations, gives a warning
FARTHEST = 30.0  # largest distance of the mean of a normal from the range, in standard deviations
NARROWEST, WIDEST = 1e-12, 1e6  # least and largest standard deviation of a normal, divided by the range
LEAST_TAIL, MOST_TAIL = 1e-300, 1 - 2.0**-53  # range of probabilities for which quantiles are finite
TINY = 1e-300  # replaces a divisor of zero, where the quotient is not used


class Marginal(Protocol):
    """The distribution of one state parameter, on the unit interval.

    The values of a discrete parameter are atoms of this distribution. All numbers in the bin around an atom encode the
    same value.
    """

    @property
    def n_atoms(self) -> float:
        """Number of atoms; infinite for a real parameter, which has a continuous distribution."""

    def atoms(self) -> tuple[Array, Array]:
        """Return the atoms (k,), which are encoded values of a discrete parameter, and their probabilities (k,)."""

    def quantile(self, p: Array) -> Array:
        """Return the quantiles, on the unit interval, at probabilities p."""

    def density(self, unit: Array) -> Array:
        """Return the density at numbers `unit` in the unit interval.

        The probability of a discrete value is spread evenly over its bin.
        """


class _Law(Protocol):
    """A continuous distribution, with methods named as in scipy.stats."""

    def cdf(self, x: Array, /) -> Array: ...
    def pdf(self, x: Array, /) -> Array: ...
    def ppf(self, p: Array, /) -> Array: ...


class _FlatLaw:
    """The uniform distribution on the unit interval."""

    def cdf(self, x: Array, /) -> Array:
        return x

    def pdf(self, x: Array, /) -> Array:
        return np.ones_like(x)

    def ppf(self, p: Array, /) -> Array:
        return p


@dataclass(frozen=True)
class _TruncatedNormal:
    """A normal distribution, truncated to the range from `low` to `high`.

    Probabilities are computed in the left tail, where even tiny ones are accurate; if the range is right of the mean,
    the distribution is mirrored. scipy.stats is not used, because its import takes a second.
    """

    mean: float
    sd: float
    low: float
    high: float

    @cached_property
    def _side(self) -> float:
        """-1 if the range is right of the mean, and so has to be mirrored into the left tail; otherwise 1."""
        return -1.0 if self.low > self.mean else 1.0

    def _standard(self, x: Array) -> Array:
        return self._side * (x - self.mean) / self.sd

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """The distribution function of the untruncated normal at the lower and the upper end of the range.

        A range right of the mean is first mirrored into the left tail.
        """
        first, last = sorted(float(self._standard(np.asarray(end))) for end in (self.low, self.high))
        return _left_tail(first), _left_tail(last)

    @property
    def inside(self) -> float:
        """The probability of the range under the normal distribution before truncation."""
        first, last = self._ends
        return last - first

    def cdf(self, x: Array, /) -> Array:
        (first, last), here = self._ends, _left_tails(self._standard(x))
        return (here - first if self._side > 0 else last - here) / (last - first)

    def pdf(self, x: Array, /) -> Array:
        first, last = self._ends
        return np.exp(-0.5 * self._standard(x) ** 2) / (math.sqrt(2 * math.pi) * self.sd * (last - first))

    def ppf(self, p: Array, /) -> Array:
        first, last = self._ends
        share = p if self._side > 0 else 1 - p
        standard = _normal_quantiles(np.clip(first + share * (last - first), LEAST_TAIL, MOST_TAIL))
        inside = np.clip(self.mean + self.sd * self._side * standard, self.low, self.high)
        return np.where(p <= 0, self.low, np.where(p >= 1, self.high, inside))


def _left_tail(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _left_tails(x: Array) -> Array:
    return np.vectorize(_left_tail, otypes=[np.float64])(x)


def _normal_quantiles(p: Array) -> Array:
    return np.vectorize(NormalDist().inv_cdf, otypes=[np.float64])(p)


@dataclass(frozen=True)
class _TriangularLaw:
    """A triangular distribution from `low` to `high`."""

    mode: float
    low: float
    high: float

    @property
    def _peak(self) -> float:
        return (self.mode - self.low) / (self.high - self.low)

    def _share(self, x: Array) -> Array:
        return (x - self.low) / (self.high - self.low)

    def cdf(self, x: Array, /) -> Array:
        share, peak = self._share(x), self._peak
        falling = 1 - (1 - share) ** 2 / max(1 - peak, TINY)
        return np.where(self._rises(share), share**2 / max(peak, TINY), falling)

    def pdf(self, x: Array, /) -> Array:
        share, peak = self._share(x), self._peak
        height = np.where(self._rises(share), share / max(peak, TINY), (1 - share) / max(1 - peak, TINY))
        return 2 * height / (self.high - self.low)

    def _rises(self, share: Array) -> NDArray[np.bool_]:
        return (share < self._peak) | (self._peak == 1)

    def ppf(self, p: Array, /) -> Array:
        peak = self._peak
        share = np.where(p < peak, np.sqrt(peak * p), 1 - np.sqrt((1 - peak) * (1 - p)))
        return self.low + (self.high - self.low) * share


@dataclass(frozen=True)
class _ScaledLaw:
    """A distribution of values in the user's units, transformed to the unit interval by the parameter's scale."""

    law: _Law
    scale: Scale

    def cdf(self, x: Array, /) -> Array:
        return self.law.cdf(self.scale.from_unit(x))

    def pdf(self, x: Array, /) -> Array:
        return self.law.pdf(self.scale.from_unit(x)) * self.scale.slope(x)

    def ppf(self, p: Array, /) -> Array:
        return self.scale.to_unit(self.law.ppf(p))


@dataclass(frozen=True)
class _Continuous:
    """The distribution of a parameter, derived from a continuous distribution `law` on the unit interval.

    A value of a discrete parameter has the probability of its bin, which is the set of numbers that encode this value.
    """

    parameter: Parameter
    law: _Law

    @property
    def n_atoms(self) -> float:
        return math.inf if self.parameter.n_levels is None else self.parameter.n_levels

    def atoms(self) -> tuple[Array, Array]:
        assert not isinstance(self.parameter, Real), "a real parameter has no atoms"
        levels = self.parameter.levels()
        lower, upper = self.parameter.cell(levels)
        return levels, self.law.cdf(upper) - self.law.cdf(lower)

    def quantile(self, p: Array) -> Array:
        return self.parameter.snap(self.law.ppf(p))

    def density(self, unit: Array) -> Array:
        if isinstance(self.parameter, Real):
            return self.law.pdf(unit)
        lower, upper = self.parameter.cell(unit)
        return (self.law.cdf(upper) - self.law.cdf(lower)) / (upper - lower)


@dataclass(frozen=True, eq=False)
class _Atoms:
    """A distribution on some values of a discrete parameter, each with its own probability."""

    parameter: Integer | Categorical
    levels: Array  # (k,), encodings of these values on the unit interval, in increasing order
    probabilities: Array  # (k,), all positive

    @property
    def n_atoms(self) -> float:
        return len(self.levels)

    def atoms(self) -> tuple[Array, Array]:
        return self.levels, self.probabilities

    def quantile(self, p: Array) -> Array:
        # without the last edge, because a sum that is rounded to less than one must not exceed the last atom
        return self.levels[np.searchsorted(np.cumsum(self.probabilities)[:-1], p, side="right")]

    def density(self, unit: Array) -> Array:
        lower, upper = self.parameter.cell(unit)
        level = self.parameter.snap(unit)
        index = np.minimum(np.searchsorted(self.levels, level), len(self.levels) - 1)
        return np.where(self.levels[index] == level, self.probabilities[index] / (upper - lower), 0.0)


def marginal(name: str, parameter: Parameter, recipe: MarginalRecipe) -> Marginal:
    """Return the distribution of the state parameter `name` that `recipe` describes, on the unit interval.

    Raises SpaceError if the recipe does not fit the parameter, such as weights for a real parameter.
    """
    if isinstance(recipe, Uniform):
        return _Continuous(parameter, _FlatLaw())
    if isinstance(recipe, Weights):
        return _weighted_levels(name, parameter, recipe)
    if isinstance(parameter, Categorical):
        raise SpaceError(f"'{name}' is categorical and must be Uniform or have Weights, but got {recipe!r}.")
    return _Continuous(parameter, _ScaledLaw(_law(name, parameter, recipe), parameter.scale))


def _law(name: str, parameter: Real | Integer, recipe: Triangular | Normal) -> _Law:
    low, high = parameter.scale.low, parameter.scale.high
    if isinstance(recipe, Normal):
        mean, sd = float(recipe.mean), float(recipe.sd)
        ends = (low - mean) / sd, (high - mean) / sd
        if max(ends[0], -ends[1]) > FARTHEST:
            span = f"from {parameter.low:g} to {parameter.high:g}"
            raise SpaceError(f"'{name}' must have some of its weight {span}, but got {recipe!r}.")
        if not sd >= NARROWEST * (high - low):
            raise SpaceError(f"'{name}' must have a finite density over its range, but got {recipe!r}.")
        if sd > WIDEST * (high - low):
            rule = f"`sd <= {WIDEST:g} * (high - low)` must hold for '{name}'"
            raise SpaceError(f"{rule}, but got sd={recipe.sd!r}: use Uniform, which is nearly the same.")
        law = _TruncatedNormal(mean, sd, low, high)
        if max(ends[0], -ends[1]) > FAR_AWAY:
            share = f"{law.inside:.1%}" if law.inside > 1e-3 else "nearly nothing"
            span = f"{parameter.low:g} to {parameter.high:g}"
            warnings.warn(f"{recipe!r} has {share} of its weight on '{name}' from {span}: is it meant?", stacklevel=5)
        return law
    mode = (low + high) / 2 if recipe.mode is None else recipe.mode
    if not parameter.low <= mode <= parameter.high:
        rule = f"`{parameter.low} <= mode <= {parameter.high}` must hold for '{name}'"
        raise SpaceError(f"{rule}, but got mode={mode}.")
    return _TriangularLaw(mode, low, high)


def _weighted_levels(name: str, parameter: Parameter, recipe: Weights) -> Marginal:
    if isinstance(parameter, Real):
        raise SpaceError(f"'{name}' is real and cannot have weights of single values, but got {recipe!r}.")
    try:
        values = [parameter.validate(name, value) for value, weight in recipe.weights.items() if weight > 0]
    except PointError as error:
        raise SpaceError(f"every value with a weight must be valid: {error}") from None
    if isinstance(parameter, Categorical) and (left := [c for c in parameter.choices if c not in recipe.weights]):
        rule = f"the weights of '{name}' leave out {left[0]!r}, so that P[s] has no such state"
        warnings.warn(f"{rule}: give it the weight 0 if that is meant.", stacklevel=5)
    levels = parameter.encode(values)
    weights = np.array([weight for weight in recipe.weights.values() if weight > 0], dtype=np.float64)
    order = np.argsort(levels)
    return _Atoms(parameter, levels[order], weights[order] / weights.sum())
