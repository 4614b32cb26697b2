"""Expected improvement within one state: over its best posterior mean, or over its best reward.

References: Bardenet, Brendel, Kégl & Sebag (2013), who visit the states in turn. The paper's CNN experiment optimizes
the best observed reward of a state (data optimization).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.acquisition.improvement import ImprovementAcquisition
from conbo.belief import Belief
from conbo.policies.single_action import best_observed, observed_in
from conbo.search.action_candidates import action_candidates

POOL = 128  # quasi-random actions among which the incumbent of a state without rewards is sought


@dataclass(frozen=True)
class StateImprovement:
    """A recipe for EI at points of one state, over the best mean of that state."""

    state: Tensor  # (d_s,)

    def build(self, belief: Belief, generator: torch.Generator) -> ImprovementAcquisition:
        """Build the function that this recipe describes, for one belief."""
        _, incumbent = best_observed(belief, self.state)
        return ImprovementAcquisition(belief.posterior, incumbent)


@dataclass(frozen=True)
class RewardImprovement:
    """A recipe for EI of the next reward of a state, noise included, over the best reward observed in it.

    For the last evaluation of a state, this is exactly the expected gain of its best observed reward.  If nothing was
    observed in the state, the best predicted mean replaces the best reward.
    """

    state: Tensor  # (d_s,)

    def build(self, belief: Belief, generator: torch.Generator) -> ImprovementAcquisition:
        """Build the function that this recipe describes, for one belief."""
        here = observed_in(belief, self.state)
        if bool(here.any()):
            best = (float(belief.observations.rewards[here].amax()) - belief.shift) / belief.scale
        else:
            search = belief.search(action_candidates(belief, POOL, generator))
            best = float(search.best(self.state[None]).mean)
        return ImprovementAcquisition(belief.posterior, best, of_reward=True)
