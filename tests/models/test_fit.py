"""Hyperparameters: the objective and its gradient, how high the fit gets, and data that could break it."""

from math import log, sqrt

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.constraints import Interval
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from conbo.models import compiled
from conbo.models.fit import (
    LOG_LENGTHSCALE_BOUNDS,
    LOG_NOISE_BOUNDS,
    LOG_VARIANCE_BOUNDS,
    Fit,
    LogPosterior,
    fit,
)
from conbo.models.kernel_families import KernelFamily, MultiTaskFamily, ProductFamily, TrendFamily
from conbo.models.kernels import CategoryKernel, Columns, Kernel, MultiTask
from conbo.models.posterior import condition
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import belief_with, points_in, product_kernel, reals, uniform

MIXED = Space(
    states={"s": Real(0, 1), "k": Categorical([*"ab"])},
    actions={"x": Real(0, 1), "n": Integer(1, 6), "c": Categorical([*"uvw"])},
)
CATEGORIES = Space(states={"k": Categorical([*"abc"])}, actions={"x": Real(0, 1), "y": Real(0, 1)})


TWO_KINDS = Space(
    states={"k": Categorical([*"ab"]), "s": Real(0, 1), "l": Categorical([1, 2, 3])}, actions={"x": Real(0, 1)}
)


def columns(space: Space, coded: bool = False) -> tuple[Columns, Columns]:
    return Columns(space.state_categories, coded), Columns(space.action_categories)


FAMILIES: dict[str, tuple[Space, KernelFamily]] = {
    "matern": (reals(1, 2), ProductFamily(*columns(reals(1, 2)))),
    "squared exponential": (reals(1, 2), ProductFamily(*columns(reals(1, 2)), "squared-exponential")),
    "no states": (reals(0, 2), ProductFamily(*columns(reals(0, 2)))),
    "mixed": (MIXED, ProductFamily(*columns(MIXED))),
    "trend": (CATEGORIES, TrendFamily(*columns(CATEGORIES, True))),
    "trend squared exponential": (CATEGORIES, TrendFamily(*columns(CATEGORIES, True), "squared-exponential")),
    "mixed trend": (TWO_KINDS, TrendFamily(*columns(TWO_KINDS, True))),
    "multi-task": (CATEGORIES, MultiTaskFamily(*columns(CATEGORIES, True))),
    "mixed multi-task": (TWO_KINDS, MultiTaskFamily(*columns(TWO_KINDS, True), rank=1)),
}


def data(space: Space, n: int = 25, seed: int = 0) -> tuple[Tensor, Tensor]:
    points = points_in(space, n, seed)
    rewards = torch.sin(4 * points.sum(-1)) + points[:, -1] + 0.1 * uniform(n, seed=seed + 1)
    return points, (rewards - rewards.mean()) / rewards.std()


def objective(
    family: KernelFamily, points: Tensor, rewards: Tensor, known: bool, small: bool = False
) -> tuple[LogPosterior, Tensor]:
    """The objective, and a few sets of parameters to try it on."""
    noise = 0.01 + uniform(len(points), seed=3) if known else None
    target = LogPosterior(family, points, rewards, noise, small)
    count = family.n_lengthscales + family.n_variances + len(family.typical_loadings) + (not known)
    parameters = -1.0 + 1.5 * (uniform(3, count, seed=4) - 0.5)
    return target, parameters


NOISES = pytest.mark.parametrize(
    ("known", "small"), [(False, False), (False, True), (True, False)], ids=["noise learned", "small", "known"]
)


@NOISES
@pytest.mark.parametrize("name", FAMILIES)
def test_gradient_of_the_objective_equals_finite_differences(name: str, known: bool, small: bool) -> None:
    space, family = FAMILIES[name]
    target, parameters = objective(family, *data(space), known, small)

    value, gradient, _ = target(parameters)

    step = 1e-5
    for column in range(parameters.shape[1]):
        move = torch.zeros_like(parameters)
        move[:, column] = step
        slope = (target(parameters + move)[0] - target(parameters - move)[0]) / (2 * step)
        torch.testing.assert_close(gradient[:, column], slope, rtol=1e-5, atol=1e-6)
    assert value.dtype == gradient.dtype == torch.float64


