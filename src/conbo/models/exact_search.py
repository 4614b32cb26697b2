"""Search for the action with the highest posterior mean in each of many states, from many initial actions at once.

The pool of actions is scored in all states by one matrix product.  In every state, a Newton ascent starts from each of
the few best pool actions that are not similar to each other.  The ascents in all states are computed as one batch.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from conbo.models.action_functions import state_functions
from conbo.models.conditioned import Conditioned
from conbo.models.distinct_best import distinct_best
from conbo.models.feature_limits import FeatureShapes, feature_limits
from conbo.models.posterior import BestActions
from conbo.models.snapping import contains, masked, snap_actions
from conbo.spaces import Integer, Space

CHUNK = 2048  # number of states that are searched at once


class ActionPool:
    """A pool of p actions from which searches for the best actions of states start."""

    def __init__(self, posterior: Conditioned, space: Space, actions: Tensor) -> None:
        self.posterior, self.space, self.actions = posterior, space, actions
        factor = posterior.kernel.actions
        self.features = factor.scaled(actions)  # (p, width), scaled inputs
        self.correlation = factor.correlation(posterior.actions, self.features)  # (n, p), κ with the observed actions

    @cached_property
    def similarity(self) -> Tensor:
        """Correlations (p, p) between the actions of the pool."""
        return self.posterior.kernel.actions.correlation(self.features, self.features)

    @cached_property
    def limit_shapes(self) -> FeatureShapes | None:
        """The constraints on actions as functions of the kernel's scaled inputs; None if there are no constraints."""
        return None if self.space.feasible_set is None else FeatureShapes(self.space, self.posterior.kernel.actions)

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        """Search for the actions with the highest posterior mean in states (m, d_s).

        In each state, local searches begin at promising actions of the pool. `starts` is the largest number of these
        searches, and `steps` the largest number of steps of each.
        """
        return BestActions.joined([self._best(chunk, starts, steps) for chunk in states.split(CHUNK)])

    def _best(self, states: Tensor, starts: int, steps: int) -> BestActions:
        limits = feature_limits(self.limit_shapes, states)
        functions = replace(state_functions(self.posterior, states), limits=limits)
        scores = functions.mean_constant[:, None] + functions.mean_weights @ self.correlation
        scores = masked(self.space, states, self.actions, scores)
        chosen = distinct_best(scores, self.similarity, starts)  # (m, k)
        maxima = functions.maximize(self.features[chosen], states.new_zeros(1), steps)
        actions, mean = self.posterior.kernel.actions.unscaled(maxima.actions), maxima.mean
        if self.space.has_integer_actions:
            factor, own = functions.factor, None if limits is None else states
            rounded = functions.holding(level_columns(self.space))

            def climb(x: Tensor) -> Tensor:
                return factor.unscaled(rounded.maximize(factor.scaled(x), states.new_zeros(1), steps).actions)

            def mean_at(x: Tensor) -> Tensor:
                return functions.at(factor.scaled(x))[0]

            actions, mean = polish_integers(self.space, mean_at, climb, actions, own)
        return BestActions.of_climbs(actions, mean)


class BestActionsOnce:
    """A cache of `ActionPool.best`, which searches for the best actions of each state only once."""

    def __init__(self, pool: ActionPool, starts: int) -> None:
        self._pool, self._starts = pool, starts
        self._rows: dict[tuple[float, ...], int] = {}  # index of each known state in the cached record
        self._known: list[BestActions] = []  # at most one record, of all known states

    def __call__(self, states: Tensor) -> BestActions:
        """Return the best actions of states (m, d_s); search only in states that are not in the cache."""
        keys = [tuple(state) for state in states.tolist()]
        new = {key: row for row, key in enumerate(keys) if key not in self._rows}
        if new or not self._known:
            found = self._pool.best(states[list(new.values())], self._starts)
            self._rows |= zip(new, range(len(self._rows), len(self._rows) + len(new)), strict=True)
            self._known = [BestActions.joined([*self._known, found])]
        return self._known[0].select(torch.tensor([self._rows[key] for key in keys], device=states.device))


def level_columns(space: Space) -> tuple[int, ...]:
    """Return the indices of the action columns with finitely many values: integers and categories."""
    return tuple(column for column, one in enumerate(space.actions.values()) if one.n_levels is not None)


def polish_integers(
    space: Space,
    mean_at: Callable[[Tensor], Tensor],
    climb: Callable[[Tensor], Tensor],
    actions: Tensor,
    states: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Round the integers of k actions in each of m states, then move each up or down by one if that raises the mean.

    `mean_at` returns the posterior means (m, k) of `actions` (m, k, d_x). After every change of an integer, `climb`
    moves the real parameters to higher means, because their best values depend on the integers. If `states` (m, d_s)
    are given, actions stay feasible in their states. Returns the actions and their means.
    """
    rows, levels = None if states is None else states[:, None], list(level_columns(space))

    def better_of(first: tuple[Tensor, Tensor], second: Tensor) -> tuple[Tensor, Tensor]:
        there = mean_at(second)
        better = there > first[1]
        if rows is not None:
            better &= contains(space, torch.cat([rows.expand(*second.shape[:-1], -1), second], -1))
        return torch.where(better[..., None], second, first[0]), torch.where(better, there, first[1])

    def or_climbed(known: tuple[Tensor, Tensor], rounded: Tensor) -> tuple[Tensor, Tensor]:
        if len(levels) == len(space.actions):
            return known
        climbed = climb(rounded)
        climbed[..., levels] = rounded[..., levels]  # a projection onto constraints may have moved them
        return better_of(known, snap_actions(space, climbed, rows))

    rounded = snap_actions(space, actions, rows)
    best = or_climbed((rounded, mean_at(rounded)), rounded)
    for column, parameter in enumerate(space.actions.values()):
        if isinstance(parameter, Integer):
            for direction in (-1, 1):
                moved = best[0].clone()
                moved[..., column] = _neighbor(parameter, moved[..., column], direction)
                best = or_climbed(better_of(best, moved), moved)
    return best


def _neighbor(parameter: Integer, values: Tensor, direction: int) -> Tensor:
    """Return the next integers above (direction 1) or below (-1) `values`, but none outside the parameter's range.

    `values` and the result are encoded in the unit interval.
    """
    here = np.floor(parameter.scale.from_unit(values.cpu().numpy()) + 0.5)
    there = np.clip(here + direction, parameter.low, parameter.high)
    return torch.from_numpy(parameter.encode(there)).to(values)
