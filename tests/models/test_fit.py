"""Hyperparameters: how high the fit gets, which model is taken, and data that could break it."""

from collections.abc import Sequence
from math import log, sqrt
from typing import Any

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

from conbo.errors import ConboError
from conbo.models.category_kernels import CategoryKernel, MultiTask
from conbo.models.fit import Fit
from conbo.models.fit import fit as fit_models
from conbo.models.heteroscedastic_noise import LOG_NOISE_BOUNDS, HeteroscedasticNoise
from conbo.models.hyperparameter_prior import LOG_LENGTHSCALE_BOUNDS, LOG_VARIANCE_BOUNDS
from conbo.models.kernel_families import KernelFamily, ProductFamily
from conbo.models.log_posterior import LogPosterior
from conbo.models.profiles import SQUARED_EXPONENTIAL, Profile
from conbo.models.structures import Structures
from kernel_family_cases import FAMILIES, columns, data
from random_beliefs import belief_with, points_in, product_kernel, reals, uniform


def fit(
    families: Sequence[KernelFamily], points: Tensor, rewards: Tensor, noise: Tensor | None = None, **kw: Any
) -> Fit:
    """The most probable model."""
    return fit_models(Structures(tuple(families)), points, rewards, noise, **kw)[0]


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


@pytest.mark.filterwarnings("ignore")  # of BoTorch, on data that are standardized with another factor
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
    theirs = LogPosterior(family, points, rewards, "small")(torch.cat(lengthscales + variances).log()[None])[0]

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
    monkeypatch.setattr("conbo.models.modes.SCREENED_REWARDS", 40)
    # of several maxima, as loadings have them, another may be found
    least = whole.objective - (1.0 if family.typical_loadings else 0.01)
    assert fit([family], points, rewards, noise).objective >= least


