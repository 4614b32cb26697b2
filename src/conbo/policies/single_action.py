"""The policy with one action for all states: the best observed action of a reference state.

It is the policy of the ConBO paper's baseline "EI + Tr" (expected improvement with transfer).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.belief import Belief

SAME = 1e-9  # distance in the unit cube below which two states count as the same


@dataclass(frozen=True)
class SingleAction:
    """A recipe for the policy with one action for all states.

    The action is given or, by default, the one with the highest posterior mean among the actions observed in a
    reference state (see `reference_state`). If none was observed there, it is chosen among all observed actions.
    """

    action: tuple[float, ...] | None = None  # in the unit cube; None: the best observed one of the reference state

    def build(self, belief: Belief, generator: torch.Generator) -> "ConstantPolicy":
        """Build the policy from a belief (data and model): a function from states (m, d_s) to actions (m, d_x)."""
        if self.action is not None:
            return ConstantPolicy(belief.observations.points.new_tensor(self.action))
        action, _ = best_observed(belief, reference_state(belief))
        return ConstantPolicy(action)

    def settled(self, belief: Belief) -> "SingleAction":
        """Return a recipe with a fixed action, the one that this recipe chooses from the belief's observations."""
        action = self.build(belief, torch.Generator()).action
        return SingleAction(tuple(action.tolist()))


@dataclass(frozen=True)
class ConstantPolicy:
    """A policy that takes the same action in every state."""

    action: Tensor  # (d_x,), in the unit cube

    def __call__(self, states: Tensor) -> Tensor:
        """Return the same action for all states (m, d_s), as rows (m, d_x)."""
        return self.action.expand(len(states), -1)


def reference_state(belief: Belief) -> Tensor:
    """Return the reference state (d_s,) in the unit cube.

    It is the first state if there are finitely many, and otherwise a central one. If state parameters are independent
    under P[s], the central state has the median of each.
    """
    finite = belief.states.finite()
    if finite is not None:
        return finite[0][0].to(belief.device)
    middle = torch.full((1, belief.n_state_dims), 0.5, dtype=torch.float64)
    return belief.states.from_uniform(middle)[0].to(belief.device)


def observed_in(belief: Belief, state: Tensor) -> Tensor:
    """Return whether each of the n observations was made in this state (d_s,), as booleans (n,)."""
    return ((belief.observations.points[:, : len(state)] - state).abs() < SAME).all(-1)


def best_observed(belief: Belief, state: Tensor) -> tuple[Tensor, float]:
    """Return the observed action (d_x,) with the highest posterior mean in a state (d_s,), and this mean.

    The action is chosen among those observed in this state or, if there are none, among all observed actions.
    """
    d_s, points = len(state), belief.observations.points
    here = observed_in(belief, state)
    actions = points[here if bool(here.any()) else slice(None), d_s:]
    mean = belief.posterior.mean(torch.cat([state.expand(len(actions), -1), actions], -1))
    best = int(mean.argmax())
    return actions[best], float(mean[best])
