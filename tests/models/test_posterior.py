"""The posterior against GPyTorch, the reference cases, and the definition of one more observation."""

from dataclasses import FrozenInstanceError

import gpytorch
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from conbo.errors import ConboError
from conbo.models.conditioned import CHUNK
from conbo.models.exact import ExactPosterior, condition
from conbo.models.factorization import cholesky
from conbo.models.kernels import Kernel
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import (
    MODELS,
    belief_with,
    finite_differences,
    heteroscedastic_noise,
    multi_task_kernel,
    points_in,
    posterior_of,
    product_kernel,
    reals,
    reference_belief,
    reference_states,
    tensor,
    trend_kernel,
    uniform,
    warped,
)

MIXED = Space(
    states={"s": Real(0, 1), "k": Categorical([*"ab"])},
    actions={"x": Real(0, 1), "n": Integer(1, 6), "c": Categorical([*"uvw"])},
)
CATEGORIES = Space(states={"k": Categorical([*"abc"])}, actions={"x": Real(0, 1), "y": Real(0, 1)})
TWO_KINDS = Space(
    states={"s": Real(0, 1), "k": Categorical([*"ab"]), "l": Categorical([1, 2, 3])}, actions={"x": Real(0, 1)}
)


def kernels() -> dict[str, tuple[Space, Kernel]]:
    two = reals(1, 2)
    return {
        "matern": (two, product_kernel(two, 0.4, [0.3, 0.8], 1.7)),
        "squared exponential": (two, product_kernel(two, 0.4, [0.3, 0.8], 1.7, "squared-exponential")),
        "no states": (reals(0, 2), product_kernel(reals(0, 2))),
        "mixed": (MIXED, product_kernel(MIXED, [0.5, 0.9], [0.4, 0.6, 1.1], 0.8)),
        "warped": (two, warped(product_kernel(two, 0.4, [0.3, 0.8], 1.7))),
        "warped mixed": (MIXED, warped(product_kernel(MIXED, [0.5, 0.9], [0.4, 0.6, 1.1], 0.8))),
        "trend": (CATEGORIES, trend_kernel(CATEGORIES, [0.4, 0.6])),
        "mixed trend": (MIXED, trend_kernel(MIXED, [0.4, 0.6, 1.1], states=0.5)),
        "multi-task": (CATEGORIES, multi_task_kernel(CATEGORIES, [0.4, 0.6])),
        "mixed multi-task": (TWO_KINDS, multi_task_kernel(TWO_KINDS, 0.5, states=0.6)),
    }


KERNELS = kernels()


class Peer(gpytorch.models.ExactGP):
    """The product Matérn kernel of one state and two actions, the GPyTorch way."""

    def __init__(self, points: Tensor, rewards: Tensor, noise: Tensor) -> None:
        super().__init__(points, rewards, gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise))
        self.mean_module = gpytorch.means.ConstantMean()
        states = gpytorch.kernels.MaternKernel(nu=2.5, active_dims=[0])
        actions = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2, active_dims=[1, 2])
        self.covar_module = gpytorch.kernels.ScaleKernel(states * actions)
        self.double()
        self.mean_module.constant.data.fill_(0.6)
        # as tensors: GPyTorch would take plain numbers in single precision
        states.lengthscale, actions.lengthscale = tensor(0.4), tensor([0.3, 0.8])
        self.covar_module.outputscale = tensor(1.7)
        self.eval()

    def forward(self, points: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(points), self.covar_module(points))


