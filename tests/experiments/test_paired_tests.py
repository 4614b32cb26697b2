import math

import numpy as np
import pytest
from scipy.stats import norm

from conbo.experiments.paired_tests import (
    Difference,
    equal,
    not_worse,
    p_value,
    paired_difference,
    power_of_margin,
    sign_flip_p,
)


def test_differences_are_paired_by_seed():
    rng = np.random.default_rng(0)
    hardness = rng.normal(0, 10, 40)  # of a seed, for both methods
    mine, others = hardness + 1 + rng.normal(0, 0.5, 40), hardness
    gap = paired_difference(mine, others)
    assert gap.mean == pytest.approx(1.0, abs=0.3)
    assert 0.5 < gap.low < gap.mean < gap.high < 1.5
    assert gap.pairs == 40
    assert gap.standing == "worse"
    # the bootstrap interval of a mean is about two standard errors wide on both sides
    error = (mine - others).std(ddof=1) / math.sqrt(40)
    assert (gap.high - gap.low) / 2 == pytest.approx(1.96 * error, rel=0.1)


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1.0], 1.0),  # both signs are as far from zero
        ([1.0, 1.0, 1.0], 2 / 8),
        ([-2.0, -1.0, -3.0, -0.5], 2 / 16),
        ([0.1] * 10, 2 / 1024),  # equal numbers, whose sums are rounded
        ([3.0, -1.0], 1.0),  # the sums are ±2 and ±4, all as far from zero as 2
        ([3.0, 1.0], 1 / 2),  # only ±4 are as far as 4
        ([0.0, 0.0], 1.0),
    ],
)
def test_all_signs_of_few_pairs_are_counted(differences, p):
    assert sign_flip_p(np.array(differences)) == pytest.approx(p)


def test_random_signs_agree_with_the_normal_approximation():
    differences = np.random.default_rng(1).normal(0.3, 1.0, 60)
    z = differences.sum() / math.sqrt((differences**2).sum())  # the variance of the sum over random signs
    assert sign_flip_p(differences) == pytest.approx(2 * norm.sf(abs(z)), abs=0.02)


def test_a_difference_needs_both_tests():
    assert Difference(-1, -2, -0.1, 0.01, 10).standing == "better"
    assert Difference(-1, -2, -0.1, 0.08, 10).standing == "level"
    assert Difference(-1, -2, 0.1, 0.01, 10).standing == "level"
    assert Difference(1, 0.1, 2, 0.01, 10).standing == "worse"
    # from ten seeds the bootstrap alone calls this a difference
    few = np.array([4.0, 2.0, 1.0, 1.0, 0.5, 0.2, 0.2, -0.1, -0.3, -0.4])
    gap = paired_difference(few, np.zeros(10))
    assert (gap.low > 0, gap.p > 0.05, gap.standing) == (True, True, "level")


def test_missing_pairs_are_left_out():
    gap = paired_difference(np.array([1.0, np.nan]), np.array([np.nan, 1.0]))
    assert (gap.pairs, gap.standing) == (0, "level")
    assert math.isnan(gap.mean)


def test_a_margin_is_shown_refuted_or_neither():
    spread = np.array([-1.0, 1.0] * 8)  # mean 0, standard error 1 / sqrt(15)
    reach = 1.7530503556925547 / math.sqrt(15)  # the 95 % quantile of Student's t with 15 degrees of freedom
    assert not_worse(spread, reach + 0.001).holds
    assert not not_worse(spread, reach - 0.001).holds
    assert not not_worse(spread, reach - 0.001).refuted
    assert not_worse(spread + 5, 5 - reach - 0.001).refuted
    assert equal(spread, reach + 0.001).holds
    assert not equal(spread - 5, reach + 0.001).holds  # better by far is not equal
    assert not_worse(spread - 5, 0.001).holds


@pytest.mark.parametrize("noisy", [0.1, 1.0])
def test_a_margin_that_is_a_share_of_the_cost_is_rarely_shown_wrongly(noisy):
    rng, shown = np.random.default_rng(5), 0
    for _ in range(2000):
        others = 1 + noisy * rng.uniform(-1, 1, 10)
        costs = 1.25 + 0.1 * rng.normal(0, 1, 10)  # a quarter above the other method's expected cost: at the margin
        shown += not_worse(costs - others, 0.25 * others).holds
    assert shown / 2000 == pytest.approx(0.05, abs=0.02)


def test_power_is_how_often_the_test_succeeds_without_a_difference():
    n, margin = 10, 0.8
    rng = np.random.default_rng(2)
    shown = [not_worse(rng.normal(0, 1, n), margin).holds for _ in range(2000)]
    assert power_of_margin(margin, 1 / math.sqrt(n), n) == pytest.approx(np.mean(shown), abs=0.03)
    # many pairs: the normal approximation in closed form
    assert power_of_margin(2.0, 1.0, 10_000) == pytest.approx(norm.cdf(2.0 - norm.ppf(0.95)), abs=1e-3)
    assert power_of_margin(0.0, 1.0, 10) == pytest.approx(0.05)


def test_p_values_in_words():
    assert [p_value(p) for p in (0.5, 0.0123, 0.0004, math.nan)] == ["0.5", "0.012", "< 0.001", "nan"]
    assert str(Difference(-1, -2, -0.5, 0.0001, 9)) == "-1 [-2, -0.5], p < 0.001"
