"""Linear constraints on points u of the unit cube: the slacks of a point, and feasible points near it.

A point satisfies limit j if its slack is not negative (the sum is over the columns i):

    slack_j(u) = bound_j - Σ_i coefficient_ji value_i(u_i) >= 0

A parameter's value, in the user's units, is linear in its column u_i, or exponential on a log scale.  So the boundary
of a limit is a flat or curved surface in the unit cube.  An equality becomes two limits.  Each limit is divided by its
range over the cube, so that slacks are of the order of one.

Feasible points are found by alternating projections, for many rows at once.  If these do not converge, a mixed-integer
linear program finds the nearest feasible point (SciPy's HiGHS, imported only when needed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from conbo.constraint_text import LinearConstraint
from conbo.parameters import Array, Categorical, Integer, Parameter, Real

ROUNDING = 1e-9  # tolerance of a limit on real parameters; slacks are of the order of one
STEP_SHARE = 1e-3  # tolerance of a limit on integers alone, as a fraction of what one step of an integer changes
MARGIN = 1e-10  # slack of a projected point, so that it also satisfies the limit in the user's own arithmetic
COARSE = 0.01  # largest tolerance, as a fraction of the smallest bound or value, that is called small
SWEEPS = 60  # largest number of sweeps of alternating projections
# least range of a parameter as a fraction of its largest absolute value, because rounding errors grow with that value
LARGE = 1e-6

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class LinearLimits:
    """J inequalities that are linear in the user's units, as limits on points (d,) of the unit cube."""

    parameters: tuple[Parameter, ...]  # one for each of the d columns
    constraints: tuple[LinearConstraint, ...]
    owner: NDArray[np.int64]  # (J,), index of the constraint that each limit belongs to
    coefficients: Array  # (J, d), of the values in the user's units, divided by the limit's range over the cube
    bounds: Array  # (J,), largest allowed sums of coefficients times values, divided in the same way
    margins: Array  # (J,), least slack of projected points; zero for equalities and for limits on integers alone
    rounding: Array  # (J,), tolerance: a slack may be this far below zero because of rounding errors

    @cached_property
    def scales(self) -> tuple[Array, Array, Array]:
        """Three arrays (d,): the lower end, the width, and log(upper end / lower end) of each parameter's range.

        The logarithm is zero on a linear scale, and all three are zero for categories.
        """
        scales = [None if isinstance(p, Categorical) else p.scale for p in self.parameters]
        low = np.array([0.0 if s is None else s.low for s in scales])
        width = np.array([0.0 if s is None else s.high - s.low for s in scales])
        log_ratio = np.array([np.log1p((s.high - s.low) / s.low) if s is not None and s.log else 0.0 for s in scales])
        return low, width, log_ratio

    @cached_property
    def curved(self) -> bool:
        """Whether limits may be curved surfaces in the unit cube, because some column is on a log scale."""
        return bool(self.scales[2].any())

    def values(self, points: Array, first: int = 0) -> Array:
        """Convert points (..., columns) of the unit cube to values (..., columns) in the user's units.

        `points` may hold only some adjacent columns; `first` is the index of the first of them.
        """
        low, width, log_ratio = self.scales
        if points.shape[-1] < len(low):
            low, width, log_ratio = (part[first : first + points.shape[-1]] for part in self.scales)
        values = low + width * points
        if self.curved:
            values = np.where(log_ratio > 0, low + low * np.expm1(points * log_ratio), values)
        return values

    def used(self, points: Array, first: int = 0) -> Array:
        """Return, for each of the J limits, the sum (..., J) of coefficients times values in the user's units.

        The sum is over the columns of `points` (..., columns), which may be only some adjacent ones; `first` is the
        index of the first of them.
        """
        return self.values(points, first) @ self.coefficients[:, first : first + points.shape[-1]].T

    def slack(self, points: Array) -> Array:
        """Return the slacks (..., J) of points (..., d): by how much they satisfy each of the J limits."""
        return self.bounds - self.used(points)

    def allows(self, slack: Array) -> Flags:
        """Return whether points with given slacks (..., J) satisfy all J limits, up to rounding errors."""
        return np.asarray((slack >= -self.rounding).all(-1))

    def contains(self, points: Array) -> Flags:
        """Return whether each point (..., d) satisfies all limits, up to rounding errors."""
        return self.allows(self.slack(points))

    def contains_strictly(self, points: Array) -> Flags:
        """Return whether each point (..., d) satisfies all limits, without a tolerance for rounding errors.

        Equalities, and limits that involve only integers, still have a tolerance.
        """
        return np.asarray((self.slack(points) >= np.where(self.margins > 0, 0.0, -self.rounding)).all(-1))

    def normals(self, points: Array) -> Array:
        """Return the outward normals (..., J, d) of the J limits at points (..., d): negated gradients of slacks."""
        _, width, log_ratio = self.scales
        if not self.curved:
            return np.broadcast_to(self.coefficients * width, (*points.shape[:-1], *self.coefficients.shape))
        slopes = np.where(log_ratio > 0, log_ratio * self.values(points), width)
        return self.coefficients * slopes[..., None, :]

    def project(self, points: Array, movable: Flags) -> tuple[Array, Flags]:
        """Move points (n, d) to nearby ones that satisfy the limits; also return success flags (n,).

        Only the columns flagged by `movable` (d,) change.  Integers may get values that are not whole.
        """
        points = np.clip(points, 0.0, 1.0) if movable.all() else points.copy()
        points[:, movable] = points[:, movable].clip(0.0, 1.0)
        inside = self.contains_strictly(points)
        # a feasible set without interior has no room for a margin, so a second attempt has none
        for margins in (self.margins, np.zeros_like(self.margins)) if self.margins.any() else (self.margins,):
            rows = np.flatnonzero(~inside)
            if len(rows):
                points[rows] = self._alternate(points[rows], movable, margins)
                inside[rows] = self.contains(points[rows])
        return points, inside

    def _alternate(self, points: Array, movable: Flags, margins: Array) -> Array:
        """Move points (n, d) by alternating projections, within the unit cube, so that they satisfy the J limits.

        `margins` (J,) holds a small or zero margin for each limit.  A projection is a Newton step for one limit: if the
        slack is less than half of the limit's margin, the step raises it to about this margin.  Only the columns
        flagged by `movable` (d,) change.
        """
        open_rows = np.arange(len(points))
        for _ in range(SWEEPS):
            moving = points[open_rows]
            for limit, margin in enumerate(margins):
                missing = margin - (self.bounds[limit] - self.values(moving) @ self.coefficients[limit])
                rows = np.flatnonzero(missing > margin / 2)  # the slack is less than half of the margin
                if len(rows):
                    moving[rows] = self._step_inside(moving[rows], limit, missing[rows], movable)
            points[open_rows] = moving
            short = (self.slack(moving) < np.where(margins > 0, margins / 2, -self.rounding / 2)).any(-1)
            open_rows = open_rows[short]
            if not len(open_rows):
                break
        return points

    def _step_inside(self, points: Array, limit: int, missing: Array, movable: Flags) -> Array:
        """Move points (n, d) by a Newton step that raises their slacks in one limit by about `missing` (n,).

        `limit` is the index of this limit.  Only the columns flagged by `movable` (d,) change, and they stay within the
        unit cube.
        """
        normal = self.normals(points)[:, limit]
        blocked = ~movable | ((points <= 0) & (normal > 0)) | ((points >= 1) & (normal < 0))
        normal = np.where(blocked, 0.0, normal)
        length = np.maximum((normal**2).sum(-1), 1e-300)
        return np.where(movable, (points - normal * (missing / length)[:, None]).clip(0.0, 1.0), points)

    def interval(self, points: Array, column: int) -> tuple[Array, Array]:
        """Return the interval that the limits allow for one column of points (n, d), given all other columns.

        The result is the lower ends (n,) and the upper ends (n,), in the unit cube.
        """
        parameter = self.parameters[column]
        if isinstance(parameter, Categorical):
            return points[:, column], points[:, column]
        value, slack = parameter.scale.from_unit(points[:, column]), self.slack(points) - self.margins
        coefficient = self.coefficients[:, column]
        rising, falling = coefficient > 0, coefficient < 0
        room = np.maximum(slack, 0.0)
        up = (room[:, rising] / coefficient[rising]).min(-1, initial=np.inf)
        down = (room[:, falling] / -coefficient[falling]).min(-1, initial=np.inf)
        scale = parameter.scale
        low = scale.to_unit(np.maximum(value - down, scale.low))
        return low, scale.to_unit(np.minimum(value + up, scale.high))

    def reachable(self, points: Array, movable: Flags) -> Flags:
        """Return flags (n,) for points (n, d): whether each limit, taken alone, can be satisfied by moving the point.

        Only the columns flagged by `movable` (d,) may move.  If a point is not flagged, it cannot be moved so that all
        limits hold together.  If it is flagged, this may or may not be possible.
        """
        low, high = self._ends()
        fixed = self.values(np.where(movable, 0.0, points)) * ~movable
        least = np.minimum(self.coefficients * low, self.coefficients * high)[:, movable].sum(-1)
        return self.allows(self.bounds - fixed @ self.coefficients.T - least)

    def redundant(self) -> list[int]:
        """Return the indices of constraints that have no effect.

        Such a constraint holds at every point of the unit cube, or it is looser than another constraint that has the
        same coefficients up to a positive factor. Of equivalent constraints, all but the first are listed.
        """
        low, high = self._ends()
        most = np.maximum(self.coefficients * low, self.coefficients * high).sum(-1)
        idle = self.bounds - most >= -self.rounding
        same = np.abs(self.coefficients[:, None] - self.coefficients).max(-1) < ROUNDING
        looser = same & (self.bounds[:, None] >= self.bounds - ROUNDING)
        earlier = (self.bounds[:, None] > self.bounds + ROUNDING) | np.tri(len(same), k=-1, dtype=bool)
        idle |= (looser & earlier & (self.owner[:, None] != self.owner)).any(-1)
        return [number for number in range(len(self.constraints)) if idle[self.owner == number].all()]

    def coarse(self) -> list[int]:
        """Return the indices of constraints with a tolerance that is not small where they matter.

        The tolerance is a fraction of the limit's range.  On log scales with a wide range, it may exceed the bound and
        the values themselves, where these are small.
        """
        _, _, log_ratio = self.scales
        terms = np.abs(self.coefficients)
        curved = ((terms > 0) <= (log_ratio > 0)).all(-1)  # only parameters on log scales are limited
        smallest = np.maximum(np.abs(self.bounds), terms @ np.abs(self._ends()[0]))
        owners = self.owner[curved & (self.rounding > COARSE * smallest)]
        return sorted(set(owners.tolist()))

    def _ends(self) -> tuple[Array, Array]:
        """Return the least and the largest value (d,) of every column, in the user's units; zeros for categories."""
        numbers = [p for p in self.parameters if not isinstance(p, Categorical)]
        ends = iter([(float(p.low), float(p.high)) for p in numbers])
        both = np.array([(0.0, 0.0) if isinstance(p, Categorical) else next(ends) for p in self.parameters])
        return both[:, 0], both[:, 1]

    def nearest(self, point: Array, movable: Flags, limits: Flags | None = None) -> Array | None:
        """Return the point (d,) nearest to `point` that satisfies all J limits, or only those flagged by `limits` (J,).

        Only the columns flagged by `movable` (d,) change, and categories never do.  Integers get whole values.  The
        distance is the sum of the columns' distances in the user's units, each as a fraction of the column's range.
        The result is None if there is no such point.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp

        columns = [c for c in np.flatnonzero(movable) if not isinstance(self.parameters[c], Categorical)]
        low, high = (ends[columns] for ends in self._ends())
        width, k = high - low, len(columns)
        target = (self.values(point[None])[0][columns] - low) / width
        rows = np.ones(len(self.bounds), dtype=bool) if limits is None else limits
        fixed = self.values(point[None])[0]
        fixed[columns] = 0.0
        coefficients = self.coefficients[rows][:, columns]
        left = self.bounds[rows] - self.coefficients[rows] @ fixed - coefficients @ low
        # y = (value - low) / width, or the integer steps above low; t >= |y - target|
        whole = np.array([isinstance(self.parameters[c], Integer) for c in columns], dtype=bool)
        unit = np.where(whole, 1.0, width)
        eye = np.eye(k)
        shares = eye * (unit / width)
        matrix = np.block([[coefficients * unit, np.zeros((len(left), k))], [shares, -eye], [-shares, -eye]])
        upper = np.concatenate([left, target, -target])
        solution = milp(
            np.concatenate([np.zeros(k), np.ones(k)]),
            constraints=LinearConstraint(matrix, -np.inf, upper),
            bounds=Bounds(np.zeros(2 * k), np.concatenate([width / unit, np.full(k, np.inf)])),
            integrality=np.concatenate([whole, np.zeros(k, dtype=bool)]),
        )
        if solution.x is None:
            return None
        found = point.copy()
        steps = np.where(whole, np.round(solution.x[:k]), solution.x[:k])
        for column, value in zip(columns, low + steps * unit, strict=True):
            found[column] = self.parameters[column].encode([value])[0]
        return found


@dataclass(frozen=True, eq=False)
class RowLimits:
    """Linear limits for r local searches, either over actions in given states, or over states and actions together."""

    limits: LinearLimits
    states: Array | None = None  # (r, d_s), the state of every search; None if searches move states too
    movable: Flags | None = None  # (d,), which columns of states and actions may change; None for all of the search

    @property
    def curved(self) -> bool:
        """Whether limits may be curved surfaces, so that a step along a limit's tangent may violate it."""
        return self.limits.curved

    def _points(self, x: Array, rows: NDArray[np.int64]) -> Array:
        return x if self.states is None else np.concatenate([self.states[rows], x], axis=1)

    def tangents(self, x: Array, rows: NDArray[np.int64]) -> tuple[Array, Array]:
        """Linearize the J limits at n points x (n, columns): return normals N (n, J, columns) and gaps (n, J).

        A step t from x satisfies the linearized limits if N t <= gaps.  `rows` (n,) are the indices of the
        points' local searches, which determine their states if x holds only actions.
        """
        points = self._points(x, rows)
        first = points.shape[1] - x.shape[1]
        gaps = np.maximum(self.limits.slack(points) - self.limits.margins, 0.0)
        normals = self.limits.normals(points)
        if self.movable is not None:
            normals = np.where(self.movable, normals, 0.0)
        return normals[..., first:], gaps

    def project(self, x: Array, rows: NDArray[np.int64]) -> tuple[Array, Flags]:
        """Move x (n, columns) to nearby points that satisfy the limits; also return success flags (n,).

        `rows` (n,) are the indices of the points' local searches, which determine their states if x holds only actions.
        """
        points = self._points(x, rows)
        first = points.shape[1] - x.shape[1]
        movable = np.arange(points.shape[1]) >= first if self.movable is None else self.movable
        projected, inside = self.limits.project(points, movable)
        return projected[:, first:], inside


