"""The approximate posterior: against its formula, against GPyTorch's, and against the exact one."""

from dataclasses import replace

import gpytorch
import pytest
import torch
from torch import Tensor

from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models.approximate import (
    JITTER,
    ApproximatePosterior,
    approximate,
    condition_by_size,
    inducing_points,
    summarized,
)
from conbo.models.exact import ExactPosterior, condition
from conbo.models.kernels import ProductKernel
from conbo.models.schedule import fitted_rewards
from conbo.notices import listening
from conbo.optimizer import Optimizer
from conbo.spaces import Categorical, Integer, Real, Space
from contracts.test_methods_contract import QUICK
from random_beliefs import generator, product_kernel, reals, uniform

SPACE = reals(1, 2)
KERNEL = product_kernel(SPACE, 0.4, [0.3, 0.8], 1.7)
NOISE, CONSTANT = 0.05, 0.3
POINTS = uniform(80, 3)
REWARDS = torch.sin(5 * POINTS[:, 0] + 3 * POINTS[:, 1]) + POINTS[:, 2]


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 33 rewards on, 20 inducing points."""
    monkeypatch.setattr("conbo.models.approximate.MOST_EXACT", 32)
    monkeypatch.setattr("conbo.models.approximate.INDUCING_POINTS", 20)
    for name, value in {"EVERY_REWARD": 32, "STEP_SHARE": 4, "SHORT_BLOCK": 8, "LONG_BLOCK": 16}.items():
        monkeypatch.setattr(f"conbo.models.schedule.{name}", value)


def posterior_of(points: Tensor = POINTS, rewards: Tensor = REWARDS, kernel: ProductKernel = KERNEL) -> ExactPosterior:
    return condition_by_size(kernel, CONSTANT, NOISE, points, rewards)[0]


def by_formula(there: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the projected process, by inverses."""

    def covariance(a: Tensor, b: Tensor) -> Tensor:
        return KERNEL.covariance(KERNEL.scaled(a), KERNEL.scaled(b))

    inducing = inducing_points(POINTS[: fitted_rewards(80)], 20)
    prior = covariance(inducing, inducing)
    prior += JITTER * prior.diagonal().mean() * torch.eye(20, dtype=torch.float64)
    seen, cross = covariance(inducing, POINTS), covariance(there, inducing)
    precision = torch.linalg.inv(prior + seen @ (seen / noise).mT)
    mean = CONSTANT + cross @ precision @ seen @ ((REWARDS - CONSTANT) / noise)
    return mean, covariance(there, there) - cross @ (torch.linalg.inv(prior) - precision) @ cross.mT


def test_moments_are_those_of_the_formula() -> None:
    there = uniform(30, 3, seed=1)
    for noise in (torch.full((80,), NOISE, dtype=torch.float64), 0.01 + 0.1 * uniform(80, seed=2)):
        posterior, _ = condition_by_size(KERNEL, CONSTANT, noise, POINTS, REWARDS, NOISE)
        assert isinstance(posterior, ApproximatePosterior)
        assert len(posterior.weights) == 20
        mean, covariance = by_formula(there, noise)
        torch.testing.assert_close(posterior.mean(there), mean, rtol=0, atol=1e-7)
        torch.testing.assert_close(posterior.covariance(there, there), covariance, rtol=0, atol=1e-7)


def test_gpytorch_finds_the_same() -> None:
    posterior = posterior_of()
    assert isinstance(posterior, ApproximatePosterior)

    class Peer(gpytorch.models.ExactGP):
        def __init__(self, likelihood: gpytorch.likelihoods.GaussianLikelihood) -> None:
            super().__init__(POINTS, REWARDS, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            states = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=1, active_dims=(0,))
            actions = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2, active_dims=(1, 2))
            states.lengthscale, actions.lengthscale = KERNEL.states.lengthscales, KERNEL.actions.lengthscales
            base = gpytorch.kernels.ScaleKernel(states * actions)
            base.outputscale = KERNEL.outputscale
            self.covar_module = gpytorch.kernels.InducingPointKernel(base, posterior.summary.inducing, likelihood)

        def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = NOISE
    model = Peer(likelihood).double()
    model.mean_module.constant.data.fill_(CONSTANT)
    model.eval()
    there = uniform(30, 3, seed=1)
    correction = gpytorch.settings.sgpr_diagonal_correction(False)  # which would make it FITC
    with torch.no_grad(), gpytorch.settings.cholesky_jitter(double_value=1e-8), correction:
        theirs = model(there)
    torch.testing.assert_close(posterior.mean(there), theirs.mean, rtol=0, atol=1e-5)
    # without it, GPyTorch leaves out what the inducing points do not determine
    scaled = KERNEL.scaled(there)
    cross = KERNEL.covariance(posterior.observed, scaled)
    seen = torch.linalg.solve_triangular(posterior.summary.root, cross, upper=False)
    undetermined = KERNEL.variance(scaled[0]) - seen.square().sum(0)
    torch.testing.assert_close(posterior.variance(there), theirs.variance + undetermined, rtol=0, atol=1e-5)


