"""Laws of one state, written out, against those of scipy.stats."""

import numpy as np
import pytest
from scipy import stats

from conbo.errors import SpaceError
from conbo.spaces import Real
from conbo.state_distributions import Normal, Triangular
from conbo.state_marginals import marginal

PROBABILITIES = np.concatenate([[0.0, 1e-12, 1e-6], np.linspace(0.001, 0.999, 97), [1 - 1e-6, 1.0]])


@pytest.mark.parametrize(
    ("mean", "sd", "low", "high"),
    [
        (60, 15, 10, 100),
        (0, 1, -8, 8),
        (0, 1, 20, 25),  # far in the right tail
        (0, 1, -25, -20),
        (30, 1, 0, 1),
        (5, 0.001, 0, 10),  # hardly any width
        (3, 100.0, 0, 1),  # nearly uniform
    ],
)
@pytest.mark.filterwarnings("ignore:.* of its weight on:UserWarning")
def test_a_truncated_normal_is_that_of_scipy(mean: float, sd: float, low: float, high: float) -> None:
    ours = marginal("s", Real(low, high), Normal(mean, sd))
    theirs = stats.truncnorm((low - mean) / sd, (high - mean) / sd, loc=mean, scale=sd)
    values = theirs.ppf(PROBABILITIES)
    np.testing.assert_allclose(low + (high - low) * ours.quantile(PROBABILITIES), values, rtol=0, atol=1e-9 * sd)
    densities = ours.density((values - low) / (high - low)) / (high - low)
    np.testing.assert_allclose(densities, theirs.pdf(values), rtol=1e-9, atol=1e-200)


@pytest.mark.parametrize("mode", [1.0, 5.0, 7.0])
def test_a_triangular_law_is_that_of_scipy(mode: float) -> None:
    ours = marginal("s", Real(1, 7), Triangular(mode))
    theirs = stats.triang((mode - 1) / 6, loc=1, scale=6)
    values = theirs.ppf(PROBABILITIES)
    np.testing.assert_allclose(1 + 6 * ours.quantile(PROBABILITIES), values, rtol=1e-12)
    np.testing.assert_allclose(ours.density((values - 1) / 6) / 6, theirs.pdf(values), rtol=1e-9, atol=1e-9)


def test_a_normal_distribution_that_is_flat_over_its_range_is_refused() -> None:
    with pytest.raises(
        SpaceError, match=r"`sd <= 1e\+06 \* \(high - low\)` must hold for 's', but got sd=1000000000\.0"
    ):
        marginal("s", Real(0, 1), Normal(0, 1e9))
