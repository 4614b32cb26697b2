"""PS-BAX: draw a function, find its whole policy, and evaluate the point of that policy that is least certain.

In the terms of BAX, the algorithm maps a function to its policy {(s, argmax_x f(s, x))}.  The policy of a drawn
function is computed at states that follow P[s].  A batch of n points is n independent draws.

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

SPARE = 4  # extra draws, in case some of them have the same point


@dataclass(frozen=True)
class PosteriorSampling:
    """Proposes the most uncertain point of a drawn function's policy, computed at `states` states."""

    states: int = 128
    climb: int = 10

    def __post_init__(self) -> None:
        if self.states < 1:
            raise SettingError(f"`states` must be at least 1, but got states={self.states}.")

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """n points (n, d), one for each draw."""
        states = policy_states(belief, self.states, generator) if state is None else state[None]
        paths = belief.draw_paths(n + SPARE, generator)
        pool = action_candidates(belief, 64, generator)
        actions = path_peaks(belief, paths, pool, states, self.climb)  # (c, n + SPARE, d_x)
        points = torch.cat([states[:, None].expand(-1, n + SPARE, -1), actions], -1)
        variance = belief.posterior.variance(points.flatten(0, 1)).unflatten(0, points.shape[:2])
        ranked = variance.argsort(dim=0, descending=True, stable=True)
        best = points.gather(0, ranked[..., None].expand_as(points)).unbind(1)  # by draw, the most uncertain first
        spare = UniformProposal().propose(belief, n, generator, state).points
        return Suggestion(new_points(belief, best, spare, n))


def policy_states(belief: Belief, n: int, generator: torch.Generator) -> Tensor:
    """All states if there are at most n, or n states that follow P[s]: (m, d_s)."""
    finite = belief.states.finite(n)
    seed = int(torch.randint(2**31, (1,), generator=generator))
    states = finite[0] if finite is not None else belief.states.from_uniform(sobol(n, belief.n_state_dims, seed))
    return states.to(belief.device)


def new_points(belief: Belief, draws: Sequence[Tensor], spare: Tensor, n: int) -> Tensor:
    """n new points: the first of each draw (m, d) that is neither pending nor chosen, then such points of `spare`.

    If there are fewer such points, some of `spare` are taken although they are not new.
    """
    taken, chosen = list(belief.observations.pending), list[Tensor]()
    for points in [*draws, *[spare] * n]:
        fresh = [point for point in points if not any(torch.equal(point, other) for other in taken)]
        if fresh and len(chosen) < n:
            chosen.append(fresh[0])
            taken.append(fresh[0])
    return torch.stack([*chosen, *spare[: n - len(chosen)]])
