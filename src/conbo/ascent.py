"""Multi-start local search: quasi-Newton ascent (BFGS) from many starts at once, within bounds and linear limits.

Every start is a row of the arrays, with its own inverse Hessian, active bounds and step length.  One iteration is one
batched call of the function for all rows whose searches have not ended.  Steps are computed with NumPy, which takes a
quarter of the time that torch takes for small arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conbo.constrained_steps import constrained_steps
from conbo.linear_limits import RowLimits

# a function from points (r, d) and the indices (r,) of their starts to values (r,) and gradients (r, d)
BatchedFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

Array = NDArray[np.float64]
SUFFICIENT = 1e-4  # fraction of the linearly predicted gain that a step must reach to be accepted (Armijo)


@dataclass(frozen=True)
class SuccessiveHalving:
    """Settings of successive halving: after `iterations` iterations, only the `survivors` best local searches continue.

    From then on, a search is also dropped if it cannot catch up: after `catch_up` more steps, each with the gain
    predicted for the next step, its value would still be below `goal` or below the best value of all searches.
    """

    iterations: int  # number of iterations before searches are dropped
    survivors: int  # number of searches that continue
    goal: float = -inf  # value that a search must be able to reach
    # a search is dropped if this many steps with the predicted gain would not reach the best value
    catch_up: int = 10


@dataclass(frozen=True)
class Ascent:
    """The results of r local searches, and all points at which they computed the function."""

    points: Tensor  # (r, d), the best point of each search
    values: Tensor  # (r,), the values there
    history_points: Tensor  # (evaluations, d), all points at which the function was evaluated
    history_values: Tensor  # (evaluations,), -inf where the function returned NaN


def holding(function: BatchedFunction, columns: tuple[int, ...]) -> BatchedFunction:
    """Return the function with a gradient of zero in the given columns, so that searches do not change them."""
    if not columns:
        return function

    def held(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = function(points, rows)
        gradient = gradient.clone()
        gradient[:, list(columns)] = 0.0
        return value, gradient

    return held


@np.errstate(
    divide="ignore", over="ignore", invalid="ignore"
)  # a row whose value becomes NaN keeps its last valid point
def ascend(
    function: BatchedFunction,
    starts: Tensor,
    lower: Tensor,
    upper: Tensor,
    iterations: int,
    first_step: float = 0.1,
    tolerance: float = 0.0,
    halving: SuccessiveHalving | None = None,
    curvature: Tensor | None = None,
    limits: RowLimits | None = None,
) -> Ascent:
    """Search for local maxima of a function by BFGS, from many starts at once.

    Parameters
    ----------
    function
        Takes k points (k, d) and the indices (k,) of their starts; returns values (k,) and gradients (k, d).
    starts
        The r starting points (r, d).
    lower, upper
        Bounds (d,); a coordinate with equal bounds stays fixed.
    iterations
        Largest number of steps.
    first_step
        Length of the first step, as a fraction of the distance between the bounds, if `curvature` is None.
    tolerance
        A search ends when the predicted gain of a step is at most this.
    halving
        When searches are dropped because they lag behind, and how many continue; None drops none.
    curvature
        Positive definite estimates (r, d, d) of the negated Hessians, so that the first step is a Newton step.  If this
        is None, the first step follows the gradient.
    limits
        Linear limits that all points must satisfy, besides the bounds; None if there are none.
    """
    device = starts.device

    def evaluate(x: Array, rows: NDArray[np.int64]) -> tuple[Array, Array]:
        values, gradients = function(torch.from_numpy(x).to(device), torch.from_numpy(rows).to(device))
        heights = values.numpy(force=True)
        history.append((x, np.where(np.isfinite(heights), heights, -np.inf)))  # not NaN, which argmax would choose
        return history[-1][1], gradients.numpy(force=True)

    history: list[tuple[Array, Array]] = []
    low, high = lower.numpy(force=True), upper.numpy(force=True)
    r, d = starts.shape
    width = np.maximum(high - low, 1e-300)
    fixed = ~(high > low)
    eye = np.eye(d)
    rows = np.arange(r)
    x = starts.numpy(force=True).clip(low, high)
    if limits is not None:
        x, _ = limits.project(x, rows)
    value, gradient = evaluate(x, rows)
    final_x, final_value = x.copy(), value.copy()
    inverse = np.tile(eye, (r, 1, 1)) if curvature is None else np.linalg.inv(curvature.numpy(force=True))
    fresh = np.full(r, curvature is None)  # whether the inverse Hessian is not yet scaled
    step_length = np.ones(r)

    for iteration in range(iterations):
        blocked = fixed | ((x <= low) & (gradient < 0)) | ((x >= high) & (gradient > 0))
        if limits is not None:  # a limit may move a coordinate off its bound; the step below decides
            blocked = np.broadcast_to(fixed, x.shape)
        slope = np.where(blocked, 0.0, gradient)
        direction = np.where(blocked, 0.0, _times(inverse, slope))
        downhill = _dot(direction, slope) <= 0
        if downhill.any():
            inverse[downhill] = eye
            direction[downhill] = slope[downhill]
            fresh |= downhill
        size = np.maximum(np.abs(direction / width).max(-1, initial=0.0), 1e-300)
        # scale a first direction to the length of a first step, and shorten later ones that leave the bounds by far
        share = np.where(fresh, first_step / size, np.minimum(1.0 / size, 1.0))
        direction *= share[:, None]
        if limits is None:
            there = (x + step_length[:, None] * direction).clip(low, high)
        else:
            there = _within(limits, rows, x, slope, inverse * (share * step_length)[:, None, None], low, high)
        moved = there - x
        promised = _dot(moved, slope)

        going = (promised > tolerance) & (step_length > 1e-10)
        if halving is not None and iteration >= halving.iterations:
            final_value[rows] = value  # rows that stopped earlier keep their values
            standing = np.sort(final_value)
            going &= value + halving.catch_up * promised >= max(standing[-1], halving.goal)
            if iteration == halving.iterations:
                going &= value >= standing[-min(halving.survivors, r)]
        if not going.all():
            stopped = rows[~going]
            final_x[stopped], final_value[stopped] = x[~going], value[~going]
            rows, x, value, gradient, inverse = rows[going], x[going], value[going], gradient[going], inverse[going]
            if len(rows) == 0:
                break
            fresh, step_length = fresh[going], step_length[going]
            there, moved, promised = there[going], moved[going], promised[going]

        new_value, new_gradient = evaluate(there, rows)
        accepted = new_value >= value + SUFFICIENT * promised
        accepted &= np.isfinite(new_value) & np.isfinite(new_gradient).all(-1)

        change = np.where(accepted[:, None], gradient - new_gradient, 0.0)
        size = np.abs(change).max(-1, initial=0.0)
        size = np.where(size > 0, size, 1.0)
        change /= size[:, None]  # otherwise squares of tiny or huge numbers underflow or overflow
        curved = accepted & (_dot(moved, change) > 1e-10 * np.sqrt(_dot(moved, moved) * _dot(change, change)))
        _update(inverse, moved, change, size, curved, fresh)
        fresh &= ~curved
        x = np.where(accepted[:, None], there, x)
        gradient = np.where(accepted[:, None], new_gradient, gradient)
        value = np.where(accepted, new_value, value)
        step_length = np.where(accepted, 1.0, step_length * 0.25)

    final_x[rows], final_value[rows] = x, value
    points, values = (np.concatenate(part) for part in zip(*history, strict=True))
    return Ascent(*(torch.from_numpy(result).to(device) for result in (final_x, final_value, points, values)))


def _within(
    limits: RowLimits, rows: NDArray[np.int64], x: Array, slope: Array, inverse: Array, low: Array, high: Array
) -> Array:
    """Take one Newton step from each of r points x (r, d), and return the new points (r, d), within limits and bounds.

    The step maximizes a quadratic model with gradient `slope` (r, d) at x, where `inverse` (r, d, d) is the inverse of
    the negated Hessian.  The maximum is clipped to the bounds.  If it then violates a linearized limit, it is replaced
    by the maximum subject to limits and bounds.  `rows` (r,) holds the index of each point's local search.  A row of x
    is returned unchanged if no feasible point is found, or if its `slope` or `inverse` is not finite.
    """
    there = (x + _times(inverse, slope)).clip(low, high)
    normals, gaps = limits.tangents(x, rows)
    known = np.asarray(np.isfinite(slope).all(-1) & np.isfinite(inverse).all((-2, -1)))
    over = known & ((normals @ (there - x)[..., None])[..., 0] > gaps).any(-1)
    if over.any():
        try:
            curvature: Array = np.linalg.inv(inverse[over]).astype(np.float64)
        except np.linalg.LinAlgError:
            curvature = np.linalg.pinv(inverse[over], hermitian=True).astype(np.float64)
        at, box = x[over], (low - x[over], high - x[over])
        there[over] = (at + constrained_steps(curvature, slope[over], normals[over], gaps[over], *box)).clip(low, high)
    # because of curved limits and rounding errors, a point may still violate a limit, so it is projected
    moved = known if limits.curved else over
    if moved.any():
        there[moved], inside = limits.project(there[moved], rows[moved])
        known[moved] = inside
    return np.where(known[:, None], there, x)


def _update(
    inverse: Array, moved: Array, change: Array, size: Array, curved: NDArray[np.bool_], fresh: NDArray[np.bool_]
) -> None:
    """Apply a BFGS update in place to `inverse` (r, d, d), the inverses of r negated Hessians.

    The latest steps are `moved` (r, d).  They reduced the gradients by `size` (r,) times `change` (r, d).  Only the
    rows flagged by `curved` (r,) are updated: those in which the function is concave along the step.  In the rows
    flagged by `fresh` (r,), the matrix is still the identity, which is scaled before its first update.
    """
    along = np.where(curved, _dot(moved, change), 1.0)
    unscaled = curved & fresh
    inverse[unscaled] *= (along / size / np.where(curved, _dot(change, change), 1.0))[unscaled, None, None]  # was I
    # (I - ρ m cᵀ) H (I - ρ c mᵀ) + ρ m mᵀ, expanded, so that no two matrices are multiplied
    forth = _times(inverse, change)  # H c
    step = moved * (curved / along)[:, None]  # zero for rows that are not updated
    turned = forth[:, :, None] * step[:, None, :]
    weight = (1 / size + _dot(forth, change) / along)[:, None, None]
    inverse += weight * (moved[:, :, None] * step[:, None, :]) - turned - turned.swapaxes(1, 2)


def _dot(a: Array, b: Array) -> Array:
    """Return the dot products (r,) of the rows of a (r, d) and b (r, d)."""
    return (a[:, None, :] @ b[:, :, None])[:, 0, 0]  # quicker than einsum for a handful of rows


def _times(matrices: Array, vectors: Array) -> Array:
    """Return the products (r, d) of matrices (r, d, d) and vectors (r, d)."""
    return (matrices @ vectors[..., None])[..., 0]
