"""Rewards that are clipped at a floor: expectation propagation, and what a clipped reward explains."""

from math import inf

import mpmath
import numpy as np
import pytest
import torch
from scipy.stats import norm, truncnorm
from torch import Tensor

from conbo.belief import fit_belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models.censored import CensoredPosterior, condition_censored
from conbo.models.exact import condition
from conbo.models.mixture import Mixture
from conbo.models.posterior import Posterior
from conbo.models.transformed import TransformedPosterior
from conbo.models.truncation import floor_of, hidden_variance, ratios, sites_of, truncated
from conbo.observations import Observations
from conbo.policies.policy import Policy
from random_beliefs import finite_differences, product_kernel, reals, tensor, uniform

SPACE = reals(1, 1)
KERNEL = product_kernel(SPACE, 0.5, 0.4, profile="squared-exponential")
POINTS = uniform(12, 2, seed=4)


def smooth(points: Tensor) -> Tensor:
    """Rewards whose best action is 0.3 + 0.4 s, steep enough that a clip hides a third of the plane."""
    return -9 * (points[:, 1] - 0.3 - 0.4 * points[:, 0]).square() - torch.sin(3 * points[:, 0])


def members(posterior: Posterior) -> tuple[Posterior, ...]:
    return posterior.members if isinstance(posterior, Mixture) else (posterior,)


def is_clipped(posterior: Posterior) -> bool:
    return all(
        isinstance(one, TransformedPosterior) and isinstance(one.process, CensoredPosterior)
        for one in members(posterior)
    )


def fitted(points: Tensor, rewards: Tensor) -> Posterior:
    return fit_belief(SPACE, bind(None, SPACE), Observations(points, rewards, points[:0]), GaussianProcess()).posterior


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 1.0), (2.0, 0.5), (-3.0, 1.5), (0.3, 30.0)])
def test_the_site_of_one_variable_gives_the_moments_of_a_truncated_normal(mean: float, sd: float) -> None:
    floor = -0.2
    value, variance, expected = truncated(tensor([mean]), tensor([[sd**2]]), floor)
    precision = 1 / sd**2 + 1 / float(variance)
    wanted = truncnorm(-inf, (floor - mean) / sd, loc=mean, scale=sd)
    assert 1 / precision == pytest.approx(wanted.var(), rel=1e-5)
    assert (mean / sd**2 + float(value / variance)) / precision == pytest.approx(wanted.mean(), rel=1e-5, abs=1e-6)
    assert float(expected) == pytest.approx(wanted.mean(), rel=1e-5, abs=1e-6)


def test_sites_of_correlated_variables_are_close_to_many_draws() -> None:
    mean, covariance = tensor([0.5, -0.5, 0.2]), tensor([[1.0, 0.6, 0.3], [0.6, 0.8, -0.1], [0.3, -0.1, 1.2]])
    value, variance, expected = truncated(mean, covariance, 0.0)
    drawn = np.random.default_rng(0).multivariate_normal(mean.numpy(), covariance.numpy(), 400_000)
    below = drawn[(drawn <= 0).all(1)]
    np.testing.assert_allclose(expected, below.mean(0), atol=0.02)
    precision = torch.linalg.inv(covariance) + (1 / variance).diag()
    np.testing.assert_allclose(torch.linalg.inv(precision), np.cov(below.T), atol=0.03)
    pull = torch.linalg.solve(covariance, mean) + value / variance
    torch.testing.assert_close(torch.linalg.solve(precision, pull), expected, rtol=0, atol=1e-6)


def test_a_variable_surely_below_the_floor_gets_a_site_that_says_nothing() -> None:
    _, variance, expected = truncated(tensor([-40.0, 1.0]), tensor([[1.0, 0.2], [0.2, 1.0]]), 0.0)
    assert float(variance[0]) >= 1e6 > 10 > float(variance[1])
    assert float(expected[1]) < 0


@pytest.mark.parametrize("b", [-1e6, -60.0, -49.0, -5.0, 0.0, 3.0, 40.0])
def test_ratios_do_not_cancel_far_below_zero(b: float) -> None:
    with mpmath.workdps(60):
        wanted = mpmath.npdf(b) / (mpmath.erfc(-mpmath.mpf(b) / mpmath.sqrt(2)) / 2)
        wanted_sum = wanted + mpmath.mpf(b)
    ratio, above = ratios(tensor([b]))
    assert float(ratio) == pytest.approx(float(wanted), rel=1e-12, abs=1e-300)
    assert float(above) == pytest.approx(float(wanted_sum), rel=1e-7)


