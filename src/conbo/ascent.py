"""Quasi-Newton ascent of many starts at once inside a box.

Every start keeps its own inverse Hessian (BFGS), active bounds and step length; one iteration is one batched call
of the function, whatever the rows are doing (stepping or backing up).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# (points (r, d), which rows of the starts these are (r,)) → values (r,), gradients (r, d)
BatchedFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

SUFFICIENT = 1e-4  # share of the linear prediction that a step must gain (Armijo)


@dataclass(frozen=True)
class Race:
    """After so many iterations only the rows with the highest values go on."""

    iterations: int
    survivors: int


@dataclass(frozen=True)
class Ascent:
    """Where every start ended, and everything that was evaluated on the way."""

    points: Tensor  # (r, d)
    values: Tensor  # (r,)
    history_points: Tensor  # (evaluations, d)
    history_values: Tensor  # (evaluations,)


def ascend(
    function: BatchedFunction,
    starts: Tensor,
    lower: Tensor,
    upper: Tensor,
    iterations: int,
    first_step: float = 0.1,
    tolerance: float = 0.0,
    race: Race | None = None,
) -> Ascent:
    """Climb from starts (r, d) between lower and upper (d,); a coordinate with lower = upper stays.

    `first_step` is the length of the first step in units of the box; a row stops when a step promises to gain no
    more than `tolerance`, or when it loses the race.
    """
    r, d = starts.shape
    width = upper - lower
    movable = width > 0
    eye = torch.eye(d, dtype=starts.dtype, device=starts.device)
    rows = torch.arange(r, device=starts.device)
    x = starts.clamp(lower, upper)
    value, gradient = function(x, rows)
    history_points, history_values = [x], [value]
    final_x, final_value = x.clone(), value.clone()
    inverse = eye.expand(r, d, d).clone()
    fresh = torch.ones(r, dtype=torch.bool, device=starts.device)  # inverse Hessian not yet scaled
    step_length = torch.ones_like(value)

    for iteration in range(iterations):
        blocked = ~movable | ((x <= lower) & (gradient < 0)) | ((x >= upper) & (gradient > 0))
        slope = torch.where(blocked, 0.0, gradient)
        direction = torch.where(blocked, 0.0, (inverse @ slope[..., None])[..., 0])
        rising = (direction * slope).sum(-1)
        downhill = rising <= 0
        if downhill.any():
            inverse = torch.where(downhill[:, None, None], eye, inverse)
            direction = torch.where(downhill[:, None], slope, direction)
            fresh = fresh | downhill
        size = (direction / width.clamp_min(1e-300)).abs().amax(-1).clamp_min(1e-300)
        # the first direction has no scale of its own; a later one may not leave the box by far
        limit = torch.where(fresh, first_step, 1.0)
        direction = direction * torch.where(fresh, limit / size, (limit / size).clamp_max(1.0))[:, None]
        there = (x + step_length[:, None] * direction).clamp(lower, upper)
        moved = there - x
        promised = (moved * slope).sum(-1)

        going = promised > tolerance
        going &= step_length > 1e-10
        if race is not None and iteration == race.iterations:
            final_value[rows] = value  # those that stopped before have theirs
            going &= value >= final_value.topk(min(race.survivors, r)).values[-1]
        if not going.all():
            stopped = rows[~going]
            final_x[stopped], final_value[stopped] = x[~going], value[~going]
            rows, x, value, gradient, inverse = rows[going], x[going], value[going], gradient[going], inverse[going]
            if len(rows) == 0:
                break
            fresh, step_length = fresh[going], step_length[going]
            there, moved, promised = there[going], moved[going], promised[going]

        new_value, new_gradient = function(there, rows)
        history_points.append(there)
        history_values.append(new_value)
        accepted = new_value >= value + SUFFICIENT * promised
        accepted &= torch.isfinite(new_value) & torch.isfinite(new_gradient).all(-1)

        change = torch.where(accepted[:, None], gradient - new_gradient, 0.0)
        curved = accepted & ((moved * change).sum(-1) > 1e-10 * moved.norm(dim=-1) * change.norm(dim=-1))
        inverse = _updated(inverse, moved, change, curved, fresh, eye)
        fresh = fresh & ~curved
        x = torch.where(accepted[:, None], there, x)
        gradient = torch.where(accepted[:, None], new_gradient, gradient)
        value = torch.where(accepted, new_value, value)
        step_length = torch.where(accepted, torch.ones_like(step_length), step_length * 0.25)

    final_x[rows], final_value[rows] = x, value
    return Ascent(final_x, final_value, torch.cat(history_points), torch.cat(history_values))


def _updated(inverse: Tensor, moved: Tensor, change: Tensor, curved: Tensor, fresh: Tensor, eye: Tensor) -> Tensor:
    """BFGS: the inverse Hessian of the negated function after `moved` changed its gradient by `change`."""
    curvature = torch.where(curved, (moved * change).sum(-1), 1.0)
    scale = curvature / torch.where(curved, change.square().sum(-1), 1.0)
    inverse = torch.where((curved & fresh)[:, None, None], scale[:, None, None] * eye, inverse)
    rho = (1 / curvature)[:, None, None]
    # (I - ρ m cᵀ) H (I - ρ c mᵀ) + ρ m mᵀ, multiplied out: no product of two matrices
    turned = (inverse @ change[..., None]) * moved[:, None, :]  # H c mᵀ
    bend = 1 + rho * (change[:, None, :] @ inverse @ change[..., None])
    update = inverse - rho * (turned + turned.mT) + rho * bend * moved[:, :, None] * moved[:, None, :]
    return torch.where(curved[:, None, None], update, inverse)
