"""Which seed the next evaluation has: a new one, or one whose other rewards it is compared with.

Points are searched for with a new seed, as they are without common random numbers.  Seeds that were used are then
screened at the best of these points, and the most promising pairs of a point and a seed are climbed from.  What has
the highest value is chosen, so that a used seed is taken only where it tells more than a new one.
"""

import torch
from torch import Tensor

from conbo.acquisition.priced import SeedsMatter

MOST_SEEDS = 64  # that are screened at every point, those with the most rewards
PAIRS = 4  # of a point and a seed, that are climbed from


def promising_pairs(acquisition: SeedsMatter, points: Tensor) -> tuple[Tensor, Tensor]:
    """The points (r, d) whose cheap values with a used seed are highest, and that seed (r,) for each of them."""
    seen = torch.tensor(acquisition.seen_seeds[:MOST_SEEDS], device=points.device)
    rows, seeds = points.repeat_interleave(len(seen), 0), seen.repeat(len(points))
    values = acquisition.for_seeds(seeds).screen(rows).unflatten(0, (len(points), len(seen)))
    best = values.max(-1)
    order = best.values.argsort(descending=True, stable=True)[:PAIRS]
    return points[order], seen[best.indices[order]]
