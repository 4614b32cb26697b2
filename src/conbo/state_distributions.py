"""P[s], the distribution of the states: recipes in the user's units, bound to a space on the unit cube.

| recipe             | meaning                                                                             |
|--------------------|-------------------------------------------------------------------------------------|
| Uniform            | uniform on the parameter's own scale: log-uniform where `log=True`                  |
| Triangular, Normal | a density in the value itself, whatever the scale; normal is truncated to the range |
| Weights            | a probability for every listed value, zero for the others                           |
| Product            | independent parameters, each with one of the above                                  |
| Density            | any function of the whole state: a density in reals, a probability in the others    |

An integer follows the continuous law on [low - 1/2, high + 1/2], rounded.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conbo.errors import PointError, SpaceError
from conbo.spaces import (
    Array,
    Categorical,
    Integer,
    Parameter,
    Point,
    Real,
    Scale,
    Space,
    Value,
    closest,
    is_number,
)

MAX_STATES = 100_000  # more states than this are sampled instead of listed
POOL_SIZE = 2**13  # quasi-random states that stand for a density without a quantile function
FEWEST_EFFECTIVE_STATES = 32  # fewer effective states than this in the pool are worth a warning
LEAST_ACCEPTANCE = 1e-3  # below this, rejection sampling would take forever


# Recipes, in the user's units


@dataclass(frozen=True)
class Uniform:
    """Uniform on the parameter's own scale, so log-uniform where `log=True`."""


@dataclass(frozen=True)
class Triangular:
    """A density that rises from `low` to the mode and falls to `high`; the mode is the centre by default."""

    mode: float | None = None

    def __post_init__(self) -> None:
        if self.mode is not None and not is_number(self.mode):
            raise SpaceError(f"`mode` must be a number, but got mode={self.mode!r}.")


@dataclass(frozen=True)
class Normal:
    """A normal distribution truncated to the parameter's range."""

    mean: float
    sd: float

    def __post_init__(self) -> None:
        if not is_number(self.mean) or not math.isfinite(self.mean):
            raise SpaceError(f"`mean` must be a finite number, but got mean={self.mean!r}.")
        if not is_number(self.sd) or not 0 < self.sd < math.inf:
            raise SpaceError(f"`0 < sd < inf` must hold, but got sd={self.sd!r}.")


@dataclass(frozen=True)
class Weights:
    """Relative weights of the values of an Integer or Categorical; a value that is not listed has none."""

    weights: Mapping[Value, float]

    def __post_init__(self) -> None:
        if not isinstance(self.weights, Mapping):
            raise SpaceError(f"`weights` must be a mapping from values to weights, but got {self.weights!r}.")
        for value, weight in self.weights.items():
            if not is_number(weight) or not 0 <= weight < math.inf:
                raise SpaceError(f"a weight must be finite and not negative, but got {weight!r} for {value!r}.")
        if not sum(self.weights.values()) > 0:
            raise SpaceError(f"at least one weight must be positive, but got {dict(self.weights)!r}.")
        object.__setattr__(self, "weights", dict(self.weights))


MarginalRecipe: TypeAlias = Uniform | Triangular | Normal | Weights


@dataclass(frozen=True)
class Product:
    """Independent parameters, each with its own recipe; those not named are uniform."""

    marginals: Mapping[str, MarginalRecipe]

    def __post_init__(self) -> None:
        if not isinstance(self.marginals, Mapping):
            raise SpaceError(f"`marginals` must be a mapping from names to recipes, but got {self.marginals!r}.")
        for name, recipe in self.marginals.items():
            if not isinstance(recipe, Uniform | Triangular | Normal | Weights):
                rule = f"'{name}' must be distributed as Uniform, Triangular, Normal or Weights"
                raise SpaceError(f"{rule}, but got {recipe!r}.")
        object.__setattr__(self, "marginals", dict(self.marginals))


@dataclass(frozen=True)
class Density:
    """Any density of whole states: `function(state)` is not negative and need not be normalised.

    It is a density in the values of the real parameters and a probability of the discrete ones.
    States are drawn by `sampler(generator, n)` if there is one, else by rejection if there is a `bound` that
    the function never exceeds, else by importance resampling from a fixed pool of quasi-random states.
    """

    function: Callable[[dict[str, Value]], float]
    sampler: Callable[[np.random.Generator, int], Sequence[Point]] | None = None
    bound: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise SpaceError(f"`function` must be callable, but got {self.function!r}.")
        if self.bound is not None and not 0 < self.bound < math.inf:
            raise SpaceError(f"`0 < bound < inf` must hold, but got bound={self.bound}.")


