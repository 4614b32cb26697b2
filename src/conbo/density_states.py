"""The distribution P[s] given by the user's density function, and represented by a weighted pool of states."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from conbo.errors import SpaceError
from conbo.quasi_random import sobol_points, uniform
from conbo.spaces import Array, Point, Real, Space, Value
from conbo.state_arrays import array, inside, tensor, tensors, transport
from conbo.state_distributions import Density

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MAX_STATES = 100_000  # number of states above which states are sampled instead of listed
POOL_SIZE = 2**13  # number of quasi-random states that represent a density
FEWEST_EFFECTIVE_STATES = 32  # effective number of states in the pool below which a warning is given
LEAST_ACCEPTANCE = 1e-3  # least acceptance rate of rejection sampling


@dataclass(frozen=True, eq=False)
class WeightedStates:
    """The distribution P[s] given by the user's density function, and represented by a pool of weighted states.

    The pool holds all states with a positive density, or many quasi-random ones if there are too many to list.
    """

    recipe: Density  # the user's density
    space: Space
    pool: Array  # (m, d), states in the unit cube
    probabilities: Array  # (m,), probabilities of the states in the pool
    normalizer: float  # integral of the user's density, which need not be one
    complete: bool  # whether all states are in the pool
    has_quantile: ClassVar[bool] = False

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n independent states (n, d_s) from P[s].

        The first of these ways that is possible is used:

        1. the user's own sampler;
        2. the pool of weighted states, if it holds all states;
        3. rejection sampling, if the user gave an upper bound on the density;
        4. the pool, which then represents P[s] only approximately.
        """
        if self.recipe.sampler is not None:
            return self._sample_by_user(self.recipe.sampler, n, generator)
        if self.recipe.bound is not None and not self.complete:
            return self._sample_by_rejection(self.recipe.bound, n, generator)
        return self.from_uniform(uniform(n, self.space.n_state_dims, generator))

    def transform(self, u: Array) -> Array:
        """Map uniform points u (n, d_s) of the unit cube to states (n, d_s) of the pool that represents P[s].

        States are chosen in proportion to their probabilities.
        """
        return self.pool[transport(u, self.pool, self.probabilities)]

    def from_uniform(self, u: Tensor) -> Tensor:
        """Do the same as `transform` for tensors: map uniform points u (n, d_s) to states (n, d_s)."""
        return tensor(self.transform(array(u)))

    def density(self, states: Tensor) -> Tensor:
        """Return the normalized density (...) of P[s] at states (..., d_s)."""
        points = array(states)
        rows = points.reshape(math.prod(points.shape[:-1]), self.space.n_state_dims)
        density = _unit_density(self.recipe, self.space, rows) / self.normalizer
        return tensor(density.reshape(points.shape[:-1]) * inside(points))

    def listed(self, max_states: int = MAX_STATES) -> tuple[Array, Array] | None:
        """Return all states (m, d_s) of positive probability with their probabilities (m,).

        The result is None if there are more than `max_states` states.
        """
        if not self.complete or len(self.pool) > max_states:
            return None
        return self.pool, self.probabilities

    def finite(self, max_states: int = MAX_STATES) -> tuple[Tensor, Tensor] | None:
        """Return the same as `listed`, as tensors: states (m, d_s) and probabilities (m,), or None."""
        return tensors(self.listed(max_states))

    def _sample_by_user(
        self,
        sampler: Callable[[np.random.Generator, int], Sequence[Point]],
        n: int,
        generator: torch.Generator,
    ) -> Tensor:
        import torch

        seed = int(torch.randint(2**63 - 1, (), generator=generator, device=generator.device))
        rule = f"`sampler` must return {n} states when asked for {n}"
        try:
            drawn = list(sampler(np.random.default_rng(seed), n))
        except Exception as error:
            raise SpaceError(f"{rule}, but raised {type(error).__name__}: {error}.") from error
        if len(drawn) != n:
            raise SpaceError(f"{rule}, but got {len(drawn)}.")
        return tensor(self.space.encode_states([self.space.validate_state(state) for state in drawn]))

    def _sample_by_rejection(self, bound: float, n: int, generator: torch.Generator) -> Tensor:
        d = self.space.n_state_dims
        ceiling = _ceiling(bound, self.space)
        accepted = np.empty((0, d))
        while len(accepted) < n:
            expected_draws = (n - len(accepted)) * ceiling / self.normalizer
            draws = array(uniform(16 + min(POOL_SIZE, int(1.2 * expected_draws)), d + 1, generator))
            states = self.space.snap_states(draws[:, :d])
            keep = draws[:, d] * ceiling < _unit_density(self.recipe, self.space, states)
            accepted = np.concatenate([accepted, states[keep]])
        return tensor(accepted[:n])


def bind_density(recipe: Density, space: Space, listed: tuple[Array, Array] | None) -> WeightedStates:
    """Build the distribution P[s] from the user's density function.

    `listed` holds all states, with their probabilities under a uniform distribution; it is None if there are too many
    states to list.
    """
    if listed is not None:
        # the probability of a state is the function's value: the volume of its interval and the volume ratio cancel
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
    """Return the values (n,) of the user's density function at states (n, d_s).

    Raises SpaceError if the function fails, or if a value is negative, not finite, or above the user's bound.
    """
    values = np.empty(len(rows))
    for i, state in enumerate(space.decode_states(rows)):
        value = _density_value(_called(recipe, state), state)
        if recipe.bound is not None and value > recipe.bound:
            rule = "`function(state) <= bound` must hold"
            raise SpaceError(f"{rule}, but got {value} > {recipe.bound} at {state!r}.")
        values[i] = value
    return values


def _called(recipe: Density, state: dict[str, Value]) -> object:
    try:
        return recipe.function(state)
    except Exception as error:
        rule = "a density must have a value for every state"
        raise SpaceError(f"{rule}, but raised {type(error).__name__}: {error} at {state!r}.") from error


def _density_value(value: object, state: Point) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # numbers and booleans of any library will do
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise SpaceError(f"a density must be finite and not negative, but got {value!r} at {state!r}.")
    return number


def _unit_density(recipe: Density, space: Space, rows: Array) -> Array:
    """Return the user's density at states (n, d_s), converted to an unnormalized density (n,) on the unit cube."""
    return _values(recipe, space, rows) * _volume_ratio(space, rows)


def _volume_ratio(space: Space, rows: Array) -> Array:
    """Return the volume (n,) in the user's units per volume of the unit cube, at states (n, d_s).

    It is a product over parameters.  The factor of a real parameter is the derivative of its value with respect to its
    column of the unit cube.  The factor of an integer or a category is one over the width of its interval in the cube.
    """
    ratio = np.ones(len(rows))
    for column, parameter in enumerate(space.states.values()):
        if isinstance(parameter, Real):
            ratio *= parameter.scale.slope(rows[:, column])
        else:
            lower, upper = parameter.cell(rows[:, column])
            ratio /= upper - lower
    return ratio


def _ceiling(bound: float, space: Space) -> float:
    """Return an upper bound on the result of `_unit_density`, given an upper bound on the user's density function."""
    # with log scales, the volume ratio is largest at the upper ends of the parameters
    return bound * float(_volume_ratio(space, np.ones((1, space.n_state_dims)))[0])
