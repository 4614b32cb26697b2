"""The warp that bends actions: its inverse and its slopes."""

import pytest
import torch

from conbo.models.warp import Warp
from random_beliefs import finite_differences, tensor, uniform

WARP = Warp(log_a=tensor([0.7, -0.6, 0.0, 0.4]), log_b=tensor([-0.5, 0.3, 0.0, 0.9]))


def test_the_ends_stay_and_the_rest_keeps_its_order() -> None:
    grid = torch.linspace(0, 1, 101, dtype=torch.float64)[:, None].expand(-1, 4)
    bent = WARP(grid)
    assert bent[0].tolist() == [0.0] * 4
    assert bent[-1].tolist() == [1.0] * 4
    assert bool((bent.diff(dim=0) > 0).all())
    torch.testing.assert_close(bent[:, 2], grid[:, 2])  # exponents of one


def test_the_inverse_is_the_inverse() -> None:
    points = uniform(50, 4)
    torch.testing.assert_close(WARP.inverse(WARP(points)), points)
    assert WARP.inverse(tensor([[-0.1, 1.2, 0.0, 1.0]])).tolist() == [[0.0, 1.0, 0.0, 1.0]]


def test_slopes_are_those_of_differences() -> None:
    points = 0.01 + 0.98 * uniform(20, 4)
    for column in range(4):
        numeric = finite_differences(lambda x, c=column: WARP(x)[:, c], points, 1e-6)
        torch.testing.assert_close(WARP.slope(points)[:, column], numeric[:, column], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("which", [0, 1])
def test_slopes_in_the_exponents_are_those_of_differences(which: int) -> None:
    points, step = 0.01 + 0.98 * uniform(20, 4), 1e-6
    moved = [Warp(WARP.log_a + (1 - which) * s, WARP.log_b + which * s)(points) for s in (step, -step)]
    torch.testing.assert_close(
        WARP.slopes_in_exponents(points)[which], (moved[0] - moved[1]) / (2 * step), rtol=1e-6, atol=1e-8
    )


def test_slopes_are_finite_at_the_ends() -> None:
    ends = tensor([[0.0] * 4, [1.0] * 4])
    assert bool(torch.isfinite(WARP.slope(ends)).all())
    for slope in WARP.slopes_in_exponents(ends):
        assert not slope.any()  # whatever the exponents, the ends stay
