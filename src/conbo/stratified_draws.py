"""Stratified samples of states, from which `confidence_interval.py` computes intervals for means over P[s].

A stratum is either one state, which is drawn at least twice, or a set of states with similar expected rewards.
From such a set, 4 to 7 states are drawn (fewer only if the whole sample is smaller).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conbo.confidence_interval import magnitude
from conbo.parameters import Array

STRATUM_SIZE = 4  # least number of draws from a stratum, because the variance of fewer draws is too uncertain
NEGLIGIBLE = 1e-12  # fraction of a stratum's probability below which a row counts as a rounding error


@dataclass(frozen=True)
class Draws:
    """A stratified sample of n states from a list."""

    rows: NDArray[np.intp]  # (n,), indices of the drawn states
    strata: NDArray[np.intp]  # (n,), the stratum of each draw
    weights: Array  # (n,), the weight of each draw in a mean; they add up to 1


def draw_each(shares: Array, n: int, generator: np.random.Generator) -> Draws:
    """Draw n times from k <= n / 2 states: each state twice, and n - 2 k more draws in proportion to probabilities.

    `shares` (k,) are the probabilities of the states, up to a factor. Every state is a stratum.
    """
    k = len(shares)
    rest = (n - 2 * k) * shares / shares.sum()
    sizes = 2 + np.floor(rest).astype(int)
    left = rest - np.floor(rest)
    if missing := n - int(sizes.sum()):
        sizes[generator.choice(k, missing, replace=False, p=left / left.sum())] += 1
    rows = np.repeat(np.arange(k), sizes)
    return Draws(rows, rows, (shares / shares.sum() / sizes)[rows])


def draw_similar(features: Array, shares: Array, n: int, generator: np.random.Generator) -> Draws:
    """Draw n times from N states: 4 to 7 times from every stratum, which is a set of states with similar features.

    `features` (N, k) holds k features of each state, and `shares` (N,) the probabilities of the states, up to a factor.
    To make the strata, the set of states is halved repeatedly along the feature that varies most. Each state is drawn
    in proportion to its probability, so all draws have the same weight. If n < 4, all draws come from one stratum.
    """
    parts = _split(features / magnitude(features), np.arange(len(shares)), shares / shares.sum(), n)
    rows = [generator.choice(members, size, p=share / share.sum()) for members, share, size in parts]
    strata = np.repeat(np.arange(len(parts)), [size for *_, size in parts])
    return Draws(np.concatenate(rows), strata, np.full(n, 1 / n))


def _split(
    features: Array, members: NDArray[np.intp], share: Array, n: int
) -> list[tuple[NDArray[np.intp], Array, int]]:
    """Split states into strata for n draws; return the states, probabilities and number of draws of each stratum.

    `members` (k,) are the indices of the k states among the rows of `features`, and `share` (k,) their probabilities.
    A state on the border of two strata belongs to both, with a part of its probability in each.
    """
    if n < 2 * STRATUM_SIZE:
        return [(members, share, n)]
    own, total = features[members], share.sum()
    spread = share @ (own - share @ own / total) ** 2
    order = np.argsort(own[:, spread.argmax()], kind="stable")
    members, share = members[order], share[order]
    below = np.clip(n // 2 / n * total - (np.cumsum(share) - share), 0, share)
    strata = []
    for part, draws in ((below, n // 2), (share - below, n - n // 2)):
        kept = part > NEGLIGIBLE * total
        strata += _split(features, members[kept], part[kept], draws)
    return strata
