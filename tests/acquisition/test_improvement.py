"""Expected improvement and its logarithm, far into the tail."""

from math import exp, log, pi

import pytest
import torch
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr

from conbo.acquisition.improvement import ExpectedImprovement, ImprovementAcquisition, log_improvement
from random_beliefs import (
    belief_with,
    finite_differences,
    generator,
    heteroscedastic_noise,
    points_in,
    product_kernel,
    reals,
    tensor,
)


@pytest.mark.parametrize("u", [-30.0, -12.0, -5.0, -1.0, -1e-9, 0.0, 1e-9, 0.7, 4.9, 5.1, 30.0])
def test_the_logarithm_equals_that_of_the_integral(u: float) -> None:
    # h(u) = ∫ Φ(t) dt up to u; the part below zero relative to Φ at its end, which may be tiny
    end = min(u, 0.0)
    tail, _ = quad(lambda t: exp(log_ndtr(t) - log_ndtr(end)), end - 12, end, epsrel=1e-11, epsabs=0, limit=200)
    above, _ = quad(ndtr, 0, max(u, 0.0), epsrel=1e-12)
    expected = log(tail) + log_ndtr(end) if u <= 0 else log(tail / 2 + above)

    value, _ = log_improvement(tensor([u]))

    assert float(value) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("u", [-50.0, -1e3, -9.9e3, -1.1e4, -1e5])
def test_the_logarithm_follows_its_expansion_far_out(u: float) -> None:
    value, slope = log_improvement(tensor([u]))

    # h(u) = φ(u) / u² (1 - 3/u² + 15/u⁴ - …)
    expected = -u * u / 2 - 0.5 * log(2 * pi) - 2 * log(-u) + log(1 - 3 / u**2 + 15 / u**4)
    assert float(value) == pytest.approx(expected, rel=1e-9)
    assert float(slope) == pytest.approx(-u, rel=2e-3)


def test_the_slope_of_the_logarithm_equals_finite_differences() -> None:
    u = torch.linspace(-20, 20, 81, dtype=torch.float64)[:, None] + 0.013

    _, slope = log_improvement(u[:, 0])

    numeric = finite_differences(lambda x: log_improvement(x[:, 0])[0], u, 1e-5)[:, 0]
    torch.testing.assert_close(slope, numeric, rtol=1e-6, atol=1e-8)


def test_values_equal_the_mean_of_sampled_improvements() -> None:
    space = reals(1, 1)
    belief = belief_with(space, product_kernel(space), n=10, noise=0.05)
    points = points_in(space, 20, seed=3)
    acquisition = ExpectedImprovement().build(belief, generator())
    incumbent = belief.posterior.mean(belief.observations.points).amax()

    z = torch.special.ndtri((torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000)
    sd = belief.posterior.variance(points).sqrt()
    sampled = (belief.posterior.mean(points)[:, None] + sd[:, None] * z - incumbent).clamp_min(0).mean(-1)

    torch.testing.assert_close(acquisition(points), sampled, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(acquisition.screen(points), acquisition(points))
    assert acquisition.climbs_logarithm


def test_the_gradient_of_the_logarithm_equals_finite_differences() -> None:
    space = reals(1, 2)
    belief = belief_with(space, product_kernel(space), n=10, noise=0.05)
    points = 0.02 + 0.96 * points_in(space, 10, seed=3)
    function, rows = ExpectedImprovement().build(belief, generator()).local(points), torch.arange(10)

    value, gradient = function(points, rows)

    numeric = finite_differences(lambda x: function(x, rows)[0], points, 1e-6)
    torch.testing.assert_close(gradient, numeric, rtol=1e-4, atol=1e-4)
    assert value.dtype == gradient.dtype == torch.float64


def test_the_next_reward_has_the_noise_of_its_point() -> None:
    space = reals(1, 2)
    belief = belief_with(space, product_kernel(space), n=10, noise=heteroscedastic_noise(space))
    points = 0.02 + 0.96 * points_in(space, 10, seed=3)
    acquisition = ImprovementAcquisition(belief.posterior, incumbent=0.5, of_reward=True)

    value, gradient = acquisition.log_value(points)

    total = belief.posterior.variance(points) + belief.posterior.noise_at(points)
    reward = torch.distributions.Normal(belief.posterior.mean(points), total.sqrt())
    draws = reward.icdf(((torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000)[:, None])
    torch.testing.assert_close(value.exp(), (draws - 0.5).clamp_min(0).mean(0), rtol=1e-3, atol=1e-6)
    numeric = finite_differences(lambda x: acquisition.log_value(x)[0], points, 1e-6)
    torch.testing.assert_close(gradient, numeric, rtol=1e-4, atol=1e-4)
