"""Beliefs with known hyperparameters: random ones, and those of the reference cases."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.bound_states import bind
from conbo.models.category_kernels import CategoryKernel, MultiTask, Trend
from conbo.models.columns import Columns
from conbo.models.exact import ExactPosterior, condition
from conbo.models.factorization import cholesky
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.kernels import Factor, Kernel, ProductKernel
from conbo.models.profiles import Profile, profile_of
from conbo.models.warp import Warp
from conbo.observations import Observations
from conbo.spaces import Categorical, Real, Space
from conbo.state_distributions import RecipeLike

REFERENCE = json.loads((Path(__file__).parent / "data" / "knowledge_gradient_cases.json").read_text())
MODELS = {model["name"]: model for model in REFERENCE["models"]}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=generator(seed), dtype=torch.float64)


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def reals(d_s: int, d_x: int) -> Space:
    """A space of numbers that are their own places in the unit cube."""
    return Space(states={f"s{i}": Real(0, 1) for i in range(d_s)}, actions={f"x{i}": Real(0, 1) for i in range(d_x)})


def product_kernel(
    space: Space,
    states: Sequence[float] | float = 0.4,
    actions: Sequence[float] | float = 0.4,
    variance: float = 1.0,
    profile: str | Profile = "matern52",
) -> ProductKernel:
    """σ² k_S k_X with these lengthscales."""

    def factor(categories: tuple[int, ...], lengthscales: Sequence[float] | float) -> Factor:
        return Factor(Columns(categories), tensor(lengthscales).expand(len(categories)), profile_of(profile))

    return ProductKernel(factor(space.state_categories, states), factor(space.action_categories, actions), variance)


def trend_kernel(
    space: Space,
    actions: Sequence[float] | float = 0.4,
    variances: tuple[float, float, float] = (1.0, 0.4, 0.2),
    profile: str | Profile = "matern52",
    states: Sequence[float] | float = 1.0,
) -> CategoryKernel:
    """((σ₀² + δ σ₁²) k_X + δ σ₃²) k_C."""
    trend, difference, constant = variances
    return _category_kernel(space, states, actions, profile, Trend(trend, difference), constant)


def multi_task_kernel(
    space: Space,
    actions: Sequence[float] | float = 0.4,
    rank: int = 2,
    constant: float = 0.2,
    profile: str | Profile = "matern52",
    states: Sequence[float] | float = 1.0,
    seed: int = 0,
) -> CategoryKernel:
    """(Π (W Wᵀ + diag(v)) k_X + δ σ₃²) k_C with random W and v."""
    counts = [count for count in space.state_categories if count]
    loadings = tuple(2 * uniform(count, rank, seed=seed + i) - 0.7 for i, count in enumerate(counts))
    own = tuple(0.1 + uniform(count, seed=seed + 10 + i) for i, count in enumerate(counts))
    return _category_kernel(space, states, actions, profile, MultiTask(loadings, own), constant)


def _category_kernel(
    space: Space,
    states: Sequence[float] | float,
    actions: Sequence[float] | float,
    profile: str | Profile,
    categories: Trend | MultiTask,
    constant: float,
) -> CategoryKernel:
    factor = product_kernel(space, states, actions, profile=profile)
    coded = replace(factor.states, columns=Columns(space.state_categories, coded=True))
    return CategoryKernel(coded, factor.actions, categories, constant)


def heteroscedastic_noise(space: Space, log_level: float = -3.0, seed: int = 0) -> HeteroscedasticNoise:
    """Noise with random slopes."""
    columns = Columns(space.state_categories + space.action_categories)
    return HeteroscedasticNoise(columns, log_level, 3 * uniform(columns.width, seed=seed) - 1.5)


def warped(kernel: Kernel, seed: int = 0) -> Kernel:
    """The same with input warping of the actions."""
    categories = kernel.actions.columns.categories
    exponents = 1.6 * uniform(2, len(categories), seed=seed) - 0.8
    exponents[:, [column for column, count in enumerate(categories) if count]] = 0.0
    return kernel.warped(Warp(*exponents))


def points_in(space: Space, n: int, seed: int = 0) -> Tensor:
    """n random valid points."""
    unit = uniform(n, space.n_state_dims + space.n_action_dims, seed=seed)
    return torch.from_numpy(space.snap(unit.numpy()))


def belief_with(
    space: Space,
    kernel: Kernel,
    n: int = 15,
    noise: float | HeteroscedasticNoise = 1e-2,
    seed: int = 0,
    distribution: RecipeLike = None,
    constant: float = 0.0,
) -> Belief:
    """A belief whose rewards are a draw from the very prior that it holds."""
    points = points_in(space, n, seed)
    prior = condition(kernel, constant, 1.0, points[:0], points.new_zeros(0), new_noise=noise)
    scaled = kernel.scaled(points)
    covariance = kernel.covariance(scaled, scaled) + torch.diag(prior.noise_at(points))
    rewards = constant + cholesky(covariance) @ torch.randn(n, generator=generator(seed + 1), dtype=torch.float64)
    return belief_on(space, condition(kernel, constant, noise, points, rewards), points, rewards, distribution)


def belief_on(
    space: Space, posterior: ExactPosterior, points: Tensor, rewards: Tensor, distribution: RecipeLike = None
) -> Belief:
    """The belief that a posterior comes from."""
    return Belief(
        space,
        bind(distribution, space),
        Observations(points, rewards, points[:0]),
        posterior,
        shift=0.0,
        scale=1.0,
    )


def posterior_of(belief: Belief) -> ExactPosterior:
    assert isinstance(belief.posterior, ExactPosterior)
    return belief.posterior


def reference_belief(name: str, distribution: RecipeLike = None) -> Belief:
    """A model of the reference file, with its own hyperparameters."""
    model = MODELS[name]
    rewards = tensor(model["train_rewards"])
    actions = tensor(model["train_actions"])
    kernel: Kernel
    if model["kernel"] == "product-matern52":
        space = reals(len(model["state_lengthscales"]), len(model["action_lengthscales"]))
        kernel = product_kernel(space, model["state_lengthscales"], model["action_lengthscales"], model["outputscale"])
    else:
        count = model["n_states"]
        space = Space(states={"k": Categorical(range(count))}, actions=reals(0, actions.shape[1]).actions)
        variances = (model["trend_variance"], model["difference_variance"], model["offset_variance"])
        kernel = trend_kernel(space, model["action_lengthscales"], variances)
    points = torch.cat([reference_states(name, model["train_states"]), actions], -1)
    posterior = condition(kernel, model["mean"], model["noise_variance"], points, rewards)
    return belief_on(space, posterior, points, rewards, distribution)


def reference_states(name: str, states: Any) -> Tensor:
    """States of the reference file (n, d_s) in the unit cube; discrete ones are numbered there."""
    model, values = MODELS[name], tensor(states)
    if model["kernel"] == "product-matern52":
        return values
    return (values.reshape(-1, 1) + 0.5) / model["n_states"]


def reference_candidates(name: str, cases: Sequence[dict[str, Any]]) -> Tensor:
    """Candidates (n, d) of queries or integrals."""
    states = reference_states(name, [case["candidate_state"] for case in cases])
    return torch.cat([states, tensor([case["candidate_action"] for case in cases])], -1)


def finite_differences(function: Any, points: Tensor, step: float = 1e-5) -> Tensor:
    """Central differences (n, d) of a function from points (n, d) to values (n,)."""
    columns = []
    for column in range(points.shape[-1]):
        move = torch.zeros_like(points)
        move[:, column] = step
        columns.append((function(points + move) - function(points - move)) / (2 * step))
    return torch.stack(columns, -1)


def relative_errors(values: Tensor, truth: Tensor) -> Tensor:
    assert float(truth.abs().amin()) > 0
    return (values - truth).abs() / truth.abs()
