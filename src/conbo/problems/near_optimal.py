"""Reads near-optimal actions of a simulator on a grid of states, from a table in `data/`.

A simulator has no formula for its best actions, so they were found by searches with many replications
(`scripts/find_simulator_optima.py`). The first line of each file is the command that made it. The second has the names
of the columns: the state, the action, the mean reward of new replications, and the standard error of that mean.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib import resources

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from conbo.problems.simulation import Floats

HEADER_LINES = 2
COLUMNS_OF_REWARD = 2  # the mean and its standard error are the last columns of a row


@dataclass(frozen=True)
class NearOptimalTable:
    """Near-optimal actions and their rewards on a full grid of states."""

    states: Floats  # (n, state dimensions)
    actions: Floats  # (n, action dimensions)
    rewards: Floats  # (n,)

    @staticmethod
    def load(file_name: str, state_dimensions: int) -> "NearOptimalTable":
        """Read a table in `conbo/problems/data`; its first `state_dimensions` columns are the state."""
        text = (resources.files("conbo.problems") / "data" / file_name).read_text(encoding="utf-8")
        rows = np.loadtxt(text.splitlines(), delimiter=",", skiprows=HEADER_LINES, ndmin=2)
        states, actions, reward_columns = np.split(rows, [state_dimensions, -COLUMNS_OF_REWARD], axis=1)
        return NearOptimalTable(states, actions, reward_columns[:, 0])

    def action(self, state: Floats) -> Floats:
        """Return the near-optimal action (d_x,) of the grid state nearest to the given state (d_s,)."""
        distance = np.linalg.norm(self.states - state, axis=1)
        return np.asarray(self.actions[distance.argmin()], dtype=np.float64)

    def reward(self, state: Floats) -> float:
        """Return the best known mean reward in a state (d_s,), interpolated between grid states by cubic splines."""
        return float(self._spline(state)[0])

    @cached_property
    def _spline(self) -> RegularGridInterpolator:
        axes = [np.unique(column) for column in self.states.T]
        # sorted so that the first state parameter varies slowest, as SciPy's grids require
        order = np.lexsort(self.states.T[::-1])
        grid = self.rewards[order].reshape([len(axis) for axis in axes])
        return RegularGridInterpolator(axes, grid, method="cubic")