def test_with_all_points_inducing_it_is_exact() -> None:
    distinct = POINTS[:10].repeat(8, 1)  # every point eight times
    posterior, exact = posterior_of(distinct), condition(KERNEL, CONSTANT, NOISE, distinct, REWARDS)
    assert isinstance(posterior, ApproximatePosterior)
    assert torch.equal(posterior.summary.inducing, POINTS[:10])
    there, candidates = uniform(30, 3, seed=1), uniform(5, 3, seed=2)
    torch.testing.assert_close(posterior.mean(there), exact.mean(there), rtol=0, atol=1e-6)
    torch.testing.assert_close(posterior.variance(there), exact.variance(there), rtol=0, atol=1e-6)
    slopes = exact.look_ahead_slopes(candidates, there)
    torch.testing.assert_close(posterior.look_ahead_slopes(candidates, there), slopes, rtol=0, atol=1e-6)


def test_the_number_of_rewards_decides_and_the_log_says_so() -> None:
    lines: list[str] = []
    with listening(lines.append):
        assert not isinstance(posterior_of(POINTS[:32], REWARDS[:32]), ApproximatePosterior)
        assert lines == []
        assert isinstance(posterior_of(POINTS[:33], REWARDS[:33]), ApproximatePosterior)
    assert lines == ["Conditioning on 33 rewards approximately, by 20 inducing points; this takes about 1 second."]


def test_inducing_points_are_different_and_spread_from_the_first_to_the_last() -> None:
    assert torch.equal(inducing_points(POINTS[:5].repeat(2, 1), 8), POINTS[:5])
    assert torch.equal(inducing_points(POINTS[:9], 3), POINTS[[0, 4, 8]])


def test_a_summary_that_grew_is_the_one_that_is_made_anew() -> None:
    grown, residuals, noise = None, REWARDS - CONSTANT, torch.full((80,), NOISE, dtype=torch.float64)
    reused = 0
    for n in range(33, 81):
        data = POINTS[:n], residuals[:n], noise[:n]
        reused += grown is not None and grown.shared_with(*data)
        grown, anew = summarized(KERNEL, *data, grown), summarized(KERNEL, *data)
        assert torch.equal(grown.total.information, anew.total.information)
        assert torch.equal(grown.total.pull, anew.total.pull)
        assert torch.equal(grown.inducing, anew.inducing)
    assert reused > 40
    other = residuals.clone()
    other[3] += 1
    assert not grown.shared_with(POINTS, other, noise)


def test_where_nothing_was_seen_the_prior_stays() -> None:
    near = POINTS * torch.tensor([0.2, 0.2, 0.2])
    short = product_kernel(SPACE, 0.05, 0.05, 1.7)
    far = torch.full((1, 3), 0.9, dtype=torch.float64)
    posterior = posterior_of(near, kernel=short)
    assert float(posterior.variance(far)) == pytest.approx(1.7, rel=1e-6)
    assert float(posterior.mean(far)) == pytest.approx(CONSTANT, abs=1e-6)
    assert float(posterior.variance(near[:20]).amax()) < 1.7


def test_leaving_one_out_holds_the_inducing_points() -> None:
    posterior = posterior_of()
    assert isinstance(posterior, ApproximatePosterior)
    left_out = posterior.leave_one_out()
    assert left_out is not None
    for row in (0, 7, 41):
        loud = torch.full((80,), NOISE, dtype=torch.float64)
        loud[row] = 1e12  # a reward that says nothing
        without = approximate(KERNEL, CONSTANT, NOISE, summarized(KERNEL, POINTS, posterior.summary.residuals, loud))
        here = POINTS[[row]]
        assert float(left_out[0][row]) == pytest.approx(float(REWARDS[row] - without.mean(here)), abs=1e-6)
        assert float(left_out[1][row]) == pytest.approx(float((without.variance(here) + NOISE).sqrt()), abs=1e-6)


CATEGORIES = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})


@pytest.mark.parametrize("name", QUICK)
def test_every_method_runs(name: str) -> None:
    single = GaussianProcess("matern52", members=1)
    space = Space(CATEGORIES.states, {"x": Integer(0, 1)}) if QUICK[name].needs_finite_actions else CATEGORIES
    optimizer = Optimizer(space, method=QUICK[name], seed=1, initial=40, model=single)
    for trial in optimizer.ask(40):
        optimizer.tell(trial, trial.action["x"] * (1 if trial.state["k"] == "a" else -1))
    (asked,) = optimizer.ask()
    assert 0 <= asked.action["x"] <= 1
    if name == "conbo":
        policy = optimizer.policy()
        assert isinstance(policy.belief.posterior, ApproximatePosterior)
        assert (policy({"k": "a"})["x"], policy({"k": "b"})["x"]) == pytest.approx((1, 0), abs=0.05)
        without = replace(policy.belief, states=bind(None, CATEGORIES))
        assert without.posterior.draw_paths(2, generator()) is not None