@pytest.mark.parametrize("name", FAMILIES)
def test_compiled_loops_and_torch_give_the_same_objective(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    space, family = FAMILIES[name]
    target, parameters = objective(family, *data(space), known=False)
    compiled_results = target(parameters)
    monkeypatch.setattr(compiled, "AVAILABLE", False)
    for ours, torchs in zip(compiled_results, target(parameters), strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-10, atol=1e-10)


def test_the_curvature_is_the_fisher_information_and_that_of_the_priors(monkeypatch: pytest.MonkeyPatch) -> None:
    space, family = FAMILIES["matern"]
    points, _ = data(space)
    target, parameters = objective(family, *data(space), known=False, small=True)
    monkeypatch.setattr("conbo.models.fit.IMAGINED", 4000)
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
def test_the_objective_is_likelihood_times_priors_at_the_best_constant(name: str, known: bool, small: bool) -> None:
    space, family = FAMILIES[name]
    points, rewards = data(space)
    target, parameters = objective(family, points, rewards, known, small)

    values, _, constants = target(parameters)

    for row, value, constant in zip(parameters, values, constants, strict=True):
        noise = target.noise if target.noise is not None else row[-1].exp().expand(len(points))
        covariance = covariance_of(family.kernel(row), points) + torch.diag(noise)
        likelihood = [
            torch.distributions.MultivariateNormal((constant + move).expand(len(points)), covariance).log_prob(rewards)
            for move in (0.0, 1e-3, -1e-3)
        ]
        n_l = family.n_lengthscales
        place = torch.zeros_like(row)
        place[:n_l] = sqrt(2) + 0.5 * log(points.shape[1])
        width = torch.ones_like(row)
        width[:n_l] = sqrt(3)
        if not known:
            place[-1], width[-1] = -6.0, 2.0
        positive = torch.ones_like(row, dtype=torch.bool)
        loadings = slice(n_l + family.n_variances, len(row) - (not known))
        positive[loadings] = False
        positive[-1] &= known or small
        prior = torch.distributions.LogNormal(place, width).log_prob(row.exp())[positive].sum()
        typical = torch.tensor(family.typical_loadings, dtype=torch.float64)
        prior = prior + torch.distributions.Normal(typical, 0.5).log_prob(row[loadings]).sum()
        if not (known or small):
            prior = prior + torch.distributions.Cauchy(row.new_tensor(-5.0), row.new_tensor(1.0)).log_prob(row[-1])
        assert float(value) == pytest.approx(float(likelihood[0] + prior), abs=1e-8)
        assert float(likelihood[0]) > float(max(likelihood[1:]))


def covariance_of(kernel: Kernel, points: Tensor) -> Tensor:
    prior = condition(kernel, 0.0, 1.0, points[:0], points.new_zeros(0), new_noise=1.0)
    return prior.prior_covariance(prior.scaled(points), prior.scaled(points))


def peer(points: Tensor, rewards: Tensor, d_s: int) -> ExactMarginalLogLikelihood:
    """BoTorch's model with our kernel, priors and bounds."""
    d = points.shape[1]

    def between(bounds: tuple[float, float], start: float) -> Interval:
        low, high = torch.tensor(bounds, dtype=torch.float64).exp().tolist()
        return Interval(low, high, transform=None, initial_value=start)

    def factor(active: list[int]) -> MaternKernel:
        return MaternKernel(
            nu=2.5,
            ard_num_dims=len(active),
            active_dims=active,
            lengthscale_prior=LogNormalPrior(sqrt(2) + 0.5 * log(d), sqrt(3)),
            lengthscale_constraint=between(LOG_LENGTHSCALE_BOUNDS, 0.3),
        )

    kernel = ScaleKernel(
        factor([*range(d_s)]) * factor([*range(d_s, d)]),
        outputscale_prior=LogNormalPrior(0.0, 1.0),
        outputscale_constraint=between(LOG_VARIANCE_BOUNDS, 1.0),
    )
    likelihood = GaussianLikelihood(
        noise_prior=LogNormalPrior(-6.0, 2.0), noise_constraint=between(LOG_NOISE_BOUNDS, 1e-2)
    )
    model = SingleTaskGP(points, rewards[:, None], covar_module=kernel, likelihood=likelihood, outcome_transform=None)
    return ExactMarginalLogLikelihood(likelihood, model)


@pytest.mark.filterwarnings("ignore")  # of BoTorch, on data that are standardised with another factor
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("d_s", "d_x"), [(1, 1), (2, 3)])
def test_the_fit_is_at_least_as_good_as_that_of_botorch(d_s: int, d_x: int, seed: int) -> None:
    space = reals(d_s, d_x)
    family = ProductFamily(*columns(space))
    points, rewards = data(space, 40, seed)
    mll = peer(points, rewards, d_s)
    fit_gpytorch_mll(mll)
    kernel = mll.model.covar_module
    lengthscales = [factor.lengthscale.detach()[0] for factor in kernel.base_kernel.kernels]
    variances = [kernel.outputscale.detach()[None], mll.likelihood.noise.detach()]
    theirs = LogPosterior(family, points, rewards, None, small_noise=True)(
        torch.cat(lengthscales + variances).log()[None]
    )[0]

    assert fit([family], points, rewards, small_noise=True).objective >= float(theirs) - 1e-3