def linear_limits(
    parameters: Sequence[tuple[str, Parameter]], constraints: Sequence[LinearConstraint]
) -> LinearLimits | None:
    """Convert linear constraints to limits on points of the unit cube, with one column per named parameter.

    The result is None if there are no constraints.
    """
    if not constraints:
        return None
    columns = {name: column for column, (name, _) in enumerate(parameters)}
    kinds = tuple(parameter for _, parameter in parameters)
    rows, bounds, margins, rounding, owner = [], [], [], [], []
    for number, constraint in enumerate(constraints):
        row = np.zeros(len(kinds))
        for name, coefficient in constraint.coefficients:
            row[columns[name]] = coefficient
        limited = [kinds[columns[name]] for name in constraint.names]
        size = sum(abs(c) * _size(p) for (_, c), p in zip(constraint.coefficients, limited, strict=True))
        real = any(isinstance(parameter, Real) for parameter in limited)
        smallest = min(abs(c) for _, c in constraint.coefficients)
        for sign in (1.0, -1.0) if constraint.equality else (1.0,):
            rows.append(sign * row / size)
            bounds.append(sign * constraint.bound / size)
            margins.append(0.0 if constraint.equality or not real else MARGIN)
            rounding.append(ROUNDING if real else min(ROUNDING, STEP_SHARE * smallest / size))
            owner.append(number)
    arrays = (np.array(part) for part in (rows, bounds, margins, rounding))
    return LinearLimits(kinds, tuple(constraints), np.array(owner), *arrays)


def _size(parameter: Parameter) -> float:
    """Return the width of a parameter's range, but at least a small fraction of its largest absolute value.

    Limits are divided by weighted sums of these widths.  Rounding errors grow with the absolute value, so a smaller
    divisor would make slacks unreliable.
    """
    assert not isinstance(parameter, Categorical), "a category has no value"
    return max(parameter.high - parameter.low, LARGE * max(abs(parameter.low), abs(parameter.high)))
