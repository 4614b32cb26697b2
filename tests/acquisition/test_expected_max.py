"""E[max of lines] against the reference, brute-force quadrature, and closed forms down to tiny gains.

Every test runs twice, on the compiled loops and in torch.
"""

from collections.abc import Iterator
from math import pi, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr
from torch import Tensor

import conbo.acquisition.expected_max
from conbo.acquisition.expected_max import ExpectedMax, expected_max, interval_probability, mean_excess, normal_density
from conbo.models import compiled
from random_beliefs import REFERENCE, generator, tensor

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)

# few different values, so that equal lines, equal slopes and lines through one point turn up
coefficients = st.one_of(st.integers(-2, 2).map(float), st.floats(-3, 3))
lines = st.lists(st.tuples(coefficients, coefficients), min_size=1, max_size=7)

scales = st.sampled_from([1e-6, 1.0, 1e6])


@pytest.fixture(autouse=True, scope="module", params=["compiled", "torch"])
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "compiled" and not compiled.AVAILABLE:
        pytest.skip("Numba is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "AVAILABLE", request.param == "compiled")
        yield request.param


def in_torch(a: Tensor, b: Tensor) -> ExpectedMax:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "AVAILABLE", False)
        return expected_max(a, b)


def by_quadrature(a: np.ndarray, b: np.ndarray) -> float:
    """∫ max_i (a_i + b_i z) φ(z) dz, piece by piece between all crossings."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        crossings = ((a[None] - a[:, None]) / (b[:, None] - b[None])).ravel()
    inside = crossings[np.isfinite(crossings) & (np.abs(crossings) < 12)]
    edges = np.unique(np.concatenate([inside, np.arange(-12.0, 13.0)]))
    left, right = edges[:-1, None], edges[1:, None]
    z = (left + right) / 2 + (right - left) / 2 * NODES
    highest = (a[:, None, None] + b[:, None, None] * z).max(0)
    return float((highest * np.exp(-z * z / 2) / sqrt(2 * pi) * WEIGHTS * (right - left) / 2).sum())


def random_lines(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    a, b = torch.randn(2, *shape, generator=generator(seed), dtype=torch.float64)
    return a, b


@pytest.mark.parametrize("case", REFERENCE["expected_maximum"])
def test_the_reference_cases_are_met(case: dict[str, object]) -> None:
    result = expected_max(tensor(case["intercepts"]), tensor(case["slopes"]))

    assert float(result.value) == pytest.approx(case["expected_maximum"], abs=1e-9, rel=1e-9)


@given(lines)
def test_values_equal_brute_force_quadrature(pairs: list[tuple[float, float]]) -> None:
    a, b = tensor(pairs).T

    result = expected_max(a, b)

    assert float(result.value) == pytest.approx(by_quadrature(a.numpy(), b.numpy()), abs=1e-10, rel=1e-10)
    assert float(result.gain) >= 0
    assert float(result.value) == pytest.approx(float(a.max() + result.gain), abs=1e-12)


@given(lines)
def test_probabilities_and_densities_are_those_of_a_partition(pairs: list[tuple[float, float]]) -> None:
    a, b = tensor(pairs).T

    result = expected_max(a, b)

    assert float(result.probability.amin()) >= 0
    assert float(result.probability.sum()) == pytest.approx(1, abs=1e-12)
    assert float(result.density.sum()) == pytest.approx(0, abs=1e-12)
    by_parts = (a * result.probability + b * result.density).sum()
    assert float(result.value) == pytest.approx(float(by_parts), abs=1e-9)


@given(lines, scales, scales)
def test_both_paths_agree_at_every_scale(pairs: list[tuple[float, float]], of_a: float, of_b: float) -> None:
    a, b = tensor(pairs).T
    a, b = of_a * a, of_b * b

    result, reference = expected_max(a, b), in_torch(a, b)

    size = float(a.abs().amax() + b.abs().amax())
    torch.testing.assert_close(result.gain, reference.gain, rtol=1e-9, atol=1e-12 * size)
    torch.testing.assert_close(result.value, reference.value, rtol=1e-12, atol=1e-12 * size)
    # of lines that differ by rounding alone either may win, but the winners lie on the envelope
    by_parts = (a * result.probability + b * result.density).sum()
    torch.testing.assert_close(by_parts, reference.value, rtol=1e-12, atol=1e-12 * size)


def test_both_paths_agree_for_hundreds_of_lines() -> None:
    a, b = random_lines(40, 200, seed=5)
    a, b = torch.cat([a, a - b.square()]), torch.cat([b, 3 * b])  # a few lines win, and nearly all of them

    result, reference = expected_max(a, b), in_torch(a, b)

    torch.testing.assert_close(result.gain, reference.gain, rtol=1e-11, atol=0)
    torch.testing.assert_close(result.probability, reference.probability, rtol=0, atol=1e-11)
    torch.testing.assert_close(result.density, reference.density, rtol=0, atol=1e-11)


def test_lines_may_lie_in_memory_as_they_like() -> None:
    a, b = random_lines(6, 4, 3)
    plain = expected_max(a.mT.contiguous(), b.mT[:, ::2].contiguous()[:, :1])

    turned = expected_max(a.mT, b.mT[:, ::2][:, :1])

    assert torch.equal(turned.value, plain.value)
    assert torch.equal(turned.probability, plain.probability)


def test_single_precision_stays_so() -> None:
    a, b = random_lines(5, 4)

    result = expected_max(a.float(), b.float())

    assert result.value.dtype == result.probability.dtype == torch.float32
    torch.testing.assert_close(result.value.double(), expected_max(a, b).value, rtol=0, atol=1e-5)


def test_hundreds_of_lines_in_pieces_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = random_lines(3, 80)
    at_once = expected_max(a, b)
    monkeypatch.setattr(conbo.acquisition.expected_max, "MOST_PAIRS", 1_000)

    in_pieces = expected_max(a, b)

    assert torch.equal(at_once.value, in_pieces.value)
    for row in range(3):
        assert float(at_once.value[row]) == pytest.approx(by_quadrature(a[row].numpy(), b[row].numpy()), abs=1e-9)


def test_any_batch_is_the_same_as_one_by_one() -> None:
    a, b = random_lines(2, 3, 5)

    batch = expected_max(a, b)

    assert batch.value.shape == (2, 3)
    assert batch.probability.shape == (2, 3, 5)
    for i in range(2):
        for j in range(3):
            alone = expected_max(a[i, j], b[i, j])
            assert float(batch.gain[i, j]) == pytest.approx(float(alone.gain), abs=1e-12)
            torch.testing.assert_close(batch.density[i, j], alone.density)
    torch.testing.assert_close(expected_max(a, b[0, 0]).value[1, 2], expected_max(a[1, 2], b[0, 0]).value)


@pytest.mark.parametrize("slope", [-2.0, 0.0, 3.0])
def test_parallel_lines_have_no_gain(slope: float) -> None:
    result = expected_max(tensor([0.3, 1.7, 1.7, -4.0]), tensor([slope] * 4))

    assert float(result.value) == 1.7
    assert float(result.gain) == 0
    assert result.probability.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_a_single_line_has_no_gain() -> None:
    result = expected_max(tensor([0.4]), tensor([2.0]))

    assert (float(result.value), float(result.gain)) == (0.4, 0.0)
    assert result.probability.tolist() == [1.0]


def test_of_parallel_lines_the_highest_wins() -> None:
    result = expected_max(tensor([0.0, -1.0, -0.5, -0.7, -0.4, -0.4]), tensor([0.0, 1.0, 1.0, 1.0, -1.0, -1.0]))

    assert (result.probability > 0).tolist() == [True, False, True, False, True, False]


def test_dominated_lines_change_nothing() -> None:
    a, b = tensor([0.0, 0.1]), tensor([-1.0, 1.0])
    alone = expected_max(a, b)

    # below the corner, through the corner, and a copy
    more = expected_max(torch.cat([a, tensor([-0.5, 0.05, 0.0])]), torch.cat([b, tensor([0.0, 0.0, -1.0])]))

    assert float(more.gain) == pytest.approx(float(alone.gain), abs=1e-12)
    assert float(more.probability[2]) == float(more.probability[4]) == 0


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("shift", [0.0, 1e6, -1e6])
def test_scale_and_shift_of_lines_carry_over(scale: float, shift: float) -> None:
    a, b = random_lines(50, 6, seed=3)
    plain = expected_max(a, b)

    moved = expected_max(shift + scale * a, scale * b)

    torch.testing.assert_close(moved.value, shift + scale * plain.value, rtol=1e-9, atol=0)
    # a shift of a million leaves ten digits of intercepts of order one, and four of those of order 1e-6
    lost = 1e-9 if shift == 0 else (1e-7 if scale > 1 else 1e-3)
    large = plain.gain > 1e-3
    torch.testing.assert_close(moved.gain[large], scale * plain.gain[large], rtol=lost, atol=0)


def test_slopes_of_very_different_sizes_are_handled() -> None:
    a, b = tensor([0.0, 1e6, -1e6, 3.0]), tensor([1e6, 1e-6, -1e6, 0.0])

    assert float(expected_max(a, b).value) == pytest.approx(by_quadrature(a.numpy(), b.numpy()), rel=1e-9)


@pytest.mark.parametrize("corner", [0.0, 0.5, 1.0, 3.0, 5.0, 6.5, 8.0, 12.0, 20.0])
@pytest.mark.parametrize("bend", [1.0, 1e-3])
def test_gains_of_two_lines_are_accurate_however_small(corner: float, bend: float) -> None:
    # E[(Z - c)⁺] = ∫ Φ(-t) dt from c on: nothing cancels
    excess, _ = quad(lambda t: ndtr(-t), corner, corner + 12, epsrel=1e-11, epsabs=0, points=[corner + 1])

    for sign in (1, -1):
        gain = expected_max(tensor([0.0, -bend * corner]), tensor([0.0, sign * bend])).gain
        assert float(gain) == pytest.approx(bend * excess, rel=1e-8, abs=0)
        assert float(gain) > 0


def test_many_tiny_gains_add_up_without_cancellation() -> None:
    corners = torch.linspace(6.5, 7.5, 5, dtype=torch.float64)
    # slopes grow by 1 at every corner; the intercepts make neighboring lines meet there
    b = torch.arange(6, dtype=torch.float64)
    a = torch.cat([tensor([0.0]), -corners.cumsum(0)])

    gain = float(expected_max(1e3 + a, b).gain)

    truth = sum(quad(lambda t: ndtr(-t), c, c + 12, epsrel=1e-11, epsabs=0)[0] for c in corners.tolist())
    assert truth < 1e-11
    assert gain == pytest.approx(truth, rel=1e-6)


def test_derivatives_equal_finite_differences() -> None:
    a, b = random_lines(4, 5, seed=1)
    a.requires_grad_(True)
    b.requires_grad_(True)

    assert torch.autograd.gradcheck(lambda x, y: expected_max(x, y).value, (a, b), atol=1e-6)
    assert torch.autograd.gradcheck(lambda x, y: expected_max(x, y).gain, (a, b), atol=1e-6)
    result = expected_max(a, b)
    gradients = torch.autograd.grad(result.value.sum(), (a, b))
    torch.testing.assert_close(gradients[0], result.probability)
    torch.testing.assert_close(gradients[1], result.density)


def test_derivatives_are_finite_where_lines_coincide() -> None:
    a, b = (
        tensor([0.0, 0.0, 1.0, 1.0]).requires_grad_(True),
        tensor([1.0, 1.0, 0.0, 0.0]).requires_grad_(True),
    )

    gradients = torch.autograd.grad(expected_max(a, b).value, (a, b))

    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize(
    ("start", "end"), [(-9.0, -8.0), (8.0, 9.0), (-1.0, 2.0), (30.0, torch.inf), (-torch.inf, 0.0)]
)
def test_probabilities_of_intervals_are_accurate_in_both_tails(start: float, end: float) -> None:
    truth, _ = quad(lambda z: np.exp(-z * z / 2) / sqrt(2 * pi), max(start, -40), min(end, 40), epsrel=1e-11, epsabs=0)

    assert float(interval_probability(tensor(start), tensor(end))) == pytest.approx(truth, rel=1e-8)


def test_mean_excess_vanishes_far_out_and_never_falls_below_zero() -> None:
    c = torch.cat([torch.linspace(0, 45, 2000, dtype=torch.float64), tensor([1e4, 1e5, 1e200, torch.inf])])

    excess = mean_excess(c)

    assert float(excess.amin()) >= 0
    assert (excess[:-4].diff() <= 0).all()
    assert excess[-4:].tolist() == [0.0] * 4
    assert float(excess[0]) == pytest.approx(float(normal_density(tensor(0.0))))
    assert excess.dtype == torch.float64
