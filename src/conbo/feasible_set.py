"""The feasible points of a space: those that satisfy its linear limits and that the user's function allows.

Points are rows of the unit cube, states first.  States are given, so all corrections move actions alone.

=================  ==============================================================================================
question           answer
=================  ==============================================================================================
`contains`         which points are feasible
`repair`           the feasible point near each: projected, integers rounded to feasible neighbors
`spread`           feasible actions that are spread as evenly as the given ones are over the cube
`cut`              how far one can go from a feasible point toward another before leaving the set
`has_action`       which states have a feasible action at all
=================  ==============================================================================================

Each answer is a pure function of its row, and does not depend on the other rows of a call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from conbo.linear_limits import Flags, LinearLimits
from conbo.parameters import Array, Categorical, Integer, Parameter, Real

BLOCK = 8  # number of scrambles that are tried at once
SCRAMBLES = 65  # scrambles of a point's action before chords take over
SCRAMBLES_OF_FUNCTION = 1024  # scrambles if only a function limits actions, because it has no chords
CHORDS = 6  # passes over the columns, each moved along its chord
MOST_PAIRED = 12  # number of integers up to which they are also moved two at a time
CUTS = 12  # bisections between two points


@dataclass(frozen=True, eq=False)
class FeasibleSet:
    """The feasible points of a space with d_s state columns and d_x action columns."""

    parameters: tuple[Parameter, ...]  # states first
    n_state_dims: int
    limits: LinearLimits | None
    allowed: Callable[[Array], Flags] | None  # the user's function for rows (n, d) of valid points
    snap: Callable[[Array], Array]  # the nearest valid points, feasible or not

    @cached_property
    def actions(self) -> Flags:
        """Which columns (d,) are actions."""
        return np.arange(len(self.parameters)) >= self.n_state_dims

    @cached_property
    def depends_on_state(self) -> bool:
        """Whether the feasible actions may differ between states."""
        if self.allowed is not None:
            return self.n_state_dims > 0
        return self.limits is not None and bool(self.limits.coefficients[:, : self.n_state_dims].any())

    def contains(self, points: Array) -> Flags:
        """Which points (..., d) are feasible; integers may be between two values."""
        inside = np.ones(points.shape[:-1], dtype=bool) if self.limits is None else self.limits.contains(points)
        if self.allowed is not None and inside.any():
            inside[inside] = self.allowed(self.snap(points[inside]))
        return inside

    def repair(self, points: Array) -> tuple[Array, Flags]:
        """Valid points (n, d) near these that are feasible, and for which rows there is one; some states have none."""
        repaired = self.snap(points)
        feasible = self._strictly(repaired)  # points that are feasible only up to rounding are moved inside
        rows = np.flatnonzero(~feasible)
        if len(rows):
            relaxed = points[rows].copy()
            fixed = ~self.actions | np.array([isinstance(p, Categorical) for p in self.parameters])
            relaxed[:, fixed] = repaired[rows][:, fixed]
            repaired[rows], feasible[rows] = self._within_limits(relaxed)
            if self.allowed is not None:
                rows = rows[feasible[rows]]
                feasible[rows] = self.allowed(repaired[rows])
                rows = rows[~feasible[rows]]
                known, feasible[rows] = self._feasible_scramble(repaired[rows])
                found = feasible[rows]
                repaired[rows[found]] = self.cut(known[found], repaired[rows[found]])
        return repaired, feasible

    def spread(self, points: Array) -> tuple[Array, Flags]:
        """Points (n, d) with the same states but feasible actions, and for which rows there is one.

        Actions that are uniform on the cube become roughly uniform on each state's feasible set: a feasible action
        stays, and another is scrambled until it is feasible, or moved along chords of the feasible set.
        """
        spread, feasible = self._feasible_scramble(points)
        rows = np.flatnonzero(~feasible)
        if len(rows) and self.limits is not None:
            spread[rows], feasible[rows] = self.repair(self._along_chords(points[rows]))
        return spread, feasible

    def cut(self, inside: Array, towards: Array) -> Array:
        """The last feasible points (n, d) on lines from feasible points to other points with the same state."""
        fixed = np.array([isinstance(p, Categorical) for p in self.parameters])
        towards = np.where(fixed, inside, towards)
        best = inside
        near, far = np.zeros((len(inside), 1)), np.ones((len(inside), 1))
        share = far
        for _ in range(CUTS):
            there = self.snap(inside + share * (towards - inside))
            feasible = self.contains(there)[:, None]
            best = np.where(feasible, there, best)
            near, far = np.where(feasible, share, near), np.where(feasible, far, share)
            share = (near + far) / 2
        return best

    def has_action(self, states: Array) -> Flags:
        """Which states (n, d_s) have a feasible action."""
        points = np.concatenate([states, np.full((len(states), int(self.actions.sum())), 0.5)], axis=1)
        if not self.depends_on_state:
            points = points[:1]
        feasible = np.ones(len(points), dtype=bool)
        if self.limits is not None:
            feasible = self.limits.reachable(points, self.actions)
        feasible[feasible] = self.repair(points[feasible])[1]
        return feasible if self.depends_on_state else np.repeat(feasible, len(states))

    def clashing(self) -> list[int]:
        """A smallest set of constraints that no point satisfies together; empty if some point satisfies all."""
        limits = self.limits
        if limits is None:
            return []
        free = replace(self, n_state_dims=0, allowed=None)  # the states may move as well
        everything, middle = free.actions, np.full((1, len(self.parameters)), 0.5)
        if free._within_limits(middle)[1][0]:
            return []
        clash = list(range(len(limits.constraints)))
        for number in list(clash):
            fewer = [other for other in clash if other != number]
            if limits.nearest(middle[0], everything, np.isin(limits.owner, fewer)) is None:
                clash = fewer
        return clash

    def _within_limits(self, points: Array) -> tuple[Array, Flags]:
        """Valid points (n, d) near these that satisfy the limits."""
        if self.limits is None:
            return self.snap(points), np.ones(len(points), dtype=bool)
        result, feasible = self._rounded(self.limits.project(points, self.actions)[0])
        for row in np.flatnonzero(~feasible & self.limits.reachable(points, self.actions)):
            exact = self.limits.nearest(points[row], self.actions)
            if exact is not None:
                (result[row],), (feasible[row],) = self._with_reals_moved(exact[None])
        return result, feasible

    def _rounded(self, points: Array) -> tuple[Array, Flags]:
        """Round the integers of points (n, d) to satisfy the limits; also return for which rows this succeeded."""
        assert self.limits is not None
        result = self.snap(points)
        feasible = self.limits.contains_strictly(result)
        for attempt in (self._with_reals_moved, self._with_integers_moved):
            rows = np.flatnonzero(~feasible)
            if len(rows):
                result[rows], feasible[rows] = attempt(result[rows])
        return result, feasible

    def _with_reals_moved(self, points: Array) -> tuple[Array, Flags]:
        """The same integers and categories, with real actions moved into the limits."""
        assert self.limits is not None
        movable = self.actions & np.array([isinstance(p, Real) for p in self.parameters])
        if not movable.any():
            return points, self.limits.contains(points)
        return self.limits.project(points, movable)

    def _with_integers_moved(self, points: Array) -> tuple[Array, Flags]:
        """One or two integers at a time stepped up or down, as long as that reduces the violation of the limits."""
        limits = self.limits
        assert limits is not None
        columns = [c for c, p in enumerate(self.parameters) if c >= self.n_state_dims and isinstance(p, Integer)]
        points = points.copy()
        steps = _integer_steps(len(columns))  # (options, columns), the first is to stay
        for _ in range(2 * len(columns)):
            options = np.repeat(points[:, None], len(steps), axis=1)
            for column, step in zip(columns, steps.T, strict=True):
                options[..., column] = _stepped(self.parameters[column], options[..., column], step)
            violation = np.maximum(-limits.slack(options) - limits.rounding, 0.0).sum(-1)
            best = violation.argmin(-1)
            if not best.any():
                break
            points = options[np.arange(len(points)), best]
        return self._with_reals_moved(points)

    def _strictly(self, points: Array) -> Flags:
        """Which points (..., d) are feasible; rounding is tolerated only by limits without a margin."""
        inside = self.contains(points)
        return inside if self.limits is None else inside & self.limits.contains_strictly(points)

    def _feasible_scramble(self, points: Array) -> tuple[Array, Flags]:
        """For each of points (n, d), the first of its scrambled versions that is feasible, and which rows have one."""
        result = self.snap(points)
        feasible = self._strictly(result)
        # limits are evaluated for a block of scrambles at once; a user's function is called for one scramble at a time
        most, block = (SCRAMBLES, BLOCK) if self.allowed is None else (SCRAMBLES_OF_FUNCTION, 1)
        for first in range(1, most, block):
            rows = np.flatnonzero(~feasible)
            if not len(rows):
                break
            moved = np.repeat(points[None, rows], block, axis=0)
            moved[..., self.actions] = _scrambled(points[rows][:, self.actions], np.arange(first, first + block))
            moved = self.snap(moved)
            found = self._strictly(moved)  # (block, rows)
            feasible[rows] = found.any(0)
            best = moved[found.argmax(0), np.arange(len(rows))]
            result[rows[feasible[rows]]] = best[feasible[rows]]
        return result, feasible

    def _along_chords(self, points: Array) -> Array:
        """The points moved into the limits and spread out there.

        Every action column is moved several times to a pseudo-random place on its chord, the interval that the limits
        leave it. Points that cannot be moved into the limits stay where the attempt ended.
        """
        assert self.limits is not None
        inside, feasible = self.limits.project(self.snap(points), self.actions)
        moving = inside[feasible]
        for chord in range(1, CHORDS + 1):
            (shares,) = _scrambled(points[feasible], np.array([-chord]))
            for column in range(self.n_state_dims, len(self.parameters)):
                low, high = self.limits.interval(moving, column)
                share = shares[:, column]
                moving[:, column] = np.where(high > low, low + share * (high - low), moving[:, column])
        inside[feasible] = moving
        return inside


@cache
def _even_steps(d: int) -> Array:
    """Steps (d,) whose multiples, taken modulo one, fill the cube evenly (Roberts 2018)."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (d + 1))
    return ratio ** -np.arange(1.0, d + 1)


