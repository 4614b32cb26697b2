"""PS-BAX: draw a function from the posterior, and evaluate the least certain point of its optimal policy.

Bayesian algorithm execution (BAX) estimates the output of an algorithm.  Here, the algorithm maps a function to its
optimal policy {(s, argmax_x f(s, x))}, computed at states that follow P[s].  A batch of n points comes from n
independent draws.  Points where evaluations probably fail are left out; if a policy has no others, points are uniform.

Reference: Cheng, Astudillo, Desautels & Yue (2024), "Practical Bayesian Algorithm Execution via Posterior Sampling".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.proposals import Suggestion
from conbo.proposals.uniform import UniformProposal
from conbo.quasi_random import sobol
from conbo.search.action_candidates import action_candidates
from conbo.search.path_peaks import path_peaks

SPARE = 4  # number of extra draws, in case several draws choose the same point


@dataclass(frozen=True)
class PosteriorSampling:
    """Proposes, for functions drawn from the posterior, the least certain points of their optimal policies."""

    states: int = 128  # number of states at which the policy of a drawn function is computed
    climb: int = 10  # largest number of steps of the local search for the best action of a state

    def __post_init__(self) -> None:
        if self.states < 1:
            raise SettingError(f"`states` must be at least 1, but got states={self.states}.")

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose n points (n, d) to evaluate next, one for each of n functions drawn from the posterior.

        If a state (d_s,) is given, all points are in this state.
        """
        states = policy_states(belief, self.states, generator) if state is None else state[None]
        paths = belief.draw_paths(n + SPARE, generator)
        pool = action_candidates(belief, 64, generator)
        actions = path_peaks(belief, paths, pool, states, self.climb)  # (c, n + SPARE, d_x)
        points = torch.cat([states[:, None].expand(-1, n + SPARE, -1), actions], -1)
        variance = belief.posterior.variance(points.flatten(0, 1)).unflatten(0, points.shape[:2])
        ranked = variance.argsort(dim=0, descending=True, stable=True)
        ordered = points.gather(0, ranked[..., None].expand_as(points)).unbind(1)  # by draw, the most uncertain first
        best = [draw[belief.without_failures(draw)] for draw in ordered]
        spare = UniformProposal().propose(belief, n, generator, state).points
        return Suggestion(new_points(belief, best, spare, n))


def policy_states(belief: Belief, n: int, generator: torch.Generator) -> Tensor:
    """Return all states (m, d_s) if there are at most n, otherwise n quasi-random states that follow P[s]."""
    finite = belief.states.finite(n)
    seed = int(torch.randint(2**31, (1,), generator=generator))
    states = finite[0] if finite is not None else belief.states.from_uniform(sobol(n, belief.n_state_dims, seed))
    return states.to(belief.device)


def new_points(belief: Belief, draws: Sequence[Tensor], spare: Tensor, n: int) -> Tensor:
    """Choose n points (n, d) to evaluate next, preferably new ones: neither pending nor already chosen.

    Each tensor of `draws` holds the m points (m, d) of one drawn function, in order of preference.  The first new point
    of each tensor is chosen, until there are n points.  If the tensors give fewer than n, the missing ones come from
    `spare` (k, d), new points first.
    """
    taken, chosen = list(belief.observations.pending), list[Tensor]()
    for points in [*draws, *[spare] * n]:
        fresh = [point for point in points if not any(torch.equal(point, other) for other in taken)]
        if fresh and len(chosen) < n:
            chosen.append(fresh[0])
            taken.append(fresh[0])
    return torch.stack([*chosen, *spare[: n - len(chosen)]])
