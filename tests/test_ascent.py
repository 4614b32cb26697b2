"""Batched quasi-Newton ascent: known maxima, bounds, and rows that do not see each other."""

import pytest
import torch
from torch import Tensor

from conbo.ascent import Ascent, BatchedFunction, SuccessiveHalving, ascend
from random_beliefs import tensor, uniform

ZERO, ONE = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)


def by_autograd(function: object) -> BatchedFunction:
    def batched(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        variable = points.detach().requires_grad_(True)
        values = function(variable, rows)  # type: ignore[operator]
        (gradient,) = torch.autograd.grad(values.sum(), variable)
        return values.detach(), gradient

    return batched


def quadratics(centers: Tensor) -> BatchedFunction:
    """A hill for each row, steep and flat in different columns."""
    steepness = tensor([100.0, 1.0, 0.01])
    return by_autograd(lambda x, rows: -(steepness * (x - centers[rows]).square()).sum(-1))


@by_autograd
def rosenbrock(x: Tensor, rows: Tensor) -> Tensor:
    u, v = 4 * x[:, 0] - 2, 4 * x[:, 1] - 2
    return -((1 - u).square() + 100 * (v - u.square()).square())


@pytest.mark.parametrize("first_step", [1e-3, 0.1, 1.0])
def test_quadratics_with_active_bounds_end_at_the_nearest_corner_edge_or_center(first_step: float) -> None:
    centers = 3 * uniform(20, 3, seed=1) - 1  # most of them outside

    ascent = ascend(quadratics(centers), uniform(20, 3, seed=2), ZERO, ONE, 60, first_step)

    torch.testing.assert_close(ascent.points, centers.clamp(0, 1), rtol=0, atol=1e-5)
    assert ((ascent.points == 0) | (ascent.points == 1)).any()


def test_coupled_quadratics_end_at_the_constrained_maximum() -> None:
    curvature = tensor([[2.0, -1.8], [-1.8, 2.0]])
    center = tensor([1.5, 0.5])

    hill = by_autograd(lambda x, rows: -0.5 * ((x - center) @ curvature * (x - center)).sum(-1))
    ascent = ascend(hill, uniform(8, 2, seed=3), ZERO[:2], ONE[:2], 60)

    # with the first coordinate at its bound 1, the second solves -1.8 (1 - 1.5) + 2 (y - 0.5) = 0
    expected = tensor([1.0, 0.5 - 0.9 * 0.5]).expand(8, 2)
    torch.testing.assert_close(ascent.points, expected, rtol=0, atol=1e-5)


def test_rosenbrock_is_climbed_from_everywhere() -> None:
    ascent = ascend(rosenbrock, uniform(30, 2, seed=4), ZERO[:2], ONE[:2], 200)

    torch.testing.assert_close(ascent.points, tensor([0.75, 0.75]).expand(30, 2), rtol=0, atol=1e-4)
    assert float(ascent.values.amin()) > -1e-7


def test_rows_do_not_see_each_other() -> None:
    starts = uniform(6, 2, seed=5)

    together = ascend(rosenbrock, starts, ZERO[:2], ONE[:2], 25)

    for row in range(6):
        alone = ascend(rosenbrock, starts[row : row + 1], ZERO[:2], ONE[:2], 25)
        torch.testing.assert_close(together.points[row], alone.points[0], rtol=0, atol=1e-9)
        torch.testing.assert_close(together.values[row], alone.values[0], rtol=0, atol=1e-9)


def test_every_evaluation_is_in_the_history_and_none_is_better_than_the_end() -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def counted(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        values, gradient = rosenbrock(points, rows)
        assert len(rows) == len(points)
        seen.append((points.clone(), values.clone()))
        return values, gradient

    ascent = ascend(counted, uniform(5, 2, seed=6), ZERO[:2], ONE[:2], 40)

    assert torch.equal(ascent.history_points, torch.cat([points for points, _ in seen]))
    assert torch.equal(ascent.history_values, torch.cat([values for _, values in seen]))
    assert float(ascent.values.amax()) == float(ascent.history_values.amax())
    assert ((ascent.history_points >= 0) & (ascent.history_points <= 1)).all()


def test_values_never_fall_below_the_start() -> None:
    starts = uniform(40, 2, seed=7)
    for iterations in (0, 1, 2, 5, 20):
        ascent = ascend(rosenbrock, starts, ZERO[:2], ONE[:2], iterations, first_step=1.0)

        assert (ascent.values >= rosenbrock(starts, torch.arange(40))[0]).all()
        torch.testing.assert_close(rosenbrock(ascent.points, torch.arange(40))[0], ascent.values)


def test_a_coordinate_without_width_stays() -> None:
    lower, upper = tensor([0.0, 0.4, 0.0]), tensor([1.0, 0.4, 1.0])

    ascent = ascend(quadratics(ONE.expand(4, 3) * 0.6), uniform(4, 3, seed=8), lower, upper, 50)

    torch.testing.assert_close(ascent.points, tensor([0.6, 0.4, 0.6]).expand(4, 3), rtol=0, atol=1e-5)
    assert (ascent.points[:, 1] == 0.4).all()


def test_starts_outside_are_moved_inside() -> None:
    starts = tensor([[-1.0, 2.0, 0.5]])

    ascent = ascend(quadratics(ONE[None] * 0.5), starts, ZERO, ONE, 0)

    assert torch.equal(ascent.points, tensor([[0.0, 1.0, 0.5]]))


def test_a_row_stops_when_a_step_promises_too_little() -> None:
    centers = uniform(5, 3, seed=9)

    long = ascend(quadratics(centers), uniform(5, 3, seed=2), ZERO, ONE, 100)
    short = ascend(quadratics(centers), uniform(5, 3, seed=2), ZERO, ONE, 100, tolerance=1e-3)

    assert len(short.history_values) < len(long.history_values)
    assert float(short.values.amin()) > -0.05


def check_finite(ascent: Ascent) -> None:
    assert torch.isfinite(ascent.points).all()
    assert torch.isfinite(ascent.values).all()


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_never_accepted(broken: float) -> None:
    def cliff(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        values, gradient = -(points - 0.9).square().sum(-1), -2 * (points - 0.9)
        beyond = (points > 0.7).any(-1)
        return torch.where(beyond, broken, values), torch.where(beyond[:, None], broken, gradient)

    ascent = ascend(cliff, 0.6 * uniform(10, 3, seed=10), ZERO, ONE, 60, first_step=0.5)

    check_finite(ascent)
    assert float(ascent.points.amax()) <= 0.7
    assert (ascent.values > cliff(0.6 * uniform(10, 3, seed=10), ascent.values)[0]).all()


def test_a_gradient_that_is_not_finite_is_never_accepted() -> None:
    def edge(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        values, gradient = points.sum(-1), torch.ones_like(points)
        return values, torch.where((points > 0.7).any(-1)[:, None], torch.nan, gradient)

    ascent = ascend(edge, 0.6 * uniform(10, 3, seed=10), ZERO, ONE, 60)

    check_finite(ascent)
    assert float(ascent.points.amax()) <= 0.7


@pytest.mark.parametrize("halving", [None, SuccessiveHalving(iterations=1, survivors=2)])
@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_starts_nowhere_stays_and_leaves_the_others_alone(
    halving: SuccessiveHalving | None, broken: float
) -> None:
    hill = quadratics(ONE.expand(3, 3) * 0.5)

    def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        values, gradient = hill(points, rows)
        sick = rows == 1
        return torch.where(sick, broken, values), torch.where(sick[:, None], torch.nan, gradient)

    starts = uniform(3, 3, seed=11)
    starts[2] = starts[0]
    ascent = ascend(function, starts, ZERO, ONE, 60, halving=halving)

    assert torch.isfinite(ascent.values).tolist() == [True, False, True]
    assert int(ascent.values.argmax()) != 1
    assert int(ascent.history_values[:3].argmax()) != 1
    torch.testing.assert_close(ascent.points[[0, 2]], ONE.expand(2, 3) * 0.5, rtol=0, atol=1e-5)
    assert ascent.points.dtype == ascent.values.dtype == torch.float64


def test_only_the_leaders_of_a_race_go_on() -> None:
    centers, starts = uniform(6, 3, seed=9), uniform(6, 3, seed=10)
    centers[5], starts[5] = centers[4], starts[4]  # as good as each other: neither leaves for lack of hope
    heights = torch.arange(6, dtype=torch.float64)
    hills = quadratics(centers)

    def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        values, gradient = hills(points, rows)
        return values + 1000 * heights[rows].clamp_max(4), gradient

    ascent = ascend(function, starts, ZERO, ONE, 60, halving=SuccessiveHalving(iterations=2, survivors=2))

    torch.testing.assert_close(ascent.points[4:], centers[4:], rtol=0, atol=1e-4)
    assert (ascent.points[:4] - centers[:4]).abs().amax(-1).min() > 1e-3
    # 6 first values, two steps of all, and then two rows only
    assert len(ascent.history_values) <= 6 * 3 + 2 * 58
    at_ends = function(ascent.points, torch.arange(6))[0]
    torch.testing.assert_close(ascent.values, at_ends, rtol=0, atol=1e-9)


def test_a_race_with_more_places_than_rows_keeps_whoever_may_still_win() -> None:
    starts = uniform(5, 2, seed=11)
    plain = ascend(rosenbrock, starts, ZERO[:2], ONE[:2], 50)
    raced = ascend(rosenbrock, starts, ZERO[:2], ONE[:2], 50, halving=SuccessiveHalving(iterations=3, survivors=8))
    winner = int(plain.values.argmax())
    torch.testing.assert_close(raced.points[winner], plain.points[winner], rtol=0, atol=0)
    assert float(raced.values.max()) == float(plain.values.max())


def test_a_row_without_hope_leaves_the_race() -> None:
    centers = uniform(2, 3, seed=9)
    hills = quadratics(centers)
    calls: list[int] = []

    def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(len(rows))
        values, gradient = hills(points, rows)
        return values - 1000 * rows, gradient

    ascent = ascend(
        function, uniform(2, 3, seed=10), ZERO, ONE, 60, halving=SuccessiveHalving(iterations=1, survivors=2)
    )

    assert calls[:2] == [2, 2]
    assert set(calls[2:]) == {1}
    torch.testing.assert_close(ascent.points[0], centers[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("height", [1e-170, 1.0, 1e170])
def test_hills_of_any_height_are_climbed(height: float) -> None:
    hill = quadratics(ONE[None] * 0.4)

    def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        values, gradient = hill(points, rows)
        return height * values, height * gradient

    ascent = ascend(function, uniform(1, 3, seed=12), ZERO, ONE, 60)
    torch.testing.assert_close(ascent.points, ONE[None] * 0.4, rtol=0, atol=1e-5)


def test_a_known_curvature_leads_to_the_top_at_once() -> None:
    curvature = tensor([[1.0, 3.0, 0.0], [3.0, 100.0, 20.0], [0.0, 20.0, 10_000.0]])
    top = ONE[None] * 0.4

    def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        away = points - top
        return -0.5 * (away @ curvature * away).sum(-1), -away @ curvature

    ascent = ascend(function, uniform(1, 3, seed=12), ZERO, ONE, 60, curvature=curvature[None])
    torch.testing.assert_close(ascent.points, top, rtol=0, atol=1e-12)
    assert len(ascent.history_values) <= 3


def test_a_climb_that_cannot_reach_its_goal_ends() -> None:
    starts, lower, upper = tensor([[0.5, 0.9]]), ZERO[:2], ONE[:2]

    def evaluations(goal: float) -> int:
        return len(ascend(rosenbrock, starts, lower, upper, 200, halving=SuccessiveHalving(5, 1, goal)).history_values)

    free = evaluations(-torch.inf)
    assert evaluations(goal=-1e-3) == free  # the top is at 0: within reach
    assert evaluations(goal=1e6) < free / 2
