"""The objective of a fit: against textbook densities, its gradient and its curvature."""

from math import inf, log, nan, sqrt

import pytest
import torch
from torch import Tensor
from torch.distributions import Cauchy, LogNormal, MultivariateNormal, Normal

from conbo.models import compiled, product_terms
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.hyperparameter_prior import Expected
from conbo.models.kernel_families import KernelFamily
from conbo.models.kernels import Kernel
from conbo.models.log_posterior import LogPosterior
from conbo.models.relative_family import shear_of
from conbo.models.solved_covariances import factorize_and_invert
from kernel_family_cases import FAMILIES, data
from random_beliefs import tensor, uniform


def objective(
    family: KernelFamily, points: Tensor, rewards: Tensor, noise: Expected | None = "moderate"
) -> tuple[LogPosterior, Tensor]:
    """The objective, and a few sets of parameters to try it on; the noise is known or as expected."""
    known = 0.01 + uniform(len(points), seed=3)
    target = LogPosterior(family, points, rewards, known if noise is None else noise)
    parameters = -1.0 + 1.5 * (uniform(3, len(target.bounds), seed=4) - 0.5)
    return target, parameters


NOISES = pytest.mark.parametrize("noise", ["moderate", "small", "varying", None])


@NOISES
@pytest.mark.parametrize("name", FAMILIES)
def test_gradient_of_the_objective_equals_finite_differences(name: str, noise: Expected | None) -> None:
    space, family = FAMILIES[name]
    target, parameters = objective(family, *data(space), noise)

    value, gradient, _ = target(parameters)

    step = 1e-5
    for column in range(parameters.shape[1]):
        move = torch.zeros_like(parameters)
        move[:, column] = step
        slope = (target(parameters + move)[0] - target(parameters - move)[0]) / (2 * step)
        torch.testing.assert_close(gradient[:, column], slope, rtol=1e-5, atol=1e-6)
    assert value.dtype == gradient.dtype == torch.float64


