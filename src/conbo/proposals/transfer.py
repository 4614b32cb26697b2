"""Transfer: optimize one state by expected improvement and use its best action everywhere ("EI + Tr").

The baseline of the paper's CNN experiment; its policy is `SingleAction`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.acquisition.state_improvement import StateImprovement
from conbo.belief import Belief
from conbo.policies.single_action import reference_state
from conbo.proposals import Suggestion
from conbo.proposals.maximizer import Maximizer


@dataclass(frozen=True)
class Transfer:
    """Proposes by expected improvement in the reference state, or in a given state."""

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """n points (n, d), apart from each other and from pending ones."""
        there = reference_state(belief) if state is None else state
        return Maximizer(StateImprovement(there)).propose(belief, n, generator, there)
