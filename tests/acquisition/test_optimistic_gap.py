"""The gap of active exploration on a grid."""

import pytest
import torch

from conbo.acquisition.optimistic_gap import OptimisticGap
from conbo.errors import SettingError
from conbo.proposals.maximizer import Maximizer
from random_beliefs import (
    belief_with,
    finite_differences,
    generator,
    points_in,
    posterior_of,
    product_kernel,
    reals,
)

SPACE = reals(1, 1)
BELIEF = belief_with(SPACE, product_kernel(SPACE, actions=0.3), n=12, noise=0.02)
LINE = torch.linspace(0, 1, 201, dtype=torch.float64)
GRID = torch.cartesian_prod(LINE, LINE)


def test_it_is_an_upper_bound_less_the_best_lower_bound_of_the_state() -> None:
    posterior, points = posterior_of(BELIEF), points_in(SPACE, 30, seed=4)
    acquisition = OptimisticGap(beta=1.5).build(BELIEF, generator())
    for point, value in zip(points, acquisition(points), strict=True):
        line = torch.cat([point[:1].expand(len(LINE), 1), LINE[:, None]], -1)
        lower = (posterior.mean(line) - 1.5 * posterior.variance(line).sqrt()).amax()
        upper = posterior.mean(point[None]) + 1.5 * posterior.variance(point[None]).sqrt()
        assert float(value) == pytest.approx(float((upper - lower).clamp_min(0)), abs=2e-3)


def test_the_suggestion_has_the_widest_interval_of_a_best_value() -> None:
    posterior = posterior_of(BELIEF)
    mean, sd = (t.reshape(201, 201) for t in (posterior.mean(GRID), posterior.variance(GRID).sqrt()))
    widths = (mean + 2 * sd).amax(1) - (mean - 2 * sd).amax(1)
    (point,) = Maximizer(OptimisticGap()).propose(BELIEF, 1, generator()).points
    value = OptimisticGap().build(BELIEF, generator(1))(point[None])
    assert float(value) == pytest.approx(float(widths.amax()), rel=0.02)


def test_the_gradient_is_that_of_the_values() -> None:
    acquisition, points = OptimisticGap().build(BELIEF, generator()), 0.1 + 0.8 * points_in(SPACE, 10, seed=4)
    _, gradient = acquisition.value(points)
    numeric = finite_differences(lambda p: acquisition.value(p)[0], points)
    agree = (gradient - numeric).norm(dim=-1) < 0.02 * numeric.norm(dim=-1).clamp_min(1)
    assert int(agree.sum()) >= 9


def test_beta_is_checked() -> None:
    with pytest.raises(SettingError, match="`beta` must be positive, but got beta=0"):
        OptimisticGap(beta=0)
