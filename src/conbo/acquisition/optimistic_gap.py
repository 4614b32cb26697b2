"""Active exploration: the state whose best value is least certain, with its optimistic action.

    gap(s, x) = [μ + β σ](s, x) - max_x' [μ - β σ](s, x')

Its maximum over x is the width of a confidence interval of the state's best value, at the optimistic action. So one
acquisition function chooses state and action, as AE-LSVI does at a horizon of one step.

Reference: Li, Mehta, Kirschner, Char, Neiswanger, Schneider, Krause & Bogunovic (2023), "Near-optimal Policy
Identification in Active Reinforcement Learning".
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.acquisition.profile_improvement import POOL, StateProfile
from conbo.ascent import BatchedFunction
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.search.action_candidates import action_candidates


@dataclass(frozen=True)
class OptimisticGap:
    """A recipe for the gap between a point's upper bound and its state's best lower bound, at `beta` deviations."""

    beta: float = 2.0

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise SettingError(f"`beta` must be positive, but got beta={self.beta}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "GapAcquisition":
        """Build the function that this recipe describes, for one belief."""
        actions = action_candidates(belief, POOL, generator)
        upper, lower = (StateProfile(belief, actions, level) for level in (self.beta, -self.beta))
        return GapAcquisition(belief.n_state_dims, upper, lower)


@dataclass(frozen=True)
class GapAcquisition:
    """The acquisition function of `OptimisticGap` under one belief."""

    n_state_dims: int
    upper: StateProfile
    lower: StateProfile
    climbs_logarithm = False

    def screen(self, points: Tensor) -> Tensor:
        """The full values (c,), which are cheap enough for screening."""
        return self(points)

    def __call__(self, points: Tensor) -> Tensor:
        """Values (c,) of points (c, d)."""
        return self.value(points)[0].clamp_min(0)

    def local(self, starts: Tensor) -> BatchedFunction:
        """A function that gives values and gradients at points (r, d) near the starts."""

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            return self.value(points)

        return function

    def value(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """The gap (c,), negative if a point is surely not the best of its state, and its gradient (c, d)."""
        high, high_gradient = self.upper.quantile(points)
        low, low_gradient = self.lower.best(points[:, : self.n_state_dims])
        return high - low, high_gradient - low_gradient
