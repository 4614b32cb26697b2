"""Kernels against GPyTorch and their derivatives against autograd."""

from collections.abc import Callable
from math import exp, sqrt

import pytest
import torch
from gpytorch.kernels import IndexKernel, MaternKernel, RBFKernel
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from conbo.models.category_kernels import CategoryKernel, MultiTask, Trend
from conbo.models.columns import Columns, squared_distances
from conbo.models.exact import condition
from conbo.models.kernels import Factor, Kernel
from conbo.models.profiles import PROFILES
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import (
    multi_task_kernel,
    points_in,
    product_kernel,
    reals,
    tensor,
    trend_kernel,
    uniform,
)

MIXED = Columns((0, 3, 0, 2))
CODED = Columns((0, 3, 0, 2), coded=True)
KINDS = Space(states={"a": Categorical([*"uvw"]), "s": Real(0, 1), "b": Categorical([1, 2])}, actions={"x": Real(0, 1)})


def covariance_of(kernel: Kernel, points: Tensor) -> Tensor:
    return kernel.covariance(kernel.scaled(points), kernel.scaled(points))


@pytest.mark.parametrize(
    ("profile", "peer"),
    [("matern52", MaternKernel(nu=2.5, ard_num_dims=3)), ("squared-exponential", RBFKernel(ard_num_dims=3))],
)
def test_correlations_equal_those_of_gpytorch(profile: str, peer: MaternKernel | RBFKernel) -> None:
    lengthscales = tensor([0.1, 0.7, 30.0])
    peer = peer.double()
    peer.lengthscale = lengthscales
    a, b = uniform(9, 3, seed=1), uniform(7, 3, seed=2)
    factor = Factor(Columns((0, 0, 0)), lengthscales, PROFILES[profile])

    ours = factor.correlation(factor.scaled(a), factor.scaled(b))

    torch.testing.assert_close(ours, peer(a, b).to_dense().detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("profile", PROFILES)
def test_gradient_and_hessian_of_a_profile_equal_those_of_autograd(profile: str) -> None:
    function = PROFILES[profile].tables
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
    function = PROFILES[profile].tables
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
    torch.testing.assert_close(MIXED.points(features), points, rtol=0, atol=1e-14)
    coded = CODED.features(points)
    assert coded.shape == (len(rows), CODED.width) == (len(rows), 4)
    assert coded[:, [1, 3]].tolist() == [[c, k] for _, c, _, k in rows]
    torch.testing.assert_close(CODED.points(coded), points, rtol=0, atol=1e-14)


def test_columns_know_which_features_are_theirs() -> None:
    assert MIXED.owner == (0, 1, 1, 1, 2, 3, 3)
    assert MIXED.numeric == (0, 2)
    assert MIXED.numeric_features == (0, 4)
    assert MIXED.categorical == CODED.categorical == (1, 3)
    assert CODED.owner == (0, 1, 2, 3)
    assert CODED.numeric_features == (0, 2)
    assert CODED.choices(tensor([[0.5, -0.1, 0.5, 1.0], [0.5, 0.34, 0.5, 0.49]])).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("profile", PROFILES)
def test_all_different_categories_are_equally_far_apart(profile: str) -> None:
    factor = Factor(Columns((4,)), tensor([0.7]), PROFILES[profile])
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

    states, actions = (MaternKernel(nu=2.5, ard_num_dims=d).double() for d in (1, 2))
    states.lengthscale, actions.lengthscale = tensor(0.3), tensor([0.5, 0.2])
    expected = 2.5 * states(points[:, :1]).to_dense() * actions(points[:, 1:]).to_dense()
    torch.testing.assert_close(covariance_of(kernel, points), expected.detach(), rtol=0, atol=1e-12)
    assert kernel.variance(points).tolist() == [2.5] * 6
    assert kernel.offset(points, points) is None


def test_trend_kernel_is_a_common_trend_and_a_difference_for_each_state() -> None:
    space = Space(states={"a": Categorical([*"uvw"]), "b": Categorical([1, 2])}, actions={"x": Real(0, 1)})
    kernel = trend_kernel(space, 0.3, (1.3, 0.35, 0.2))
    points = points_in(space, 12)

    covariance = covariance_of(kernel, points)

    for i, p in enumerate(points):
        for j, q in enumerate(points):
            likeness = matern(p[2] - q[2], 0.3)
            same = bool((p[:2] == q[:2]).all())
            assert float(covariance[i, j]) == pytest.approx(1.3 * likeness + same * (0.35 * likeness + 0.2))


def test_a_state_that_was_never_evaluated_is_predicted_by_the_trend() -> None:
    space = Space(states={"k": Categorical([*"abcd"])}, actions={"x": Real(0, 1)})
    trend, difference, constant = 1.3, 0.35, 0.2
    kernel = trend_kernel(space, 0.3, (trend, difference, constant))
    actions, rewards = uniform(10, 1, seed=1), uniform(10, seed=2)
    states = tensor([[0.125], [0.375]]).repeat(5, 1)  # only "a" and "b" are seen
    posterior = condition(kernel, 0.4, 0.01, torch.cat([states, actions], -1), rewards)
    grid = uniform(6, 1, seed=3)
    seen, new, other = (torch.cat([torch.full_like(grid, s), grid], -1) for s in (0.125, 0.625, 0.875))

    # the trend alone: a Gaussian process over actions, whose observations have differences and offsets for noise
    cross = trend * kernel.actions.correlation(kernel.actions.scaled(grid), kernel.actions.scaled(actions))
    solved = torch.cholesky_solve(cross.mT, posterior.factor)
    mean = 0.4 + solved.mT @ (rewards - 0.4)
    variance = trend - (cross * solved.mT).sum(-1)

    torch.testing.assert_close(posterior.mean(new), mean)
    torch.testing.assert_close(posterior.variance(new), variance + difference + constant)
    torch.testing.assert_close(posterior.mean(other), posterior.mean(new))
    assert float((posterior.mean(seen) - posterior.mean(new)).abs().amax()) > 0.01


def matern(apart: Tensor, lengthscale: float) -> float:
    r = sqrt(5) * abs(float(apart)) / lengthscale
    return (1 + r + r * r / 3) * exp(-r)


def test_with_numbers_among_the_states_the_trend_fades_with_their_distance() -> None:
    kernel = trend_kernel(KINDS, 0.3, (1.3, 0.35, 0.2), states=0.7)
    points = points_in(KINDS, 12)

    covariance = covariance_of(kernel, points)

    for i, p in enumerate(points):
        for j, q in enumerate(points):
            likeness, near = matern(p[3] - q[3], 0.3), matern(p[1] - q[1], 0.7)
            same = bool((p[[0, 2]] == q[[0, 2]]).all())
            expected = near * (1.3 * likeness + same * (0.35 * likeness + 0.2))
            assert float(covariance[i, j]) == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of GPyTorch
@pytest.mark.parametrize("rank", [1, 2])
def test_multi_task_kernel_is_a_product_of_gpytorch_s_index_kernels(rank: int) -> None:
    kernel = multi_task_kernel(KINDS, 0.3, rank, constant=0.0, states=0.7)
    tasks, points = kernel.categories, points_in(KINDS, 20)
    assert isinstance(tasks, MultiTask)

    expected = torch.ones(20, 20, dtype=torch.float64)
    for column, loadings, own in zip((0, 2), tasks.loadings, tasks.own, strict=True):
        peer = IndexKernel(num_tasks=len(own), rank=rank).double()
        peer.covar_factor.data, peer.var = loadings, own
        expected = expected * peer((points[:, [column]] * len(own)).long()).to_dense().detach()
    for column, lengthscale in ((1, 0.7), (3, 0.3)):
        factor = MaternKernel(nu=2.5).double()
        factor.lengthscale = tensor(lengthscale)
        expected = expected * factor(points[:, [column]]).to_dense().detach()
    torch.testing.assert_close(covariance_of(kernel, points), expected, rtol=0, atol=1e-12)


def test_multi_task_kernel_with_equal_loadings_is_the_trend_kernel() -> None:
    space = Space(states={"k": Categorical([*"abcd"])}, actions={"x": Real(0, 1)})
    points, trend = points_in(space, 15), trend_kernel(space, 0.3, (1.3, 0.35, 0.2))
    loadings, own = torch.full((4, 1), sqrt(1.3), dtype=torch.float64), torch.full((4,), 0.35, dtype=torch.float64)
    tasks = CategoryKernel(trend.states, trend.actions, MultiTask((loadings,), (own,)), 0.2)

    torch.testing.assert_close(covariance_of(tasks, points), covariance_of(trend, points), rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [trend_kernel, multi_task_kernel])
def test_slopes_in_the_numbers_of_a_state_equal_those_of_autograd(make: Callable[..., CategoryKernel]) -> None:
    kernel = make(KINDS, states=0.6)
    states = kernel.states.scaled(points_in(KINDS, 9)[:, :3])
    a, b = states[:4], states[4:]
    for value, slope in ((kernel.scale, kernel.scale_slope), (kernel.offset, kernel.offset_slope)):
        jacobian = torch.autograd.functional.jacobian(lambda moving, value=value: value(moving, b).sum(-1), a)
        expected = jacobian.diagonal(dim1=0, dim2=1)[1]  # in the number, which is the second feature

        table = slope(a, b)

        assert table is not None
        torch.testing.assert_close((-table * (a[:, None, 1] - b[None, :, 1])).sum(-1), expected)


@given(st.integers(0, 10**6))
def test_every_kernel_is_positive_semidefinite(seed: int) -> None:
    states = {"k": Categorical([*"abc"]), "s": Real(0, 1), "l": Categorical([*"uv"])}
    actions = {"x": Real(0, 1), "n": Integer(1, 5), "c": Categorical([1, 2, 3])}
    space = Space(states=states, actions=actions)
    points = points_in(space, 20, seed)
    scales = (0.1 + uniform(6, seed=seed)).tolist()
    for kernel in (
        product_kernel(space, scales[:3], scales[3:]),
        product_kernel(space, scales[:3], scales[3:], profile="squared-exponential"),
        trend_kernel(space, scales[3:], states=scales[:3]),
        multi_task_kernel(space, scales[3:], states=scales[:3], seed=seed),
    ):
        covariance = covariance_of(kernel, points)

        torch.testing.assert_close(covariance, covariance.mT)
        assert float(torch.linalg.eigvalsh(covariance).amin()) > -1e-10
        variance = kernel.variance(kernel.states.scaled(points[:, :3]))
        torch.testing.assert_close(covariance.diagonal(), variance)


@pytest.mark.parametrize("make", [product_kernel, trend_kernel, multi_task_kernel])
def test_a_kernel_moves_with_all_its_tensors(make: Callable[..., Kernel]) -> None:
    kernel = make(KINDS)
    moved = kernel.to(torch.device("meta"))
    assert {moved.states.lengthscales.device.type, moved.actions.lengthscales.device.type} == {"meta"}
    if isinstance(moved, CategoryKernel) and isinstance(moved.categories, MultiTask):
        assert {t.device.type for t in (*moved.categories.loadings, *moved.categories.own)} == {"meta"}
    points = points_in(KINDS, 5)
    assert torch.equal(covariance_of(kernel.to(torch.device("cpu")), points), covariance_of(kernel, points))


def test_the_likeness_of_categories_says_what_they_have_in_common() -> None:
    a, b = torch.tensor([[0, 0], [1, 1]]), torch.tensor([[0, 0], [0, 1], [1, 1]])

    trend = Trend(1.0, 0.5)

    assert trend.covariance(a, b).tolist() == [[1.5, 1.0, 1.0], [1.0, 1.0, 1.5]]
    assert trend.variance(b).tolist() == [1.5] * 3