def observations(kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Points, rewards and the variances of their noise."""
    n = {"one": 1, "many": 60}.get(kind, 20)
    points = uniform(n, 3, seed=1)
    if kind == "duplicates":
        points = points[[0, 1, 1, 1, 2, 2, 3, 4, 5, 5]]
    rewards = torch.sin(7 * points.sum(-1)) + uniform(len(points), seed=2)
    noise = torch.full_like(rewards, 1e-3)
    if kind == "noise of each":
        noise = 10 ** (-3 * uniform(n, seed=3))
    return points, rewards, noise


@pytest.mark.parametrize("kind", ["some", "many", "one", "duplicates", "noise of each"])
def test_moments_equal_those_of_gpytorch(kind: str) -> None:
    points, rewards, noise = observations(kind)
    a, b = uniform(7, 3, seed=4), uniform(5, 3, seed=5)
    with torch.no_grad():
        joint = Peer(points, rewards, noise)(torch.cat([a, b]))
    posterior = condition(KERNELS["matern"][1], 0.6, noise, points, rewards)

    for ours, theirs in (
        (posterior.mean(a), joint.mean[:7]),
        (posterior.variance(a), joint.variance[:7]),
        (posterior.covariance(a, b), joint.covariance_matrix[:7, 7:]),
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_moments_equal_those_of_the_reference_cases(name: str) -> None:
    queries = MODELS[name]["queries"]
    posterior = posterior_of(reference_belief(name))
    states = reference_states(name, [query["state"] for query in queries])
    points = torch.cat([states, tensor([query["candidate_action"] for query in queries])], -1)

    for ours, key in ((posterior.mean(points), "mean"), (posterior.variance(points), "variance")):
        expected = tensor([query[f"posterior_{key}_at_state_and_candidate_action"] for query in queries])
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-8)


def test_one_noise_for_all_is_the_same_as_one_for_each() -> None:
    points, rewards, _ = observations("some")
    kernel = KERNELS["matern"][1]
    one = condition(kernel, 0.0, 0.01, points, rewards)
    each = condition(kernel, 0.0, torch.full_like(rewards, 0.01), points, rewards)

    assert torch.equal(one.factor, each.factor)
    assert one.noise == pytest.approx(each.noise) == pytest.approx(0.01)
    assert condition(kernel, 0.0, 0.01, points, rewards, new_noise=0.5).noise == 0.5
    assert one.n_observations == 20


def test_noise_that_varies_is_that_of_every_point() -> None:
    points, rewards, _ = observations("some")
    kernel = KERNELS["matern"][1]
    noise = heteroscedastic_noise(reals(1, 2))
    posterior = condition(kernel, 0.0, noise, points, rewards)
    each = condition(kernel, 0.0, noise.at(points), points, rewards)

    assert torch.equal(posterior.factor, each.factor)
    candidates = uniform(6, 3, seed=4)
    expected = posterior.variance(candidates) + noise.at(candidates)
    torch.testing.assert_close(posterior.look_ahead(candidates).sd.square(), expected)
    assert torch.equal(posterior.look_ahead(candidates).noise_gradient, noise.gradient(candidates))
    assert not each.look_ahead(candidates).noise_gradient.any()


def test_without_observations_it_is_the_prior() -> None:
    space, kernel = KERNELS["trend"]
    points = points_in(space, 5)
    posterior = condition(kernel, 2.0, 0.1, points[:0], points.new_zeros(0), new_noise=0.1)

    torch.testing.assert_close(posterior.mean(points), torch.full((5,), 2.0, dtype=torch.float64))
    torch.testing.assert_close(posterior.variance(points), torch.full((5,), 1.6, dtype=torch.float64))


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_of_mean_and_variance_equal_finite_differences(name: str) -> None:
    space, kernel = KERNELS[name]
    posterior = posterior_of(belief_with(space, kernel, constant=0.4))
    points = 0.05 + 0.9 * points_in(space, 8, seed=9)  # the ends of the cube have only one side
    categories = space.state_categories + space.action_categories
    points[:, [c for c, count in enumerate(categories) if count]] = points_in(space, 8, seed=9)[
        :, [c for c, count in enumerate(categories) if count]
    ]

    moments = posterior.moments(points)

    torch.testing.assert_close(moments.mean, posterior.mean(points), rtol=0, atol=1e-10)
    torch.testing.assert_close(moments.variance, posterior.variance(points), rtol=0, atol=1e-10)
    for gradient, function in (
        (moments.mean_gradient, posterior.mean),
        (moments.variance_gradient, posterior.variance),
    ):
        torch.testing.assert_close(gradient, finite_differences(function, points), rtol=1e-5, atol=1e-6)
    for column, count in enumerate(categories):
        assert count == 0 or not moments.mean_gradient[:, column].any()


@pytest.mark.parametrize("name", KERNELS)
def test_look_ahead_equals_conditioning_on_one_more_observation(name: str) -> None:
    space, kernel = KERNELS[name]
    belief = belief_with(space, kernel, constant=-0.3, noise=0.05)
    posterior, told = posterior_of(belief), belief.observations
    candidates, others = points_in(space, 4, seed=7), points_in(space, 9, seed=8)

    ahead = posterior.look_ahead(candidates)
    slopes = posterior.look_ahead_slopes(candidates, others)

    torch.testing.assert_close(ahead.sd.square(), posterior.variance(candidates) + 0.05)
    for c, candidate in enumerate(candidates):
        for z in (-1.7, 0.4):
            reward = posterior.mean(candidate[None]) + ahead.sd[c] * z
            after = condition(
                kernel,
                -0.3,
                0.05,
                torch.cat([told.points, candidate[None]]),
                torch.cat([told.rewards, reward]),
            )
            torch.testing.assert_close(posterior.mean(others) + slopes[c] * z, after.mean(others), rtol=0, atol=1e-9)


@given(st.sampled_from(sorted(KERNELS)), st.integers(0, 10**6), st.floats(-6, 0))
def test_covariances_are_symmetric_and_positive_semidefinite(name: str, seed: int, log_noise: float) -> None:
    space, kernel = KERNELS[name]
    posterior = posterior_of(belief_with(space, kernel, noise=10**log_noise, seed=seed))
    points = points_in(space, 12, seed + 2)

    covariance = posterior.covariance(points, points)

    torch.testing.assert_close(covariance, covariance.mT, rtol=0, atol=1e-9)
    assert float(torch.linalg.eigvalsh(covariance).amin()) > -1e-8
    torch.testing.assert_close(covariance.diagonal().clamp_min(0), posterior.variance(points), rtol=0, atol=1e-9)
    assert (posterior.variance(points) <= kernel.variance(kernel.scaled(points)[0]) + 1e-9).all()


def test_noise_free_observations_are_interpolated() -> None:
    space, kernel = KERNELS["matern"]
    belief = belief_with(space, kernel, noise=1e-9)
    told = belief.observations

    torch.testing.assert_close(belief.posterior.mean(told.points), told.rewards, rtol=0, atol=1e-5)
    assert float(belief.posterior.variance(told.points).amax()) < 1e-7


def test_many_points_are_passed_in_chunks_without_a_seam() -> None:
    space, kernel = KERNELS["matern"]
    posterior = posterior_of(belief_with(space, kernel))
    points = points_in(space, CHUNK + 3, seed=1)

    around = slice(CHUNK - 2, CHUNK + 3)
    torch.testing.assert_close(posterior.mean(points)[around], posterior.mean(points[around]))
    torch.testing.assert_close(posterior.variance(points)[around], posterior.variance(points[around]))


def test_a_singular_covariance_is_factorized_with_little_jitter() -> None:
    points = uniform(6, 3, seed=1)[[0, 0, 1, 1, 2, 3]]
    posterior = condition(KERNELS["matern"][1], 0.0, 0.0, points, points.sum(-1), new_noise=0.1)
    matrix = posterior.factor @ posterior.factor.mT

    scaled = posterior.kernel.scaled(points)
    torch.testing.assert_close(matrix, posterior.kernel.covariance(scaled, scaled), rtol=0, atol=1e-6)
    torch.testing.assert_close(posterior.mean(points), points.sum(-1), rtol=0, atol=1e-5)


def test_a_regular_matrix_is_factorized_without_jitter() -> None:
    matrix = tensor([[4.0, 2.0], [2.0, 3.0]])

    assert torch.equal(cholesky(matrix), torch.linalg.cholesky(matrix))


@pytest.mark.parametrize(("entry", "place"), [(torch.nan, (0, 0)), (torch.nan, (2, 1)), (torch.inf, (2, 1))])
def test_a_matrix_that_is_not_finite_is_refused(entry: float, place: tuple[int, int]) -> None:
    matrix = torch.eye(3, dtype=torch.float64)
    matrix[place] = entry

    with pytest.raises(ConboError, match="must be finite"):
        cholesky(matrix)


def test_a_matrix_of_zeros_is_factorized() -> None:
    assert float(cholesky(torch.zeros(3, 3, dtype=torch.float64)).abs().amax()) < 1e-100


def test_a_posterior_cannot_be_changed_and_is_in_double_precision() -> None:
    space, kernel = KERNELS["mixed"]
    posterior = posterior_of(belief_with(space, kernel))

    with pytest.raises(FrozenInstanceError):
        posterior.noise = 0.0  # type: ignore[misc]
    ahead = posterior.look_ahead(points_in(space, 2))
    moments = posterior.moments(points_in(space, 2))
    for value in (*vars(posterior).values(), *vars(ahead).values(), *vars(moments).values()):
        assert not isinstance(value, Tensor) or value.dtype == torch.float64
    assert isinstance(posterior, ExactPosterior)
    assert posterior.n_state_dims == 2