@pytest.mark.parametrize("n", [20, 40])
def test_no_valid_covariance_is_said_for_few_rewards_and_for_many(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(squared_distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        nothing = torch.full_like(squared_distance, torch.nan)
        return nothing, nothing, nothing

    monkeypatch.setattr("conbo.models.modes.SCREENED_REWARDS", 30)
    family = ProductFamily(*columns(reals(1, 2)), Profile("broken", broken, unit=1.0))
    with pytest.raises(ConboError, match="a covariance matrix must be finite and positive definite, but got none"):
        fit([family], *data(reals(1, 2), n))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_fit_is_a_maximum_within_bounds_and_the_same_every_time(name: str) -> None:
    space, family = FAMILIES[name]
    points, rewards = data(space)

    first, second = fit([family], points, rewards), fit([family], points, rewards)

    assert torch.equal(parameters_of(first), parameters_of(second))
    assert (first.objective, first.constant, first.noise) == (second.objective, second.constant, second.noise)
    target = LogPosterior(family, points, rewards, "moderate")
    assert first.objective >= float(target(target.prior.starts())[0].amax())
    lengthscales = first.kernel.actions.lengthscales.log()
    assert (
        (lengthscales >= LOG_LENGTHSCALE_BOUNDS[0] - 1e-9) & (lengthscales <= LOG_LENGTHSCALE_BOUNDS[1] + 1e-9)
    ).all()
    assert isinstance(first.noise, float)
    assert 1e-9 * 0.999 <= first.noise <= 10 * 1.001


def test_the_fit_finds_hyperparameters_that_made_the_data() -> None:
    space = reals(1, 1)
    truth = product_kernel(space, 0.6, 0.2, 1.0)
    told = belief_with(space, truth, n=150, noise=0.05).observations

    result = fit([ProductFamily(*columns(space))], told.points, told.rewards)

    assert result.noise == pytest.approx(0.05, rel=0.4)
    assert float(result.kernel.actions.lengthscales) == pytest.approx(0.2, rel=0.4)
    assert float(result.kernel.states.lengthscales) == pytest.approx(0.6, rel=0.6)


def noisy_rewards(slope: float, level: float = 0.1, n: int = 120) -> tuple[Tensor, Tensor]:
    """A smooth function of a state and two actions, log-variance of its noise `slope` times the first action."""
    points = uniform(n, 3, seed=1)
    sd = level * torch.exp(0.5 * slope * (2 * points[:, 1] - 1))
    noise = torch.randn(n, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    rewards = torch.sin(3 * points.sum(-1)) + sd * noise
    return points, (rewards - rewards.mean()) / rewards.std()


def test_noise_that_varies_is_found() -> None:
    points, rewards = noisy_rewards(slope=2.5)
    result = fit([ProductFamily(*columns(reals(1, 2)))], points, rewards)
    assert isinstance(result.noise, HeteroscedasticNoise)
    slopes = result.noise.slopes
    assert 0.7 < float(slopes[1]) < 2.5  # the prior holds it back
    assert float(slopes[[0, 2]].abs().amax()) < 0.3
    posterior = result.posterior(points, rewards, None)
    assert torch.equal(posterior.noise_at(points), result.noise.at(points))


@pytest.mark.parametrize("seed", range(4))
def test_noise_that_is_the_same_everywhere_stays_one_number(seed: int) -> None:
    told = belief_with(reals(1, 2), product_kernel(reals(1, 2)), n=80, noise=0.05, seed=seed).observations
    assert isinstance(fit([ProductFamily(*columns(reals(1, 2)))], told.points, told.rewards).noise, float)


def test_noise_varies_only_where_it_is_learned_and_not_expected_to_be_small() -> None:
    points, rewards = noisy_rewards(slope=2.5)
    family = ProductFamily(*columns(reals(1, 2)))
    known = torch.full_like(rewards, 0.01)
    assert isinstance(fit([family], points, rewards, small_noise=True).noise, float)
    kept = fit([family], points, rewards, known).noise
    assert isinstance(kept, Tensor)
    assert torch.equal(kept, known)


def test_of_many_rewards_the_noise_varies_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    points, rewards = noisy_rewards(slope=2.5)
    whole = fit([ProductFamily(*columns(reals(1, 2)))], points, rewards)
    monkeypatch.setattr("conbo.models.modes.SCREENED_REWARDS", 60)
    assert fit([ProductFamily(*columns(reals(1, 2)))], points, rewards).objective == pytest.approx(
        whole.objective, abs=0.01
    )


def cliff(n: int = 60) -> tuple[Tensor, Tensor]:
    """Most that happens happens below a fifth of the first action."""
    points = uniform(n, 3, seed=1)
    rewards = torch.tanh(10 * points[:, 1]) * torch.sin(3 * points[:, 0]) + 0.2 * points[:, 2]
    return points, (rewards - rewards.mean()) / rewards.std()


def test_actions_are_bent_where_rewards_change_in_one_place() -> None:
    points, rewards = cliff()
    family = ProductFamily(*columns(reals(1, 2)))
    straight, bent = fit([family], points, rewards), fit([family], points, rewards, warp=True)
    assert straight.kernel.actions.warp is None
    warp = bent.kernel.actions.warp
    assert warp is not None
    assert bent.objective > straight.objective + 6
    assert float(warp(torch.tensor([[0.1, 0.5]], dtype=torch.float64))[0, 0]) > 0.2  # the cliff is stretched
    others = uniform(200, 3, seed=7)
    truth = torch.tanh(10 * others[:, 1]) * torch.sin(3 * others[:, 0]) + 0.2 * others[:, 2]
    errors = [
        (torch.stack([truth, fitted.posterior(points, rewards, None).mean(others)]).corrcoef()[0, 1])
        for fitted in (straight, bent)
    ]
    assert 1 - errors[1] < 0.5 * (1 - errors[0])


def standardized(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean()) / rewards.std()


@pytest.mark.parametrize("steepness", [12.0, 30.0])
def test_a_cliff_in_the_middle_bends_both_exponents(steepness: float) -> None:
    points = uniform(80, 3, seed=1)
    rewards = torch.sigmoid(steepness * (points[:, 1] - 0.5)) * torch.sin(3 * points[:, 0]) + 0.3 * points[:, 2]
    warp = fit([ProductFamily(*columns(reals(1, 2)))], points, standardized(rewards), warp=True).kernel.actions.warp
    assert warp is not None
    assert float(warp.log_a[0]) > 0.3
    assert float(warp.log_b[0]) > 0.3


def test_no_range_is_bent_so_far_that_most_of_it_holds_no_reward() -> None:
    """A steep rise towards y = 1 with few rewards there: a free exponent promises the moon at the edge."""
    space = reals(1, 2)
    points = torch.rand(60, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    s, x, y = points.T
    rewards = standardized(-((torch.log(x + 0.02) + 1 + 2 * s) ** 2) - (torch.log(1.02 - y) + 1 + s) ** 2)
    smooth = ProductFamily(*columns(space), SQUARED_EXPONENTIAL)
    result = fit([smooth], points, rewards, warp=True)
    warp = result.kernel.actions.warp
    assert warp is not None
    assert float(torch.stack([warp.log_a, warp.log_b]).abs().amax()) <= 1.5
    everywhere = uniform(4000, 3, seed=3)
    everywhere[::2, 2] = 1.0
    assert float(result.posterior(points, rewards, None).mean(everywhere).amax()) < float(rewards.amax()) + 1


@pytest.mark.parametrize("seed", range(4))
def test_actions_stay_as_they_are_where_a_straight_model_made_the_rewards(seed: int) -> None:
    told = belief_with(reals(1, 2), product_kernel(reals(1, 2)), n=60, noise=0.01, seed=seed).observations
    result = fit([ProductFamily(*columns(reals(1, 2)))], told.points, told.rewards, warp=True)
    assert result.kernel.actions.warp is None


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
    posterior = result.posterior(points, rewards, None)

    assert isinstance(result.noise, Tensor)
    assert torch.equal(result.noise, noise)
    torch.testing.assert_close(posterior.mean(points[1:]), rewards[1:], rtol=0, atol=0.05)
    bent = rewards.clone()
    bent[0] += 100.0
    torch.testing.assert_close(
        posterior.mean(points), result.posterior(points, bent, None).mean(points), rtol=0, atol=0.05
    )


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

    posterior = fit([family], points, rewards).posterior(points, rewards, None)

    others = points_in(space, 20, seed=5)
    assert torch.isfinite(posterior.mean(others)).all()
    assert torch.isfinite(posterior.variance(others)).all()
    assert float(posterior.mean(others).abs().amax()) < 10
    if kind == "constant":
        assert float(posterior.mean(others).abs().amax()) < 1e-9
    if kind == "duplicates":
        assert float((posterior.mean(points) - rewards).abs().amax()) < 0.5
