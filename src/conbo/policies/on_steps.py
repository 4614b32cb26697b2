"""A policy for actions with a step size: parameters that take only values like 0, 10, 20 and so on.

Parameters of conbo have no step size, but those of Optuna may have one.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.snapping import FAR_BELOW
from conbo.parameters import Categorical, Parameter
from conbo.policies import StatePolicy
from conbo.policies.gp_argmax import GpArgmax

PASSES = 2  # number of passes over the stepped columns; each column moves one step down or up if that helps
ROUNDING = 1e-9  # by how much of a step the last value may exceed the upper bound, because of rounding errors


@dataclass(frozen=True)
class OnSteps:
    """A recipe for the policy in which some columns of the action take only the values ``first + k * step``.

    The search begins at the action that would be the best without steps, rounded to valid values. Then it passes over
    the stepped columns a few times, and moves one of them at a time by one step if that makes the action better.
    """

    columns: tuple[int, ...]  # indices of the stepped columns of the action
    first: tuple[float, ...]  # first valid value of each stepped column, in the user's units
    step: tuple[float, ...]  # distance between valid values of each stepped column, in the user's units

    def __post_init__(self) -> None:
        if not len(self.columns) == len(self.first) == len(self.step):
            given = f"{len(self.columns)}, {len(self.first)} and {len(self.step)}"
            raise SettingError(f"`columns`, `first` and `step` must be of one length, but got {given}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "SteppedPolicy":
        """Build the policy from a belief (data and model): a function from states (m, d_s) to actions (m, d_x)."""
        return SteppedPolicy(self, belief, GpArgmax().build(belief, generator))


class SteppedPolicy:
    """A policy for actions of which some columns have a step size; states and actions are in the unit cube.

    In the user's units, each of these columns takes only the values ``first + k * step``.
    """

    def __init__(self, recipe: OnSteps, belief: Belief, free: StatePolicy) -> None:
        self._belief, self._free = belief, free
        parameters = tuple(belief.space.actions.values())
        steps = zip(recipe.columns, recipe.first, recipe.step, strict=True)
        self._grids = [(column, _Grid(parameters[column], first, step)) for column, first, step in steps]

    def __call__(self, states: Tensor) -> Tensor:
        """Return the best action (m, d_x) found for each state (m, d_s), with valid values in the stepped columns."""
        actions = self._free(states).clone()
        for column, grid in self._grids:
            actions[:, column] = grid.moved(actions[:, column], 0)
        scores = self._scores(states, actions)
        for _ in range(PASSES):
            for column, grid in self._grids:
                for direction in (-1, 1):
                    there = actions.clone()
                    there[:, column] = grid.moved(actions[:, column], direction)
                    reached = self._scores(states, there)
                    better = reached > scores
                    actions = torch.where(better[:, None], there, actions)
                    scores = torch.where(better, reached, scores)
        return actions

    def _scores(self, states: Tensor, actions: Tensor) -> Tensor:
        """Return scores (m,) by which actions (m, d_x) in states (m, d_s) are compared.

        The score of an action is its standardized expected reward. If the action does not satisfy the learned
        constraints with the required confidence, its score is far below all rewards. If it violates a known limit, its
        score is lower still.
        """
        belief, points = self._belief, torch.cat([states, actions], -1)
        scores = belief.posterior.mean(points)
        if belief.constraints is not None:
            learned, likely = belief.constraints, belief.constraints.log_probability(points)
            scores = torch.where(learned.is_sure(likely), scores, learned.ranks(likely) - FAR_BELOW)
        return torch.where(belief.contains(points), scores, scores - 10 * FAR_BELOW)


@dataclass(frozen=True)
class _Grid:
    """The valid values ``first + k * step`` of one stepped parameter, in the user's units."""

    parameter: Parameter
    first: float
    step: float

    def moved(self, positions: Tensor, steps: int) -> Tensor:
        """Round positions (m,) in the unit interval to the nearest valid values, and move them by `steps` steps.

        The results are positions in the unit interval again, and stay within the parameter's range.
        """
        assert not isinstance(self.parameter, Categorical)
        values = np.array(self.parameter.decode(positions.cpu().numpy()), dtype=np.float64)
        last = np.floor((self.parameter.high - self.first) / self.step + ROUNDING)
        count = np.clip(np.round((values - self.first) / self.step) + steps, 0, last)
        return torch.from_numpy(self.parameter.encode(self.first + count * self.step)).to(positions)
