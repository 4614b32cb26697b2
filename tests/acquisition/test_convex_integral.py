"""Integrals of a convex function from values and slopes at a few nodes: bounds, convergence, derivatives."""

from collections.abc import Callable
from dataclasses import astuple
from itertools import pairwise
from math import pi, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import Tensor

from conbo.acquisition.convex_integral import ConvexIntegral, Gains, quantile_nodes
from conbo.acquisition.expected_max import expected_max
from conbo.models import compiled
from random_beliefs import generator, tensor

NESTED = (3, 9, 27)

# convex functions with their derivatives, and the steepest slopes on both sides (as if of all lines)
SMOOTH: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], tuple[float, float]]] = {
    "hyperbola": (lambda z: (0.3 + z * z).sqrt(), lambda z: z / (0.3 + z * z).sqrt(), (-1.0, 1.0)),
    "softplus": (
        lambda z: torch.nn.functional.softplus(2 * z - 1),
        lambda z: 2 * torch.sigmoid(2 * z - 1),
        (0.0, 2.0),
    ),
    "cosh": (lambda z: torch.cosh(z / 2), lambda z: torch.sinh(z / 2) / 2, (-30.0, 30.0)),
}


def density(z: float) -> float:
    return float(np.exp(-z * z / 2) / sqrt(2 * pi))


