from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from conbo.problems.random_streams import (
    LAYER_AREA,
    LAYER_EDGE,
    TAIL,
    erlang,
    exponential,
    normal,
    substream,
    uniform,
)

KEY = np.uint64(2**63 + 12345)
DRAWS = 100_000
LEAST_P_VALUE = 1e-3  # the seeds are fixed: a right generator passes today and for ever
SHAPE = 9


def erlang_9(key: np.uint64, index: int) -> float:
    return erlang(key, index, SHAPE)


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (uniform, stats.uniform()),
        (exponential, stats.expon()),
        (normal, stats.norm()),
        (erlang_9, stats.gamma(SHAPE)),
    ],
)
def test_draws_follow_their_law(draw: Callable[[np.uint64, int], float], law: stats.rv_continuous) -> None:
    sample = np.array([draw(KEY, index) for index in range(DRAWS)])
    assert stats.kstest(sample, law.cdf).pvalue > LEAST_P_VALUE
    serial_correlation = np.corrcoef(sample[1:], sample[:-1])[0, 1]
    assert abs(serial_correlation) < 4 / np.sqrt(DRAWS)


def test_normals_have_the_right_tail() -> None:
    sample = np.abs([normal(KEY, index) for index in range(DRAWS)])
    expected = 2 * stats.norm.sf(TAIL) * DRAWS
    assert np.sum(sample > TAIL) == pytest.approx(expected, abs=4 * np.sqrt(expected))


def test_layers_have_equal_areas_and_reach_the_top() -> None:
    height = np.exp(-0.5 * LAYER_EDGE[1:] ** 2)
    assert LAYER_EDGE[1:-1] * np.diff(height) == pytest.approx(LAYER_AREA, rel=1e-6)
    assert np.all(np.diff(LAYER_EDGE) < 0)


def test_streams_are_addressed_and_do_not_depend_on_order() -> None:
    backward = [normal(KEY, index) for index in reversed(range(50))]
    assert backward[::-1] == [normal(KEY, index) for index in range(50)]


def test_streams_of_neighboring_seeds_replications_and_purposes_are_unrelated() -> None:
    keys = [
        np.uint64(substream(np.uint64(substream(np.uint64(seed), replication)), purpose))
        for seed in range(3)
        for replication in range(3)
        for purpose in range(3)
    ]
    assert len(set(keys)) == len(keys)
    draws = np.array([[uniform(key, index) for index in range(2000)] for key in keys])
    correlations = np.corrcoef(draws)[np.triu_indices(len(keys), k=1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(draws.shape[1])
