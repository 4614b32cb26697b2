"""PEI and PEQI against their formulas, with the best value of a state found on a dense grid."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from conbo.acquisition.profile_improvement import (
    ProfileAcquisition,
    ProfileImprovement,
    ProfileQuantileImprovement,
    after_observing,
)
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.exact import condition
from conbo.spaces import Categorical, Real, Space
from random_beliefs import (
    belief_on,
    belief_with,
    finite_differences,
    generator,
    heteroscedastic_noise,
    points_in,
    posterior_of,
    product_kernel,
    reals,
    trend_kernel,
)

GRID = torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None]
RECIPES = [ProfileImprovement(), ProfileQuantileImprovement(), ProfileQuantileImprovement(0.2)]
BELIEF = belief_with(reals(1, 1), product_kernel(reals(1, 1), actions=0.3), n=12, noise=0.05)


def on_grid(belief: Belief, states: Tensor, level: float) -> Tensor:
    """max_x' [μ + ζ σ] of each state (m, 1)."""
    posterior = posterior_of(belief)
    rows = []
    for state in states:
        points = torch.cat([state.expand(len(GRID), -1), GRID], -1)
        rows.append((posterior.mean(points) + level * posterior.variance(points).sqrt()).amax())
    return torch.stack(rows)


@dataclass(frozen=True)
class Gaussian:
    mean: Tensor
    sd: Tensor

    def improvement(self, threshold: Tensor) -> Tensor:
        normal = torch.distributions.Normal(0.0, 1.0)
        u = (self.mean - threshold) / self.sd
        return self.sd * (normal.log_prob(u).exp() + u * normal.cdf(u))


def test_pei_on_a_grid() -> None:
    points = points_in(BELIEF.space, 50, seed=7)
    posterior = posterior_of(BELIEF)
    f = Gaussian(posterior.mean(points), posterior.variance(points).sqrt())
    expected = f.improvement(on_grid(BELIEF, points[:, :1], 0.0))
    values = ProfileImprovement().build(BELIEF, generator())(points)
    torch.testing.assert_close(values, expected, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("quantile", [0.75, 0.2])
def test_peqi_on_a_grid(quantile: float) -> None:
    level = float(torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(quantile, dtype=torch.float64)))
    points = points_in(BELIEF.space, 50, seed=7)
    noise = torch.full_like(points[:, 0], 0.05)
    mean, _, sd, _ = after_observing(posterior_of(BELIEF).moments(points), level, noise, torch.zeros_like(points))
    expected = Gaussian(mean, sd).improvement(on_grid(BELIEF, points[:, :1], level))
    values = ProfileQuantileImprovement(quantile).build(BELIEF, generator())(points)
    torch.testing.assert_close(values, expected, rtol=2e-3, atol=1e-9)


def test_the_quantile_after_an_observation_is_that_of_the_model_with_it() -> None:
    """Condition on rewards one standard deviation up and down: the quantile is linear in between."""
    posterior, level, noise = posterior_of(BELIEF), 0.6745, 0.05
    for point in points_in(BELIEF.space, 4, seed=7):
        variance, flat = torch.full_like(point[:1], noise), torch.zeros_like(point[None])
        mean, _, sd, _ = after_observing(posterior.moments(point[None]), level, variance, flat)
        spread = (posterior.variance(point[None]) + noise).sqrt()
        quantiles = []
        for z in (-1.0, 1.0):
            reward = posterior.mean(point[None]) + z * spread
            points = torch.cat([BELIEF.observations.points, point[None]])
            rewards = torch.cat([BELIEF.observations.rewards, reward])
            after = condition(posterior.kernel, posterior.constant, noise, points, rewards)
            quantiles.append(after.mean(point[None]) + level * after.variance(point[None]).sqrt())
        torch.testing.assert_close((quantiles[0] + quantiles[1]) / 2, mean)
        torch.testing.assert_close((quantiles[1] - quantiles[0]) / 2, sd)


@pytest.mark.parametrize("noise", ["one for all", "varying"])
@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_gradients_are_those_of_the_values(recipe: ProfileImprovement | ProfileQuantileImprovement, noise: str) -> None:
    space = reals(2, 2)
    noises = 0.05 if noise == "one for all" else heteroscedastic_noise(space)
    belief = belief_with(space, product_kernel(space, 0.5, 0.4), n=20, noise=noises)
    acquisition: ProfileAcquisition = recipe.build(belief, generator())
    points = 0.1 + 0.8 * points_in(space, 10, seed=2)
    _, gradient = acquisition.log_value(points)
    numeric = finite_differences(lambda p: acquisition.log_value(p)[0], points)
    # the inner maximum is found to a few digits only, where it moves to another hill differences are useless
    agree = (gradient - numeric).norm(dim=-1) < 0.02 * numeric.norm(dim=-1).clamp_min(1)
    assert int(agree.sum()) >= 9


def test_a_profile_does_not_care_how_good_a_state_is() -> None:
    """Where every state has an offset of its own, adding to the rewards of one state changes nothing."""
    space = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})
    kernel, points = trend_kernel(space, 0.3, (1.0, 0.5, 1e4)), points_in(space, 12)
    rewards = torch.sin(7 * points[:, 1])
    values = []
    for offset in (0.0, 10.0):
        shifted = rewards + offset * (points[:, 0] > 0.5)
        belief = belief_on(space, condition(kernel, 0.0, 0.01, points, shifted), points, shifted)
        values.append(ProfileImprovement().build(belief, generator())(points_in(space, 20, seed=1)))
    torch.testing.assert_close(values[0], values[1], rtol=1e-2, atol=1e-6)


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="`0 < quantile < 1` must hold, but got quantile=1"):
        ProfileQuantileImprovement(1)
