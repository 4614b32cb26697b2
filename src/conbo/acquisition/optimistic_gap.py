"""Active exploration: choose the state whose best value is least certain, and the action with the highest upper bound.

    gap(s, x) = [μ + β σ](s, x) - max_x' [μ - β σ](s, x')

The bounds are β posterior standard deviations σ from the mean μ.  The maximum of the gap over actions x is the width of
a confidence interval for the state's best value.  So maximizing the gap chooses state and action as AE-LSVI (the
algorithm of the reference) does for a horizon of one step.

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
    """A recipe for the optimistic gap: a point's upper confidence bound minus the highest lower bound in its state.

    The bounds are `beta` posterior standard deviations above and below the posterior mean.  The highest lower bound is
    taken over all actions in the state of the point.
    """

    beta: float = 2.0  # number of standard deviations between the mean and each bound

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise SettingError(f"`beta` must be positive, but got beta={self.beta}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "GapAcquisition":
        """Build the acquisition function from a belief, which is what is known so far."""
        actions = action_candidates(belief, POOL, generator)
        upper, lower = (StateProfile(belief, actions, level) for level in (self.beta, -self.beta))
        return GapAcquisition(belief.n_state_dims, upper, lower)


@dataclass(frozen=True)
class GapAcquisition:
    """The optimistic gap as an acquisition function.

    The gap is a point's upper confidence bound, minus the highest lower confidence bound of any action in its state.
    """

    n_state_dims: int
    upper: StateProfile  # upper bounds μ + β σ, and the highest of them in each state
    lower: StateProfile  # lower bounds μ - β σ, and the highest of them in each state
    climbs_logarithm = False

    def screen(self, points: Tensor) -> Tensor:
        """Return the gaps (c,) at points (c, d), or zero where they are negative; they are cheap enough for screening.

        A gap is the point's upper confidence bound minus the highest lower bound of any action in its state.
        """
        return self(points)

    def __call__(self, points: Tensor) -> Tensor:
        """Return the gaps (c,) at points (c, d), or zero where they are negative.

        A gap is the point's upper confidence bound minus the highest lower bound of any action in its state.
        """
        return self.value(points)[0].clamp_min(0)

    def local(self, starts: Tensor) -> BatchedFunction:
        """Return the function that local searches maximize, for any `starts`: the gap, with its gradient.

        A gap is the point's upper confidence bound minus the highest lower bound of any action in its state.
        """

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            return self.value(points)

        return function

    def value(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gaps (c,) at points (c, d), and their gradients (c, d).

        A gap is the point's upper confidence bound minus the highest lower bound of any action in its state.  It is
        negative if even the upper bound is below the lower bound of another action.
        """
        high, high_gradient = self.upper.quantile(points)
        low, low_gradient = self.lower.best(points[:, : self.n_state_dims])
        return high - low, high_gradient - low_gradient
