"""Transfer: optimize one state by expected improvement, and use its best action in all states.

It is the baseline "EI + Tr" of the ConBO paper's experiment with convolutional networks.  Its policy is in
`conbo.policies.single_action`.
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
    """Proposes the points with the highest expected improvement in one reference state.

    The reference state is the first state if there are finitely many, otherwise a central one.
    """

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose n points (n, d) to evaluate next, in a given state (d_s,) or, by default, in the reference state.

        The reference state is the first state if there are finitely many, otherwise a central one.
        """
        there = reference_state(belief) if state is None else state
        return Maximizer(StateImprovement(there)).propose(belief, n, generator, there)
