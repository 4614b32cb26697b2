"""Kernels against GPyTorch and their derivatives against autograd."""

from math import exp, sqrt

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from conbo.models.kernels import PROFILES, Columns, Factor, squared_distances
from conbo.models.posterior import condition
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import points_in, product_kernel, reals, tensor, trend_kernel, uniform

MIXED = Columns((0, 3, 0, 2))


@pytest.mark.parametrize(
    ("profile", "peer"),
    [("matern52", MaternKernel(nu=2.5, ard_num_dims=3)), ("squared-exponential", RBFKernel(ard_num_dims=3))],
)
def test_correlations_equal_those_of_gpytorch(profile: str, peer: MaternKernel | RBFKernel) -> None:
    lengthscales = tensor([0.1, 0.7, 30.0])
    peer = peer.double()
    peer.lengthscale = lengthscales
    a, b = uniform(9, 3, seed=1), uniform(7, 3, seed=2)
    factor = Factor(Columns((0, 0, 0)), lengthscales, profile)

    ours = factor.correlation(factor.scaled(a), factor.scaled(b))

    torch.testing.assert_close(ours, peer(a, b).to_dense().detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("profile", PROFILES)
def test_gradient_and_hessian_of_a_profile_equal_those_of_autograd(profile: str) -> None:
    function = PROFILES[profile][0]
    b = uniform(4, seed=3)

    def value(x: Tensor) -> Tensor:
        return function((x - b).square().sum())[0]

    for scale in (0.05, 1.0, 6.0):
        a = b + scale * (uniform(4, seed=4) - 0.3)
        _, slope, curve = function((a - b).square().sum())
        expected_hessian = torch.autograd.functional.hessian(value, a)

        gradient = -slope * (a - b)
        hessian = -slope * torch.eye(4, dtype=torch.float64) + curve * torch.outer(a - b, a - b)

        torch.testing.assert_close(gradient, torch.autograd.functional.jacobian(value, a), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(hessian, expected_hessian, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_at_distance_zero_are_the_limits(profile: str) -> None:
    function = PROFILES[profile][0]
    at_zero = torch.stack(function(tensor([0.0])))
    nearby = torch.stack(function(tensor([1e-16])))

    assert float(at_zero[0]) == 1.0
    torch.testing.assert_close(at_zero, nearby, rtol=0, atol=1e-7)


def test_squared_distances_are_those_of_the_definition_and_never_negative() -> None:
    a, b = 400 * uniform(2, 6, 5, seed=5), 400 * uniform(2, 4, 5, seed=6)

    direct = (a[:, :, None] - b[:, None]).square().sum(-1)

    torch.testing.assert_close(squared_distances(a, b), direct, rtol=1e-9, atol=1e-6)
    assert float(squared_distances(a, a).amin()) >= 0
    assert float(squared_distances(a[0], a[0]).diagonal().amax()) < 1e-8


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2), st.floats(0, 1), st.integers(0, 1)), min_size=1))
def test_features_of_categories_and_numbers_can_be_turned_back(
    rows: list[tuple[float, int, float, int]],
) -> None:
    points = tensor([[x, (c + 0.5) / 3, y, (k + 0.5) / 2] for x, c, y, k in rows])

    features = MIXED.features(points)

    assert features.shape == (len(rows), MIXED.width) == (len(rows), 7)
    torch.testing.assert_close(MIXED.points(features), points, rtol=0, atol=1e-15)


def test_columns_know_which_features_are_theirs() -> None:
    assert MIXED.owner == (0, 1, 1, 1, 2, 3, 3)
    assert MIXED.numeric == (0, 2)
    assert MIXED.numeric_features == (0, 4)


@pytest.mark.parametrize("profile", PROFILES)
def test_all_different_categories_are_equally_far_apart(profile: str) -> None:
    factor = Factor(Columns((4,)), tensor([0.7]), profile)
    levels = (torch.arange(4, dtype=torch.float64)[:, None] + 0.5) / 4

    likeness = factor.correlation(factor.scaled(levels), factor.scaled(levels))

    r = sqrt(5) / 0.7
    apart = (1 + r + r * r / 3) * exp(-r) if profile == "matern52" else exp(-0.5 / 0.7**2)
    expected = torch.full((4, 4), apart, dtype=torch.float64).fill_diagonal_(1.0)
    torch.testing.assert_close(likeness, expected, rtol=0, atol=1e-12)


def test_product_kernel_is_the_product_of_its_factors() -> None:
    space = reals(1, 2)
    kernel = product_kernel(space, 0.3, [0.5, 0.2], variance=2.5)
    points = points_in(space, 6)
    posterior = condition(kernel, 0.0, 1.0, points[:0], points.new_zeros(0), new_noise=1.0)

    covariance = posterior.prior_covariance(posterior.scaled(points), posterior.scaled(points))

    states, actions = (MaternKernel(nu=2.5, ard_num_dims=d).double() for d in (1, 2))
    states.lengthscale, actions.lengthscale = tensor(0.3), tensor([0.5, 0.2])
    expected = 2.5 * states(points[:, :1]).to_dense() * actions(points[:, 1:]).to_dense()
    torch.testing.assert_close(covariance, expected.detach(), rtol=0, atol=1e-12)
    assert kernel.variance == 2.5
    assert kernel.offset(points, points) is None


def test_trend_kernel_is_a_common_trend_and_a_difference_for_each_state() -> None:
    space = Space(states={"a": Categorical([*"uvw"]), "b": Categorical([1, 2])}, actions={"x": Real(0, 1)})
    kernel = trend_kernel(space, 0.3, (1.3, 0.35, 0.2))
    points = points_in(space, 12)
    posterior = condition(kernel, 0.0, 1.0, points[:0], points.new_zeros(0), new_noise=1.0)

    covariance = posterior.prior_covariance(posterior.scaled(points), posterior.scaled(points))

    for i, p in enumerate(points):
        for j, q in enumerate(points):
            r = sqrt(5) * abs(float(p[2] - q[2])) / 0.3
            likeness = (1 + r + r * r / 3) * exp(-r)
            same = bool((p[:2] == q[:2]).all())
            assert float(covariance[i, j]) == pytest.approx(1.3 * likeness + same * (0.35 * likeness + 0.2))
    assert kernel.variance == pytest.approx(1.85)
    assert not kernel.scale_slope(*(kernel.states.scaled(points[:, :2]),) * 2).any()


@given(st.integers(0, 10**6))
def test_every_kernel_is_positive_semidefinite(seed: int) -> None:
    states = {"k": Categorical([*"abc"]), "l": Categorical([*"uv"])}
    actions = {"x": Real(0, 1), "n": Integer(1, 5), "c": Categorical([1, 2, 3])}
    space = Space(states=states, actions=actions)
    points = points_in(space, 20, seed)
    scales = (0.1 + uniform(5, seed=seed)).tolist()
    for kernel in (
        product_kernel(space, scales[:2], scales[2:]),
        product_kernel(space, scales[:2], scales[2:], profile="squared-exponential"),
        trend_kernel(space, scales[2:]),
    ):
        posterior = condition(kernel, 0.0, 1.0, points[:0], points.new_zeros(0), new_noise=1.0)
        covariance = posterior.prior_covariance(posterior.scaled(points), posterior.scaled(points))

        torch.testing.assert_close(covariance, covariance.mT)
        assert float(torch.linalg.eigvalsh(covariance).amin()) > -1e-10
        torch.testing.assert_close(covariance.diagonal(), torch.full((20,), kernel.variance, dtype=torch.float64))
