"""Random search: states are drawn from P[s], and actions are uniform (on a log scale if the parameter has one)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.proposals import Suggestion


@dataclass(frozen=True)
class UniformProposal:
    """Random search: proposes states from P[s] and uniform actions."""

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose n random points (n, d) to evaluate next, with states from P[s] unless a state (d_s,) is given."""
        states = belief.states.sample(n, generator) if state is None else state.expand(n, -1)
        actions = torch.rand(n, belief.space.n_action_dims, generator=generator, dtype=torch.float64)
        return Suggestion(belief.spread(torch.cat([states.to(belief.device), actions.to(belief.device)], -1)))
