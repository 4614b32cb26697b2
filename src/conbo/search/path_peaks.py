"""Finds, for functions drawn from the posterior, the best action in every state, by one batch of local searches."""

import torch
from torch import Tensor

from conbo.ascent import ascend
from conbo.belief import Belief
from conbo.models.posterior import Paths
from conbo.models.snapping import masked


def path_peaks(belief: Belief, paths: Paths, pool: Tensor, states: Tensor, climb: int) -> Tensor:
    """Return the best actions (c, p, d_x) of p functions drawn from the posterior, in each of c states (c, d_s).

    Each best action is found by a local search of at most `climb` steps, which starts from the best action of the pool
    (n, d_x) for the same function and state. With `climb=0`, that action itself is returned.
    """
    c, n = len(states), len(pool)
    grid = torch.cat([states.repeat_interleave(n, 0), pool.repeat(c, 1)], -1)
    scores = masked(belief.space, states, pool, paths(grid).unflatten(0, (c, n)).mT.movedim(1, 0)).movedim(0, 1)
    starts = pool[scores.argmax(-1)]  # (c, p, d_x)
    p = starts.shape[1]
    repeated = states.repeat_interleave(p, 0)
    if not climb:
        return belief.snap_actions(starts.flatten(0, 1), repeated).reshape(c, p, -1)
    draws = torch.arange(p, device=states.device).repeat(c)

    def function(actions: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = paths.along(torch.cat([repeated[rows], actions], -1), draws[rows])
        return value, gradient[:, belief.n_state_dims :]

    flat = starts.flatten(0, 1)
    lower, upper = torch.zeros_like(flat[0]), torch.ones_like(flat[0])
    found = ascend(function, flat, lower, upper, climb, limits=belief.action_limits(repeated)).points
    return belief.snap_actions(found, repeated).reshape(c, p, -1)