def tangents(
    nodes: Tensor, function: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Intercepts and slopes of the lines that touch the function at the nodes."""
    slopes = derivative(nodes)
    return function(nodes) - slopes * nodes, slopes


def touching(nodes: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For max of lines (..., n): the line (intercept, slope, index) that is highest at each node."""
    winner = (a[..., None, :] + nodes[:, None] * b[..., None, :]).argmax(-1)
    return a.gather(-1, winner), b.gather(-1, winner), winner


def gains(nodes: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """What the bounds are computed from: D at the nodes, and its slopes."""
    middle = len(nodes) // 2
    slope = b - b[..., middle : middle + 1]
    return a - a[..., middle : middle + 1] + slope * nodes, slope


def bounds(nodes: Tensor, a: Tensor, b: Tensor, steepest: Tensor) -> tuple[Tensor, Tensor]:
    integral, middle = ConvexIntegral(nodes), len(nodes) // 2
    gain, slope = gains(nodes, a, b)
    return integral.lower(gain, slope), integral.upper(gain, steepest - b[..., middle : middle + 1])


def random_lines(rows: int, n: int, seed: int) -> tuple[Tensor, Tensor]:
    a, b = torch.randn(2, rows, n, generator=generator(seed), dtype=torch.float64)
    return a, b


@pytest.mark.parametrize("n", [3, 5, 27])
def test_nodes_are_quantiles_around_zero(n: int) -> None:
    nodes = quantile_nodes(n, 1.0)

    expected = (2 * torch.arange(1, n + 1, dtype=torch.float64) - 1) / (2 * n)
    torch.testing.assert_close(torch.special.ndtr(nodes), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(nodes, -nodes.flip(0), rtol=0, atol=1e-12)
    assert float(nodes[n // 2]) == 0
    torch.testing.assert_close(quantile_nodes(n, 2.0), 2 * nodes)
    assert nodes.dtype == torch.float64


def test_finer_nodes_contain_the_coarser_ones() -> None:
    for coarse, fine in pairwise(NESTED):
        apart = (quantile_nodes(coarse)[:, None] - quantile_nodes(fine)).abs().amin(-1)
        assert float(apart.amax()) < 1e-12


@given(st.integers(0, 10**6), st.sampled_from([3, 5, 9]), st.sampled_from([1.0, 2.3]), st.integers(1, 12))
def test_bounds_and_estimate_enclose_the_truth_for_maxima_of_lines(
    seed: int, n: int, spread: float, count: int
) -> None:
    nodes = quantile_nodes(n, spread)
    a, b = random_lines(20, count, seed)
    truth = expected_max(a, b).gain
    intercepts, slopes, _ = touching(nodes, a, b)
    similarity = torch.rand(20, n - 1, generator=generator(seed), dtype=torch.float64)

    lower, upper = bounds(nodes, intercepts, slopes, torch.stack([b.amin(-1), b.amax(-1)], -1))
    result = ConvexIntegral(nodes)(intercepts, slopes, similarity)

    assert float((truth - lower).amin()) > -1e-10
    assert float((upper - truth).amin()) > -1e-10
    torch.testing.assert_close(result.lower, lower, rtol=0, atol=1e-12)
    assert float((result.best - lower).amin()) > -1e-10
    assert float(result.best.amin()) >= 0
    # the tangents of the nodes, no more and no less
    torch.testing.assert_close(lower, expected_max(intercepts, slopes).gain, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", SMOOTH)
def test_bounds_close_in_on_smooth_functions_and_the_estimate_is_better_than_both(name: str) -> None:
    function, derivative, ends = SMOOTH[name]
    expected, _ = quad(lambda z: float(function(tensor(z))) * density(z), -12, 12, epsabs=1e-12, limit=200)
    truth = expected - float(function(tensor(0.0)))
    last_lower, last_upper, last_error = 0.0, float("inf"), float("inf")
    for n in NESTED:
        nodes = quantile_nodes(n)
        a, b = tangents(nodes, function, derivative)
        lower, upper = (float(bound) for bound in bounds(nodes, a, b, tensor(ends)))
        best = float(ConvexIntegral(nodes)(a, b, torch.ones(n - 1, dtype=torch.float64)).best)

        assert last_lower <= lower <= truth <= upper <= last_upper
        assert lower <= best <= upper
        error = abs(best - truth)
        assert error <= min(truth - lower, upper - truth)
        assert error < last_error
        last_lower, last_upper, last_error = lower, upper, error
    assert last_upper - last_lower < 0.02 * truth
    assert last_error < 1e-3 * truth


def test_bounds_are_monotone_for_nested_nodes_of_maxima_of_lines() -> None:
    a, b = random_lines(200, 15, seed=5)
    truth = expected_max(a, b).gain
    steepest = torch.stack([b.amin(-1), b.amax(-1)], -1)
    lowers, uppers = [], []
    for n in NESTED:
        nodes = quantile_nodes(n)
        intercepts, slopes, _ = touching(nodes, a, b)
        lower, upper = bounds(nodes, intercepts, slopes, steepest)
        lowers.append(lower)
        uppers.append(upper)
    for k in range(2):
        assert float((lowers[k + 1] - lowers[k]).amin()) > -1e-12
        assert float((uppers[k] - uppers[k + 1]).amin()) > -1e-12
    assert float((uppers[-1] - truth).mean()) < 0.1 * float((uppers[0] - truth).mean())
    assert float((truth - lowers[-1]).mean()) < 0.1 * float((truth - lowers[0]).mean())


@pytest.mark.parametrize("interval", range(4))
def test_the_weights_of_cubics_are_exact_on_cubics(interval: int) -> None:
    nodes = quantile_nodes(5)
    left, right = float(nodes[interval]), float(nodes[interval + 1])
    weights = ConvexIntegral(nodes).cubic[:, interval]
    for coefficients in np.eye(4):
        cubic = np.polynomial.Polynomial(coefficients)
        ends = tensor([cubic(left), cubic.deriv()(left), cubic(right), cubic.deriv()(right)])
        truth, _ = quad(lambda z: cubic(z) * density(z), left, right, epsabs=1e-13)  # noqa: B023
        assert float(weights @ ends) == pytest.approx(truth, abs=1e-10)


@pytest.mark.parametrize("interval", range(4))
def test_the_weights_of_chords_are_exact_on_lines(interval: int) -> None:
    nodes = quantile_nodes(5)
    left, right = float(nodes[interval]), float(nodes[interval + 1])
    weights = ConvexIntegral(nodes).chord[:, interval]
    truth, _ = quad(lambda z: (3 - 2 * z) * density(z), left, right, epsabs=1e-13)

    assert float(weights @ tensor([3 - 2 * left, 3 - 2 * right])) == pytest.approx(truth, abs=1e-10)


def test_one_line_at_all_nodes_has_no_gain() -> None:
    nodes = quantile_nodes(5)

    result = ConvexIntegral(nodes)(tensor([0.7] * 5), tensor([2.0] * 5), torch.ones(4, dtype=torch.float64))

    assert float(result.best) == pytest.approx(0, abs=1e-12)
    assert float(result.lower) == pytest.approx(0, abs=1e-12)


def test_the_estimate_does_not_depend_on_a_common_line() -> None:
    nodes = quantile_nodes(5)
    integral = ConvexIntegral(nodes)
    a, b = tangents(nodes, *SMOOTH["hyperbola"][:2])
    similarity = torch.full((4,), 0.6, dtype=torch.float64)

    plain, tilted = integral(a, b, similarity), integral(a + 3, b - 2, similarity)

    assert float(tilted.best) == pytest.approx(float(plain.best), abs=1e-12)
    torch.testing.assert_close(tilted.slope_derivative, plain.slope_derivative)


def test_corners_are_integrated_as_corners() -> None:
    nodes = quantile_nodes(5)
    a, b = tensor([[0.0, -0.2]]), tensor([[0.0, 1.0]])
    intercepts, slopes, _ = touching(nodes, a, b)

    apart = ConvexIntegral(nodes)(intercepts, slopes, torch.zeros(1, 4, dtype=torch.float64))

    assert float(apart.best) == pytest.approx(float(expected_max(a, b).gain), abs=1e-12)


@pytest.mark.parametrize("similarity", [0.0, 0.6, 1.0], ids=["corners", "between", "smooth"])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_derivative_in_the_slopes_equals_finite_differences(name: str, similarity: float) -> None:
    nodes = quantile_nodes(7)
    integral, alike = ConvexIntegral(nodes), torch.full((6,), similarity, dtype=torch.float64)
    a, b = tangents(nodes, *SMOOTH[name][:2])

    derivative = integral(a, b, alike).slope_derivative

    step = 1e-6
    for line in range(7):
        move = torch.zeros(7, dtype=torch.float64)
        move[line] = step
        slope = (integral(a, b + move, alike).best - integral(a, b - move, alike).best) / (2 * step)
        assert float(derivative[line]) == pytest.approx(float(slope), abs=1e-7)


def test_copies_of_a_line_share_its_derivative() -> None:
    nodes = quantile_nodes(9)
    integral = ConvexIntegral(nodes)
    a, b = random_lines(40, 4, seed=2)
    similarity = torch.rand(40, 8, generator=generator(3), dtype=torch.float64)

    def best(slopes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        intercepts, touched, winner = touching(nodes, a, slopes)
        return (
            integral(intercepts, touched, similarity).best,
            winner,
            integral(intercepts, touched, similarity).slope_derivative,
        )

    _, winner, derivative = best(b)
    shared = torch.zeros_like(b).scatter_add(1, winner, derivative)
    step = 1e-7
    for line in range(4):
        move = torch.zeros_like(b)
        move[:, line] = step
        (up, up_winner, _), (down, down_winner, _) = best(b + move), best(b - move)
        same = ((up_winner == winner) & (down_winner == winner)).all(-1)
        slope = (up - down) / (2 * step)
        close = (shared[:, line] - slope).abs() < 1e-5
        # where the estimate is clipped exactly at the change it has two one-sided slopes
        assert float((close | ~same).double().mean()) > 0.95


def test_the_derivative_of_a_batch_is_that_of_its_rows() -> None:
    nodes = quantile_nodes(5)
    integral = ConvexIntegral(nodes)
    a, b = random_lines(6, 8, seed=4)
    intercepts, slopes, _ = touching(nodes, a, b)
    similarity = torch.rand(6, 4, generator=generator(1), dtype=torch.float64)

    batch = integral(intercepts.unflatten(0, (2, 3)), slopes.unflatten(0, (2, 3)), similarity.unflatten(0, (2, 3)))

    assert batch.best.shape == (2, 3)
    for row in range(6):
        alone = integral(intercepts[row], slopes[row], similarity[row])
        torch.testing.assert_close(batch.slope_derivative[row // 3, row % 3], alone.slope_derivative)
        torch.testing.assert_close(batch.best[row // 3, row % 3], alone.best)


def both_ways(nodes: Tensor, a: Tensor, b: Tensor, similarity: Tensor) -> tuple[Gains, Gains]:
    """By the compiled loop (where Numba is installed) and in torch."""
    with pytest.MonkeyPatch.context() as patch:
        quick = ConvexIntegral(nodes)(a, b, similarity)
        patch.setattr(compiled, "AVAILABLE", False)
        return quick, ConvexIntegral(nodes)(a, b, similarity)


@given(st.integers(0, 10**6), st.sampled_from([3, 5, 9]), st.integers(1, 12))
def test_the_compiled_loop_and_torch_agree_on_maxima_of_lines(seed: int, n: int, count: int) -> None:
    nodes = quantile_nodes(n)
    a, b = random_lines(20, count, seed)
    intercepts, slopes, winner = touching(nodes, a, b)
    similarity = torch.rand(20, n - 1, generator=generator(seed), dtype=torch.float64)

    quick, reference = both_ways(nodes, intercepts, slopes, similarity)

    torch.testing.assert_close(quick.best, reference.best, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(quick.lower, reference.lower, rtol=1e-10, atol=1e-12)
    # where neighbors have the same line, tangents, chord and cubic are one: rounding decides how they share
    shared = [torch.zeros_like(b).scatter_add(1, winner, gains.slope_derivative) for gains in (quick, reference)]
    torch.testing.assert_close(*shared, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("similarity", [0.0, 0.6, 1.0], ids=["corners", "between", "smooth"])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_compiled_loop_and_torch_agree_on_smooth_functions(name: str, similarity: float) -> None:
    nodes = quantile_nodes(7)
    a, b = tangents(nodes, *SMOOTH[name][:2])

    quick, reference = both_ways(nodes, a, b, torch.full((6,), similarity, dtype=torch.float64))

    for ours, torchs in zip(astuple(quick), astuple(reference), strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-10, atol=1e-12)


def test_the_compiled_loop_and_torch_agree_where_lines_are_degenerate() -> None:
    nodes = quantile_nodes(5)
    rows = {
        "one line": ([0.7] * 5, [2.0] * 5),
        "flat": ([0.7] * 5, [0.0] * 5),
        "parallel": ([0.1, 0.3, 0.2, 0.5, 0.4], [1.0] * 5),  # as after a climb that missed the maximum
        "falling slopes": ([0.0] * 5, [2.0, 1.0, 0.0, -1.0, -2.0]),
        "below the middle": ([-1.0, -1.0, 0.0, -1.0, -1.0], [0.0] * 5),
        "undefined": ([float("nan"), 0.0, 0.0, 0.0, 0.0], [0.0] * 5),
        "corner on a node": ([float(-nodes[3]) if j > 2 else 0.0 for j in range(5)], [0.0, 0.0, 0.0, 1.0, 1.0]),
    }
    a, b = (tensor([row[part] for row in rows.values()]) for part in (0, 1))
    for similarity in (0.0, 0.6, 1.0):
        quick, reference = both_ways(nodes, a, b, torch.full((len(rows), 4), similarity, dtype=torch.float64))

        torch.testing.assert_close(quick.best, reference.best, rtol=1e-10, atol=1e-12, equal_nan=True)
        torch.testing.assert_close(quick.lower, reference.lower, rtol=1e-10, atol=1e-12, equal_nan=True)
        torch.testing.assert_close(quick.slope_derivative[:-2], reference.slope_derivative[:-2], rtol=1e-10, atol=1e-12)
        assert bool(quick.best.isnan()[-2])
