"""Any BoTorch model in the place of ours: the same questions, the same answers."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from botorch.models import MultiTaskGP, SingleTaskGP
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.means import ConstantMean
from torch import Tensor

from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.knowledge_gradient import DiscreteKG, Estimator, HybridKG, MonteCarloKG
from conbo.belief import Belief, fit_belief
from conbo.bound_states import bind
from conbo.errors import ConboError, SettingError
from conbo.method_table import METHODS
from conbo.models.botorch_model import BotorchModel, BotorchPosterior, model_inputs
from conbo.observations import Observations
from conbo.optimizer import Optimizer
from conbo.proposals.maximizer import Maximizer
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import (
    belief_with,
    finite_differences,
    generator,
    points_in,
    posterior_of,
    product_kernel,
    reals,
    tensor,
    uniform,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # BoTorch has its own views on our data

CATEGORIES = Space(states={"k": Categorical([*"abc"])}, actions={"x": Real(0, 1)})


def twins() -> tuple[Belief, Belief]:
    """One and the same Gaussian process, as ours and as BoTorch's."""
    space = reals(1, 2)
    ours = belief_with(space, product_kernel(space, 0.4, [0.3, 0.8], 1.7), n=12, noise=0.05, constant=0.2)
    told = ours.observations
    states = MaternKernel(nu=2.5, active_dims=[0])
    actions = MaternKernel(nu=2.5, ard_num_dims=2, active_dims=[1, 2])
    kernel = ScaleKernel(states * actions).double()
    states.lengthscale, actions.lengthscale = tensor(0.4), tensor([0.3, 0.8])
    kernel.outputscale = tensor(1.7)
    mean = ConstantMean().double()
    mean.constant.data.fill_(0.2)
    noise = torch.full((12,), 0.05, dtype=torch.float64)
    model = SingleTaskGP(
        told.points,
        told.rewards[:, None],
        likelihood=FixedNoiseGaussianLikelihood(noise),
        covar_module=kernel,
        mean_module=mean,
        outcome_transform=None,
    )
    model.eval()
    model.requires_grad_(False)
    theirs = BotorchPosterior(model, (0, 0, 0), 1, 0.05)
    return ours, Belief(space, ours.states, told, theirs, 0.0, 1.0)


def test_moments_equal_those_of_our_own_posterior() -> None:
    ours, theirs = twins()
    posterior = posterior_of(ours)
    assert isinstance(theirs.posterior, BotorchPosterior)
    a, b = points_in(ours.space, 6, seed=3), points_in(ours.space, 6, seed=4)

    torch.testing.assert_close(theirs.posterior.mean(a), posterior.mean(a), rtol=0, atol=1e-8)
    torch.testing.assert_close(theirs.posterior.variance(a), posterior.variance(a), rtol=0, atol=1e-8)
    covariance = posterior.covariance(a, b)
    torch.testing.assert_close(theirs.posterior.covariance(a, b), covariance, rtol=0, atol=1e-8)
    torch.testing.assert_close(theirs.posterior.pair_covariance(a, b), covariance.diagonal(), rtol=0, atol=1e-8)
    for mine, other in zip(
        vars(posterior.moments(a)).values(), vars(theirs.posterior.moments(a)).values(), strict=True
    ):
        torch.testing.assert_close(other, mine, rtol=0, atol=1e-6)


class BreakingKernel(ScaleKernel):
    """A kernel that is broken once the model is fitted."""

    entry = 0.0

    def forward(self, *arguments: Tensor, **settings: Any) -> Any:
        covariance = super().forward(*arguments, **settings)
        return covariance if self.training else covariance + self.entry


