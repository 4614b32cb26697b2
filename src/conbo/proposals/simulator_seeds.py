"""Chooses the simulator's random seed for the next evaluation: a new seed, or one that was used before.

With common random numbers, rewards of the same seed share much of their noise, so they are easier to compare.  First,
the acquisition function is maximized for a new seed, as without common random numbers.  Then used seeds are screened at
the best points, and local searches start from the most promising pairs of a point and a seed.  A used seed is chosen if
the acquisition function is higher with it than with a new seed.

A seed with many rewards is closed: it is not used again.  The knowledge gradient looks only one reward ahead, and the
first reward of a new seed tells little by itself, because the effect that this seed has on all rewards is unknown.  So
if seeds were never closed, a new seed would rarely be chosen, and the effects of the first few seeds would not average
out.

Two points of a batch may share a new seed.  A later point shares the new seed of an earlier one if that raises the
value of the acquisition function at the later point, under the assumption that the earlier point's reward equals its
expectation.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from conbo.acquisition.acquisition_function import AcquisitionRecipe, SeedsMatter
from conbo.acquisition.per_cost import PerCost
from conbo.belief import Belief
from conbo.models.posterior import ImaginesRewards
from conbo.models.seed_effects import NEW_SEED
from conbo.observations import Observations

SCREENED_SEEDS = 64  # largest number of used seeds that are screened at every point: those with the most rewards
REWARDS_PER_SEED = 6  # a seed with this many rewards is closed
STARTING_PAIRS = 4  # number of pairs of a point and a used seed from which a local search starts


def open_seeds(acquisition: SeedsMatter, observations: Observations) -> list[int]:
    """Return the simulator seeds that may be used again in the next evaluation: those with few rewards so far.

    If the study has a list of seeds and all of them have been used, no new seed is left, so return all used seeds.
    """
    if observations.seeds is None or observations.seeds_are_used_up:
        return list(acquisition.seen_seeds)
    rewards = Counter(observations.seeds.values.tolist())
    return [seed for seed in acquisition.seen_seeds if rewards[seed] < REWARDS_PER_SEED]


def promising_pairs(acquisition: SeedsMatter, points: Tensor, used: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Screen points (n, d) with up to SCREENED_SEEDS of the `used` simulator seeds; return the best points and seeds.

    The result is at most STARTING_PAIRS points (r, d), those with the highest values, and the best seed (r,) of each.
    """
    seen = torch.tensor(used[:SCREENED_SEEDS], device=points.device)
    rows, seeds = points.repeat_interleave(len(seen), 0), seen.repeat(len(points))
    values = acquisition.for_seeds(seeds).screen(rows).unflatten(0, (len(points), len(seen)))
    best = values.max(-1)
    order = best.values.argsort(descending=True, stable=True)[:STARTING_PAIRS]
    return points[order], seen[best.indices[order]]


def paired_seeds(
    recipe: AcquisitionRecipe, belief: Belief, points: Tensor, seeds: Sequence[int | None], generator: torch.Generator
) -> list[int | None]:
    """Decide which points (n, d) of a batch share a new simulator seed, and return the seeds of all points.

    An entry of `seeds` is a seed that was used before, which is never negative, or None for a new one.  In the result,
    points with the same negative number share a new seed, and None stands for a new seed of one point alone.  Seeds
    that were used before stay unchanged.
    """
    # every new seed of the batch gets a negative number of its own, different from NEW_SEED
    chosen = [NEW_SEED - 1 - place if seed is None else seed for place, seed in enumerate(seeds)]
    for place, seed in enumerate(seeds):
        before_this = Counter(chosen[:place])
        new = [number for number, times in before_this.items() if number < 0 and times < REWARDS_PER_SEED]
        if seed is not None or not new or not isinstance(belief.posterior, ImaginesRewards):
            continue
        before = torch.tensor(chosen[:place], device=points.device)
        imagined = replace(belief, posterior=belief.posterior.imagined(points[:place], before))
        acquisition = PerCost(recipe).build(imagined, generator)
        assert isinstance(acquisition, SeedsMatter)  # as it was for the first point
        n_new = sum(number < 0 for number in before_this)
        options = [NEW_SEED, *new] if n_new < belief.observations.unused_seeds else new
        values = acquisition.for_seeds(torch.tensor(options, device=points.device))
        best = options[int(values(points[place].expand(len(options), -1)).argmax())]
        chosen[place] = chosen[place] if best == NEW_SEED else best
    return [number if number >= 0 or chosen.count(number) > 1 else None for number in chosen]
