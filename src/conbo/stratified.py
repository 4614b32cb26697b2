"""Stratified samples of states, and confidence intervals for means over P[s].

=======  ==========================================================================================
symbol   meaning
=======  ==========================================================================================
h        a stratum: one state, or states for which the model expects similar rewards
W_h      the probability of stratum h under P[s]
n_h      the number of draws from stratum h: at least 2 if it is one state, otherwise 4 to 7
s_h²     sample variance of the deviations in stratum h
s²       sample variance of all deviations
N        size of the sample of states that represents P[s], infinite if all states are listed
=======  ==========================================================================================

A deviation is the measured reward minus the reward that the model expected. The mean reward over P[s] is estimated by
the mean that the model expects, plus Σ W_h (mean deviation in h). The better the model is, the narrower the interval.
With a bad model, the interval is still valid, because the model's expectations are fixed before rewards are measured (a
control variate, or prediction-powered inference).

The variance of this estimate is Σ W_h² s_h² / n_h, plus s² / N because a sample of N states represents P[s], plus the
variance of the model's mean if that was computed from a sample of states. The degrees of freedom come from
Satterthwaite's approximation in Welch's form, which is right on average if all strata have the same variance.

Before deviations or features are squared, they are divided by their `magnitude`, because the square of 1e160 overflows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conbo.parameters import Array

CONFIDENCE = 0.95
STRATUM_SIZE = 4  # least number of draws from a stratum, because the variance of fewer draws is too uncertain
NEGLIGIBLE = 1e-12  # fraction of a stratum's probability below which a row counts as a rounding error


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % confidence interval.

    Parameters
    ----------
    mean
        The estimate.
    low, high
        Lower and upper end of the interval; None if there is only one measurement.

    Examples
    --------
    >>> study.validate(profit, evaluations=8).policy_value
    Interval(mean=..., low=..., high=...)
    """

    mean: float
    low: float | None
    high: float | None

    @property
    def margin(self) -> float | None:
        """Half of the interval's width; None if there is only one measurement."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


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

    If n < 4, the only stratum has n draws. Each state has k `features` (N, k); `shares` (N,) are the probabilities of
    the states, up to a factor. Strata come from repeated halving along the feature that varies most. Each state is
    drawn in proportion to its probability, so all draws have the same weight.
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
    A state on the border of two strata is in both, each with a part of its probability.
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


def magnitude(values: Array) -> float:
    """Return the largest power of two that is at most the largest absolute value; 0.5 if all values are zero.

    Division by a power of two does not round. The squares of the quotients do not overflow, and do not all underflow.
    """
    return math.ldexp(1.0, math.frexp(float(np.abs(values).max()))[1] - 1)


def interval(
    expected: float,
    deviations: Sequence[float],
    strata: Sequence[int],
    weights: Sequence[float],
    pool: float = np.inf,
    expected_std: float = 0.0,
) -> Interval:
    """Estimate the mean reward over P[s] with a 95 % interval, which is valid even if the model is wrong.

    Parameters
    ----------
    expected
        The mean reward over P[s] that the model expects.
    deviations
        For every draw, the measured reward minus the reward that the model expects.
    strata, weights
        Stratum and weight of every draw. If some stratum has only one draw, all strata are merged into one.
    pool
        Size of the sample of states that represents P[s]; infinite if all states are listed.
    expected_std
        Standard deviation of `expected` if it was computed from a sample of states, otherwise zero.
    """
    values, n = np.asarray(deviations, dtype=float), len(deviations)
    share = np.asarray(weights, dtype=float) / float(np.sum(weights))
    mean = expected + float(share @ values)
    if n < 2:
        return Interval(mean, None, None)
    _, stratum, sizes = np.unique(np.asarray(strata), return_inverse=True, return_counts=True)
    if sizes.min() < 2:
        stratum, sizes = np.zeros(n, dtype=int), np.array([n])
    unit = magnitude(values)
    values = values / unit
    centers = np.bincount(stratum, share * values) / np.bincount(stratum, share)
    parts = np.bincount(stratum, (share * (values - centers[stratum])) ** 2) * sizes / (sizes - 1)
    variance, freedom = float(parts.sum()), float(n - len(sizes))
    if variance > 0:
        freedom = min(freedom, 1 / float(((parts / variance) ** 2 / (sizes + 1)).sum()) - 2)
    from scipy.special import stdtrit  # slow to import

    std = math.hypot(unit * (variance + float(values.var(ddof=1)) / pool) ** 0.5, expected_std)
    margin = float(stdtrit(max(freedom, 1.0), (1 + CONFIDENCE) / 2)) * std
    return Interval(mean, mean - margin, mean + margin)
