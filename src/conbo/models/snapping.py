"""Valid and feasible points near given ones, and violations of constraints, for tensors on any device."""

import numpy as np
import torch
from torch import Tensor

from conbo.linear_limits import RowLimits
from conbo.spaces import Space

FAR_BELOW = 1e6  # infeasible actions are put this far below all others, in standardized rewards


def snap(space: Space, points: Tensor) -> Tensor:
    """Return the nearest valid points (..., d), with feasible actions if their states have any.

    In a valid point, integer parameters have whole values.
    """
    return torch.from_numpy(space.project(points.cpu().numpy())).to(points)


def snap_actions(space: Space, actions: Tensor, states: Tensor | None = None) -> Tensor:
    """Return the nearest valid actions (..., d_x); given states (..., d_s), the nearest feasible ones in these.

    In a valid action, integer parameters have whole values.
    """
    if states is None or space.feasible_set is None:
        return torch.from_numpy(space.snap_actions(actions.cpu().numpy())).to(actions)
    points = torch.cat([states.expand(*actions.shape[:-1], -1), actions], -1)
    return snap(space, points)[..., states.shape[-1] :]


def contains(space: Space, points: Tensor) -> Tensor:
    """Return which points (..., d) are feasible."""
    return torch.from_numpy(space.contains(points.cpu().numpy())).to(points.device)


def spread(space: Space, points: Tensor) -> Tensor:
    """Move the actions of points (n, d) into the feasible sets of their states, so that they stay evenly spread."""
    if space.feasible_set is None:
        return snap(space, points)
    return torch.from_numpy(space.feasible_set.spread(points.cpu().numpy())[0]).to(points)


def action_limits(space: Space, states: Tensor) -> RowLimits | None:
    """Return the linear constraints on actions in states (r, d_s), for r local searches; None if there are none."""
    if space.feasible_set is None or space.feasible_set.limits is None:
        return None
    return RowLimits(space.feasible_set.limits, states.cpu().numpy())


def masked(space: Space, states: Tensor, actions: Tensor, scores: Tensor) -> Tensor:
    """Return scores (..., m, p) of actions (p, d_x) in states (..., m, d_s), with infeasible actions below all others.

    The less an infeasible action violates the constraints, the higher its score, because a projection moves it less.
    """
    violation = violations(space, states, actions)
    if violation is None:
        return scores
    return torch.where(violation > 0, -FAR_BELOW * (1 + violation), scores)


def without_infeasible(
    space: Space, states: Tensor, actions: Tensor, mean: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the lines mean + slope z (..., m, p), with those of infeasible actions far below all others.

    The lines belong to actions (p, d_x) in states (..., m, d_s).
    """
    violation = violations(space, states, actions)
    if violation is None:
        return mean, slope
    return torch.where(violation > 0, mean - FAR_BELOW, mean), torch.where(violation > 0, 0.0, slope)


def feasible_pairs(space: Space, states: Tensor, actions: Tensor) -> Tensor | None:
    """Return which actions (p, d_x) satisfy the linear constraints in states (..., d_s): (..., p); None if all do."""
    violation = violations(space, states, actions)
    return None if violation is None else violation == 0


def violations(space: Space, states: Tensor, actions: Tensor) -> Tensor | None:
    """Return by how much actions (p, d_x) violate the linear constraints in states (..., d_s): (..., p).

    None if no action violates any. If the constraints do not depend on the state, the result has one row for all
    states.
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
