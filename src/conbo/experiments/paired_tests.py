"""Statistics of the paired difference in cost of two methods over the same seeds.

====================  ==============================================================================================
interval              95 % percentile bootstrap interval of the mean difference
p                     p-value of the two-sided sign-flip test; null hypothesis: the differences' signs are random
better, worse         the interval is on one side of zero and p is below 5 %; otherwise the methods are level
not worse, equal      one-sided t-tests (5 % each) of whether the mean difference is within a margin
power                 how often such a t-test would succeed if there were no difference at all
====================  ==============================================================================================

A bootstrap interval from ten seeds is too narrow, and a permutation test alone says nothing about the size of a
difference, so a difference counts only if both agree. "Level" is no evidence that two methods are equal; the tests
against a margin can give such evidence.
"""

import math
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import nct, t

from conbo.spaces import Array

RESAMPLES = 10_000
INTERVAL = 0.95
SIGNIFICANT = 0.05
MOST_EXACT = 14  # largest number of pairs for which the sign-flip test tries all combinations of signs
FLIPS = 20_000  # number of random combinations of signs if there are more pairs
ROUNDING = 1e-12  # relative tolerance within which sums count as equal, because their order may differ

Standing: TypeAlias = Literal["better", "level", "worse"]


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences of costs, with its bootstrap interval and its p-value."""

    mean: float
    low: float  # ends of the bootstrap interval
    high: float
    p: float  # p-value of the sign-flip test
    pairs: int  # number of pairs

    @property
    def standing(self) -> Standing:
        """Whether the first method is "better" (its costs are lower), "worse" or "level".

        It is level unless the interval and the sign-flip test both find a difference.
        """
        if not self.p < SIGNIFICANT:
            return "level"
        return "better" if self.high < 0 else "worse" if self.low > 0 else "level"

    def __str__(self) -> str:
        p = p_value(self.p)
        return f"{self.mean:.2g} [{self.low:.2g}, {self.high:.2g}], p {p if p.startswith('<') else f'= {p}'}"


@dataclass(frozen=True)
class WithinMargin:
    """The result of a test of whether a mean difference is within a margin."""

    holds: bool  # whether it is shown to be within the margin
    refuted: bool  # whether it is shown to be beyond the margin
    margin: float
    power: float  # probability that the test succeeds if the true difference is zero

    def __str__(self) -> str:
        said = "within" if self.holds else "beyond" if self.refuted else "undecided about"
        return f"{said} the margin {self.margin:.2g}, power {100 * self.power:.0f} %"


def paired_difference(costs: Array, others: Array) -> Difference:
    """Statistics of the differences `costs` - `others` between two methods, over the seeds that both have.

    `costs` and `others` are (seeds,); NaN marks a missing run.
    """
    differences = paired(costs, others)
    if len(differences) == 0:
        return Difference(math.nan, math.nan, math.nan, math.nan, 0)
    drawn = np.random.default_rng(0).integers(len(differences), size=(RESAMPLES, len(differences)))
    tail = (1 - INTERVAL) / 2
    low, high = np.quantile(differences[drawn].mean(1), [tail, 1 - tail])
    p = sign_flip_p(differences)
    return Difference(float(differences.mean()), float(low), float(high), p, len(differences))


def paired(costs: Array, others: Array) -> Array:
    """The differences (n,) `costs` - `others` over the n seeds that both methods have.

    `costs` and `others` are (seeds,); NaN marks a missing run.
    """
    differences = np.asarray(costs - others)
    return np.asarray(differences[np.isfinite(differences)])


def sign_flip_p(differences: Array) -> float:
    """The p-value of the two-sided sign-flip test of paired differences (n,).

    It is the share of combinations of signs for which the sum of the differences is at least as far from zero as with
    the observed signs. If there are few pairs, all combinations are tried; otherwise, the observed one and random ones.
    """
    n, observed = len(differences), abs(float(differences.sum()))
    least = observed - ROUNDING * float(np.abs(differences).sum())
    if n <= MOST_EXACT:
        signs = np.array(list(product((1.0, -1.0), repeat=n)))
        return float((np.abs(signs @ differences) >= least).mean())
    signs = np.random.default_rng(0).choice((1.0, -1.0), size=(FLIPS, n))
    as_far = int((np.abs(signs @ differences) >= least).sum())
    return (as_far + 1) / (FLIPS + 1)


def not_worse(differences: Array, margins: Array | float) -> WithinMargin:
    """Test by a one-sided t-test whether the mean of paired differences (n,) is below a margin.

    The margin is a number, or the mean of margins (n,) that differ from pair to pair, such as a share of the other
    method's cost. The test allows for the error of this mean.
    """
    n, excess, margin = len(differences), differences - margins, float(np.mean(margins))
    error = _standard_error(excess)
    reach = float(t.ppf(1 - SIGNIFICANT, n - 1)) * error
    mean = float(excess.mean())
    return WithinMargin(mean + reach < 0, mean - reach > 0, margin, power_of_margin(margin, error, n))


def equal(differences: Array, margins: Array | float) -> WithinMargin:
    """Test by two one-sided t-tests whether the absolute mean of paired differences (n,) is below a margin.

    The margin is a number, or the mean of margins (n,) that differ from pair to pair.
    """
    above, below = not_worse(differences, margins), not_worse(-differences, margins)
    power = max(0.0, above.power + below.power - 1)
    return WithinMargin(above.holds and below.holds, above.refuted or below.refuted, above.margin, power)


def power_of_margin(margin: float, error: float, n: int) -> float:
    """Probability that a one-sided t-test shows a mean difference to be below a margin, if the true mean is zero.

    The test has n pairs. `error` is the standard error of the mean difference or, if margins differ from pair to pair,
    of the mean of difference minus margin.
    """
    if error == 0:
        return 1.0 if margin > 0 else 0.0
    return float(nct.cdf(-t.ppf(1 - SIGNIFICANT, n - 1), n - 1, -margin / error))


def p_value(p: float) -> str:
    """Format a p-value with two significant digits, or as "< 0.001"."""
    return "nan" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.2g}"


def _standard_error(differences: Array) -> float:
    return float(differences.std(ddof=1) / math.sqrt(len(differences)))