Recipe: TypeAlias = MarginalRecipe | Product | Density
RecipeLike: TypeAlias = Recipe | Mapping[str, MarginalRecipe] | Callable[[dict[str, Value]], float] | None


# Bound to a space, on the unit cube


class StateDistribution(Protocol):
    """P[s] on the unit cube; all tensors are float64 and discrete states lie at the centres of their bins."""

    @property
    def has_quantile(self) -> bool:
        """Whether `from_uniform` is exact and treats every column on its own."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Independent states (n, d)."""

    def from_uniform(self, u: Tensor) -> Tensor:
        """States (n, d) that follow P[s] as evenly as the u (n, d) follow the uniform distribution."""

    def density(self, states: Tensor) -> Tensor:
        """The density (...) of states (..., d) on the unit cube; a discrete level is spread over its bin."""

    def finite(self, max_states: int = MAX_STATES) -> tuple[Tensor, Tensor] | None:
        """All states (m, d) and their probabilities (m,), or None if there are more than max_states."""


def bind(recipe: RecipeLike, space: Space) -> StateDistribution:
    """The distribution of the space's states on the unit cube.

    None is uniform, a mapping is a Product, a function a Density; a recipe for one parameter applies to each.
    """
    if recipe is None:
        recipe = Uniform()
    if isinstance(recipe, Mapping):
        recipe = Product(recipe)
    if isinstance(recipe, Product):
        if unknown := [name for name in recipe.marginals if name not in space.states]:
            raise SpaceError(f"unknown state parameter '{unknown[0]}': {closest(unknown[0], space.states)}")
        recipes = [recipe.marginals.get(name, Uniform()) for name in space.states]
        return IndependentStates(tuple(map(_marginal, space.states, space.states.values(), recipes)))
    if isinstance(recipe, Uniform | Triangular | Normal | Weights):
        return bind(Product(dict.fromkeys(space.states, recipe)), space)
    if isinstance(recipe, Density):
        return _bind_density(recipe, space)
    if callable(recipe):
        return _bind_density(Density(recipe), space)
    raise SpaceError(f"a state distribution must be a recipe, a mapping or a function, but got {recipe!r}.")


@dataclass(frozen=True)
class IndependentStates:
    """A product of one-dimensional distributions."""

    marginals: tuple[Marginal, ...]
    has_quantile: ClassVar[bool] = True

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Independent states (n, d)."""
        return self.from_uniform(_uniform(n, len(self.marginals), generator))

    def from_uniform(self, u: Tensor) -> Tensor:
        """States (n, d), column by column through the quantile functions."""
        states = np.empty(u.shape)
        for column, marginal in enumerate(self.marginals):
            states[..., column] = marginal.quantile(_array(u[..., column]))
        return torch.from_numpy(states)

    def density(self, states: Tensor) -> Tensor:
        """The density (...) of states (..., d)."""
        points = _array(states)
        density = _inside(points)
        for column, marginal in enumerate(self.marginals):
            density = density * marginal.density(points[..., column])
        return torch.as_tensor(density)  # of a single state it is a scalar, which from_numpy refuses

    def finite(self, max_states: int = MAX_STATES) -> tuple[Tensor, Tensor] | None:
        """All states of positive probability, or None if there are more than max_states."""
        sizes = [marginal.n_atoms for marginal in self.marginals]
        if math.prod(sizes) > max_states:
            return None
        atoms = [marginal.atoms() for marginal in self.marginals]
        states = _grid([levels for levels, _ in atoms])
        probabilities = _grid([probabilities for _, probabilities in atoms]).prod(axis=1)
        positive = probabilities > 0  # a tail may have none in floating point
        return torch.from_numpy(states[positive]), torch.from_numpy(probabilities[positive])


@dataclass(frozen=True, eq=False)
class WeightedStates:
    """Any density, represented by a weighted pool of states: all of them, or many quasi-random ones."""

    recipe: Density
    space: Space
    pool: Array  # (m, d)
    probabilities: Array  # (m,)
    normalizer: float
    complete: bool
    has_quantile: ClassVar[bool] = False

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Independent states (n, d), by the user's sampler, by rejection, or from the pool."""
        if self.recipe.sampler is not None:
            return self._sample_by_user(self.recipe.sampler, n, generator)
        if self.recipe.bound is not None and not self.complete:
            return self._sample_by_rejection(self.recipe.bound, n, generator)
        return self.from_uniform(_uniform(n, self.space.n_state_dims, generator))

    def from_uniform(self, u: Tensor) -> Tensor:
        """States (n, d) of the pool, taken in proportion to their probabilities."""
        return torch.from_numpy(self.pool[_transport(_array(u), self.pool, self.probabilities)])

    def density(self, states: Tensor) -> Tensor:
        """The density (...) of states (..., d)."""
        points = _array(states)
        rows = points.reshape(math.prod(points.shape[:-1]), self.space.n_state_dims)
        density = _unit_density(self.recipe, self.space, rows) / self.normalizer
        return torch.as_tensor(density.reshape(points.shape[:-1]) * _inside(points))

    def finite(self, max_states: int = MAX_STATES) -> tuple[Tensor, Tensor] | None:
        """All states of positive probability, or None if there are more than max_states."""
        if not self.complete or len(self.pool) > max_states:
            return None
        return torch.from_numpy(self.pool), torch.from_numpy(self.probabilities)

    def _sample_by_user(
        self,
        sampler: Callable[[np.random.Generator, int], Sequence[Point]],
        n: int,
        generator: torch.Generator,
    ) -> Tensor:
        seed = int(torch.randint(2**63 - 1, (), generator=generator, device=generator.device))
        states = [self.space.validate_state(state) for state in sampler(np.random.default_rng(seed), n)]
        if len(states) != n:
            raise SpaceError(f"`sampler` must return {n} states when asked for {n}, but got {len(states)}.")
        return torch.from_numpy(self.space.encode_states(states))

    def _sample_by_rejection(self, bound: float, n: int, generator: torch.Generator) -> Tensor:
        d = self.space.n_state_dims
        ceiling = _ceiling(bound, self.space)
        accepted = np.empty((0, d))
        while len(accepted) < n:
            expected_draws = (n - len(accepted)) * ceiling / self.normalizer
            draws = _array(_uniform(16 + min(POOL_SIZE, int(1.2 * expected_draws)), d + 1, generator))
            states = self.space.snap_states(draws[:, :d])
            keep = draws[:, d] * ceiling < _unit_density(self.recipe, self.space, states)
            accepted = np.concatenate([accepted, states[keep]])
        return torch.from_numpy(accepted[:n])