@pytest.mark.parametrize("entry", [float("nan"), float("inf")])
def test_a_model_that_is_not_finite_is_refused(entry: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def factory(points: Tensor, rewards: Tensor, noise: Tensor | None) -> SingleTaskGP:
        kernel = BreakingKernel(MaternKernel(nu=2.5))
        return SingleTaskGP(points, rewards, noise, covar_module=kernel, outcome_transform=None)

    points = uniform(8, 2)
    observations = Observations(points, torch.sin(5 * points.sum(-1)), points[:0])
    assert torch.isfinite(BotorchModel(factory).fit(reals(1, 1), observations).mean(points)).all()
    monkeypatch.setattr(BreakingKernel, "entry", entry)
    with pytest.raises(ConboError, match="must be finite"):
        BotorchModel(factory).fit(reals(1, 1), observations)


@pytest.mark.parametrize(
    "estimator", [HybridKG(), HybridKG(5, 1.0, "lower"), DiscreteKG(20)], ids=["best", "paper", "discrete"]
)
def test_the_knowledge_gradient_equals_that_of_our_own_posterior(estimator: Estimator) -> None:
    ours, theirs = twins()
    candidates = points_in(ours.space, 5, seed=3)
    states = points_in(ours.space, 10, seed=4)[:, :1].unflatten(0, (5, 2))

    mine, other = (
        estimator.build(belief, generator()).at(states)(candidates, torch.arange(5)).values for belief in (ours, theirs)
    )

    exact = isinstance(estimator, DiscreteKG)
    torch.testing.assert_close(other, mine, rtol=1e-6 if exact else 0.1, atol=1e-8 if exact else 2e-3)


@pytest.mark.parametrize(
    "estimator", [HybridKG(), MonteCarloKG(6), DiscreteKG(10)], ids=["best", "Monte Carlo", "discrete"]
)
def test_the_gradient_equals_finite_differences_with_the_maximizers_held_fixed(estimator: Estimator) -> None:
    _, belief = twins()
    candidates = 0.05 + 0.9 * points_in(belief.space, 3, seed=3)
    states = points_in(belief.space, 6, seed=4)[:, :1].unflatten(0, (3, 2))
    built = estimator.build(belief, generator())
    gains = built.at(states)(candidates, torch.arange(3))
    weights = uniform(3, 2, seed=5)

    def total(points: Tensor) -> Tensor:
        with torch.no_grad():
            slope = belief.posterior.look_ahead_lines(points, states, gains.lines.actions).slope
        return ((slope * gains.derivative).sum(-1) * weights).sum(-1)

    gradient = gains.gradient(weights)
    torch.testing.assert_close(gradient, finite_differences(total, candidates, 1e-5), rtol=1e-4, atol=1e-5)


def test_the_integral_over_states_resembles_that_of_our_own_posterior() -> None:
    ours, theirs = twins()
    candidates = points_in(ours.space, 6, seed=3)

    mine, other = (ConBO(HybridKG()).build(belief, generator())(candidates) for belief in (ours, theirs))

    assert float(other.amin()) >= 0
    torch.testing.assert_close(other, mine, rtol=0.25, atol=3e-3)


def test_categories_reach_the_model_as_numbers() -> None:
    points = tensor([[0.2, 1 / 6], [0.7, 5 / 6], [1.0, 1.0]])

    assert torch.equal(model_inputs(points, (0, 3)), tensor([[0.2, 0.0], [0.7, 2.0], [1.0, 2.0]]))
    assert model_inputs(points, (0, 0)) is points


def test_known_noise_reaches_the_model() -> None:
    points = uniform(10, 2)
    noise = torch.linspace(0.01, 0.1, 10, dtype=torch.float64)
    seen: list[Tensor | None] = []

    def factory(x: Tensor, y: Tensor, variances: Tensor | None) -> SingleTaskGP:
        seen.append(variances)
        return SingleTaskGP(x, y, variances, outcome_transform=None)

    observations = Observations(points, torch.sin(9 * points.sum(-1)), points[:0], noise)
    posterior = BotorchModel(factory).fit(reals(1, 1), observations)

    assert seen[0] is not None
    assert torch.equal(seen[0][:, 0], noise)
    assert posterior.noise == pytest.approx(0.055)
    assert not any(parameter.requires_grad for parameter in posterior.model.parameters())


def test_conbo_works_through_a_multi_task_model() -> None:
    points = points_in(CATEGORIES, 12)
    noise = 0.3 * torch.randn(12, generator=generator(), dtype=torch.float64)  # the fit of exact rewards takes seconds
    rewards = torch.sin(6 * points[:, 1] + 2 * points[:, 0]) + noise

    def factory(x: Tensor, y: Tensor, noise: Tensor | None) -> MultiTaskGP:
        return MultiTaskGP(x, y, task_feature=0, outcome_transform=None)

    belief = fit_belief(CATEGORIES, bind(None, CATEGORIES), Observations(points, rewards, points[:0]), factory)
    proposal = Maximizer(ConBO(HybridKG(n_z=3)), screened=4, starts=2, iterations=1, finalists=2)

    points = proposal.propose(belief, 1, generator()).points

    torch.testing.assert_close(points, torch.from_numpy(CATEGORIES.snap(points.numpy())), rtol=0, atol=1e-12)
    values = ConBO(HybridKG(n_z=3)).build(belief, generator())(points)
    assert float(values.amin()) >= 0
    assert float(values.amax()) > 0


@pytest.mark.parametrize("name", METHODS)
def test_methods_that_draw_functions_refuse_the_model_at_once_and_all_others_take_it(name: str) -> None:
    space = Space(states={"k": Categorical([*"ab"])}, actions={"x": Integer(0, 9)})
    refused = METHODS[name].draws_functions
    with pytest.raises(SettingError, match=f"'{name}' must have a model that can draw") if refused else nullcontext():
        optimizer = Optimizer(space, method=name, model=SingleTaskGP, initial=3)
        for trial in optimizer.ask(3):
            optimizer.tell(trial, 0.1 * float(trial.action["x"]))
        assert optimizer.ask()[0].number == 3
