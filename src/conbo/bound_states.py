"""P[s] bound to a space: what a recipe of `state_distributions` becomes on the unit cube.

Arrays do the work, and tensors are made of them where they are asked for, so that a study can be created, read and
asked for its initial design before torch is imported.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from conbo.errors import SpaceError
from conbo.quasi_random import sobol_points, uniform
from conbo.spaces import Array, Point, Real, Space, closest
from conbo.state_distributions import Density, Normal, Product, RecipeLike, Triangular, Uniform, Weights
from conbo.state_marginals import Marginal, marginal

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MAX_STATES = 100_000  # more states than this are sampled instead of listed
POOL_SIZE = 2**13  # quasi-random states that stand for a density without a quantile function
FEWEST_EFFECTIVE_STATES = 32  # fewer effective states than this in the pool are worth a warning
LEAST_ACCEPTANCE = 1e-3  # below this, rejection sampling would take forever


class StateDistribution(Protocol):
    """P[s] on the unit cube; all numbers are float64 and discrete states lie at the centers of their bins."""

    @property
    def has_quantile(self) -> bool:
        """Whether `from_uniform` is exact and treats every column on its own."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Independent states (n, d)."""

    def transform(self, u: Array) -> Array:
        """States (n, d) that follow P[s] as evenly as the u (n, d) follow the uniform distribution."""

    def from_uniform(self, u: Tensor) -> Tensor:
        """Do the same as `transform`, for tensors."""

    def density(self, states: Tensor) -> Tensor:
        """The density (...) of states (..., d) on the unit cube; a discrete level is spread over its bin."""

    def listed(self, max_states: int = MAX_STATES) -> tuple[Array, Array] | None:
        """All states (m, d) and their probabilities (m,), or None if there are more than max_states."""

    def finite(self, max_states: int = MAX_STATES) -> tuple[Tensor, Tensor] | None:
        """Do the same as `listed`, as tensors."""


def bind(recipe: RecipeLike, space: Space) -> StateDistribution:
    """The distribution of the space's states on the unit cube, of those that have a feasible action.

    None is uniform, a mapping is a Product, a function a Density; a recipe for one parameter applies to each.
    """
    return _with_actions(_bind(recipe, space), space)


def _bind(recipe: RecipeLike, space: Space) -> StateDistribution:
    """The distribution of all states."""
    if recipe is None:
        recipe = Uniform()
    if isinstance(recipe, Mapping):
        recipe = Product(recipe)
    if isinstance(recipe, Product):
        if unknown := [name for name in recipe.marginals if name not in space.states]:
            raise SpaceError(f"unknown state parameter '{unknown[0]}': {closest(unknown[0], space.states)}")
        recipes = [recipe.marginals.get(name, Uniform()) for name in space.states]
        return IndependentStates(tuple(map(marginal, space.states, space.states.values(), recipes)))
    if isinstance(recipe, Uniform | Triangular | Normal | Weights):
        return _bind(Product(dict.fromkeys(space.states, recipe)), space)
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
        return self.from_uniform(uniform(n, len(self.marginals), generator))

    def transform(self, u: Array) -> Array:
        """States (n, d), column by column through the quantile functions."""
        states = np.empty(u.shape)
        for column, one in enumerate(self.marginals):
            states[..., column] = one.quantile(u[..., column])
        return states

    def from_uniform(self, u: Tensor) -> Tensor:
        """Do the same as `transform`, for tensors."""
        return _tensor(self.transform(_array(u)))

    def density(self, states: Tensor) -> Tensor:
        """The density (...) of states (..., d)."""
        points = _array(states)
        density = _inside(points)
        for column, one in enumerate(self.marginals):
            density = density * one.density(points[..., column])
        return _tensor(density)

    def listed(self, max_states: int = MAX_STATES) -> tuple[Array, Array] | None:
        """All states of positive probability, or None if there are more than max_states."""
        sizes = [marginal.n_atoms for marginal in self.marginals]
        if math.prod(sizes) > max_states:
            return None
        atoms = [marginal.atoms() for marginal in self.marginals]
        states = _grid([levels for levels, _ in atoms])
        probabilities = _grid([probabilities for _, probabilities in atoms]).prod(axis=1)
        positive = probabilities > 0  # a tail may have none in floating point
        return states[positive], probabilities[positive]

    def finite(self, max_states: int = MAX_STATES) -> tuple[Tensor, Tensor] | None:
        """Do the same as `listed`, as tensors."""
        return _tensors(self.listed(max_states))


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
        return self.from_uniform(uniform(n, self.space.n_state_dims, generator))

    def transform(self, u: Array) -> Array:
        """States (n, d) of the pool, taken in proportion to their probabilities."""
        return self.pool[_transport(u, self.pool, self.probabilities)]

    def from_uniform(self, u: Tensor) -> Tensor:
        """Do the same as `transform`, for tensors."""
        return _tensor(self.transform(_array(u)))

    def density(self, states: Tensor) -> Tensor:
        """The density (...) of states (..., d)."""
        points = _array(states)
        rows = points.reshape(math.prod(points.shape[:-1]), self.space.n_state_dims)
        density = _unit_density(self.recipe, self.space, rows) / self.normalizer
        return _tensor(density.reshape(points.shape[:-1]) * _inside(points))

    def listed(self, max_states: int = MAX_STATES) -> tuple[Array, Array] | None:
        """All states of positive probability, or None if there are more than max_states."""
        if not self.complete or len(self.pool) > max_states:
            return None
        return self.pool, self.probabilities

    def finite(self, max_states: int = MAX_STATES) -> tuple[Tensor, Tensor] | None:
        """Do the same as `listed`, as tensors."""
        return _tensors(self.listed(max_states))

    def _sample_by_user(
        self,
        sampler: Callable[[np.random.Generator, int], Sequence[Point]],
        n: int,
        generator: torch.Generator,
    ) -> Tensor:
        import torch

        seed = int(torch.randint(2**63 - 1, (), generator=generator, device=generator.device))
        states = [self.space.validate_state(state) for state in sampler(np.random.default_rng(seed), n)]
        if len(states) != n:
            raise SpaceError(f"`sampler` must return {n} states when asked for {n}, but got {len(states)}.")
        return _tensor(self.space.encode_states(states))

    def _sample_by_rejection(self, bound: float, n: int, generator: torch.Generator) -> Tensor:
        d = self.space.n_state_dims
        ceiling = _ceiling(bound, self.space)
        accepted = np.empty((0, d))
        while len(accepted) < n:
            expected_draws = (n - len(accepted)) * ceiling / self.normalizer
            draws = _array(uniform(16 + min(POOL_SIZE, int(1.2 * expected_draws)), d + 1, generator))
            states = self.space.snap_states(draws[:, :d])
            keep = draws[:, d] * ceiling < _unit_density(self.recipe, self.space, states)
            accepted = np.concatenate([accepted, states[keep]])
        return _tensor(accepted[:n])


