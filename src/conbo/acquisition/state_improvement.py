"""Expected improvement (EI) within one state, over its best posterior mean or over its best observed reward.

The first is used by Bardenet, Brendel, Kégl & Sebag (2013), who visit the states in turn.  The second serves the ConBO
paper's CNN experiment, which is judged by the best observed reward of each state.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.acquisition.improvement import ImprovementAcquisition
from conbo.belief import Belief
from conbo.policies.single_action import best_observed, observed_in
from conbo.search.action_candidates import action_candidates

POOL = 128  # number of quasi-random actions from which the best action of a state without rewards is searched


@dataclass(frozen=True)
class StateImprovement:
    """A recipe for expected improvement in one state, over the best posterior mean of the actions observed there.

    If nothing was observed in this state, the actions observed in all states are used instead.
    """

    state: Tensor  # (d_s,), in the unit cube

    def build(self, belief: Belief, generator: torch.Generator) -> ImprovementAcquisition:
        """Build the acquisition function from a belief, which is what is known so far."""
        _, incumbent = best_observed(belief, self.state)
        return ImprovementAcquisition(belief.posterior, incumbent)


@dataclass(frozen=True)
class RewardImprovement:
    """A recipe for expected improvement of the next noisy reward in a state over the best reward observed there.

    If nothing was observed in this state, its best posterior mean replaces the best reward.
    """

    state: Tensor  # (d_s,), in the unit cube

    def build(self, belief: Belief, generator: torch.Generator) -> ImprovementAcquisition:
        """Build the acquisition function from a belief, which is what is known so far."""
        here = observed_in(belief, self.state)
        if bool(here.any()):
            best = (float(belief.observations.rewards[here].amax()) - belief.shift) / belief.scale
        else:
            search = belief.search(action_candidates(belief, POOL, generator))
            best = float(search.best(self.state[None]).mean)
        return ImprovementAcquisition(belief.posterior, best, of_reward=True)
