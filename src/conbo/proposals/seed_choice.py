"""The seed of the next evaluation: a new one, or one with other rewards to compare with.

Points are searched for with a new seed, as without common random numbers.  Used seeds are then screened at the best of
these points, and the most promising pairs of a point and a seed start a local search.  The highest value wins, so a
used seed is chosen only if it tells more than a new one.
"""

import torch
from torch import Tensor

from conbo.acquisition.priced import SeedsMatter

MOST_SEEDS = 64  # that are screened at every point, those with the most rewards
PAIRS = 4  # of a point and a seed, that are climbed from


def promising_pairs(acquisition: SeedsMatter, points: Tensor) -> tuple[Tensor, Tensor]:
    """The points (r, d) whose cheap values with a used seed are highest, and that seed (r,) for each."""
    seen = torch.tensor(acquisition.seen_seeds[:MOST_SEEDS], device=points.device)
    rows, seeds = points.repeat_interleave(len(seen), 0), seen.repeat(len(points))
    values = acquisition.for_seeds(seeds).screen(rows).unflatten(0, (len(points), len(seen)))
    best = values.max(-1)
    order = best.values.argsort(descending=True, stable=True)[:PAIRS]
    return points[order], seen[best.indices[order]]
