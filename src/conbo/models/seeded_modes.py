"""Models of rewards with known seeds: which parts of a seed's effect the rewards support.

The structures are fitted as if every reward had its own seed.  Then the most probable one is fitted with a constant for
every seed, with a function, and with both; the other structures only with the parts that are most probable there.  All
are weighted by their evidence, so a part that explains nothing costs probability.

Unless a constant alone is clearly more probable than a constant with a function, the latter takes its place and its
probability.  A model without functions takes what is true of one seed for what is true of all.  Few rewards do not
refute that, and the method would evaluate the same seed again and again.
"""

from dataclasses import replace
from math import log

import torch
from torch import Tensor

from conbo.models.log_posterior import Expected, LogPosterior
from conbo.models.modes import Mode, best_of, local_search, modes_of_families, with_main_effects
from conbo.models.seeded_family import SeededFamily
from conbo.models.structures import Structures

CONSTANT_MARGIN = 10.0  # nats by which a constant without a function must be more probable than with one, …
LENGTHSCALE_COST = 1.5  # … beside what Laplace's method takes off for each lengthscale that rewards do not determine
NOISE_LEFT = log(0.2)  # of the noise's log-variance that stays noise where a climb begins

Parts = tuple[bool, bool]  # of an effect: whether a constant, whether a function
CONSTANT, FUNCTION, BOTH = (True, False), (False, True), (True, True)
PARTS: tuple[Parts, ...] = (CONSTANT, FUNCTION, BOTH)


def modes_with_seeds(
    structures: Structures, points: Tensor, rewards: Tensor, noise: Tensor | Expected, all_modes: bool
) -> list[Mode]:
    """The modes of all structures without effects of seeds, and of the promising ones with them.

    The last column of points (n, d + 1) is the seed.
    """
    modes = modes_of_families(structures.plain, points[:, :-1], rewards, noise, all_modes)
    modes += with_main_effects(structures.with_main_effects, modes)
    if not modes:
        return []
    best = best_of(modes)
    same = [one for one in structures.with_seeds if one.family == best.target.family]
    others = [one for one in structures.with_seeds if one not in same]
    found = cautious({one.parts: mode for one in same for mode in with_seeds(best, one, points)})
    if not found:
        return modes
    parts = max(found, key=lambda parts: found[parts].evidence)
    modes += found.values()
    for other in others:
        own = [mode for mode in modes if mode.target.family == other.family]
        if own and other.parts == parts:
            seeded = with_seeds(best_of(own), other, points)
            modes += [replace(mode, log_odds=found[parts].log_odds) for mode in seeded]
    return modes


def cautious(modes: dict[Parts, Mode]) -> dict[Parts, Mode]:
    """The modes of one structure by their parts; a constant alone stays only if it is clearly more probable."""
    alone, both = modes.get(CONSTANT), modes.get(BOTH)
    if alone is None or both is None:
        return modes
    lengthscales = both.target.family.n_lengthscales - alone.target.family.n_lengthscales
    if alone.evidence > both.evidence + CONSTANT_MARGIN + LENGTHSCALE_COST * lengthscales:
        return modes
    raised = replace(both, log_odds=max(0.0, alone.evidence - both.evidence))
    return {parts: raised if parts == BOTH else mode for parts, mode in modes.items() if parts != CONSTANT}


def with_seeds(plain: Mode, family: SeededFamily, points: Tensor) -> list[Mode]:
    """The most probable mode of a family, from a mode of the same structure without seeds and from the prior's."""
    noise = plain.target.noise_of(plain.parameters)  # a number, or known variances: it does not vary beside seeds
    level = float(torch.as_tensor(noise, dtype=torch.float64).mean())
    target = LogPosterior(family, points, plain.target.rewards, plain.target.noise)
    start = family.from_noise(plain.parameters, level)
    if target.learned:
        start[-1] += NOISE_LEFT
    return local_search(target, torch.stack([start, target.starts()[0]]))[:1]