# One parameter, on the unit interval


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
    """A law of values, seen from the unit interval."""

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


def _marginal(name: str, parameter: Parameter, recipe: MarginalRecipe) -> Marginal:
    if isinstance(recipe, Uniform):
        return _Continuous(parameter, _FlatLaw())
    if isinstance(recipe, Weights):
        return _weighted_levels(name, parameter, recipe)
    if isinstance(parameter, Categorical):
        raise SpaceError(f"'{name}' is categorical and must be Uniform or have Weights, but got {recipe!r}.")
    return _Continuous(parameter, _ScaledLaw(_scipy_law(name, parameter, recipe), parameter.scale))


def _scipy_law(name: str, parameter: Real | Integer, recipe: Triangular | Normal) -> _Law:
    from scipy import stats  # slow to import, and most spaces have uniform states

    low, high = parameter.scale.low, parameter.scale.high
    if isinstance(recipe, Normal):
        ends = (low - recipe.mean) / recipe.sd, (high - recipe.mean) / recipe.sd
        normal: _Law = stats.truncnorm(*ends, loc=recipe.mean, scale=recipe.sd)
        return normal
    mode = (low + high) / 2 if recipe.mode is None else recipe.mode
    if not parameter.low <= mode <= parameter.high:
        rule = f"`{parameter.low} <= mode <= {parameter.high}` must hold for '{name}'"
        raise SpaceError(f"{rule}, but got mode={mode}.")
    triangular: _Law = stats.triang((mode - low) / (high - low), loc=low, scale=high - low)
    return triangular


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


# Any density


def _bind_density(recipe: Density, space: Space) -> StateDistribution:
    listed = bind(Uniform(), space).finite()
    if listed is not None:
        # the integral over a bin is the function's value: volume and volume ratio cancel
        pool = listed[0].numpy()
        masses = _values(recipe, space, pool)
        normalizer = float(masses.sum())
    else:
        pool = space.snap_states(sobol(POOL_SIZE, space.n_state_dims, seed=0).numpy())
        masses = _unit_density(recipe, space, pool)
        normalizer = float(masses.mean())
    if not 0 < normalizer < math.inf:
        raise SpaceError(f"a density must have a positive and finite integral, but got {normalizer}.")
    probabilities = masses / masses.sum()
    if listed is None:
        _check_pool(recipe, space, probabilities, normalizer)
    positive = probabilities > 0
    return WeightedStates(
        recipe, space, pool[positive], probabilities[positive], normalizer, complete=listed is not None
    )


