"""Keeps the ends of local searches for actions where a user's function allows them."""

from collections.abc import Callable

import torch
from torch import Tensor

from conbo.spaces import Space


def feasible_ends(
    space: Space, states: Tensor, starts: Tensor, ends: Tensor, value: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the actions (r, d_x) at which r local searches end if they stop where a user's function limits actions.

    The searches, in states (r, d_s), began at feasible actions `starts` (r, d_x), but did not know the function when
    they climbed to `ends` (r, d_x). An infeasible end is moved straight towards its start until it is feasible. If this
    leaves a lower `value` than the start has, the result is the start. `value` maps points (n, d) to what the searches
    maximize (n,). Without such a function, the ends stay as they are.
    """
    if space.feasible_set is None or space.feasible_set.allowed is None:
        return ends
    first, last = (torch.cat([states, actions], -1) for actions in (starts, ends))
    found = torch.from_numpy(space.feasible_set.cut(*(points.numpy(force=True) for points in (first, last)))).to(ends)
    return torch.where((value(found) >= value(first))[:, None], found[:, -ends.shape[-1] :], starts)
