"""The model's best actions, rounded to steps: for parameters that take every second or every tenth value only."""

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
LEAST_LOG = -1e4  # logarithms of probabilities below this are all the same
ROUNDING = 1e-9  # share of a step by which the last step may be above the upper bound


@dataclass(frozen=True)
class OnSteps:
    """A recipe for the best action whose stepped columns are at ``first + k step``; the search begins without steps."""

    columns: tuple[int, ...]  # indices of the stepped columns of the action
    first: tuple[float, ...]  # first valid value of each, in the user's units
    step: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.columns) == len(self.first) == len(self.step):
            given = f"{len(self.columns)}, {len(self.first)} and {len(self.step)}"
            raise SettingError(f"`columns`, `first` and `step` must be of one length, but got {given}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "SteppedPolicy":
        """The function from states (m, d_s) to actions (m, d_x)."""
        return SteppedPolicy(self, belief, GpArgmax().build(belief, generator))


class SteppedPolicy:
    """The policy from states (m, d_s) to stepped actions (m, d_x) in the unit cube."""

    def __init__(self, recipe: OnSteps, belief: Belief, free: StatePolicy) -> None:
        self._belief, self._free = belief, free
        parameters = tuple(belief.space.actions.values())
        steps = zip(recipe.columns, recipe.first, recipe.step, strict=True)
        self._grids = [(column, _Grid(parameters[column], first, step)) for column, first, step in steps]

    def __call__(self, states: Tensor) -> Tensor:
        """The best stepped action found for each state."""
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
        """Expected rewards (m,), lowered far if an action is not sure enough, and farther if it is infeasible."""
        belief, points = self._belief, torch.cat([states, actions], -1)
        scores = belief.posterior.mean(points)
        if belief.constraints is not None:
            likely = belief.constraints.log_probability(points)
            scores = torch.where(belief.constraints.is_sure(likely), scores, likely.clamp_min(LEAST_LOG) - FAR_BELOW)
        return torch.where(belief.contains(points), scores, scores - 10 * FAR_BELOW)


@dataclass(frozen=True)
class _Grid:
    """The valid values of one stepped parameter."""

    parameter: Parameter
    first: float
    step: float

    def moved(self, places: Tensor, steps: int) -> Tensor:
        """The nearest valid positions (m,) in the unit interval, moved by `steps` steps within the range."""
        assert not isinstance(self.parameter, Categorical)
        values = np.array(self.parameter.decode(places.cpu().numpy()), dtype=np.float64)
        last = np.floor((self.parameter.high - self.first) / self.step + ROUNDING)
        count = np.clip(np.round((values - self.first) / self.step) + steps, 0, last)
        return torch.from_numpy(self.parameter.encode(self.first + count * self.step)).to(places)
