"""Expected improvement within one state: over the best posterior mean among the actions observed there.

Reference: Bardenet, Brendel, Kégl & Sebag (2013), who visit the states in turn.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.acquisition.improvement import ImprovementAcquisition
from conbo.belief import Belief
from conbo.policies.single_action import best_observed


@dataclass(frozen=True)
class StateImprovement:
    """EI at points of a given state; other states are not compared with."""

    state: Tensor  # (d_s,)

    def build(self, belief: Belief, generator: torch.Generator) -> ImprovementAcquisition:
        """Ready for use under one belief."""
        _, incumbent = best_observed(belief, self.state)
        return ImprovementAcquisition(belief.posterior, incumbent)