def parameters_of(result: Fit) -> Tensor:
    kernel = result.kernel
    states = torch.zeros(1, kernel.states.columns.width, dtype=torch.float64)
    parts = [kernel.states.lengthscales, kernel.actions.lengthscales, kernel.variance(states)]
    if isinstance(kernel, CategoryKernel) and isinstance(kernel.categories, MultiTask):
        parts += [w.flatten() for w in kernel.categories.loadings]
    return torch.cat(parts)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("known", [False, True])
def test_many_rewards_are_fitted_as_well_as_few(name: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    space, family = FAMILIES[name]
    points, rewards = data(space, n=120)
    noise = torch.full((120,), 0.01, dtype=torch.float64) if known else None
    whole = fit([family], points, rewards, noise)
    monkeypatch.setattr("conbo.models.fit.MANY", 40)
    # of several maxima, as loadings have them, another may be found
    least = whole.objective - (1.0 if family.typical_loadings else 0.01)
    assert fit([family], points, rewards, noise).objective >= least


@pytest.mark.parametrize("name", FAMILIES)
def test_the_fit_is_a_maximum_within_bounds_and_the_same_every_time(name: str) -> None:
    space, family = FAMILIES[name]
    points, rewards = data(space)

    first, second = fit([family], points, rewards), fit([family], points, rewards)

    assert torch.equal(parameters_of(first), parameters_of(second))
    assert (first.objective, first.constant, first.noise) == (second.objective, second.constant, second.noise)
    target = LogPosterior(family, points, rewards, None)
    assert first.objective >= float(target(target.starts())[0].amax())
    lengthscales = first.kernel.actions.lengthscales.log()
    assert (
        (lengthscales >= LOG_LENGTHSCALE_BOUNDS[0] - 1e-9) & (lengthscales <= LOG_LENGTHSCALE_BOUNDS[1] + 1e-9)
    ).all()
    assert isinstance(first.noise, float)
    assert 1e-7 * 0.999 <= first.noise <= 10 * 1.001


def test_the_fit_finds_hyperparameters_that_made_the_data() -> None:
    space = reals(1, 1)
    truth = product_kernel(space, 0.6, 0.2, 1.0)
    told = belief_with(space, truth, n=150, noise=0.05).observations

    result = fit([ProductFamily(*columns(space))], told.points, told.rewards)

    assert result.noise == pytest.approx(0.05, rel=0.4)
    assert float(result.kernel.actions.lengthscales) == pytest.approx(0.2, rel=0.4)
    assert float(result.kernel.states.lengthscales) == pytest.approx(0.6, rel=0.6)


def test_a_parameter_that_does_not_matter_gets_a_long_lengthscale() -> None:
    points = uniform(60, 3, seed=1)
    rewards = torch.sin(8 * points[:, 0]) + points[:, 2]

    result = fit([ProductFamily(*columns(reals(1, 2)))], points, (rewards - rewards.mean()) / rewards.std())

    ignored, used = result.kernel.actions.lengthscales.tolist()
    assert ignored > 5 * float(result.kernel.states.lengthscales)
    assert ignored > used


def test_known_noise_is_kept_and_used() -> None:
    space, family = FAMILIES["matern"]
    points, rewards = data(space)
    noise = torch.full_like(rewards, 1e-4)
    noise[0] = 1e4  # the first reward says nothing

    result = fit([family], points, rewards, noise)
    posterior = result.posterior(points, rewards)

    assert isinstance(result.noise, Tensor)
    assert torch.equal(result.noise, noise)
    torch.testing.assert_close(posterior.mean(points[1:]), rewards[1:], rtol=0, atol=0.05)
    bent = rewards.clone()
    bent[0] += 100.0
    torch.testing.assert_close(posterior.mean(points), result.posterior(points, bent).mean(points), rtol=0, atol=0.05)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind", ["one observation", "constant", "duplicates", "all at one point"])
def test_poor_data_still_give_a_usable_model(kind: str, name: str) -> None:
    space, family = FAMILIES[name]
    points, rewards = data(space, 12)
    if kind == "one observation":
        points, rewards = points[:1], rewards[:1] * 0
    elif kind == "constant":
        rewards = torch.zeros_like(rewards)
    elif kind == "duplicates":
        points, rewards = points.repeat(3, 1), rewards.repeat(3)
    else:
        points = points[:1].expand(12, -1).clone()

    posterior = fit([family], points, rewards).posterior(points, rewards)

    others = points_in(space, 20, seed=5)
    assert torch.isfinite(posterior.mean(others)).all()
    assert torch.isfinite(posterior.variance(others)).all()
    assert float(posterior.mean(others).abs().amax()) < 10
    if kind == "constant":
        assert float(posterior.mean(others).abs().amax()) < 1e-9
    if kind == "duplicates":
        assert float((posterior.mean(points) - rewards).abs().amax()) < 0.5
