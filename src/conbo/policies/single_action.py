"""The policy with one action for all states: the best observed action of a reference state ("EI + transfer")."""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.belief import Belief

SAME = 1e-9  # distance in the unit cube below which two states count as the same


@dataclass(frozen=True)
class SingleAction:
    """A recipe for one action in all states: the best of a reference state, or a given unit-cube `action` (d_x,)."""

    action: tuple[float, ...] | None = None

    def build(self, belief: Belief, generator: torch.Generator) -> "ConstantPolicy":
        """The function from states (m, d_s) to actions (m, d_x)."""
        if self.action is not None:
            return ConstantPolicy(belief.observations.points.new_tensor(self.action))
        action, _ = best_observed(belief, reference_state(belief))
        return ConstantPolicy(action)

    def settled(self, belief: Belief) -> "SingleAction":
        """The same recipe with the action that is best now, so that it no longer depends on P[s]."""
        action = self.build(belief, torch.Generator()).action
        return SingleAction(tuple(action.tolist()))


@dataclass(frozen=True)
class ConstantPolicy:
    """The same action for every state."""

    action: Tensor  # (d_x,)

    def __call__(self, states: Tensor) -> Tensor:
        """The action, repeated for every state (m, d_s)."""
        return self.action.expand(len(states), -1)


def reference_state(belief: Belief) -> Tensor:
    """The first of finitely many states, or else the middle of P[s]: (d_s,)."""
    finite = belief.states.finite()
    if finite is not None:
        return finite[0][0].to(belief.device)
    middle = torch.full((1, belief.n_state_dims), 0.5, dtype=torch.float64)
    return belief.states.from_uniform(middle)[0].to(belief.device)


def observed_in(belief: Belief, state: Tensor) -> Tensor:
    """Which observations (n,) are in this state (d_s,)."""
    return ((belief.observations.points[:, : len(state)] - state).abs() < SAME).all(-1)


def best_observed(belief: Belief, state: Tensor) -> tuple[Tensor, float]:
    """The action with the highest posterior mean in a state (d_s,), and that mean.

    It is one of the actions observed in this state or, if there is none, one of all observed actions.
    """
    d_s, points = len(state), belief.observations.points
    here = observed_in(belief, state)
    actions = points[here if bool(here.any()) else slice(None), d_s:]
    mean = belief.posterior.mean(torch.cat([state.expand(len(actions), -1), actions], -1))
    best = int(mean.argmax())
    return actions[best], float(mean[best])
