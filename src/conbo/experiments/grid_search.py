"""A baseline: another library's ordinary Bayesian optimization, independently in each state of a grid.

The grid holds all states if there are few. Otherwise it holds the midpoints of cells with equal probability under P[s].
The states are visited in turn. In each state the first actions are quasi-random; then the library suggests the next
action from the rewards of that state alone. In other states the policy takes the action of the nearest grid state, or
interpolates between the actions of grid states.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal, TypeAlias

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from conbo.bound_states import bind
from conbo.errors import SettingError
from conbo.experiments.contestants import ActionRule, TrialList
from conbo.experiments.run_file import RunSettings
from conbo.experiments.state_search import StateSearch
from conbo.problems.problem import Problem
from conbo.quasi_random import sobol_points
from conbo.spaces import Array, Point, Space, Value
from conbo.trials import Trial

Library: TypeAlias = Literal["optuna", "ax"]
_DESIGN, _ASK = 4, 5  # numbers of the random streams for quasi-random actions and for the library's suggestions


@dataclass(frozen=True)
class GridSearch:
    """Settings of an alternative to conbo: another library optimizes each state of a grid on its own."""

    library: Library
    states: int  # largest number of states in the grid

    def __post_init__(self) -> None:
        if self.states < 1:
            raise SettingError(f"`states >= 1` must hold, but got states={self.states}.")

    @property
    def name(self) -> str:
        """The label of this alternative in tables and files."""
        return f"{self.library} k={self.states}"

    def enter(self, problem: Problem, settings: RunSettings, evaluations: int) -> "GridContestant":
        """Create the contestant for one run; `evaluations` is the planned number of evaluations."""
        return GridContestant(problem, self.states, self._search(problem), settings, evaluations)

    def _search(self, problem: Problem) -> StateSearch:
        exact = problem.noise == 0
        if self.library == "optuna":
            from conbo.experiments.optuna_search import OptunaSearch

            return OptunaSearch(problem.space.actions, exact)
        from conbo.experiments.ax_search import AxSearch

        return AxSearch(problem.space.actions, exact)


class GridContestant(TrialList):
    """Optimizes the states of a grid in turn, each on its own, with another library's search."""

    def __init__(
        self, problem: Problem, states: int, search: StateSearch, settings: RunSettings, evaluations: int
    ) -> None:
        super().__init__()
        self._space, self._search, self._seed = problem.space, search, settings.seed
        self._grid = state_grid(problem, states)
        k, d_x = len(self._grid), problem.space.n_action_dims
        # as many quasi-random actions as conbo would use for these actions, but at most half of a state's evaluations
        share = min(2 * d_x + 2, evaluations // (2 * k))
        self._startup = max(share, -(-settings.initial // k), 1)

    def fit(self) -> None:
        """Do nothing, because the library fits its model when it suggests."""

    def ask(self, n: int = 1) -> list[Trial]:
        """The next n points, which cycle through the states of the grid; a state's first actions are quasi-random."""
        asked = []
        for number in range(len(self._trials), len(self._trials) + n):
            place, turn = number % len(self._grid), number // len(self._grid)
            state = self._states[place]
            action = self._designed(place, turn) if turn < self._startup else self._suggested(place, number)
            asked.append(Trial(number, dict(state), action))
        return asked

    def policies(self) -> list[ActionRule]:
        """The policies to score: one takes the action of the nearest grid state, and one interpolates actions.

        The second is left out if actions cannot be interpolated (see `can_interpolate`), or if a grid state has not
        been evaluated yet.
        """
        tried = [self._tried(place) for place in range(len(self._grid))]
        known = [place for place, pairs in enumerate(tried) if pairs]
        actions = self._space.encode_actions([self._search.best(tried[place]) for place in known])
        found: list[ActionRule] = [NearestState(self._space, self._grid[known], actions)]
        if len(known) == len(self._grid) and can_interpolate(self._space, self._grid):
            found.append(InterpolatedActions(self._space, self._grid, actions))
        return found

    @cached_property
    def _states(self) -> list[dict[str, Value]]:
        return self._space.decode_states(self._grid)

    def _tried(self, place: int) -> list[tuple[Point, float]]:
        mine = self._trials[place :: len(self._grid)]
        return [(trial.action, trial.reward) for trial in mine if trial.reward is not None]

    def _designed(self, place: int, turn: int) -> dict[str, Value]:
        own = int(np.random.SeedSequence([self._seed, place, _DESIGN]).generate_state(1)[0])
        points = sobol_points(self._startup, self._space.n_action_dims, own)
        return self._space.decode_actions(points[turn : turn + 1])[0]

    def _suggested(self, place: int, number: int) -> dict[str, Value]:
        own = int(np.random.SeedSequence([self._seed, number, _ASK]).generate_state(1)[0])
        return self._search.suggest(self._tried(place), own)


def state_grid(problem: Problem, k: int) -> Array:
    """A grid (n, d_s) of states in the unit cube: all n states if there are at most k.

    Otherwise n is k, and the grid holds the midpoints of k cells with equal probability under P[s]. All dimensions have
    the same number of cells. Raises SettingError if this is impossible with k cells.
    """
    distribution, d_s = bind(problem.state_distribution, problem.space), problem.space.n_state_dims
    if (listed := distribution.listed(max_states=k)) is not None:
        return listed[0]
    side = round(k ** (1 / d_s))
    if side**d_s != k:
        raise SettingError(f"a grid over {d_s} states must have a whole number of states a side, but got k={k}.")
    midpoints = (np.arange(side) + 0.5) / side
    return distribution.transform(np.array(list(product(midpoints, repeat=d_s))))


def can_interpolate(space: Space, grid: Array) -> bool:
    """Whether actions can be interpolated between the k states of a grid (k, d_s).

    This requires that no state or action parameter is categorical, and that the grid has at least two values in each
    dimension.
    """
    numeric = not any(space.state_categories) and not any(space.action_categories)
    return numeric and all(len(np.unique(column)) > 1 for column in grid.T)


@dataclass(frozen=True)
class NearestState:
    """The policy that takes the action of the nearest state of a grid."""

    space: Space
    grid: Array  # (k, d_s)
    actions: Array  # (k, d_x)

    def many(self, states: Sequence[Point]) -> list[dict[str, Value]]:
        """The action for each state."""
        given = self.space.encode_states(list(states))
        apart = ((given[:, None] - self.grid) ** 2).sum(-1)  # (m, k)
        return self.space.decode_actions(self.actions[apart.argmin(1)])


@dataclass(frozen=True)
class InterpolatedActions:
    """The policy whose actions are interpolated linearly between the states of a grid, and constant outside it."""

    space: Space
    grid: Array  # (k, d_s), all combinations of the values in its columns
    actions: Array  # (k, d_x)

    def many(self, states: Sequence[Point]) -> list[dict[str, Value]]:
        """The action for each state."""
        axes = [np.unique(column) for column in self.grid.T]
        order = np.lexsort(self.grid.T[::-1])
        values = self.actions[order].reshape(*map(len, axes), -1)
        ends = np.array([[axis[0], axis[-1]] for axis in axes]).T
        given = np.clip(self.space.encode_states(list(states)), *ends)
        return self.space.decode_actions(RegularGridInterpolator(axes, values)(given))