@pytest.mark.parametrize(("mean", "sd"), [(0.4, 0.7), (-1.0, 0.5), (1.5, 0.8)])
def test_a_clipped_reward_explains_as_much_as_one_with_the_hidden_variance(mean: float, sd: float) -> None:
    floor, law = 0.1, norm(mean, sd)
    hidden, in_mean, in_variance = hidden_variance(tensor([mean]), tensor([sd**2]), floor)
    # the variance that is left is that below the floor, with the probability to be there
    left = law.cdf(floor) * truncnorm(-inf, (floor - mean) / sd, loc=mean, scale=sd).var()
    noise = float(hidden)
    assert sd**2 * noise / (sd**2 + noise) == pytest.approx(left, rel=1e-6)

    def moved(pairs: Tensor) -> Tensor:
        return hidden_variance(pairs[:, 0], pairs[:, 1], floor)[0]

    slopes = finite_differences(moved, tensor([[mean, sd**2]]))[0]
    torch.testing.assert_close(torch.stack([in_mean[0], in_variance[0]]), slopes, rtol=1e-6, atol=1e-8)


def test_hidden_variances_are_finite_everywhere() -> None:
    mean, variance = torch.cartesian_prod(tensor([-1e9, -1.0, 0.0, 1.0, 1e9]), tensor([0.0, 1e-14, 1.0, 1e6])).T
    assert all(bool(part.isfinite().all()) for part in hidden_variance(mean, variance, 0.0))


@pytest.mark.parametrize(
    ("rewards", "floor"),
    [
        ([0, 0, 0, 1.0, 1.1, 2, 3, 4.2], 0.0),
        ([0, 0, 0.1, 1.0, 1.1, 2, 3, 4.2], None),  # only two
        ([0, 0, 0, 1, 1, 2, 3, 4.2], None),  # another tie: counts
        ([0, 0, 0, 0, 1, 1, 1, 1], None),  # failure or success
        ([-9, -9, -9, 1.0, 1.1, 2, 3, 4.2], None),  # a penalty
    ],
)
def test_clipped_rewards_are_told_from_counts_and_penalties(rewards: list[float], floor: float | None) -> None:
    assert floor_of(POINTS[:8], tensor(rewards)) == floor


def test_equal_rewards_at_one_point_are_one_reward() -> None:
    points = POINTS[[0, 0, 0, 1, 2, 3, 4, 5]]
    assert floor_of(points, tensor([0, 0, 0, 1.0, 1.1, 2, 3, 4.2])) is None
    points = POINTS[[0, 1, 2, 3, 3, 4, 5, 6, 7]]
    assert floor_of(points, tensor([0, 0, 0, 1.0, 1.0, 2, 3, 4.2, 5])) == 0.0


def test_without_rewards_at_the_floor_nothing_is_hidden() -> None:
    rewards = smooth(POINTS)
    noise = torch.full_like(rewards, 1e-3)
    sites = sites_of(KERNEL, 0.1, noise, POINTS, rewards, float(rewards.min()) - 1)
    assert sites.scale == 1.0
    assert torch.equal(sites.values, rewards)
    assert not sites.variances.any()


def test_leaving_out_a_reward_at_the_floor_leaves_out_its_site() -> None:
    clipped = smooth(POINTS).clamp_min(-1.0)
    posterior = condition_censored(KERNEL, 0.1, 1e-4, POINTS, clipped, -1.0)
    tied = int((clipped == -1.0).nonzero()[0])
    others = torch.arange(len(POINTS)) != tied
    sites = sites_of(KERNEL, 0.1, torch.full_like(clipped, 1e-4), POINTS, clipped, -1.0)
    noise = 1e-4 + sites.variances[others]
    without = condition(KERNEL, 0.1, noise, POINTS[others], sites.values[others])
    found = posterior.leave_one_out()
    assert found is not None
    assert float(found[0][tied]) == pytest.approx(-1.0 - float(without.mean(POINTS[tied : tied + 1])), rel=1e-5)
    sd = float(without.variance(POINTS[tied : tied + 1]) + 1e-4) ** 0.5
    assert float(found[1][tied]) == pytest.approx(sd, rel=1e-4)


def test_a_clip_of_smooth_rewards_is_undone() -> None:
    points = uniform(40, 2, seed=2)
    rewards = smooth(points)
    floor = float(rewards.sort().values[13])
    belief = fit_belief(
        SPACE, bind(None, SPACE), Observations(points, rewards.clamp_min(floor), points[:0]), GaussianProcess()
    )
    assert is_clipped(belief.posterior)
    policy = Policy(belief)
    for level in (0.1, 0.5, 0.9):
        assert float(policy({"s0": level})["x0"]) == pytest.approx(0.3 + 0.4 * level, abs=0.002)
    # predictions are in the user's units: nothing is expected to be below the floor
    grid = 0.1 + 0.8 * uniform(60, 2, seed=7)
    expected = belief.to_reward(belief.posterior.mean(grid))
    assert float(expected.min()) >= floor - 1e-9
    torch.testing.assert_close(expected, smooth(grid).clamp_min(floor), rtol=0, atol=0.1)


def test_rewards_with_much_noise_are_modeled_as_before() -> None:
    points = uniform(60, 2, seed=3)
    noise = torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rewards = (smooth(points) + noise).clamp_min(-1.5)
    assert floor_of(points, rewards) == -1.5
    assert not is_clipped(fitted(points, rewards))
