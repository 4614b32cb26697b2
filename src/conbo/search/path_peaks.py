"""Where functions drawn from the posterior are highest, state by state: one batch of climbs."""

import torch
from torch import Tensor

from conbo.ascent import ascend
from conbo.belief import Belief
from conbo.models.posterior import Paths


def path_peaks(belief: Belief, paths: Paths, pool: Tensor, states: Tensor, climb: int) -> Tensor:
    """Where each of p drawn functions is highest in each of states (c, d_s): actions (c, p, d_x)."""
    c, n = len(states), len(pool)
    grid = torch.cat([states.repeat_interleave(n, 0), pool.repeat(c, 1)], -1)
    starts = pool[paths(grid).unflatten(0, (c, n)).argmax(1)]  # (c, p, d_x)
    if not climb:
        return starts
    p = starts.shape[1]
    repeated = states.repeat_interleave(p, 0)
    draws = torch.arange(p, device=states.device).repeat(c)

    def function(actions: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = paths.along(torch.cat([repeated[rows], actions], -1), draws[rows])
        return value, gradient[:, belief.n_state_dims :]

    flat = starts.flatten(0, 1)
    found = ascend(function, flat, torch.zeros_like(flat[0]), torch.ones_like(flat[0]), climb).points
    return belief.snap_actions(found).reshape(c, p, -1)
