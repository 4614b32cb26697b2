"""Intervals that hold the truth as often as they say, whatever the model believes."""

import numpy as np
import pytest
from scipy import stats

from conbo.confidence_interval import interval, magnitude, share_interval
from conbo.spaces import Array
from conbo.stratified_draws import Draws, draw_each, draw_similar

STUDIES = 1000
STATES = (np.arange(200) + 0.5) / 200  # that stand for P[s], evenly
SHARES = np.array([0.4, 0.3, 0.2, 0.07, 0.03])  # of five states
REWARDS = np.array([1.0, 2.0, 3.0, 10.0, 30.0])


def coverage(truth: float, ends: list[tuple[float | None, float | None]]) -> float:
    return float(np.mean([low is not None and high is not None and low <= truth <= high for low, high in ends]))


# the policy x = s earns 5 s in state s of [0, 1], what the model believes is wrong in one way or another
@pytest.mark.parametrize(
    ("wrong", "n"), [("nowhere", 10), ("by waves", 10), ("everywhere", 10), ("upside down", 10), ("by waves", 25)]
)
def test_the_interval_of_a_policy_holds_the_truth(wrong: str, n: int) -> None:
    generator = np.random.default_rng(n)
    true = 5 * STATES
    believed = {
        "nowhere": true,
        "by waves": true + np.sin(20 * STATES),
        "everywhere": true + 3,
        "upside down": -true,
    }[wrong]
    features, shares = np.stack([believed, np.zeros_like(believed)], 1), np.full(len(STATES), 1 / len(STATES))
    ends, errors = [], []
    for _ in range(STUDIES):
        draws = draw_similar(features, shares, n, generator)
        rewards = true[draws.rows] + generator.normal(size=n)
        found = interval(float(believed.mean()), *_told(draws, rewards - believed[draws.rows]))
        ends.append((found.low, found.high))
        errors.append(found.mean - 2.5)
    assert 0.93 <= coverage(2.5, ends) <= 0.97
    assert abs(np.mean(errors)) < 4 * np.std(errors) / STUDIES**0.5  # unbiased


def _told(draws: Draws, deviations: Array) -> tuple[list[float], list[int], list[float]]:
    return deviations.tolist(), draws.strata.tolist(), draws.weights.tolist()


@pytest.mark.parametrize("noise", [0.2, 3.0])
def test_rare_states_count_by_their_probability(noise: float) -> None:
    generator = np.random.default_rng(0)
    truth, believed = float(SHARES @ REWARDS), 0.9 * REWARDS
    ends = []
    for _ in range(STUDIES):
        draws = draw_each(SHARES, 12, generator)
        rewards = REWARDS[draws.rows] + noise * generator.normal(size=12)
        found = interval(float(SHARES @ believed), *_told(draws, rewards - believed[draws.rows]))
        ends.append((found.low, found.high))
    assert 0.93 <= coverage(truth, ends) <= 0.97


def test_exact_rewards_of_all_states_leave_no_doubt() -> None:
    draws = draw_each(SHARES, 10, np.random.default_rng(0))
    found = interval(0.0, *_told(draws, REWARDS[draws.rows]))
    assert found.mean == pytest.approx(SHARES @ REWARDS)
    assert found.margin == pytest.approx(0)


@pytest.mark.parametrize("n", [2, 7, 10, 33])
def test_every_row_is_drawn_in_proportion_to_its_share(n: int) -> None:
    generator = np.random.default_rng(1)
    counts = np.zeros(5)
    for _ in range(1000):
        draws = draw_similar(REWARDS[:, None], SHARES, n, generator)
        assert len(draws.rows) == n
        assert min(np.bincount(draws.strata)) >= min(n, 4)
        counts += np.bincount(draws.rows, minlength=5)
    assert counts / 1000 / n == pytest.approx(SHARES, abs=0.03)


def test_strata_join_what_is_alike() -> None:
    features = np.random.default_rng(2).random((1000, 1))
    draws = draw_similar(features, np.full(1000, 1e-3), 16, np.random.default_rng(3))
    low = features[draws.rows, 0]
    for stratum in range(4):  # each is a quarter of the range
        assert np.abs(low[draws.strata == stratum] - (stratum + 0.5) / 4).max() < 0.15


def test_a_stratum_that_lost_a_draw_widens_the_interval() -> None:
    whole = interval(0, [1.0, 1.1, 5.0, 5.1], [0, 0, 1, 1], [0.25] * 4)
    less = interval(0, [1.0, 1.1, 5.0], [0, 0, 1], [0.25] * 3)
    assert whole.margin is not None
    assert less.margin is not None
    assert less.margin > 10 * whole.margin
    assert interval(2.0, [1.0], [0], [1.0]).margin is None


@pytest.mark.parametrize("factor", [1e160, 1e300, 1e-200, 1e-300])
def test_rewards_whose_squares_are_no_numbers_scale_strata_and_intervals(factor: float) -> None:
    features = np.random.default_rng(4).random((100, 2)) * [1, 2]
    usual, scaled = (
        draw_similar(unit * features, np.full(100, 0.01), 16, np.random.default_rng(5)) for unit in (1.0, factor)
    )
    assert scaled.rows.tolist() == usual.rows.tolist()
    deviations, others = features[usual.rows, 0], (usual.strata.tolist(), usual.weights.tolist(), 100)
    once = interval(1.0, deviations.tolist(), *others, 0.1)
    often = interval(factor, (factor * deviations).tolist(), *others, 0.1 * factor)
    assert often.margin is not None
    assert (often.mean / factor, often.margin / factor) == pytest.approx((once.mean, once.margin))


def test_deviations_of_zero_have_an_interval() -> None:
    assert interval(1.0, [0.0] * 4, [0] * 4, [0.25] * 4).margin == 0
    tiny = interval(1.0, [1.0, 1.0, 1e-90, 2e-90], [0, 0, 1, 1], [0.25] * 4)
    assert tiny.margin == pytest.approx(0)


def test_a_magnitude_is_exact() -> None:
    values = np.array([0.1, -0.3, 7.0])
    assert magnitude(values) == 4
    assert (magnitude(values) * (values / magnitude(values))).tolist() == values.tolist()
    assert magnitude(np.array([5e-324])) == 5e-324
    assert magnitude(np.zeros(2)) > 0


@pytest.mark.parametrize("n_true", [0, 1, 7, 10])
def test_the_interval_of_a_share_is_wilsons(n_true: int) -> None:
    found = share_interval([True] * n_true + [False] * (10 - n_true), [0.1] * 10)
    wilson = stats.binomtest(n_true, 10).proportion_ci(method="wilson")
    assert found.mean == pytest.approx(n_true / 10)
    assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high), abs=1e-4)


def test_a_share_counts_states_by_their_weights() -> None:
    found = share_interval([True, False, False], [2, 1, 1])
    assert found.mean == pytest.approx(0.5)
    narrow = share_interval([True, True, False, False], [1, 1, 1, 1])
    assert found.margin is not None
    assert narrow.margin is not None
    assert found.margin > narrow.margin