class InfeasibleStatesWarning(UserWarning):
    """Some states have no feasible action."""


@dataclass(frozen=True, eq=False)
class FeasibleStates:
    """The states of another distribution that have a feasible action, represented by a pool of them."""

    base: StateDistribution
    space: Space
    pool: Array  # (m, d): all of finitely many states, or quasi-random ones
    probabilities: Array  # (m,)
    share: float  # probability of these states under the other distribution
    complete: bool
    has_quantile: ClassVar[bool] = False

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Independent states (n, d), by rejection."""
        import torch

        accepted = self.base.sample(0, generator)
        while len(accepted) < n:
            drawn = self.base.sample(16 + min(POOL_SIZE, int(1.2 * (n - len(accepted)) / self.share)), generator)
            accepted = torch.cat([accepted, drawn[torch.from_numpy(self._possible(_array(drawn)))]])
        return accepted[:n]

    def transform(self, u: Array) -> Array:
        """States (n, d) of the pool, taken in proportion to their probabilities."""
        return self.pool[_transport(u, self.pool, self.probabilities)]

    def from_uniform(self, u: Tensor) -> Tensor:
        """Do the same as `transform`, for tensors."""
        return _tensor(self.transform(_array(u)))

    def density(self, states: Tensor) -> Tensor:
        """The density (...) of states (..., d), zero where there is no feasible action."""
        points = _array(states)
        possible = self._possible(points.reshape(-1, points.shape[-1])).reshape(points.shape[:-1])
        return self.base.density(states) * _tensor(possible / self.share)

    def listed(self, max_states: int = MAX_STATES) -> tuple[Array, Array] | None:
        """All states of positive probability, or None if there are more than max_states."""
        return (self.pool, self.probabilities) if self.complete and len(self.pool) <= max_states else None

    def finite(self, max_states: int = MAX_STATES) -> tuple[Tensor, Tensor] | None:
        """Do the same as `listed`, as tensors."""
        return _tensors(self.listed(max_states))

    def _possible(self, states: Array) -> NDArray[np.bool_]:
        assert self.space.feasible_set is not None
        return self.space.feasible_set.has_action(self.space.snap_states(states))


def _with_actions(base: StateDistribution, space: Space) -> StateDistribution:
    """The states that have a feasible action, with one warning where some have none."""
    feasible = space.feasible_set
    if feasible is None or not space.states or not feasible.depends_on_state:
        return base
    listed = base.listed()
    if listed is None:
        pool = base.transform(sobol_points(POOL_SIZE, space.n_state_dims, seed=0))
        probabilities = np.full(POOL_SIZE, 1 / POOL_SIZE)
    else:
        pool, probabilities = listed
    possible = feasible.has_action(pool)
    if possible.all():
        return base
    missing = f"{(~possible).sum()} of {len(pool)} {'states' if listed is not None else 'quasi-random states'}"
    if not possible.any():
        raise SpaceError(f"some state must have a feasible action, but {missing} have none.")
    warnings.warn(
        f"{missing} have no feasible action and are left out of the integral over states.",
        InfeasibleStatesWarning,
        stacklevel=4,
    )
    share = float(probabilities[possible].sum())
    return FeasibleStates(base, space, pool[possible], probabilities[possible] / share, share, listed is not None)


# Any density


def _bind_density(recipe: Density, space: Space) -> StateDistribution:
    listed = _bind(Uniform(), space).listed()
    if listed is not None:
        # the integral over a bin is the function's value: volume and volume ratio cancel
        pool = listed[0]
        masses = _values(recipe, space, pool)
        normalizer = float(masses.sum())
    else:
        pool = space.snap_states(sobol_points(POOL_SIZE, space.n_state_dims, seed=0))
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


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().double().numpy()


def _tensor(array: Array) -> Tensor:
    import torch

    return torch.as_tensor(array)  # of a single state it may be a scalar, which from_numpy refuses


def _tensors(listed: tuple[Array, Array] | None) -> tuple[Tensor, Tensor] | None:
    return None if listed is None else (_tensor(listed[0]), _tensor(listed[1]))


def _inside(points: Array) -> Array:
    """One for the points (..., d) in the unit cube, zero for the others."""
    return np.asarray(((points >= 0) & (points <= 1)).all(axis=-1), dtype=np.float64)


def _grid(columns: Sequence[Array]) -> Array:
    """All combinations of the entries of the columns, as rows."""
    if not columns:
        return np.empty((1, 0))
    return np.stack([axis.ravel() for axis in np.meshgrid(*columns, indexing="ij")], axis=1)
