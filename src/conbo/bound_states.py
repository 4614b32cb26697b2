"""The distribution P[s] of states in the unit cube, built from the user's setting `state_distribution` and the space.

Computations use NumPy, and tensors are created only on request, so that a study can be created, read and asked for its
initial design before torch is imported.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from conbo.density_states import MAX_STATES, POOL_SIZE, bind_density
from conbo.errors import SpaceError
from conbo.quasi_random import sobol_points, uniform
from conbo.spaces import Array, Space, closest
from conbo.state_arrays import array, grid, inside, tensor, tensors, transport
from conbo.state_distributions import Density, Normal, Product, RecipeLike, Triangular, Uniform, Weights
from conbo.state_marginals import Marginal, marginal

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class StateDistribution(Protocol):
    """The distribution P[s] of states in the unit cube.

    Each integer or category occupies an interval of its column's range [0, 1], and is encoded as one number in this
    interval.
    """

    @property
    def has_quantile(self) -> bool:
        """Whether `transform` applies the exact quantile function of each column."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n independent states (n, d_s) from P[s]."""

    def transform(self, u: Array) -> Array:
        """Map uniform points u (n, d_s) of the unit cube to states (n, d_s) that follow P[s]."""

    def from_uniform(self, u: Tensor) -> Tensor:
        """Do the same as `transform` for tensors: map uniform points u (n, d_s) to states (n, d_s)."""

    def density(self, states: Tensor) -> Tensor:
        """Return the density (...) of P[s] at states (..., d_s).

        The probability of an integer or a category is spread evenly over its interval of the unit cube.
        """

    def listed(self, max_states: int = MAX_STATES) -> tuple[Array, Array] | None:
        """Return all states (m, d_s) of positive probability with their probabilities (m,).

        The result is None if there are more than `max_states` states.
        """

    def finite(self, max_states: int = MAX_STATES) -> tuple[Tensor, Tensor] | None:
        """Return the same as `listed`, as tensors: states (m, d_s) and probabilities (m,), or None."""


def bind(recipe: RecipeLike, space: Space) -> StateDistribution:
    """Build P[s] for a space from the user's `state_distribution`, restricted to states that have a feasible action.

    As `recipe`, None stands for uniform states, a mapping for `Product`, and a function for `Density`. A
    one-dimensional distribution, such as `Normal`, is used for every state parameter.
    """
    return _with_actions(_bind(recipe, space), space)


def _bind(recipe: RecipeLike, space: Space) -> StateDistribution:
    """Build P[s] from the user's `state_distribution`, including states that have no feasible action."""
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
        return bind_density(recipe, space, _bind(Uniform(), space).listed())
    if callable(recipe):
        return bind_density(Density(recipe), space, _bind(Uniform(), space).listed())
    raise SpaceError(f"a state distribution must be a recipe, a mapping or a function, but got {recipe!r}.")


@dataclass(frozen=True)
class IndependentStates:
    """The distribution P[s] of independent state parameters: a product of one-dimensional distributions."""

    marginals: tuple[Marginal, ...]
    has_quantile: ClassVar[bool] = True

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n independent states (n, d_s) from P[s]."""
        return self.from_uniform(uniform(n, len(self.marginals), generator))

    def transform(self, u: Array) -> Array:
        """Map uniform points u (n, d_s) to states (n, d_s) that follow P[s], by each column's quantile function."""
        states = np.empty(u.shape)
        for column, one in enumerate(self.marginals):
            states[..., column] = one.quantile(u[..., column])
        return states

    def from_uniform(self, u: Tensor) -> Tensor:
        """Do the same as `transform` for tensors: map uniform points u (n, d_s) to states (n, d_s)."""
        return tensor(self.transform(array(u)))

    def density(self, states: Tensor) -> Tensor:
        """Return the density (...) of P[s] at states (..., d_s)."""
        points = array(states)
        density = inside(points)
        for column, one in enumerate(self.marginals):
            density = density * one.density(points[..., column])
        return tensor(density)

    def listed(self, max_states: int = MAX_STATES) -> tuple[Array, Array] | None:
        """Return all states (m, d_s) of positive probability with their probabilities (m,).

        The result is None if there are more than `max_states` states, counting those whose probability rounds to zero.
        """
        sizes = [marginal.n_atoms for marginal in self.marginals]
        if math.prod(sizes) > max_states:
            return None
        atoms = [marginal.atoms() for marginal in self.marginals]
        states = grid([levels for levels, _ in atoms])
        probabilities = grid([probabilities for _, probabilities in atoms]).prod(axis=1)
        positive = probabilities > 0  # the probability of a tail may round to zero
        return states[positive], probabilities[positive]

    def finite(self, max_states: int = MAX_STATES) -> tuple[Tensor, Tensor] | None:
        """Return the same as `listed`, as tensors: states (m, d_s) and probabilities (m,), or None."""
        return tensors(self.listed(max_states))