def _check_pool(recipe: Density, space: Space, probabilities: Array, normalizer: float) -> None:
    if recipe.bound is not None:
        acceptance = normalizer / _ceiling(recipe.bound, space)
        if acceptance < LEAST_ACCEPTANCE:
            rule = f"rejection must accept at least {LEAST_ACCEPTANCE} of its draws"
            raise SpaceError(f"{rule}, but bound={recipe.bound} gives {acceptance:.1e}: lower it, or give a sampler.")
    effective = 1.0 / float(np.square(probabilities).sum())
    if effective < FEWEST_EFFECTIVE_STATES:
        warnings.warn(
            f"the density is so narrow that only {effective:.0f} of {len(probabilities)} quasi-random states "
            "carry it: its integral and its quasi-random states are rough.",
            stacklevel=4,
        )


def _values(recipe: Density, space: Space, rows: Array) -> Array:
    """The user's function at the rows (n, d), checked."""
    values = np.empty(len(rows))
    for i, state in enumerate(space.decode_states(rows)):
        value = _density_value(recipe.function(state), state)
        if recipe.bound is not None and value > recipe.bound:
            rule = "`function(state) <= bound` must hold"
            raise SpaceError(f"{rule}, but got {value} > {recipe.bound} at {state!r}.")
        values[i] = value
    return values


def _density_value(value: object, state: Point) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # numbers and booleans of any library will do
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise SpaceError(f"a density must be finite and not negative, but got {value!r} at {state!r}.")
    return number


def _unit_density(recipe: Density, space: Space, rows: Array) -> Array:
    """The user's density moved to the unit cube, not normalised."""
    return _values(recipe, space, rows) * _volume_ratio(space, rows)


def _volume_ratio(space: Space, rows: Array) -> Array:
    """How much of the user's space, lengths of reals and counts of the others, lies in a unit of the cube."""
    ratio = np.ones(len(rows))
    for column, parameter in enumerate(space.states.values()):
        if isinstance(parameter, Real):
            ratio *= parameter.scale.slope(rows[:, column])
        else:
            lower, upper = parameter.cell(rows[:, column])
            ratio /= upper - lower
    return ratio


def _ceiling(bound: float, space: Space) -> float:
    """What the density on the unit cube never exceeds: on a log scale most values crowd at the upper end."""
    return bound * float(_volume_ratio(space, np.ones((1, space.n_state_dims)))[0])


def _transport(u: Array, points: Array, masses: Array) -> NDArray[np.int64]:
    """For every row of u (n, d) the index of a point (m, d), so that uniform rows pick the points by mass.

    The first coordinate of u picks one of about m^(1/d) slices of equal mass across the first coordinate of
    the points, and so on within the slice: neighbours stay neighbours, so even rows give even states.
    """
    d = u.shape[1]
    if d == 0:
        return np.zeros(len(u), dtype=np.int64)
    order = np.argsort(points[:, 0], kind="stable")
    edges = np.cumsum(masses[order]) / masses.sum()
    if d == 1:
        return order[np.searchsorted(edges[:-1], u[:, 0], side="right")]
    n_slices = math.ceil(len(points) ** (1 / d))
    slices = np.minimum((u[:, 0] * n_slices).astype(np.int64), n_slices - 1)
    picked = np.empty(len(u), dtype=np.int64)
    for number in np.unique(slices):
        # a point on the border belongs to both slices, with the part of its mass that lies in each
        within = np.clip(edges * n_slices - number, 0.0, 1.0)
        shares = np.diff(within, prepend=0.0)
        members, rows = order[shares > 0], slices == number
        picked[rows] = members[_transport(u[rows, 1:], points[members, 1:], shares[shares > 0])]
    return picked


# Arrays and tensors


def sobol(n: int, d: int, seed: int) -> Tensor:
    """Scrambled quasi-random points (n, d) of the unit cube (d >= 1), apart from torch's global state."""
    engine = torch.quasirandom.SobolEngine(d, scramble=True, seed=seed)
    return engine.draw(n, dtype=torch.float64)


def _uniform(n: int, d: int, generator: torch.Generator) -> Tensor:
    return torch.rand(n, d, generator=generator, dtype=torch.float64, device=generator.device)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().to(torch.float64).numpy()


def _inside(points: Array) -> Array:
    """One for the points (..., d) in the unit cube, zero for the others."""
    return np.asarray(((points >= 0) & (points <= 1)).all(axis=-1), dtype=np.float64)


def _grid(columns: Sequence[Array]) -> Array:
    """All combinations of the entries of the columns, as rows."""
    if not columns:
        return np.empty((1, 0))
    return np.stack([axis.ravel() for axis in np.meshgrid(*columns, indexing="ij")], axis=1)
