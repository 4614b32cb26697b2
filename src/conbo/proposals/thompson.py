"""Thompson sampling: draw a function from the posterior, and evaluate where it is highest.

A function is drawn jointly at a set of points: quasi-random points, and random points near those with the best
posterior mean.  A batch of n points comes from n independent draws, as in Kandasamy et al. (2018) and Hernández-Lobato
et al. (2017).  Points where evaluations probably fail are left out as long as there are others.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.models.factorization import cholesky
from conbo.proposals import Suggestion
from conbo.proposals.maximizer import fix_state, screening_points


@dataclass(frozen=True)
class Thompson:
    """Proposes the points at which functions drawn from the posterior are highest."""

    points: int = 1000  # number of points at which functions are drawn

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose n points (n, d) to evaluate next, one for each of n functions drawn from the posterior.

        If a state (d_s,) is given, all points are in this state.
        """
        spread = screening_points(belief, self.points // 2, generator, state)
        best = spread[belief.posterior.mean(spread).topk(min(10, len(spread))).indices]
        d = spread.shape[-1]
        width = 10 ** (-2 * torch.rand(self.points // 2, 1, generator=generator, dtype=torch.float64))
        noise = torch.randn(self.points // 2, d, generator=generator, dtype=torch.float64)
        near = best[torch.arange(self.points // 2) % len(best)] + (0.3 * width * noise).to(best)
        points = torch.cat([spread, fix_state(belief.snap(near.clamp(0, 1)), state)])
        succeed = belief.without_failures(points)
        points = points[succeed] if bool(succeed.any()) else points
        mean, covariance = belief.posterior.mean(points), belief.posterior.covariance(points, points)
        jitter = 1e-8 * torch.eye(len(points), dtype=points.dtype, device=points.device)
        root = cholesky(covariance + jitter)
        draws = torch.randn(len(points), n, generator=generator, dtype=torch.float64).to(points)
        return Suggestion(points[(mean[:, None] + root @ draws).argmax(0)])
