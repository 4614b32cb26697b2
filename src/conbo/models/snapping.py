"""Moves points to valid and feasible ones nearby, and measures violations of constraints, for tensors on any device."""

import numpy as np
import torch
from torch import Tensor

from conbo.linear_limits import RowLimits
from conbo.spaces import Space

FAR_BELOW = 1e6  # infeasible actions are put this far below all others, in standardized rewards


def snap(space: Space, points: Tensor) -> Tensor:
    """Return valid points (..., d) near the given ones, with feasible actions wherever any are found.

    In a valid point, the column of an integer or a category holds the exact encoding of one of its values.
    """
    return torch.from_numpy(space.project(points.cpu().numpy())).to(points)


def snap_actions(space: Space, actions: Tensor, states: Tensor | None = None) -> Tensor:
    """Return valid actions (..., d_x) near the given ones.

    In a valid action, the column of an integer or a category holds the exact encoding of one of its values. If states
    (..., d_s) are given, the results are also feasible in these states, wherever feasible actions are found.
    """
    if states is None or space.feasible_set is None:
        return torch.from_numpy(space.snap_actions(actions.cpu().numpy())).to(actions)
    points = torch.cat([states.expand(*actions.shape[:-1], -1), actions], -1)
    return snap(space, points)[..., states.shape[-1] :]


def contains(space: Space, points: Tensor) -> Tensor:
    """Return flags (...) that say which points (..., d) satisfy all constraints."""
    return torch.from_numpy(space.contains(points.cpu().numpy())).to(points.device)


def spread(space: Space, points: Tensor) -> Tensor:
    """Round integers and categories of points (n, d), and replace infeasible actions by pseudo-random feasible ones.

    An action stays infeasible if no feasible one is found for its state. Actions that were evenly spread over the unit
    cube become roughly evenly spread over the feasible actions.
    """
    if space.feasible_set is None:
        return snap(space, points)
    return torch.from_numpy(space.feasible_set.spread(points.cpu().numpy())[0]).to(points)


def action_limits(space: Space, states: Tensor, held: tuple[int, ...] = ()) -> RowLimits | None:
    """Return the linear constraints on actions for local searches in r states (r, d_s); None if there are none.

    The searches do not change the columns `held` of the actions.
    """
    if space.feasible_set is None or space.feasible_set.limits is None:
        return None
    moves = [column not in held for column in range(space.n_action_dims)]
    movable = np.array([False] * space.n_state_dims + moves)
    return RowLimits(space.feasible_set.limits, states.cpu().numpy(), movable)


def masked(space: Space, states: Tensor, actions: Tensor, scores: Tensor) -> Tensor:
    """Return the scores (..., m, p), with very low scores for actions that violate linear constraints.

    The scores belong to p actions (p, d_x) in m states (..., m, d_s). Among the actions that violate constraints, one
    that violates them less gets a higher score, because projecting it onto the feasible set later will move it less.
    """
    violation = violations(space, states, actions)
    if violation is None:
        return scores
    return torch.where(violation > 0, -FAR_BELOW * (1 + violation), scores)


def without_infeasible(
    space: Space, states: Tensor, actions: Tensor, mean: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the mean and slope of look-ahead lines, with the lines of infeasible actions put far below all others.

    A line is the posterior mean of an action after a new reward that is z standard deviations above its prediction:
    mean + slope z (..., m, p). The lines belong to p actions (p, d_x) in m states (..., m, d_s). Infeasible actions are
    those that violate linear constraints.
    """
    violation = violations(space, states, actions)
    if violation is None:
        return mean, slope
    return torch.where(violation > 0, mean - FAR_BELOW, mean), torch.where(violation > 0, 0.0, slope)


def feasible_pairs(space: Space, states: Tensor, actions: Tensor) -> Tensor | None:
    """Return flags (..., p): whether actions (p, d_x) satisfy the linear constraints in states (..., d_s).

    If the constraints do not depend on the state, there is one row of flags for all states. The result is None if all
    actions satisfy the constraints in all states.
    """
    violation = violations(space, states, actions)
    return None if violation is None else violation == 0


def violations(space: Space, states: Tensor, actions: Tensor) -> Tensor | None:
    """Return how much p actions (p, d_x) violate the linear constraints in states (..., d_s), as a tensor (..., p).

    An entry is the largest violation of any constraint, and 0 if the action satisfies them all. A violation is measured
    relative to the range of the constraint's slack over the unit cube. If the constraints do not depend on the state,
    the result has one row for all states. The result is None if no action violates any constraint.
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
