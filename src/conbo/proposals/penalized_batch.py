"""Chooses a batch of points by local penalization: take the best point, penalize similar points, take the next best.

The candidates are all points at which a search for the maximum has computed the acquisition function.  The value of a
candidate (s,x) is multiplied by a factor φ for each point (s,x)ⁱ that was chosen before or is pending, where k⁰ is the
prior covariance:

    φ((s,x), (s,x)ⁱ) = 1 - k⁰((s,x), (s,x)ⁱ) / k⁰((s,x)ⁱ, (s,x)ⁱ)

Reference: González, Dai, Hennig & Lawrence (2016); Groves, Pearce & Branke (2018).
"""

import torch
from torch import Tensor

from conbo.belief import Belief

DISTINCT = 0.01  # points with a smaller factor φ are considered the same, and are not both in a batch


def penalty(belief: Belief, points: Tensor, chosen: Tensor) -> Tensor:
    """Return factors (p, q) that penalize p points (p, d) for their similarity to q already chosen points (q, d).

    A factor is one minus the similarity of two points: 0 if they are the same, and 1 if they are unrelated.
    """
    return 1 - belief.posterior.similarity(points, chosen)


def penalized_batch(belief: Belief, points: Tensor, values: Tensor, n: int) -> Tensor:
    """Choose n points (n, d) that have high values and are similar neither to each other nor to pending points.

    The points are chosen from `points` (p, d), whose values (p,) of the acquisition function must not be negative.
    """
    return points[penalized_rows(belief, points, values, n)]


def penalized_rows(belief: Belief, points: Tensor, values: Tensor, n: int) -> list[int]:
    """Return the indices of n points that have high values and are similar neither to each other nor to pending points.

    The points are chosen from `points` (p, d), whose values (p,) of the acquisition function must not be negative.
    """
    factor = torch.ones_like(values)
    apart = torch.ones_like(values, dtype=torch.bool)

    def avoid(chosen: Tensor) -> None:
        nonlocal factor, apart
        between = penalty(belief, points, chosen)
        factor = factor * between.prod(-1)
        apart = apart & (between >= DISTINCT).all(-1)

    if len(belief.observations.pending):
        avoid(belief.observations.pending)
    batch: list[int] = []
    for _ in range(n):
        if batch:
            avoid(points[batch[-1:]])
        # if no point is far enough from the others, take the farthest one
        score = torch.where(apart, values * factor, -torch.inf) if bool(apart.any()) else factor
        batch.append(int(score.argmax()))
    return batch
