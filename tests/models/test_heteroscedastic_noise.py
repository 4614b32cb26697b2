"""Noise that varies with the point."""

from math import exp

import pytest
import torch

from conbo.models.columns import Columns
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from random_beliefs import finite_differences, tensor, uniform

NOISE = HeteroscedasticNoise(Columns((0, 3, 0)), log_level=-2.0, slopes=tensor([1.0, 0.3, -0.2, 0.1, -2.0]))


def test_the_logarithm_is_linear_in_numbers_and_has_a_step_for_every_choice() -> None:
    middle, first, last, other = NOISE.at(tensor([[0.5, 0.1, 0.5], [1.0, 0.1, 0.5], [0.5, 0.1, 1.0], [0.5, 0.9, 0.5]]))
    assert float(first / middle) == pytest.approx(exp(1.0))
    assert float(last / middle) == pytest.approx(exp(-2.0))
    assert float(other / middle) == pytest.approx(exp(2 / 2**0.5 * (0.1 - 0.3)))


def test_the_gradient_is_that_of_the_variances() -> None:
    points = uniform(10, 3)
    points[:, 1] = tensor([1 / 6, 0.5] * 5)  # far from where the choice changes
    torch.testing.assert_close(NOISE.gradient(points), finite_differences(NOISE.at, points), rtol=1e-6, atol=1e-8)
    assert not NOISE.gradient(points)[:, 1].any()


@pytest.mark.parametrize(("level", "bound"), [(-100.0, 1e-9), (100.0, 10.0)])
def test_variances_stay_within_bounds(level: float, bound: float) -> None:
    extreme = HeteroscedasticNoise(NOISE.columns, level, NOISE.slopes)
    assert extreme.at(uniform(5, 3)).tolist() == pytest.approx([bound] * 5)
    assert not extreme.gradient(uniform(5, 3)).any()


def test_another_device_changes_nothing() -> None:
    assert torch.equal(NOISE.to(torch.device("cpu")).at(uniform(4, 3)), NOISE.at(uniform(4, 3)))