class InfeasibleStatesWarning(UserWarning):
    """Warns that some states have no feasible action."""


@dataclass(frozen=True, eq=False)
class FeasibleStates:
    """The distribution P[s] restricted to states that have a feasible action, represented by a pool of such states."""

    base: StateDistribution  # without the restriction
    space: Space
    pool: Array  # (m, d), all such states if there are finitely many, otherwise quasi-random ones
    probabilities: Array  # (m,), probabilities of the states in the pool
    share: float  # probability of a state with a feasible action under `base`
    complete: bool  # whether all states are in the pool
    has_quantile: ClassVar[bool] = False

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n independent states (n, d_s) that have a feasible action, by rejection sampling."""
        import torch

        accepted = self.base.sample(0, generator)
        while len(accepted) < n:
            drawn = self.base.sample(16 + min(POOL_SIZE, int(1.2 * (n - len(accepted)) / self.share)), generator)
            accepted = torch.cat([accepted, drawn[torch.from_numpy(self._possible(array(drawn)))]])
        return accepted[:n]

    def transform(self, u: Array) -> Array:
        """Map uniform points u (n, d_s) of the unit cube to states (n, d_s) of the pool that represents P[s].

        States are chosen in proportion to their probabilities.
        """
        return self.pool[transport(u, self.pool, self.probabilities)]

    def from_uniform(self, u: Tensor) -> Tensor:
        """Do the same as `transform` for tensors: map uniform points u (n, d_s) to states (n, d_s)."""
        return tensor(self.transform(array(u)))

    def density(self, states: Tensor) -> Tensor:
        """Return the density (...) of P[s] at states (..., d_s); it is zero at states without a feasible action."""
        points = array(states)
        possible = self._possible(points.reshape(-1, points.shape[-1])).reshape(points.shape[:-1])
        return self.base.density(states) * tensor(possible / self.share)

    def listed(self, max_states: int = MAX_STATES) -> tuple[Array, Array] | None:
        """Return all states (m, d_s) of positive probability with their probabilities (m,).

        The result is None if there are more than `max_states` states.
        """
        return (self.pool, self.probabilities) if self.complete and len(self.pool) <= max_states else None

    def finite(self, max_states: int = MAX_STATES) -> tuple[Tensor, Tensor] | None:
        """Return the same as `listed`, as tensors: states (m, d_s) and probabilities (m,), or None."""
        return tensors(self.listed(max_states))

    def _possible(self, states: Array) -> NDArray[np.bool_]:
        assert self.space.feasible_set is not None
        return self.space.feasible_set.has_action(self.space.snap_states(states))


def _with_actions(base: StateDistribution, space: Space) -> StateDistribution:
    """Restrict a distribution of states to those that have a feasible action.

    Warns if some states have none, and raises SpaceError if no state has one. If there are infinitely many states, a
    quasi-random sample of them is checked.
    """
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
