"""The feasible points of a space: those that satisfy its linear limits and that the user's function allows.

Points are in the unit cube, with the columns of the state before those of the action.  A point is made feasible by
moving its action; its state never changes, except that integers and categories are rounded to valid values.

=================  ==============================================================================================
method             result
=================  ==============================================================================================
`contains`         which points are feasible
`repair`           a feasible point near each point
`spread`           feasible actions that fill the feasible set as evenly as the given actions fill the unit cube
`cut`              where the line from a feasible point to another point of its state leaves the feasible set
`has_action`       which states have a feasible action at all
=================  ==============================================================================================

The result for a row does not depend on the other rows of a call, unless a user's function allows no action in hundreds
of them: the search then ends early.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from conbo.linear_limits import Flags, LinearLimits
from conbo.parameters import Array, Categorical, Integer, Parameter, Real

# Scrambling replaces an action by a pseudo-random one, see `_scrambled`.
BLOCK = 8  # number of scrambled versions of an action that are tried at once
SCRAMBLES = 65  # number of versions that are tried; if none satisfies the limits, `_along_chords` finds another action
SCRAMBLES_OF_FUNCTION = 1024  # the same if the user's function limits actions, because functions have no chords
# the search ends when a user's function has allowed none of so many points in a row, because the rest are hopeless
FRUITLESS_CALLS = 2**18
REMEMBERED = 4  # number of samples of states for which `has_action` remembers its result
# versions that are first moved to where linear limits hold, if there is a function too: few others meet tight limits
PROJECTED = range(SCRAMBLES, 2 * SCRAMBLES)
CHORDS = 6  # number of times that each action column is moved along its chord
MOST_PAIRED = 12  # largest number of integer actions for which steps of two at a time are tried
CUTS = 12  # bisections of the line between two points


@dataclass(frozen=True, eq=False)
class FeasibleSet:
    """The feasible points of a space: those that satisfy the linear limits and that the user's function allows.

    Points (d,) are in the unit cube, with the columns of the state before those of the action.
    """

    parameters: tuple[Parameter, ...]  # states first
    n_state_dims: int  # number of columns of a state
    limits: LinearLimits | None
    allowed: Callable[[Array], Flags] | None  # which points (n, d) the user's function allows
    snap: Callable[[Array], Array]  # rounds points to valid values of the parameters, feasible or not
    _known: dict[bytes, Flags] = field(
        default_factory=dict, init=False, repr=False
    )  # the latest results of `has_action`

    @cached_property
    def actions(self) -> Flags:
        """Flags (d,) that say which columns of a point belong to the action."""
        return np.arange(len(self.parameters)) >= self.n_state_dims

    @cached_property
    def depends_on_state(self) -> bool:
        """Whether the set of feasible actions may differ between states."""
        if self.allowed is not None:
            return self.n_state_dims > 0
        return self.limits is not None and bool(self.limits.coefficients[:, : self.n_state_dims].any())

    def contains(self, points: Array) -> Flags:
        """Return whether each point (..., d) is feasible.

        Integer parameters need not have whole values; the user's function gets them rounded.
        """
        inside = np.ones(points.shape[:-1], dtype=bool) if self.limits is None else self.limits.contains(points)
        if self.allowed is not None and inside.any():
            inside[inside] = self.allowed(self.snap(points[inside]))
        return inside

    def repair(self, points: Array) -> tuple[Array, Flags]:
        """Move points (n, d) to feasible ones nearby, with the same states; also return success flags (n,).

        A success flag is False if no feasible action was found in the point's state.
        """
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
        """Replace infeasible actions of points (n, d) by feasible ones; also return success flags (n,).

        Actions that are uniform on the unit cube become roughly uniform on each state's feasible set.  For an
        infeasible action, pseudo-random replacements are tried until one is feasible.  If all of them fail and there
        are linear limits, the action is moved to a pseudo-random place that satisfies these limits.
        """
        spread, feasible = self._feasible_scramble(points)
        rows = np.flatnonzero(~feasible)
        if len(rows) and self.limits is not None:
            spread[rows], feasible[rows] = self.repair(self._along_chords(points[rows]))
        return spread, feasible

    def cut(self, inside: Array, towards: Array) -> Array:
        """Return the points (n, d) where lines from feasible points `inside` (n, d) leave the feasible set.

        Each line goes to a point of `towards` (n, d), which has the same state.  If that point is feasible, it is the
        result.  Otherwise, bisection finds a feasible point close to where the line leaves the set.  Categories keep
        the values that they have in `inside`.
        """
        fixed = np.array([isinstance(p, Categorical) for p in self.parameters])
        towards = np.where(fixed, inside, towards)
        found = self.snap(towards)
        beyond = ~self.contains(found)
        inside, towards = inside[beyond], towards[beyond]
        best, near, far = inside, np.zeros((len(inside), 1)), np.ones((len(inside), 1))
        for _ in range(CUTS if len(inside) else 0):
            share = (near + far) / 2
            there = self.snap(inside + share * (towards - inside))
            feasible = self.contains(there)[:, None]
            best = np.where(feasible, there, best)
            near, far = np.where(feasible, share, near), np.where(feasible, far, share)
        found[beyond] = best
        return found

    def has_action(self, states: Array) -> Flags:
        """Return whether a feasible action is found in each state (n, d_s).

        With a user's function, the search may miss a small set of feasible actions.
        """
        key = states.tobytes()
        feasible = self._known.pop(key, None)
        if feasible is None:
            feasible = self._has_action(states if self.depends_on_state else states[:1])
        self._known[key] = feasible  # the latest comes last
        for old in list(self._known)[:-REMEMBERED]:
            del self._known[old]
        return feasible.copy() if self.depends_on_state else np.repeat(feasible, len(states))

    def _has_action(self, states: Array) -> Flags:
        points = np.concatenate([states, np.full((len(states), int(self.actions.sum())), 0.5)], axis=1)
        feasible = np.ones(len(points), dtype=bool)
        if self.limits is not None:
            feasible = self.limits.reachable(points, self.actions)
        feasible[feasible] = self.repair(points[feasible])[1]
        return feasible

    def clashing(self) -> list[int]:
        """Return the indices of linear constraints that contradict each other; empty if some point satisfies all.

        If any single one of these were dropped, the others could be satisfied together.
        """
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
        """Move points (n, d) to valid ones nearby that satisfy the limits; also return success flags (n,)."""
        if self.limits is None:
            return self.snap(points), np.ones(len(points), dtype=bool)
        result, feasible = self._rounded(self.limits.project(points, self.actions)[0])
        for row in np.flatnonzero(~feasible & self.limits.reachable(points, self.actions)):
            exact = self.limits.nearest(points[row], self.actions)
            if exact is not None:
                (result[row],), (feasible[row],) = self._with_reals_moved(exact[None])
        return result, feasible

    def _rounded(self, points: Array) -> tuple[Array, Flags]:
        """Round integer coordinates of points (n, d) so that the limits hold; also return success flags (n,).

        If the nearest integers violate a limit, real-valued action columns are moved.  If that is not enough, integers
        are moved step by step, and then real-valued action columns again.
        """
        assert self.limits is not None
        result = self.snap(points)
        feasible = self.limits.contains_strictly(result)
        for attempt in (self._with_reals_moved, self._with_integers_moved):
            rows = np.flatnonzero(~feasible)
            if len(rows):
                result[rows], feasible[rows] = attempt(result[rows])
        return result, feasible

    def _with_reals_moved(self, points: Array) -> tuple[Array, Flags]:
        """Change real-valued action columns of points (n, d) so that the points satisfy the linear constraints.

        Also return flags (n,), which say for which points this succeeded.
        """
        assert self.limits is not None
        movable = self.actions & np.array([isinstance(p, Real) for p in self.parameters])
        if not movable.any():
            return points, self.limits.contains(points)
        return self.limits.project(points, movable)

    def _with_integers_moved(self, points: Array) -> tuple[Array, Flags]:
        """Step integer actions of points (n, d) up or down, as long as that reduces violations of the limits.

        One or two integers change at a time.  Afterwards, real-valued action columns are moved so that the limits hold.
        Also return success flags (n,).
        """
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
        """Return whether each point (..., d) is feasible, without a tolerance for rounding errors.

        Equalities, and limits that involve only integers, still have a tolerance.
        """
        inside = self.contains(points)
        return inside if self.limits is None else inside & self.limits.contains_strictly(points)

    def _feasible_scramble(self, points: Array) -> tuple[Array, Flags]:
        """Replace infeasible actions of points (n, d) by pseudo-random ones until they are feasible.

        If there are linear limits as well as a user's function, some attempts are projected onto the linear limits. The
        number of attempts is limited, so also return flags (n,): whether each point is feasible now.
        """
        result = self.snap(points)
        feasible = self._strictly(result)
        # limits are evaluated for a block of scrambles at once; a user's function is called for one scramble at a time
        most, block = (SCRAMBLES, BLOCK) if self.allowed is None else (SCRAMBLES_OF_FUNCTION, 1)
        fruitless = 0
        for first in range(1, most, block):
            rows = np.flatnonzero(~feasible)
            if not len(rows) or (self.allowed is not None and fruitless >= FRUITLESS_CALLS):
                break
            moved = np.repeat(points[None, rows], block, axis=0)
            moved[..., self.actions] = _scrambled(points[rows][:, self.actions], np.arange(first, first + block))
            moved = self.snap(moved)
            if first in PROJECTED and self.allowed is not None and self.limits is not None:
                moved[0], _ = self._rounded(self.limits.project(moved[0], self.actions)[0])
            found = self._strictly(moved)  # (block, rows)
            feasible[rows] = found.any(0)
            best = moved[found.argmax(0), np.arange(len(rows))]
            result[rows[feasible[rows]]] = best[feasible[rows]]
            fruitless = 0 if found.any() else fruitless + len(rows)
        return result, feasible

    def _along_chords(self, points: Array) -> Array:
        """Move points (n, d) to pseudo-random places that satisfy the linear limits.

        Points are first projected onto the set where the limits hold. Then every action column is moved several times
        to a pseudo-random position on its chord. A chord is the interval in which a column satisfies the limits while
        all other columns stay fixed. A point whose projection fails stays where the projection ended.
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
    """Return a vector (d,) whose integer multiples, modulo one, fill the unit cube evenly (Roberts 2018)."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (d + 1))
    return ratio ** -np.arange(1.0, d + 1)


@cache
def _multipliers() -> NDArray[np.int64]:
    """Return the pseudo-random factors (versions, 2) with which `_scrambled` computes versions of a point."""
    return np.random.RandomState(0).randint(100, 2000, size=(SCRAMBLES_OF_FUNCTION + CHORDS, 2))


def _scrambled(points: Array, ways: NDArray[np.int64]) -> Array:
    """Return v pseudo-random versions (v, n, k) of n points (n, k) in the unit cube.

    The integers `ways` (v,) identify the versions: equal integers give equal versions.  Each of the k columns becomes
    an integer combination of two columns plus a constant, modulo one.  Points that are uniform on the cube stay
    uniform, and the versions of a point are nearly independent.
    """
    own, next_one = _multipliers()[ways].T[..., None, None]
    steps = ways[:, None] * _even_steps(points.shape[1])
    return (own * points + next_one * np.roll(points, 1, axis=1) + steps[:, None]) % 1.0


def _integer_steps(k: int) -> Array:
    """Return the changes of k integers that a search tries, one option per row: an array (options, k).

    The options are no change, one integer down or up by one, and for small k also one integer down and another one up.
    """
    eye = np.eye(k)
    pairs = [eye[j] - eye[i] for i in range(k) for j in range(k) if i != j] if k <= MOST_PAIRED else []
    return np.stack([np.zeros(k), *-eye, *eye, *pairs])


def _stepped(parameter: Parameter, values: Array, step: Array) -> Array:
    """Add the integers `step` to the `values` of an integer parameter.

    Both `values` and the result are encoded as numbers in [0, 1]; `step` is in the parameter's own units.  The sums are
    clipped to the parameter's range.
    """
    assert isinstance(parameter, Integer)
    here = np.floor(parameter.scale.from_unit(values) + 0.5)
    return parameter.encode(np.clip(here + step, parameter.low, parameter.high))