def test_the_gradient_is_right_where_actions_are_at_the_ends_of_their_ranges() -> None:
    space, family = FAMILIES["warped"]
    points, rewards = data(space)
    points[::2, 1], points[::3, 2] = 0.0, 1.0
    target, parameters = objective(family, points, rewards)
    numeric = [
        (target(parameters + move)[0] - target(parameters - move)[0]) / 2e-5
        for move in 1e-5 * torch.eye(parameters.shape[1], dtype=torch.float64)
    ]
    torch.testing.assert_close(target(parameters)[1], torch.stack(numeric, -1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_compiled_loops_and_torch_give_the_same_objective(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    space, family = FAMILIES[name]
    target, parameters = objective(family, *data(space))
    compiled_results = target(parameters)
    monkeypatch.setattr(compiled, "AVAILABLE", False)
    for ours, torchs in zip(compiled_results, target(parameters), strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-10, atol=1e-10)


def test_the_curvature_is_the_fisher_information_and_that_of_the_priors(monkeypatch: pytest.MonkeyPatch) -> None:
    space, family = FAMILIES["matern"]
    points, _ = data(space)
    target, parameters = objective(family, *data(space), "small")
    monkeypatch.setattr("conbo.models.log_posterior.IMAGINED", 4000)
    curvature = target.curvature(parameters)

    for row, found in zip(parameters, curvature, strict=True):
        noise = torch.eye(len(points), dtype=torch.float64)
        solve = torch.linalg.inv(covariance_of(family.kernel(row), points) + row[-1].exp() * noise)
        for place in range(len(row)):
            step = torch.zeros_like(row)
            step[place] = 1e-5
            slope = covariance_of(family.kernel(row + step), points) - covariance_of(family.kernel(row - step), points)
            slope = row[-1].exp() * noise if place == len(row) - 1 else slope / 2e-5
            spread = [*[sqrt(3)] * family.n_lengthscales, 1.0, 2.0][place]
            information = 0.5 * float((solve @ slope @ solve @ slope).trace())
            assert float(found[place]) == pytest.approx(information + spread**-2, rel=0.1)


@NOISES
@pytest.mark.parametrize("name", FAMILIES)
def test_the_objective_is_likelihood_times_priors_at_the_best_constant(name: str, noise: Expected | None) -> None:
    space, family = FAMILIES[name]
    points, rewards = data(space)
    target, parameters = objective(family, points, rewards, noise)

    values, _, constants = target(parameters)

    n_l, n_v, n_w = family.n_lengthscales, family.n_variances, len(family.typical_loadings)
    typical = torch.tensor(family.typical_loadings, dtype=torch.float64)
    for row, value, constant in zip(parameters, values, constants, strict=True):
        found = target.noise_of(row)
        variances = (
            found.at(points)
            if isinstance(found, HeteroscedasticNoise)
            else torch.as_tensor(found, dtype=torch.float64).expand(len(points))
        )
        shear = shear_of(family, row)
        seen = points if shear is None else shear(points)
        covariance = covariance_of(family.kernel(row[: n_l + n_v + n_w]), seen) + torch.diag(variances)
        likelihood = [
            MultivariateNormal((constant + move).expand(len(points)), covariance).log_prob(rewards)
            for move in (0.0, 1e-3, -1e-3)
        ]
        lengthscales, variances, loadings, rest = row.split([n_l, n_v, n_w, len(row) - n_l - n_v - n_w])
        prior = LogNormal(tensor(sqrt(2) + 0.5 * log(points.shape[1])), sqrt(3)).log_prob(lengthscales.exp()).sum()
        if family.wide_variances:
            prior = prior + Cauchy(tensor(0.0), 1.5).log_prob(variances).sum()
        else:
            prior = prior + LogNormal(tensor(0.0), 1.0).log_prob(variances.exp()).sum()
        prior = prior + Normal(typical, 0.5).log_prob(loadings).sum()
        if noise == "small":
            prior = prior + LogNormal(tensor(-6.0), 2.0).log_prob(rest.exp()).sum()
        elif noise is not None:
            slopes = Normal(tensor(0.0), 0.3)
            relative = slopes.log_prob(rest[1:]) - slopes.log_prob(tensor(0.0))
            prior = prior + Cauchy(tensor(-4.0), 1.5).log_prob(rest[0]) + relative.sum()
        assert float(value) == pytest.approx(float(likelihood[0] + prior), abs=1e-8)
        assert float(likelihood[0]) > float(max(likelihood[1:]))


def test_without_slopes_noise_that_varies_is_as_probable_as_noise_that_does_not() -> None:
    space, family = FAMILIES["mixed"]
    constant, parameters = objective(family, *data(space))
    varying, _ = objective(family, *data(space), "varying")
    slopes = parameters.new_zeros(len(parameters), varying.n_slopes)
    torch.testing.assert_close(varying(torch.cat([parameters, slopes], -1))[0], constant(parameters)[0])


def covariance_of(kernel: Kernel, points: Tensor) -> Tensor:
    return kernel.covariance(kernel.scaled(points), kernel.scaled(points))


def test_many_parameters_are_split_into_calls_that_an_interrupt_need_not_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space, family = FAMILIES["trend"]
    points, rewards = data(space)
    columns = torch.stack([rewards, rewards.square()], -1)
    whole = LogPosterior(family, points, rewards, "moderate")
    monkeypatch.setattr("conbo.models.log_posterior.MOST_WORK", 3 * len(points) ** 3)
    split, starts, sizes = LogPosterior(family, points, rewards, "moderate"), whole.prior.starts(), []
    solve = split._solve
    monkeypatch.setattr(split, "_solve", lambda some: (sizes.append(len(some)), solve(some))[1])

    for parts, wholes in zip(split(starts), whole(starts), strict=True):
        torch.testing.assert_close(parts, wholes)
    torch.testing.assert_close(split.of_rewards(starts, columns), whole.of_rewards(starts, columns))

    assert sizes == [3, 3, 2, 3, 3, 2]


def test_likelihoods_do_not_depend_on_threads_nor_on_the_number_computed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space, family = FAMILIES["main effects mixed"]
    target, parameters = objective(family, *data(space), "varying")
    together = target(parameters)
    monkeypatch.setattr(product_terms, "NUMBERS_AT_ONCE", 1)
    one_by_one = target(parameters)
    monkeypatch.setattr(product_terms, "WORK_PER_THREAD", 1)
    monkeypatch.setattr(product_terms, "available_threads", lambda: 3)

    for ours, alone, whole in zip(target(parameters), one_by_one, together, strict=True):
        assert torch.equal(ours, alone)
        torch.testing.assert_close(ours, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_compiled_likelihoods_are_those_of_torch(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    space, family = FAMILIES["matern"]
    points, rewards = data(space, 30)
    target, parameters = objective(family, points[:n], rewards[:n])
    columns = torch.stack([rewards[:n], rewards[:n].square()], -1)

    quick = *target(parameters), target.curvature(parameters), target.of_rewards(parameters, columns)
    monkeypatch.setattr(compiled, "AVAILABLE", False)

    reference = *target(parameters), target.curvature(parameters), target.of_rewards(parameters, columns)
    for one, other in zip(quick, reference, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("entry", [-1.0, nan, inf])
def test_a_covariance_without_a_factor_is_noticed_and_leaves_the_others_alone(entry: float) -> None:
    matrices = torch.eye(9, dtype=torch.float64).expand(3, 9, 9).clone()
    matrices[1, 4, 4] = entry

    (factors, inverses), failed = factorize_and_invert(matrices, torch.zeros(3, 9, dtype=torch.float64))

    assert failed.tolist() == [False, True, False]
    for kept in (factors[[0, 2]], inverses[[0, 2]]):
        torch.testing.assert_close(kept, matrices[[0, 2]], rtol=0, atol=1e-15)
