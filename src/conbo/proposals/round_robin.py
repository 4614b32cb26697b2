"""SCoT (surrogate-based collaborative tuning): visit states in turn, and maximize expected improvement within each.

There must be finitely many states.  The next state is the one with the fewest evaluations, including pending ones.  So
in the end all states have equally many evaluations, even if initial trials, or states that the user set, favored some.
States in which all evaluations probably fail are left out, as long as there are others.

Reference: Bardenet, Brendel, Kégl & Sebag (2013).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conbo.acquisition.state_improvement import StateImprovement
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.columns import squared_distances
from conbo.proposals import Suggestion
from conbo.proposals.maximizer import Maximizer
from conbo.quasi_random import sobol

ACTIONS = 64  # number of actions of which one must probably succeed
CHUNK = 1000  # number of states whose actions are tried at once
SAME = 1e-12  # largest squared distance of a state from itself, which is due to rounding errors


@dataclass(frozen=True)
class RoundRobin:
    """Proposes the points with the highest expected improvement in the states with the fewest evaluations."""

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose n points (n, d) to evaluate next, in the least evaluated states or in a given state (d_s,)."""
        batch: list[Tensor] = []
        for _ in range(n):
            there = next_state(belief) if state is None else state
            point = Maximizer(StateImprovement(there)).propose(belief, 1, generator, there).points
            belief = replace(belief, observations=belief.observations.with_pending(point))
            batch.append(point)
        return Suggestion(torch.cat(batch))


def next_state(belief: Belief) -> Tensor:
    """Return the state (d_s,) with the fewest evaluations, including pending ones; if there are several, the first.

    States in which all evaluations probably fail are left out, as long as there are others.
    """
    finite = belief.states.finite()
    if finite is None:
        raise SettingError("states in turn need finitely many states: use 'pei' or 'conbo' for continuous ones.")
    states, d_s = finite[0].to(belief.device), belief.n_state_dims
    observations = belief.observations
    visited = torch.cat([observations.points, observations.pending])[:, :d_s]
    visits = (squared_distances(states, visited) < SAME).sum(-1)
    order = states[visits.argsort(stable=True)]
    return next((some[0] for chunk in order.split(CHUNK) if len(some := hopeful(belief, chunk))), order[0])


def hopeful(belief: Belief, states: Tensor) -> Tensor:
    """Return those of the states (m, d_s), in the same order, in which evaluations probably succeed for some action.

    In each state, the same quasi-random actions are tried.  If failures are not modeled, all states are returned.
    """
    if belief.constraints is None or belief.constraints.success is None:
        return states
    d_x = belief.space.n_action_dims
    actions = belief.snap_actions(sobol(ACTIONS, d_x, seed=0).to(states))
    points = torch.cat([states[:, None].expand(-1, ACTIONS, -1), actions.expand(len(states), -1, -1)], -1)
    succeeds = belief.constraints.success_probability(points.flatten(0, 1)).view(len(states), ACTIONS) > 0.5
    return states[succeeds.any(-1)]
