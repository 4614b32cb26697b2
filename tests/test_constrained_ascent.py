"""Searches within a curved limit: they slide along it, alone and together with known limits."""

import torch
from torch import Tensor

from conbo.constrained_ascent import constrained_ascent
from conbo.linear_limits import RowLimits
from conbo.spaces import Real, Space
from random_beliefs import tensor, uniform

CENTER, RADIUS = tensor([0.4, 0.5]), 0.3


def in_disc(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """f = x₁ + x₂ / 2 in a disc: c >= 0 there."""
    away = points - CENTER
    slope = tensor([1.0, 0.5])
    return points @ slope, slope.expand_as(points), RADIUS**2 - away.square().sum(-1), -2 * away


def best_in_disc() -> Tensor:
    direction = tensor([1.0, 0.5])
    return CENTER + RADIUS * direction / direction.norm()


def test_searches_slide_along_a_curved_limit() -> None:
    angles = torch.linspace(0, 6, 25, dtype=torch.float64)
    around = CENTER + RADIUS * torch.stack([angles.cos(), angles.sin()], -1)
    ends = constrained_ascent(in_disc, torch.cat([around, uniform(20, 2)]), (), 20, 1e-9, allowance=1e-5)
    torch.testing.assert_close(ends, best_in_disc().expand_as(ends), rtol=0, atol=1e-3)
    assert bool((in_disc(ends, torch.arange(len(ends)))[2] >= -1e-5).all())


def test_known_limits_and_held_columns_are_kept() -> None:
    space = Space(actions={"x": Real(0, 1), "y": Real(0, 1)}, constraints=["x + y <= 0.9"])
    assert space.feasible_set is not None
    known = space.feasible_set.limits
    assert known is not None
    starts = uniform(20, 2) * 0.45
    limits = RowLimits(known, starts.numpy()[:, :0])
    ends = constrained_ascent(in_disc, starts, (), 20, 1e-9, allowance=1e-5, limits=limits)
    # x + y = 0.9 meets the circle at (0.7, 0.2), and 2 (0.4 - x)² = 0.09 where y - 0.5 = 0.4 - x
    corner = tensor([0.4 + RADIUS / 2**0.5, 0.5 - RADIUS / 2**0.5])
    torch.testing.assert_close(ends, corner.expand_as(ends), rtol=0, atol=1e-3)
    starts[:, 1] = 0.4
    ends = constrained_ascent(in_disc, starts, (1,), 20, 1e-9, allowance=1e-5)
    torch.testing.assert_close(ends, tensor([0.4 + 0.08**0.5, 0.4]).expand_as(ends), rtol=0, atol=1e-3)


def test_where_nothing_is_feasible_the_limit_is_missed_by_as_little_as_possible() -> None:
    def outside(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        value, gradient, slack, rise = in_disc(points, rows)
        return value, gradient, slack - 2 * RADIUS**2, rise

    ends = constrained_ascent(outside, uniform(10, 2), (), 30)
    torch.testing.assert_close(ends, CENTER.expand_as(ends), rtol=0, atol=0.02)


def test_values_that_are_not_finite_are_avoided() -> None:
    def broken(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        value, gradient, slack, rise = in_disc(points, rows)
        return torch.where(points[:, 0] > 0.5, torch.nan, value), gradient, slack, rise

    starts = CENTER + 0.1 * (uniform(10, 2) - 0.5)
    ends = constrained_ascent(broken, starts, (), 20)
    assert bool((ends[:, 0] <= 0.5).all())
    assert bool((in_disc(ends, torch.arange(10))[0] >= in_disc(starts, torch.arange(10))[0]).all())
