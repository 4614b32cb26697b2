"""Models of rewards with known seeds: which parts of a seed's effect the rewards support.

The structures are fitted as if every reward had its own seed.  Then the most probable one is fitted with a constant for
every seed, with a function, and with both; the other structures only with the parts that are most probable there.  All
are weighted by their evidence, so a part that explains nothing costs probability.

Unless a constant alone is clearly more probable than a constant with a function, the latter takes its place and its
probability.  A model without functions takes what is true of one seed for what is true of all.  Few rewards do not
refute that, and the method would evaluate the same seed again and again.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import log

import torch
from torch import Tensor

from conbo.models.kernel_families import KernelFamily
from conbo.models.log_posterior import Expected, LogPosterior
from conbo.models.main_effects import MainEffectsFamily
from conbo.models.modes import Mode, best_of, local_search, structures, with_main_effects
from conbo.models.seeded_family import SeededFamily

CONSTANT_MARGIN = 10.0  # nats by which a constant without a function must be more probable than with one, …
LENGTHSCALE_COST = 1.5  # … beside what Laplace's method takes off for each lengthscale that rewards do not determine
NOISE_LEFT = log(0.2)  # of the noise's log-variance that stays noise where a climb begins

PARTS = ((True, False), (False, True), (True, True))  # of an effect: whether a constant, whether a function


def modes_with_seeds(
    families: Sequence[KernelFamily], points: Tensor, rewards: Tensor, noise: Tensor | Expected, all_modes: bool
) -> list[Mode]:
    """The modes of all structures without effects of seeds, and of the promising ones with them.

    The last column of points (n, d + 1) is the seed; families with effects of seeds are among the others.
    """
    seeded = [one for one in families if isinstance(one, SeededFamily)]
    rest = [one for one in families if not isinstance(one, SeededFamily)]
    effects = [one for one in rest if isinstance(one, MainEffectsFamily) and one.family in rest]
    plain = [one for one in rest if one not in effects]
    modes = structures(plain, points[:, :-1], rewards, noise, all_modes)
    modes += with_main_effects(effects, modes)
    if not modes:
        return []
    best = best_of(modes)
    found = cautious(with_seeds(best, [one for one in seeded if one.family == best.target.family], points))
    if not found:
        return modes
    leader = best_of(found)
    chosen = leader.target.family
    for other in seeded:
        own = [mode for mode in modes if mode.target.family == other.family]
        if own and other.parts == parts_of(leader) and other != chosen:
            found += [replace(mode, log_odds=leader.log_odds) for mode in with_seeds(best_of(own), [other], points)]
    return modes + found


def cautious(modes: Sequence[Mode]) -> list[Mode]:
    """The modes of one structure; a constant alone stays only if it is clearly more probable than with a function."""
    alone, both = ([mode for mode in modes if parts_of(mode) == parts] for parts in ((True, False), (True, True)))
    if not alone or not both:
        return list(modes)
    lengthscales = both[0].target.family.n_lengthscales - alone[0].target.family.n_lengthscales
    if alone[0].evidence > both[0].evidence + CONSTANT_MARGIN + LENGTHSCALE_COST * lengthscales:
        return list(modes)
    raised = replace(both[0], log_odds=max(0.0, alone[0].evidence - both[0].evidence))
    return [*(mode for mode in modes if parts_of(mode) == (False, True)), raised]


def parts_of(mode: Mode) -> tuple[bool, bool]:
    """Which parts of a seed's effect a model has: a constant, a function."""
    family = mode.target.family
    return family.parts if isinstance(family, SeededFamily) else (False, False)


def with_seeds(plain: Mode, families: Sequence[SeededFamily], points: Tensor) -> list[Mode]:
    """The most probable mode of each family, from a mode of the same structure without seeds and from the prior's."""
    noise = plain.target.noise_of(plain.parameters)  # a number, or known variances: it does not vary beside seeds
    level = float(torch.as_tensor(noise, dtype=torch.float64).mean())
    found = []
    for family in families:
        target = LogPosterior(family, points, plain.target.rewards, plain.target.noise)
        start = family.from_noise(plain.parameters, level)
        if target.learned:
            start[-1] += NOISE_LEFT
        found += local_search(target, torch.stack([start, target.starts()[0]]))[:1]
    return found


def seen_by(family: KernelFamily, points: Tensor) -> Tensor:
    """The columns of points (n, d + 1) that a family uses: the seed, which is last, only if it has effects of seeds."""
    return points if isinstance(family, SeededFamily) else points[:, :-1]
