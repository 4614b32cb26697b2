"""The distribution of one state parameter on the unit interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from conbo.errors import PointError, SpaceError
from conbo.spaces import Array, Categorical, Integer, Parameter, Real, Scale
from conbo.state_distributions import MarginalRecipe, Normal, Triangular, Uniform, Weights

FARTHEST = 30.0  # standard deviations between a normal distribution's mean and the range
NARROWEST = 1e-12  # standard deviation, as a share of the range


class Marginal(Protocol):
    """The distribution of one column of the unit cube."""

    @property
    def n_atoms(self) -> float:
        """How many levels have a positive probability: infinitely many for a real parameter."""

    def atoms(self) -> tuple[Array, Array]:
        """These levels and their probabilities."""

    def quantile(self, p: Array) -> Array:
        """The encoded values up to which the probability is p."""

    def density(self, unit: Array) -> Array:
        """The density on the unit interval."""


class _Law(Protocol):
    """A continuous distribution, as scipy.stats has them."""

    def cdf(self, x: Array, /) -> Array: ...
    def pdf(self, x: Array, /) -> Array: ...
    def ppf(self, p: Array, /) -> Array: ...


class _FlatLaw:
    """The uniform law on the unit interval."""

    def cdf(self, x: Array, /) -> Array:
        return x

    def pdf(self, x: Array, /) -> Array:
        return np.ones_like(x)

    def ppf(self, p: Array, /) -> Array:
        return p


@dataclass(frozen=True)
class _ScaledLaw:
    """A law of values from scipy.stats, seen from the unit interval."""

    name: Literal["truncnorm", "triang"]
    shapes: tuple[float, ...]
    loc: float
    spread: float
    scale: Scale

    @cached_property
    def law(self) -> _Law:
        """Imported on first use: scipy.stats takes a second, and a study can be looked at without it."""
        from scipy import stats

        law: _Law = getattr(stats, self.name)(*self.shapes, loc=self.loc, scale=self.spread)
        return law

    def cdf(self, x: Array, /) -> Array:
        return self.law.cdf(self.scale.from_unit(x))

    def pdf(self, x: Array, /) -> Array:
        return self.law.pdf(self.scale.from_unit(x)) * self.scale.slope(x)

    def ppf(self, p: Array, /) -> Array:
        return self.scale.to_unit(self.law.ppf(p))


@dataclass(frozen=True)
class _Continuous:
    """A law on the unit interval, of which a discrete parameter gives every level the mass of its bin."""

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
    """Positive probabilities of some levels, which are in increasing order."""

    parameter: Integer | Categorical
    levels: Array
    probabilities: Array

    @property
    def n_atoms(self) -> float:
        return len(self.levels)

    def atoms(self) -> tuple[Array, Array]:
        return self.levels, self.probabilities

    def quantile(self, p: Array) -> Array:
        # the last edge is left out: a sum that rounds to less than one must not point past the last level
        return self.levels[np.searchsorted(np.cumsum(self.probabilities)[:-1], p, side="right")]

    def density(self, unit: Array) -> Array:
        lower, upper = self.parameter.cell(unit)
        level = self.parameter.snap(unit)
        index = np.minimum(np.searchsorted(self.levels, level), len(self.levels) - 1)
        return np.where(self.levels[index] == level, self.probabilities[index] / (upper - lower), 0.0)


def marginal(name: str, parameter: Parameter, recipe: MarginalRecipe) -> Marginal:
    """What a recipe becomes for the parameter of this name."""
    if isinstance(recipe, Uniform):
        return _Continuous(parameter, _FlatLaw())
    if isinstance(recipe, Weights):
        return _weighted_levels(name, parameter, recipe)
    if isinstance(parameter, Categorical):
        raise SpaceError(f"'{name}' is categorical and must be Uniform or have Weights, but got {recipe!r}.")
    return _Continuous(parameter, _scipy_law(name, parameter, recipe))


def _scipy_law(name: str, parameter: Real | Integer, recipe: Triangular | Normal) -> _ScaledLaw:
    low, high = parameter.scale.low, parameter.scale.high
    if isinstance(recipe, Normal):
        mean, sd = float(recipe.mean), float(recipe.sd)  # to scipy, a large whole number is an object
        ends = (low - mean) / sd, (high - mean) / sd
        if max(ends[0], -ends[1]) > FARTHEST or not sd >= NARROWEST * (high - low):
            raise SpaceError(f"'{name}' must have a finite density over its range, but got {recipe!r}.")
        return _ScaledLaw("truncnorm", ends, mean, sd, parameter.scale)
    mode = (low + high) / 2 if recipe.mode is None else recipe.mode
    if not parameter.low <= mode <= parameter.high:
        rule = f"`{parameter.low} <= mode <= {parameter.high}` must hold for '{name}'"
        raise SpaceError(f"{rule}, but got mode={mode}.")
    return _ScaledLaw("triang", ((mode - low) / (high - low),), low, high - low, parameter.scale)


def _weighted_levels(name: str, parameter: Parameter, recipe: Weights) -> Marginal:
    if isinstance(parameter, Real):
        raise SpaceError(f"'{name}' is real and cannot have weights of single values, but got {recipe!r}.")
    try:
        values = [parameter.validate(name, value) for value, weight in recipe.weights.items() if weight > 0]
    except PointError as error:
        raise SpaceError(f"every value with a weight must be valid: {error}") from None
    levels = parameter.encode(values)
    weights = np.array([weight for weight in recipe.weights.values() if weight > 0], dtype=np.float64)
    order = np.argsort(levels)
    return _Atoms(parameter, levels[order], weights[order] / weights.sum())
