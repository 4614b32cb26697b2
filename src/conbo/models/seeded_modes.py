"""Fits models of rewards with known simulator seeds, in which every seed adds a constant, a function, or both.

First, all models are fitted without effects of seeds, as if every reward had its own seed.  Then the most probable
family is fitted with a constant for every seed, with a function, and with both.  The other families are fitted only
with the most probable of these three choices.  All models are weighted by their evidence, so an effect that explains
nothing lowers the probability of its model.  Models with effects of seeds have no warping and no heteroscedastic noise.

A model with constants alone claims that a seed shifts all rewards equally.  A few rewards cannot refute that, and
methods that believe it would evaluate the same seed again and again.  The model with constants and functions therefore
replaces the model with constants alone, unless the latter is much more probable.  If the replaced model has more
evidence, the replacement inherits this evidence.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import log

import torch
from torch import Tensor

from conbo.models.log_posterior import LogPosterior
from conbo.models.modes import Mode, best_of, local_search
from conbo.models.seeded_family import SeededFamily

CONSTANT_MARGIN = 10.0  # nats by which constants alone must be more probable than constants with functions
NOISE_LEFT = log(0.2)  # added to the noise's log-variance at the start of a search with effects of seeds

Parts = tuple[bool, bool]  # whether an effect has a constant, and whether it has a function
CONSTANT, FUNCTION, BOTH = (True, False), (False, True), (True, True)
PARTS: tuple[Parts, ...] = (CONSTANT, FUNCTION, BOTH)


def modes_with_seeds(families: Sequence[SeededFamily], modes: Sequence[Mode], points: Tensor) -> list[Mode]:
    """Fit promising models in which simulator seeds affect the reward; return the modes of their hyperparameters.

    A mode is a local maximum of the hyperparameters' posterior density. The argument `modes` has those of all models in
    which seeds have no effect. The last column of points (n, d + 1) is the seed. The list is empty if no two rewards
    share a seed, because effects of seeds then cannot be told from noise.
    """
    if not families or len(points[:, -1].unique()) == len(points):
        return []
    unwarped = [mode for mode in modes if mode.output is None and not mode.target.varies]
    own = [[mode for mode in unwarped if mode.target.family == family.family] for family in families]
    best = best_of([mode for of_structure in own for mode in of_structure])
    same = [one for one in families if one.family == best.target.family]
    found = cautious({one.parts: mode for one in same for mode in with_seeds(best, one, points)})
    if not found:
        return []
    parts = max(found, key=lambda parts: found[parts].evidence)
    leader, leading = found[parts], next(one for one in same if one.parts == parts)
    seeded = list(found.values())
    for other, of_structure in zip(families, own, strict=True):
        if of_structure and other not in same and other.parts == parts:
            target = LogPosterior(other, points, leader.target.rewards, leader.target.noise)
            start = other.with_effect_of(leading, leader.parameters, best_of(of_structure).parameters)
            if target.learned:
                start[-1] = leader.parameters[-1]
            more = local_search(target, start[None])[:1]
            seeded += [replace(mode, log_odds=leader.log_odds) for mode in more]
    return seeded


def cautious(modes: dict[Parts, Mode]) -> dict[Parts, Mode]:
    """Drop the model in which simulator seeds add only constants to the rewards, unless it is clearly more probable.

    `modes` has one mode for each choice of what a seed adds: a constant, a function of the point, or both. All models
    have the same family of kernels. The model with constants alone is kept if its log evidence is more than
    CONSTANT_MARGIN above that of the model with both, or if one of these two models is missing. If it is dropped but
    has more evidence than the model with both, the latter inherits this evidence.
    """
    alone, both = modes.get(CONSTANT), modes.get(BOTH)
    if alone is None or both is None:
        return modes
    if alone.evidence > both.evidence + CONSTANT_MARGIN:
        return modes
    raised = replace(both, log_odds=max(0.0, alone.evidence - both.evidence))
    return {parts: raised if parts == BOTH else mode for parts, mode in modes.items() if parts != CONSTANT}


def with_seeds(plain: Mode, family: SeededFamily, points: Tensor) -> list[Mode]:
    """Return the best mode of a family with effects of simulator seeds, as a list of one; empty if none is found.

    One search starts from typical hyperparameters, and one from `plain`, a mode of the family without these effects.
    """
    noise = plain.target.noise_of(plain.parameters)  # a number or known variances, never heteroscedastic noise
    level = float(torch.as_tensor(noise, dtype=torch.float64).mean())
    target = LogPosterior(family, points, plain.target.rewards, plain.target.noise)
    start = family.from_noise(plain.parameters, level)
    if target.learned:
        start[-1] += NOISE_LEFT
    return local_search(target, torch.stack([start, target.prior.starts()[0]]))[:1]
