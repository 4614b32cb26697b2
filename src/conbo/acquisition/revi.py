"""REVI (regional expected value of improvement): discrete knowledge gradients, summed over sampled states.

    REVI(s, x) = Σ_i P_i KG_d(s_i; (s,x)) over n_s states and one set of n_x actions,   n_s = n_x = ⌈√(2n)⌉

Here, n is the number of observations; n_s and n_x are at least 4 by default.  States are drawn from P[s], with equal
weights P_i.  If there are at most n_s states, all are taken, with their probabilities P_i.  The actions form a Latin
hypercube.  The authors maximize REVI by Nelder-Mead; here, gradient-based local searches are used, with the same number
of starts.  Reference: Pearce & Branke (2018), with the settings of the ConBO paper's supplement.
"""

from dataclasses import dataclass
from math import ceil, sqrt

import torch
from torch import Tensor

from conbo.acquisition.constrained_gain import state_gains
from conbo.acquisition.integral_over_states import ConditionalAcquisition
from conbo.acquisition.knowledge_gradient import DISCRETE
from conbo.acquisition.quadrature_states import ExactStates
from conbo.belief import Belief
from conbo.errors import SettingError


@dataclass(frozen=True)
class Revi:
    """A recipe for REVI: the discrete knowledge gradient over random actions, summed over random states.

    The numbers of states and actions grow with the number of observations.
    """

    points_per_observation: float = 2.0  # number of pairs of a state and an action, divided by that of observations
    least: int = 16  # least number of pairs

    def __post_init__(self) -> None:
        if not self.points_per_observation > 0 or self.least < 1:
            given = f"{self.points_per_observation} and {self.least}"
            raise SettingError(f"`points_per_observation > 0` and `least >= 1` must hold, but got {given}.")

    def build(self, belief: Belief, generator: torch.Generator) -> ConditionalAcquisition:
        """Build the acquisition function for one belief; its random states and actions are drawn once."""
        size = max(self.points_per_observation * len(belief.observations), self.least)
        n = ceil(sqrt(size))
        actions = belief.spread_actions(latin_hypercube(n, belief.space.n_action_dims, generator).to(belief.device))
        rule = revi_states(belief, n, generator)
        return ConditionalAcquisition(belief, state_gains(belief, actions, DISCRETE), rule)


def revi_states(belief: Belief, n: int, generator: torch.Generator) -> ExactStates:
    """Return the states of REVI's sum, with their weights.

    These are all states with their probabilities if there are at most n, and otherwise n states drawn from P[s], with
    equal weights.
    """
    finite = belief.states.finite(n)
    if finite is not None:
        return ExactStates(finite[0].to(belief.device), finite[1].to(belief.device))
    states = belief.states.sample(n, generator).to(belief.device)
    return ExactStates(states, torch.full((n,), 1 / n, dtype=torch.float64, device=belief.device))


def latin_hypercube(n: int, d: int, generator: torch.Generator) -> Tensor:
    """Return a Latin hypercube of n random points (n, d): in every column, each of n equal slices holds one point."""
    slices = torch.rand(n, d, generator=generator, dtype=torch.float64).argsort(0).to(torch.float64)
    return (slices + torch.rand(n, d, generator=generator, dtype=torch.float64)) / n
