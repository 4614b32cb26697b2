"""Confidence intervals for mean rewards over P[s], from stratified samples of states.

=======  ==========================================================================================
symbol   meaning
=======  ==========================================================================================
h        a stratum: one state, or states for which the model expects similar rewards
W_h      the probability of stratum h under P[s]
n_h      the number of draws from stratum h (see `stratified_draws.py`)
s_h²     sample variance of the deviations in stratum h
s²       sample variance of all deviations
N        size of the sample of states that represents P[s], infinite if all states are listed
=======  ==========================================================================================

A deviation is the measured reward minus the reward that the model expected. The mean reward over P[s] is estimated by
the mean that the model expects, plus Σ W_h (mean deviation in h). The better the model is, the narrower the interval.
With a bad model, the interval is still valid, because the model's expectations are fixed before rewards are measured (a
control variate, or prediction-powered inference).

The variance of this estimate has three terms. The first is Σ W_h² s_h² / n_h. The second is s² / N, because a sample of
N states represents P[s]. The third is the variance of the mean that the model expects, if this mean was computed from a
sample of states. The degrees of freedom come from Satterthwaite's approximation in Welch's form.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conbo.parameters import Array
from conbo.rounding import NINETY_FIVE

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % confidence interval.

    Parameters
    ----------
    mean
        The estimate.
    low, high
        Lower and upper end of the interval; None if there is only one measurement, or if only one of several states was
        measured.

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
        """Half of the interval's width; None if it has no ends."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


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
        For every drawn state, the measured reward minus the reward that the model expects.
    strata, weights
        For every drawn state, the index of its stratum, and its weight in the mean (up to a factor). If some stratum
        has only one drawn state, all strata are merged into one.
    pool
        Number of sampled states that represent P[s]. It is infinite if P[s] is represented exactly, by a list of all
        states.
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


def share_interval(flags: Sequence[bool], weights: Sequence[float]) -> Interval:
    """Estimate the share of states that have some property, with Wilson's 95 % interval, which also holds near 0 and 1.

    For every drawn state, `flags` says whether it has the property, and `weights` is its weight in the mean (up to a
    factor). The interval ignores strata, so it is rather too wide.
    """
    mean = float(np.average(np.asarray(flags, dtype=float), weights=weights))
    n = float(np.sum(weights)) ** 2 / float(np.square(weights).sum())  # effective number of states
    spread = NINETY_FIVE**2 / n
    center = (mean + spread / 2) / (1 + spread)
    margin = math.sqrt(spread * (mean * (1 - mean) + spread / 4)) / (1 + spread)
    return Interval(mean, max(center - margin, 0.0), min(center + margin, 1.0))


def magnitude(values: Array) -> float:
    """Return the largest absolute value, rounded down to a power of two; 0.5 if all values are zero.

    Values are divided by it before they are squared, because the square of 1e160 overflows. Division by a power of two
    does not round, and the squares of the quotients do not all underflow.
    """
    return math.ldexp(1.0, math.frexp(float(np.abs(values).max()))[1] - 1)
