"""Predictions averaged over hyperparameters: the draws against second differences, the average against an integral."""

from math import log

import pytest
import torch

from conbo.belief import fit_belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models.exact import condition
from conbo.models.fit import fit
from conbo.models.hyperparameter_average import MOST_REWARDS, averaged, drawn_fits
from conbo.models.kernel_families import ProductFamily
from conbo.models.log_posterior import LogPosterior
from conbo.models.mixture import Mixture
from conbo.models.structures import Structures
from conbo.observations import Observations
from kernel_family_cases import columns
from random_beliefs import belief_with, product_kernel, reals, uniform

SPACE = reals(0, 1)
NOISE = torch.full((20,), 0.05, dtype=torch.float64)
TOLD = belief_with(SPACE, product_kernel(SPACE, 0.5, 0.3), n=20, noise=0.05).observations
FAMILY = ProductFamily(*columns(SPACE))
TARGET = LogPosterior(FAMILY, TOLD.points, TOLD.rewards, NOISE)


def test_draws_have_the_covariance_of_laplace_s_method() -> None:
    (fitted,) = fit(Structures((FAMILY,)), TOLD.points, TOLD.rewards, NOISE)
    mode = torch.tensor(fitted.record["parameters"], dtype=torch.float64)
    drawn = TARGET.draws(mode, pairs=4000)
    torch.testing.assert_close(drawn.mean(0), mode)
    step = 1e-3 * torch.eye(2, dtype=torch.float64)
    corners = torch.stack(
        [mode + a * step[i] + b * step[j] for i in (0, 1) for j in (0, 1) for a in (-1, 1) for b in (-1, 1)]
    )
    values = TARGET(corners)[0].reshape(2, 2, 2, 2)
    second = -(values[..., 0, 0] - values[..., 0, 1] - values[..., 1, 0] + values[..., 1, 1]) / 4e-6
    torch.testing.assert_close(drawn.T.cov(), second.inverse(), rtol=0.1, atol=0.01)


def test_the_average_is_the_integral_over_the_hyperparameters() -> None:
    """Few rewards, against a sum over a fine grid; fixed hyperparameters are too sure."""
    told = Observations(TOLD.points[:7], TOLD.rewards[:7], TOLD.points[:0], NOISE[:7])
    known, structures = (told.points, told.rewards, told.noise), Structures((FAMILY,))
    fits, target = fit(structures, *known), LogPosterior(FAMILY, told.points, told.rewards, NOISE[:7])
    sides = (log(0.05), log(20.0)), (-3.0, 4.0)  # of the lengthscale and of the variance
    grid = torch.cartesian_prod(*(torch.linspace(*side, 41, dtype=torch.float64) for side in sides))
    densities, _, constants = target(grid)
    weights = (densities + grid.sum(-1)).softmax(0)  # densities of the logarithms
    rows = zip(grid, constants.tolist(), strict=True)
    each = [condition(target.kernel(row), constant, NOISE[:7], *known[:2]) for row, constant in rows]
    exact = Mixture(tuple(each), weights)
    points = uniform(40, 1, seed=1)
    wanted = exact.variance(points).sqrt()
    fixed, average = fits[0].posterior(*known), averaged(fits, structures, told, told, small_noise=False)
    torch.testing.assert_close(average.mean(points), exact.mean(points), atol=0.3, rtol=0)
    off, too_small = (float((one.variance(points).sqrt() / wanted).log().mean()) for one in (average, fixed))
    assert too_small < -0.05
    assert abs(off) < 0.5 * abs(too_small)


def test_a_draw_that_is_less_probable_than_the_normal_approximation_says_has_less_weight() -> None:
    told = Observations(TOLD.points[:9], TOLD.rewards[:9], TOLD.points[:0])
    (fitted,) = fit(Structures((FAMILY,)), told.points, told.rewards)  # with learned noise, whose posterior is skewed
    drawn, ratios = drawn_fits(fitted, Structures((FAMILY,)), told, 8, small_noise=False)
    assert len(drawn) == len(ratios) == 16
    assert float(ratios.max()) == 1
    assert float(ratios.min()) < 0.5
    given = [fitted], Structures((FAMILY,)), told, told, False
    equal, weighted = averaged(*given), averaged(*given, weighted=True)
    assert isinstance(equal, Mixture)
    assert isinstance(weighted, Mixture)
    assert equal.weights.tolist() == pytest.approx([1 / 16] * 16)
    assert weighted.weights.tolist() == pytest.approx((ratios / ratios.sum()).tolist())


def test_predictions_come_from_the_average_and_suggestions_from_the_models() -> None:
    belief = fit_belief(SPACE, bind(None, SPACE), TOLD, GaussianProcess())
    assert belief.average is not None
    assert belief.predictive is belief.predictive
    points = uniform(40, 1, seed=1)
    assert float((belief.predictive.variance(points) / belief.posterior.variance(points)).mean()) > 1
    assert belief.predictive.mean(points).tolist() == belief.average().mean(points).tolist()  # the same every time


def test_with_many_rewards_hyperparameters_count_as_known() -> None:
    points = uniform(MOST_REWARDS + 1, 1, seed=2)
    told = Observations(points, torch.sin(9 * points[:, 0]), points[:0])
    belief = fit_belief(SPACE, bind(None, SPACE), told, GaussianProcess("matern52", members=1))
    assert belief.average is None
    assert belief.predictive is belief.posterior


@pytest.mark.parametrize("noise", ["auto", "small"])
def test_known_noise_and_small_noise(noise: str) -> None:
    told = TOLD if noise == "small" else Observations(TOLD.points, TOLD.rewards, TOLD.points[:0], NOISE)
    belief = fit_belief(SPACE, bind(None, SPACE), told, GaussianProcess(noise=noise))
    assert bool(belief.predictive.variance(uniform(10, 1, seed=3)).isfinite().all())
