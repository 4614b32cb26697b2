"""The nearest points that a space allows, for tensors on any device."""

import numpy as np
import torch
from torch import Tensor

from conbo.linear_limits import RowLimits
from conbo.spaces import Space

FAR_BELOW = 1e6  # standardized rewards by which infeasible actions are put below all others


def snap(space: Space, points: Tensor) -> Tensor:
    """The nearest points (..., d) that the space allows, with feasible actions if their states have any."""
    return torch.from_numpy(space.project(points.cpu().numpy())).to(points)


def snap_actions(space: Space, actions: Tensor, states: Tensor | None = None) -> Tensor:
    """The nearest actions (..., d_x) that the space allows; feasible ones in the states (..., d_s), if given."""
    if states is None or space.feasible_set is None:
        return torch.from_numpy(space.snap_actions(actions.cpu().numpy())).to(actions)
    points = torch.cat([states.expand(*actions.shape[:-1], -1), actions], -1)
    return snap(space, points)[..., states.shape[-1] :]


def contains(space: Space, points: Tensor) -> Tensor:
    """Which points (..., d) are feasible."""
    return torch.from_numpy(space.contains(points.cpu().numpy())).to(points.device)


def spread(space: Space, points: Tensor) -> Tensor:
    """Points (n, d) with their actions moved into the feasible set of each state, as evenly spread as before."""
    if space.feasible_set is None:
        return snap(space, points)
    return torch.from_numpy(space.feasible_set.spread(points.cpu().numpy())[0]).to(points)


def action_limits(space: Space, states: Tensor) -> RowLimits | None:
    """The linear limits for r local searches over actions, one in each state (r, d_s); None if there are none."""
    if space.feasible_set is None or space.feasible_set.limits is None:
        return None
    return RowLimits(space.feasible_set.limits, states.cpu().numpy())


def masked(space: Space, states: Tensor, actions: Tensor, scores: Tensor) -> Tensor:
    """Scores (..., m, p) of actions (p, d_x) in states (..., m, d_s), with infeasible actions below all others.

    The less an infeasible action violates the limits, the higher its score, because a projection moves it less.
    """
    violation = violations(space, states, actions)
    if violation is None:
        return scores
    return torch.where(violation > 0, -FAR_BELOW * (1 + violation), scores)


def without_infeasible(
    space: Space, states: Tensor, actions: Tensor, mean: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor]:
    """Lines (..., m, p) of actions (p, d_x) in states (..., m, d_s); infeasible actions get lines below all others."""
    violation = violations(space, states, actions)
    if violation is None:
        return mean, slope
    return torch.where(violation > 0, mean - FAR_BELOW, mean), torch.where(violation > 0, 0.0, slope)


def feasible_pairs(space: Space, states: Tensor, actions: Tensor) -> Tensor | None:
    """Which actions (p, d_x) satisfy the linear limits in states (..., d_s): (..., p); None if all do."""
    violation = violations(space, states, actions)
    return None if violation is None else violation == 0


def violations(space: Space, states: Tensor, actions: Tensor) -> Tensor | None:
    """By how much actions (p, d_x) violate the linear limits in states (..., d_s): (..., p).

    None if there are no linear limits.  If the limits do not depend on the state, all states share one row.
    """
    if space.feasible_set is None or space.feasible_set.limits is None:
        return None
    limits, d_s = space.feasible_set.limits, states.shape[-1]
    if not limits.coefficients[:, :d_s].any():
        states = states.flatten(0, -2)[:1].expand(*[1] * (states.dim() - 1), -1)
    left = limits.bounds + limits.rounding - limits.used(states.cpu().numpy())  # (..., J)
    used = limits.used(actions.cpu().numpy(), d_s)  # (p, J)
    over = np.zeros((*left.shape[:-1], len(used)))
    for limit in range(len(limits.bounds)):
        np.maximum(over, used[:, limit] - left[..., limit, None], out=over)
    return torch.from_numpy(over).to(actions) if over.any() else None