@cache
def _multipliers() -> NDArray[np.int64]:
    """Pairs of integers: one pair for every way to scramble points."""
    return np.random.RandomState(0).randint(100, 2000, size=(SCRAMBLES_OF_FUNCTION + CHORDS, 2))


def _scrambled(points: Array, ways: NDArray[np.int64]) -> Array:
    """Points (n, k) scrambled in several ways (ways, n, k), by integer multiples modulo one, which keeps them uniform.

    Each way is nearly independent of the others.
    """
    own, next_one = _multipliers()[ways].T[..., None, None]
    steps = ways[:, None] * _even_steps(points.shape[1])
    return (own * points + next_one * np.roll(points, 1, axis=1) + steps[:, None]) % 1.0


def _integer_steps(k: int) -> Array:
    """The steps (options, k) to try: none; one of k integers down or up; for small k also one down and another up."""
    eye = np.eye(k)
    pairs = [eye[j] - eye[i] for i in range(k) for j in range(k) if i != j] if k <= MOST_PAIRED else []
    return np.stack([np.zeros(k), *-eye, *eye, *pairs])


def _stepped(parameter: Parameter, values: Array, step: Array) -> Array:
    """Integers moved by this many steps, within the range."""
    assert isinstance(parameter, Integer)
    here = np.floor(parameter.scale.from_unit(values) + 0.5)
    return parameter.encode(np.clip(here + step, parameter.low, parameter.high))
