"""Search for the actions with the highest posterior mean in many states, by quasi-Newton ascent from given starts."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from conbo.ascent import ascend, holding
from conbo.models.exact_search import level_columns, polish_integers
from conbo.models.feasible_ends import feasible_ends
from conbo.models.posterior import BestActions
from conbo.models.snapping import action_limits, snap_actions
from conbo.spaces import Space

CHUNK = 2048  # number of states that are searched at once
STEPS = 12  # largest number of steps of a quasi-Newton search
TOLERANCE = 1e-7  # expected gain of a step (standardized reward) below which the search stops


class HasMean(Protocol):
    """The methods of a posterior that the search for best actions needs: the mean, and the mean with its gradient."""

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean (n,) of the noise-free reward at points (n, d)."""

    def mean_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (n,) at points (n, d), and its gradient (n, d) with respect to them."""


def best_by_mean(
    posterior: HasMean,
    space: Space,
    states: Tensor,
    hints: Callable[[Tensor], Tensor],
    starts: int,
    steps: int = STEPS,
) -> BestActions:
    """Search for the actions with the highest posterior mean in states (m, d_s).

    `hints` is a function from states (m, d_s) to promising actions (m, h, d_x), h for each state. In each state, local
    searches begin at those hints that have the highest means. `starts` is the largest number of searches per state, and
    `steps` the largest number of steps of each search.
    """
    chunks = states.split(CHUNK)
    return BestActions.joined([_best(posterior, space, chunk, hints(chunk), starts, steps) for chunk in chunks])


def _best(posterior: HasMean, space: Space, states: Tensor, hints: Tensor, starts: int, steps: int) -> BestActions:
    def mean_at(actions: Tensor) -> Tensor:
        points = torch.cat([states[:, None].expand(*actions.shape[:2], -1), actions], -1)
        return posterior.mean(points.flatten(0, 1)).unflatten(0, actions.shape[:2])

    m, d_x = len(states), hints.shape[-1]
    k = min(starts, hints.shape[1])
    chosen = mean_at(hints).topk(k, -1).indices  # (m, k)
    first = hints.gather(1, chosen[..., None].expand(-1, -1, d_x)).flatten(0, 1)
    rows = states.repeat_interleave(k, 0)

    def function(actions: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        mean, gradient = posterior.mean_and_gradient(torch.cat([rows[which], actions], -1))
        return mean, gradient[:, -d_x:]

    lower, upper = first.new_zeros(d_x), first.new_ones(d_x)
    limits = action_limits(space, rows)
    ends = ascend(function, first, lower, upper, steps, tolerance=TOLERANCE, limits=limits).points
    if space.feasible_set is not None:
        ends = feasible_ends(space, rows, first, ends, posterior.mean)
    if space.has_integer_actions:
        levels = level_columns(space)
        held, limits = holding(function, levels), action_limits(space, rows, levels)

        def climb(actions: Tensor) -> Tensor:
            ends = ascend(held, actions.flatten(0, 1), lower, upper, steps, tolerance=TOLERANCE, limits=limits).points
            if space.feasible_set is not None:
                ends = feasible_ends(space, rows, actions.flatten(0, 1), ends, posterior.mean)
            return ends.unflatten(0, (m, k))

        own = None if space.feasible_set is None else states
        return BestActions.of_climbs(*polish_integers(space, mean_at, climb, ends.unflatten(0, (m, k)), own))
    ends = snap_actions(space, ends, rows).unflatten(0, (m, k))
    return BestActions.of_climbs(ends, mean_at(ends))
