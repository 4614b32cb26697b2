"""Drawn functions have the posterior's moments, go through exact data, and have the right gradients."""

import pytest
import torch

from conbo.belief import Belief
from conbo.models.prior_draws import FourierFeatures
from conbo.spaces import Categorical, Real, Space
from random_beliefs import (
    belief_with,
    finite_differences,
    generator,
    multi_task_kernel,
    points_in,
    posterior_of,
    product_kernel,
    reals,
    trend_kernel,
    warped,
)

CATEGORIES = Space(states={"k": Categorical(["a", "b", "c"])}, actions={"x": Real(0, 1), "y": Real(0, 1)})
MIXED = Space(
    states={"s": Real(0, 1), "k": Categorical(["a", "b"])},
    actions={"x": Real(0, 1), "c": Categorical(["u", "v"])},
)
TWO_KINDS = Space(states={**MIXED.states, "l": Categorical([1, 2, 3])}, actions={"x": Real(0, 1)})
BELIEFS = {
    "product": belief_with(reals(1, 2), product_kernel(reals(1, 2)), noise=1e-2),
    "squared-exponential": belief_with(reals(1, 1), product_kernel(reals(1, 1), profile="squared-exponential")),
    "trend": belief_with(CATEGORIES, trend_kernel(CATEGORIES)),
    "mixed": belief_with(MIXED, product_kernel(MIXED)),
    "mixed trend": belief_with(MIXED, trend_kernel(MIXED, states=0.5)),
    "multi-task": belief_with(CATEGORIES, multi_task_kernel(CATEGORIES)),
    "mixed multi-task": belief_with(TWO_KINDS, multi_task_kernel(TWO_KINDS, rank=1, states=0.5)),
    "warped": belief_with(MIXED, warped(product_kernel(MIXED))),
    "no states": belief_with(reals(0, 2), product_kernel(reals(0, 2))),
}


@pytest.mark.parametrize("belief", BELIEFS.values(), ids=BELIEFS)
def test_draws_have_the_posterior_s_mean_and_covariance(belief: Belief) -> None:
    points, posterior = points_in(belief.space, 20, seed=5), posterior_of(belief)
    draws = posterior.draw_paths(5000, generator(), features=1024)(points)
    torch.testing.assert_close(draws.mean(1), posterior.mean(points), atol=0.05, rtol=0)
    # 1024 random features know the prior covariance to about 1 / √1024
    torch.testing.assert_close(torch.cov(draws), posterior.covariance(points, points), atol=0.12, rtol=0)


@pytest.mark.parametrize("belief", BELIEFS.values(), ids=BELIEFS)
def test_features_reproduce_the_kernel(belief: Belief) -> None:
    points, posterior = points_in(belief.space, 20, seed=5), posterior_of(belief)
    here = posterior.kernel.scaled(points)
    prior = posterior.kernel.draw_prior(1, 20_000, generator())
    assert isinstance(prior, FourierFeatures)
    table = prior.terms.amplitude(here[0]) * torch.cos(prior.terms.angles(*here))
    torch.testing.assert_close(table @ table.mT, posterior.kernel.covariance(here, here), atol=0.05, rtol=0)


def test_draws_go_through_exact_rewards() -> None:
    belief = belief_with(reals(1, 1), product_kernel(reals(1, 1)), n=6, noise=1e-8)
    observations = belief.observations
    values = posterior_of(belief).draw_paths(5, generator())(observations.points)
    torch.testing.assert_close(values, observations.rewards[:, None].expand(-1, 5), atol=1e-3, rtol=0)


@pytest.mark.parametrize("belief", BELIEFS.values(), ids=BELIEFS)
def test_single_draws_agree_with_all_and_have_the_right_gradient(belief: Belief) -> None:
    points = points_in(belief.space, 12, seed=3) * 0.98 + 0.01  # differences must not leave a category
    paths, draws = posterior_of(belief).draw_paths(4, generator(), features=128), torch.arange(12) % 4
    values, gradients = paths.along(points, draws)
    torch.testing.assert_close(values, paths(points).gather(1, draws[:, None])[:, 0])
    numeric = finite_differences(lambda p: paths.along(p, draws)[0], points)
    torch.testing.assert_close(gradients, numeric, atol=1e-5, rtol=1e-5)
