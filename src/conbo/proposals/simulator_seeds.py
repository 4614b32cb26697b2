"""The choice of the simulator's seed: a new seed, or a used one, so that rewards of the same seed are compared.

Points are searched for with a new seed, as without common random numbers.  Used seeds are then screened at the best of
these points, and the most promising pairs of a point and a seed start a local search.  The highest value wins, so a
used seed is chosen only if it tells more than a new one.

A seed with many rewards is closed: it gets no more.  A gain looks one reward ahead, and the first reward of a new seed
tells little by itself, because the constant of that seed is unknown.  Gains alone would therefore rarely choose a new
seed, and the effects of the first few seeds would not average out.

A point of a batch may share the new seed of an earlier point.  It does if its value with that seed, after a reward of
the earlier point that is exactly as expected, is higher than with a seed of its own.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from conbo.acquisition.priced import PerCost, SeedsMatter, UnpricedRecipe
from conbo.belief import Belief
from conbo.models.posterior import ImaginesRewards
from conbo.models.seed_effects import NEW_SEED
from conbo.observations import Observations

SCREENED_SEEDS = 64  # largest number of used seeds that are screened at every point: those with the most rewards
REWARDS_PER_SEED = 6  # a seed with this many rewards is closed; learning its constant took about one of them
STARTING_PAIRS = 4  # number of pairs of a point and a used seed from which a local search starts


def open_seeds(acquisition: SeedsMatter, observations: Observations) -> list[int]:
    """The used seeds that the next reward may have; all of them if there are no new seeds."""
    if observations.seeds is None or observations.seeds_are_used_up:
        return list(acquisition.seen_seeds)
    rewards = Counter(observations.seeds.values.tolist())
    return [seed for seed in acquisition.seen_seeds if rewards[seed] < REWARDS_PER_SEED]


def promising_pairs(acquisition: SeedsMatter, points: Tensor, used: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The points (r, d) whose screening value with some used seed is highest, and that seed (r,) for each."""
    seen = torch.tensor(used[:SCREENED_SEEDS], device=points.device)
    rows, seeds = points.repeat_interleave(len(seen), 0), seen.repeat(len(points))
    values = acquisition.for_seeds(seeds).screen(rows).unflatten(0, (len(points), len(seen)))
    best = values.max(-1)
    order = best.values.argsort(descending=True, stable=True)[:STARTING_PAIRS]
    return points[order], seen[best.indices[order]]


def paired_seeds(
    recipe: UnpricedRecipe, belief: Belief, points: Tensor, seeds: Sequence[int | None], generator: torch.Generator
) -> list[int | None]:
    """The seeds of a batch (n, d), in which points may share a new seed; a negative number stands for a shared one."""
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
        options = torch.tensor([NEW_SEED, *new], device=points.device)
        best = int(acquisition.for_seeds(options)(points[place].expand(len(options), -1)).argmax())
        chosen[place] = chosen[place] if best == 0 else new[best - 1]
    return [number if number >= 0 or chosen.count(number) > 1 else None for number in chosen]
