"""Local search within a curved limit: sequential quadratic programming (SQP) from many starts at once.

    maximize  f(x)   subject to   c(x) >= 0,   linear limits,   0 <= x <= 1

Every step maximizes a quadratic model of f + λ c within a trust region, subject to the limits, linearized at x.  A step
therefore follows the tangent of a limit that binds, and the next step corrects for the limit's curvature.  Searches
that only subtract a penalty for c < 0 from f stop early on a curved limit: the penalty must be steep so that they end
near the limit, and then only tiny steps along the limit succeed.

======  ======================  ===================================================================================
symbol  here                    meaning
======  ======================  ===================================================================================
g, a    ``gradient``, ``rise``  gradients of f and c
t       ``step``                the step
N, b    ``normals``, ``gaps``   the linearized limits N t <= b, of which -aᵀ t <= c is the first
λ       ``multiplier``          how much the maximum of f would rise per unit by which c may be negative
B       ``curvature``           negated Hessian of f + λ c, estimated by BFGS
ρ       ``price``               a step must raise the merit f - ρ max(0, -c)
Δ       ``radius``              largest change of a coordinate in one step
======  ======================  ===================================================================================

The method and the rule for ρ (18.36) are in Nocedal & Wright, "Numerical Optimization" (2006), chapter 18.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conbo.constrained_steps import constrained_steps
from conbo.linear_limits import RowLimits

# a function from points (r, d) and the indices (r,) of their starts to f (r,), g (r, d), c (r,) and a (r, d)
LimitedFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]
FIRST_RADIUS = 0.1  # Δ of the first step
LEAST_RADIUS = 1e-9  # Δ below which a search ends
BINDING = 1e-6  # a limit binds if a step ends at most at this distance from it


@dataclass(frozen=True)
class Values:
    """f and c at r points, with their gradients."""

    value: Array  # (r,), f
    gradient: Array  # (r, d), g
    slack: Array  # (r,), c
    rise: Array  # (r, d), a

    @property
    def parts(self) -> tuple[Array, Array, Array, Array]:
        """The four arrays."""
        return self.value, self.gradient, self.slack, self.rise

    @property
    def finite(self) -> Flags:
        """Flags (r,): whether all values and gradients at a point are finite."""
        gradients = np.isfinite(self.gradient) & np.isfinite(self.rise)
        return np.asarray(np.isfinite(self.value) & np.isfinite(self.slack) & gradients.all(-1))

    def select(self, rows: Rows | Flags) -> "Values":
        """Return the values at the points with indices or flags `rows`."""
        return Values(*(part[rows] for part in self.parts))

    def put(self, rows: Rows, new: "Values") -> None:
        """Replace, in place, the values at the points with indices `rows` (k,) by `new` ones at k points."""
        for part, other in zip(self.parts, new.parts, strict=True):
            part[rows] = other

    def merit(self, price: Array) -> Array:
        """Return f - ρ max(0, -c) at each point, for prices ρ (r,)."""
        return self.value - price * violation(self.slack)

    def better_than(self, other: "Values", allowance: float) -> Flags:
        """Return flags (r,): whether f is higher or, if c < -`allowance` at either of the two points, c is higher."""
        inside = np.minimum(self.slack, other.slack) >= -allowance
        return np.where(inside, self.value > other.value, self.slack > other.slack)


@np.errstate(divide="ignore", over="ignore", invalid="ignore")  # points whose values are not finite are not accepted
def constrained_ascent(
    function: LimitedFunction,
    starts: Tensor,
    held: tuple[int, ...],
    iterations: int,
    tolerance: float = 0.0,
    allowance: float = 0.0,
    limits: RowLimits | None = None,
) -> Tensor:
    """Search for local maxima of f where c is not negative, from many starts at once.

    Parameters
    ----------
    function
        Takes k points (k, d) and the indices (k,) of their starts; returns f (k,), g (k, d), c (k,) and a (k, d).
    starts
        The r starting points (r, d) in the unit cube.
    held
        Indices of columns that searches do not change.
    iterations
        Largest number of steps.
    tolerance
        A search ends when the predicted gain of a step is at most this.
    allowance
        How far c may be below zero at a point that counts as feasible.
    limits
        Linear limits that all points must satisfy; None if there are none.

    Returns
    -------
    Tensor
        The best point (r, d) that each search has visited: the feasible one with the highest f; if no visited point is
        feasible, the one with the highest c.
    """
    device = starts.device

    def evaluate(x: Array, rows: Rows) -> Values:
        parts = function(torch.from_numpy(x).to(device), torch.from_numpy(rows).to(device))
        return Values(*(part.numpy(force=True) for part in parts))

    (r, d), rows = starts.shape, np.arange(len(starts))  # `rows` are the searches that go on
    movable = np.array([column not in held for column in range(d)])
    x = starts.numpy(force=True).copy()
    if limits is not None:
        x, _ = limits.project(x, rows)
    known = Values(*(part.copy() for part in evaluate(x, rows).parts))
    rows = rows[known.finite]
    best_x, best = x.copy(), Values(*(part.copy() for part in known.parts))
    steepest = np.abs(known.gradient).max(-1, initial=1e-12)
    curvature = (steepest / FIRST_RADIUS)[:, None, None] * np.eye(d)  # such that the first step has a length of Δ
    fresh, price, radius = np.ones(r, dtype=bool), np.zeros(r), np.full(r, FIRST_RADIUS)

    for _ in range(iterations):
        now, here, bent, reach = known.select(rows), x[rows], curvature[rows], radius[rows, None] * movable
        normals, gaps = linearized(now, here, rows, limits)
        box = np.maximum(-here, -reach), np.minimum(1 - here, reach)
        step = constrained_steps(bent, now.gradient, normals, gaps, *box)
        leaves = rooms(normals, gaps, step).min(-1) < -BINDING  # perhaps there are no feasible steps within the box
        multiplier = multipliers(bent, now.gradient, normals, gaps, step, box)
        there = (here + step).clip(0, 1)
        if limits is not None:
            there, inside = limits.project(there, rows)
            there = np.where(inside[:, None], there, here)
        step = there - here
        gain = _dot(now.gradient, step) - _dot(step, _times(bent, step)) / 2
        eased = violation(now.slack) - violation(now.slack + _dot(now.rise, step))
        needed = np.where(eased > BINDING, -2 * gain / eased, 0.0)  # the merit must rise where a violation shrinks
        price[rows] = np.maximum(price[rows], needed)
        going = ((gain + price[rows] * eased > tolerance) | leaves) & (radius[rows] > LEAST_RADIUS)
        rows, there, step, multiplier = rows[going], there[going], step[going], multiplier[going]
        if len(rows) == 0:
            break

        now, new = now.select(going), evaluate(there, rows)
        finite = new.finite
        accepted = finite & (new.merit(price[rows]) > now.merit(price[rows]))
        better = finite & new.better_than(best.select(rows), allowance)
        best_x[rows[better]] = there[better]
        best.put(rows[better], new.select(better))
        change = (now.gradient - new.gradient) + multiplier[:, None] * (now.rise - new.rise)
        concave = finite & (_dot(step, change) > 1e-10 * np.sqrt(_dot(step, step) * _dot(change, change)))
        bending = rows[concave]
        curvature[bending] = updated(curvature[bending], step[concave], change[concave], fresh[bending])
        fresh[bending] = False
        length = np.abs(step).max(-1)
        longer = np.where(length > 0.9 * radius[rows], 2 * radius[rows], radius[rows])
        radius[rows] = np.where(accepted, np.minimum(longer, 1.0), length / 4)
        x[rows[accepted]] = there[accepted]
        known.put(rows[accepted], new.select(accepted))
    return torch.from_numpy(best_x).to(device)


def violation(slack: Array) -> Array:
    """Return max(0, -c) for c = `slack`."""
    return np.maximum(-slack, 0.0)


def linearized(now: Values, x: Array, rows: Rows, limits: RowLimits | None) -> tuple[Array, Array]:
    """Linearize c >= 0 and the J linear limits at points x (r, d).

    Return normals N (r, 1 + J, d) and gaps (r, 1 + J), such that a step t must satisfy N t <= gaps.  `rows` (r,) are
    the indices of the points' searches.
    """
    normals, gaps = -now.rise[:, None], now.slack[:, None]
    if limits is None:
        return normals, gaps
    more, room = limits.tangents(x, rows)
    return np.concatenate([normals, more], 1), np.concatenate([gaps, room], 1)


def rooms(normals: Array, gaps: Array, step: Array) -> Array:
    """Return the distances (r, J) of steps t (r, d) to the limits N t <= gaps; negative if a limit is violated."""
    return (gaps - _times(normals, step)) / np.maximum(np.sqrt((normals**2).sum(-1)), 1e-300)


def multipliers(
    curvature: Array, gradient: Array, normals: Array, gaps: Array, step: Array, box: tuple[Array, Array]
) -> Array:
    """Return the multipliers (r,) of the first limit, at steps (r, d) that maximize quadratic models within limits.

    At such a step t, g - B t = Σ_j λ_j N_j in all coordinates in which the step is not at the end of its `box`; the sum
    is over the limits that bind.  The equations are solved by least squares.
    """
    binding = rooms(normals, gaps, step) < BINDING
    free = (step > box[0]) & (step < box[1])
    sides = np.where(binding[..., None] & free[:, None], normals, 0.0)
    inverse = np.linalg.pinv(sides @ sides.swapaxes(1, 2), hermitian=True)
    solution = _times(inverse, _times(sides, gradient - _times(curvature, step)))
    return np.maximum(solution[:, 0], 0.0)


def updated(curvature: Array, step: Array, change: Array, fresh: Flags) -> Array:
    """Return B (r, d, d) after BFGS updates: steps t (r, d) have lowered the gradients of f + λ c by `change` y (r, d).

    In the rows flagged by `fresh` (r,), B has not been updated before, and is scaled first.  f + λ c must be concave
    along the steps: tᵀ y > 0.
    """
    along = _dot(step, change)
    scaled = (_dot(change, change) / along)[:, None, None] * np.eye(step.shape[-1])
    old = np.where(fresh[:, None, None], scaled, curvature)
    pull = _times(old, step)
    new = old + change[:, :, None] * change[:, None] / along[:, None, None]
    new -= pull[:, :, None] * pull[:, None] / _dot(step, pull)[:, None, None]
    return np.where(np.isfinite(new).all((-2, -1), keepdims=True), new, curvature)


def _dot(a: Array, b: Array) -> Array:
    """Return the dot products (r,) of the rows of a (r, d) and b (r, d)."""
    return (a[:, None, :] @ b[:, :, None])[:, 0, 0]


def _times(matrices: Array, vectors: Array) -> Array:
    """Return the products (r, k) of matrices (r, k, d) and vectors (r, d)."""
    return (matrices @ vectors[..., None])[..., 0]
