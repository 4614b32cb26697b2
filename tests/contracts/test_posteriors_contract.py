"""What every posterior promises by the protocol of `conbo.models.posterior`, whatever it is made of."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from torch import Tensor

from conbo.acquisition.knowledge_gradient import DiscreteKG, HybridKG
from conbo.belief import Belief
from conbo.bound_states import bind
from conbo.errors import SettingError
from conbo.models.approximate import ApproximatePosterior, condition_by_size
from conbo.models.botorch_model import BotorchPosterior, model_inputs
from conbo.models.censored import condition_censored
from conbo.models.columns import Columns
from conbo.models.exact import ExactPosterior, condition
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.kernels import Factor, Kernel
from conbo.models.main_effects import MainEffectsKernel
from conbo.models.mixture import Mixture
from conbo.models.one_study import OneStudy
from conbo.models.output_maps import Limits, LowTail, OutputMap
from conbo.models.profiles import MATERN52, Profile
from conbo.models.relative import RelativePosterior
from conbo.models.seed_effects import SeededPosterior, SeedEffect, condition_with_seeds
from conbo.models.shear import Shear
from conbo.models.transformed import TransformedPosterior
from conbo.observations import Observations, Seeds
from conbo.policies.policy import Policy, load_policy
from conbo.policies.policy_file import KernelReader, read_kernel
from conbo.prior_belief import with_study
from conbo.search.action_candidates import action_candidates
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import (
    belief_with,
    finite_differences,
    generator,
    heteroscedastic_noise,
    multi_task_kernel,
    points_in,
    product_kernel,
    reals,
    tensor,
    trend_kernel,
    uniform,
    warped,
)

REALS = reals(1, 2)
CATEGORIES = Space(states={"k": Categorical([*"abc"])}, actions={"x": Real(0, 1), "y": Real(0, 1)})
TWO_KINDS = Space(
    states={"s": Real(0, 1), "k": Categorical([*"ab"]), "l": Categorical([1, 2, 3])}, actions={"x": Real(0, 1)}
)
MIXED = Space(
    states={"s": Real(0, 1), "k": Categorical([*"ab"])},
    actions={"x": Real(0, 1), "n": Integer(1, 6), "c": Categorical([*"uvw"])},
)


def rational_quadratic(squared_distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value = 1 / (1 + squared_distance / 2)
    return value, value**2, 2 * value**3


OWN_PROFILE = Profile("rational-quadratic", rational_quadratic)


@dataclass(frozen=True)
class SharedKernel(Kernel):
    """(common + k_S) κ + level k_S: a structure of a user's own, with every part that a kernel may have."""

    states: Factor
    actions: Factor
    common: float
    level: float

    def scale(self, a: Tensor, b: Tensor) -> Tensor:
        return self.common + self.states.correlation(a, b)

    def scale_slope(self, a: Tensor, b: Tensor) -> Tensor:
        return self.states.tables(a, b)[1]

    def offset(self, a: Tensor, b: Tensor) -> Tensor:
        return self.level * self.states.correlation(a, b)

    def offset_slope(self, a: Tensor, b: Tensor) -> Tensor:
        return self.level * self.states.tables(a, b)[1]

    def variance(self, states: Tensor) -> Tensor:
        return states.new_full(states.shape[:-1], self.common + 1 + self.level)

    def record(self) -> dict[str, Any]:
        scales = {"states": self.states.lengthscales.tolist(), "actions": self.actions.lengthscales.tolist()}
        return {"type": "shared", "common": self.common, "level": self.level, **scales}


def shared_kernel(record: Mapping[str, Any], space: Space) -> SharedKernel:
    return SharedKernel(
        Factor(Columns(space.state_categories), tensor(record["states"]), MATERN52),
        Factor(Columns(space.action_categories), tensor(record["actions"]), MATERN52),
        record["common"],
        record["level"],
    )


SHARED = shared_kernel({"states": [0.5], "actions": [0.4, 0.6], "common": 0.6, "level": 0.3}, REALS)
READERS: dict[str, KernelReader] = {
    "own profile": partial(read_kernel, profile=OWN_PROFILE),
    "own structure": shared_kernel,
}


def through_botorch(space: Space) -> Belief:
    """A BoTorch model as it is before it is fitted, on rewards of a Gaussian process of ours."""
    ours = belief_with(space, product_kernel(space, 0.5, 0.5), n=12, noise=0.05)
    told, categories = ours.observations, space.state_categories + space.action_categories
    model = SingleTaskGP(model_inputs(told.points, categories), told.rewards[:, None], outcome_transform=None)
    model.eval()
    model.requires_grad_(False)
    noise = float(model.likelihood.noise.mean())
    posterior = BotorchPosterior(model, categories, space.n_state_dims, noise)
    return Belief(space, ours.states, told, posterior, shift=0.0, scale=1.0)


def by_inducing_points(space: Space, kernel: Kernel, noise: float | HeteroscedasticNoise) -> Belief:
    """What 30 rewards say by 12 inducing points."""
    ours = belief_with(space, kernel, n=30, noise=noise, constant=0.3)
    told = ours.observations
    posterior, _ = condition_by_size(kernel, 0.3, noise, told.points, told.rewards)
    assert isinstance(posterior, ApproximatePosterior)
    return replace(ours, posterior=posterior)


def with_an_earlier_study(space: Space) -> Belief:
    """This study's part of what is known about two."""
    both = with_study(space)
    kernel = product_kernel(both, [1.5, 0.4], [0.3, 0.8])
    joined = belief_with(both, kernel, n=20, noise=0.05).observations
    order = joined.points[:, 0].argsort(stable=True)
    points, rewards = joined.points[order], joined.rewards[order]
    here = points[:, 0] > 0.5
    told = Observations(points[here, 1:], rewards[here], points[:0, 1:])
    earlier = Observations(points[~here, 1:], rewards[~here], points[:0, 1:])
    posterior = OneStudy(condition(kernel, 0.0, 0.05, points, rewards), both, len(told), earlier)
    return Belief(space, bind(None, space), told, posterior, shift=0.0, scale=1.0)


def with_main_effects(kernel: Kernel, columns: int = 1) -> MainEffectsKernel:
    """The kernel with main effects, the state's of its first columns."""
    effect = Factor(Columns((0,) * columns), tensor([0.7] * columns), kernel.actions.profile)
    return MainEffectsKernel(kernel, effect, action_variance=0.6, state_variance=0.4)


def mapped(output: OutputMap, noise: float = 1e-3) -> Belief:
    """A belief about rewards whose images are a Gaussian process."""
    belief = belief_with(REALS, product_kernel(REALS, 0.4, [0.3, 0.8]), noise=noise)
    told, posterior = belief.observations, belief.posterior
    assert isinstance(posterior, ExactPosterior)
    told = replace(told, rewards=output.rewards(told.rewards))
    return replace(belief, observations=told, posterior=TransformedPosterior(posterior, output))


def relative(space: Space, weights: list[list[float]], output: OutputMap | None = None) -> Belief:
    """A belief by a model of actions relative to the state; if all states are numeric, with main effects."""
    shear, plain = Shear(tensor(weights)), product_kernel(space)
    numeric = not any(space.state_categories)
    kernel = with_main_effects(plain, space.n_state_dims) if numeric else plain
    belief = belief_with(space, kernel, noise=1e-3)
    told = belief.observations
    process = condition(kernel, 0.2, 1e-3, shear(told.points), told.rewards)
    if output is None:
        return replace(belief, posterior=RelativePosterior(process, shear))
    told = replace(told, rewards=output.rewards(told.rewards))
    return replace(belief, observations=told, posterior=RelativePosterior(TransformedPosterior(process, output), shear))


def clipped(floor: float) -> Belief:
    """A belief about rewards that are clipped at a floor."""
    kernel = product_kernel(REALS, 0.4, [0.3, 0.8])
    belief = belief_with(REALS, kernel, noise=1e-3)
    told = replace(belief.observations, rewards=belief.observations.rewards.clamp_min(floor))
    process = condition_censored(kernel, 0.0, 1e-3, told.points, told.rewards, floor)
    return replace(belief, observations=told, posterior=TransformedPosterior(process, Limits(floor, inf)))


def mixed_beliefs(*names: str) -> Belief:
    """The mixture of several posteriors of the first one's rewards, which is the most probable."""
    told = belief_of(names[0]).observations
    given = (belief_of(name).posterior.conditioned_on(told.points, told.rewards, None) for name in names)
    members = tuple(member for member in given if member is not None)
    weights = torch.arange(len(names), 0, -1, dtype=torch.float64)
    return replace(belief_of(names[0]), posterior=Mixture(members, weights / weights.sum()))


def with_seeds(space: Space) -> Belief:
    """What rewards of four seeds say of what no seed changes."""
    kernel, effect = product_kernel(space, 0.4, [0.3, 0.8]), SeedEffect(0.5, product_kernel(space, 0.7, 0.6, 0.3))
    told = belief_with(space, kernel, n=15, noise=0.8).observations
    seeds = Seeds(torch.arange(15) % 4)
    posterior = condition_with_seeds(kernel, 0.1, 0.05, effect, told.points, told.rewards, seeds.values)
    return Belief(space, bind(None, space), replace(told, seeds=seeds), posterior, shift=0.0, scale=1.0)


LOW_TAIL = LowTail(pivot=0.4, width=0.5, shift=-0.2, scale=0.8)
MAPPED = ("low tail", "low tail with noise", "relative low tail", "mixture of maps")
CASES: dict[str, Callable[[], Belief]] = {
    "matern": lambda: belief_with(REALS, product_kernel(REALS, 0.4, [0.3, 0.8], 1.7), constant=0.3),
    "squared exponential": lambda: belief_with(
        REALS, product_kernel(REALS, 0.4, [0.3, 0.8], 1.7, "squared-exponential"), noise=0.05
    ),
    "no states": lambda: belief_with(reals(0, 2), product_kernel(reals(0, 2))),
    "warped": lambda: belief_with(REALS, warped(product_kernel(REALS, 0.4, [0.3, 0.8]))),
    "heteroscedastic": lambda: belief_with(REALS, product_kernel(REALS), noise=heteroscedastic_noise(REALS)),
    "trend": lambda: belief_with(CATEGORIES, trend_kernel(CATEGORIES, [0.4, 0.6])),
    "multi-task": lambda: belief_with(TWO_KINDS, multi_task_kernel(TWO_KINDS, 0.5, states=0.6)),
    "mixed": lambda: belief_with(MIXED, product_kernel(MIXED, [0.5, 0.9], [0.4, 0.6, 1.1], 0.8)),
    "mixed trend": lambda: belief_with(
        MIXED, warped(trend_kernel(MIXED, [0.4, 0.6, 1.1], states=0.5)), noise=heteroscedastic_noise(MIXED)
    ),
    "main effects": lambda: belief_with(REALS, with_main_effects(product_kernel(REALS, 0.4, [0.3, 0.8]))),
    "main effects warped": lambda: belief_with(
        REALS, with_main_effects(warped(product_kernel(REALS, 0.4, [0.3, 0.8])))
    ),
    "main effects trend": lambda: belief_with(
        MIXED, with_main_effects(trend_kernel(MIXED, [0.4, 0.6, 1.1], states=0.5)), noise=heteroscedastic_noise(MIXED)
    ),
    "low tail": lambda: mapped(LOW_TAIL),
    "low tail with noise": lambda: mapped(LowTail(pivot=0.7, width=1.5, power=0.3), noise=0.05),
    "limits": lambda: mapped(Limits(-0.5, 1.5)),
    "one limit": lambda: mapped(Limits(-0.5, inf)),
    "clipped": lambda: clipped(-0.6),
    "relative": lambda: relative(reals(1, 2), [[0.7], [-0.3]]),
    "relative mixed": lambda: relative(MIXED, [[-0.8, 0.0], [0.5, 0.0], [0.0, 0.0]]),
    "relative low tail": lambda: relative(reals(2, 1), [[0.7, -0.4]], LOW_TAIL),
    "mixture": lambda: mixed_beliefs("matern", "main effects warped", "heteroscedastic"),
    "mixture of maps": lambda: mixed_beliefs("low tail", "squared exponential", "limits"),
    "mixture with relative": lambda: mixed_beliefs("relative", "warped"),
    "own profile": lambda: belief_with(REALS, product_kernel(REALS, 0.4, [0.3, 0.8], profile=OWN_PROFILE)),
    "own structure": lambda: belief_with(REALS, SHARED),
    "approximate": lambda: by_inducing_points(REALS, product_kernel(REALS, 0.4, [0.3, 0.8], 1.7), 0.05),
    "approximate trend": lambda: by_inducing_points(
        MIXED, warped(trend_kernel(MIXED, [0.4, 0.6, 1.1], states=0.5)), heteroscedastic_noise(MIXED)
    ),
    "seeds": lambda: with_seeds(REALS),
    "earlier study": lambda: with_an_earlier_study(REALS),
    "BoTorch": lambda: through_botorch(REALS),
    "BoTorch mixed": lambda: through_botorch(MIXED),
}
UNKNOWN_TO_THE_PAGE = BotorchPosterior | ApproximatePosterior | OneStudy
pytestmark = [
    pytest.mark.parametrize("name", CASES),
    pytest.mark.filterwarnings("ignore"),  # BoTorch has its own views on our data
]


@pytest.fixture(autouse=True)
def few_are_many(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith("approximate"):
        monkeypatch.setattr("conbo.models.approximate.MOST_EXACT", 9)
        monkeypatch.setattr("conbo.models.approximate.INDUCING_POINTS", 12)


@cache
def belief_of(name: str) -> Belief:
    return CASES[name]()


def numeric_columns(space: Space) -> list[int]:
    return [column for column, count in enumerate(space.state_categories + space.action_categories) if not count]


def inner_points(space: Space, n: int, seed: int) -> Tensor:
    """Random points whose numbers have room on both sides."""
    points = points_in(space, n, seed)
    numbers = numeric_columns(space)
    points[:, numbers] = 0.05 + 0.9 * points[:, numbers]
    return points


def look_ahead_problem(name: str, k: int = 3, m: int = 2, q: int = 4) -> tuple[Belief, Tensor, Tensor, Tensor]:
    """Candidates (k, d), states (k, m, d_s) and actions (k, m, q, d_x)."""
    belief = belief_of(name)
    states = points_in(belief.space, k * m, seed=3)[:, : belief.n_state_dims].unflatten(0, (k, m))
    actions = points_in(belief.space, k * m * q, seed=4)[:, belief.n_state_dims :].unflatten(0, (k, m, q))
    return belief, inner_points(belief.space, k, seed=2), states, actions


def assert_gradient(gradient: Tensor, function: Callable[[Tensor], Tensor], points: Tensor, space: Space) -> None:
    """As finite differences have it in numbers, and zero in categories."""
    numbers = numeric_columns(space)
    expected = torch.zeros_like(points)
    expected[:, numbers] = finite_differences(function, points)[:, numbers]
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=2e-6)


def test_moments_agree_and_have_the_right_gradients(name: str) -> None:
    posterior, space = belief_of(name).posterior, belief_of(name).space
    points = inner_points(space, 6, seed=1)

    moments = posterior.moments(points)

    assert posterior.n_state_dims == space.n_state_dims
    torch.testing.assert_close(moments.mean, posterior.mean(points), rtol=0, atol=1e-9)
    torch.testing.assert_close(moments.variance, posterior.variance(points), rtol=0, atol=1e-9)
    assert float(moments.variance.amin()) >= 0
    assert moments.mean.dtype == moments.variance_gradient.dtype == torch.float64
    assert_gradient(moments.mean_gradient, posterior.mean, points, space)
    assert_gradient(moments.variance_gradient, posterior.variance, points, space)


def test_noise_is_positive_and_has_the_right_gradient(name: str) -> None:
    posterior, space = belief_of(name).posterior, belief_of(name).space
    points = inner_points(space, 6, seed=1)

    assert float(posterior.noise_at(points).amin()) > 0
    assert_gradient(posterior.noise_gradient(points), posterior.noise_at, points, space)


def test_covariances_are_symmetric_and_positive_semidefinite(name: str) -> None:
    posterior = belief_of(name).posterior
    points = points_in(belief_of(name).space, 12, seed=1)

    covariance = posterior.covariance(points, points)

    torch.testing.assert_close(covariance, covariance.mT, rtol=0, atol=1e-9)
    assert float(torch.linalg.eigvalsh(covariance).amin()) > -1e-8
    torch.testing.assert_close(covariance.diagonal(), posterior.variance(points), rtol=0, atol=1e-8)
    torch.testing.assert_close(posterior.covariance(points[:5], points), covariance[:5], rtol=0, atol=1e-9)


def test_joint_moments_are_mean_and_covariance_of_each_set(name: str) -> None:
    posterior = belief_of(name).posterior
    sets = points_in(belief_of(name).space, 12, seed=1).unflatten(0, (3, 4))

    mean, covariance = posterior.joint(sets)

    for k, points in enumerate(sets):
        torch.testing.assert_close(mean[k], posterior.mean(points), rtol=0, atol=1e-9)
        torch.testing.assert_close(covariance[k], posterior.covariance(points, points), rtol=0, atol=1e-8)


def test_look_ahead_slopes_are_covariances_per_standard_deviation_of_the_reward(name: str) -> None:
    if name == "clipped":
        return  # the floor hides a part of the reward: see tests/models/test_truncation.py
    posterior, space = belief_of(name).posterior, belief_of(name).space
    candidates, points = points_in(space, 4, seed=1), points_in(space, 7, seed=2)

    sd = (posterior.variance(candidates) + posterior.noise_at(candidates)).sqrt()
    expected = posterior.covariance(candidates, points) / sd[:, None]

    torch.testing.assert_close(posterior.look_ahead_slopes(candidates, points), expected, rtol=0, atol=1e-8)


def test_look_ahead_lines_are_mean_and_slopes_of_their_points(name: str) -> None:
    belief, candidates, states, actions = look_ahead_problem(name)
    posterior, (k, m, q, _) = belief.posterior, actions.shape

    lines = posterior.look_ahead_lines(candidates, states, actions)

    assert lines.mean.shape == lines.slope.shape == (k, m, q)
    for row in range(k):
        points = torch.cat([states[row, :, None].expand(m, q, -1), actions[row]], -1).flatten(0, 1)
        slopes = posterior.look_ahead_slopes(candidates[[row]], points)[0]
        torch.testing.assert_close(lines.mean[row].flatten(), posterior.mean(points), rtol=0, atol=1e-8)
        torch.testing.assert_close(lines.slope[row].flatten(), slopes, rtol=0, atol=1e-8)


def test_look_ahead_lines_have_the_right_gradient(name: str) -> None:
    belief, candidates, states, actions = look_ahead_problem(name)
    pull = uniform(*actions.shape[:3], seed=5) - 0.3

    def total(points: Tensor) -> Tensor:
        return (belief.posterior.look_ahead_lines(points, states, actions).slope * pull).sum((1, 2))

    gradient = belief.posterior.look_ahead_lines(candidates, states, actions).gradient(pull)
    assert_gradient(gradient, total, candidates, belief.space)


def test_the_best_actions_are_valid_and_no_random_ones_are_better(name: str) -> None:
    belief = belief_of(name)
    space, posterior = belief.space, belief.posterior
    states = points_in(space, 8, seed=6)[:, : space.n_state_dims]
    search = belief.search(action_candidates(belief, 64, generator()))

    found = search.best(states, starts=4)

    np.testing.assert_allclose(space.snap_actions(found.actions.numpy()), found.actions.numpy(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(space.snap_actions(found.basins.numpy()), found.basins.numpy(), rtol=0, atol=1e-12)
    torch.testing.assert_close(posterior.mean(torch.cat([states, found.actions], -1)), found.mean, rtol=0, atol=1e-8)
    others = points_in(space, 1000, seed=7)[:, space.n_state_dims :]
    for state, best in zip(states, found.mean, strict=True):
        values = posterior.mean(torch.cat([state.expand(len(others), -1), others], -1))
        # an integer is rounded after the climb, and then moved by one at most while all else stays
        assert float(best) >= float(values.amax()) - (0.02 if space.has_integer_actions else 1e-5)


def test_gains_are_not_negative(name: str) -> None:
    belief, candidates, states, _ = look_ahead_problem(name)
    gains = HybridKG(n_z=3).build(belief, generator())

    values = gains.at(states)(candidates, torch.arange(len(candidates))).values
    rough = gains.rough(states[0])(candidates)

    assert values.shape == states.shape[:2]
    assert rough.shape == (len(candidates), states.shape[1])
    for result in (values, rough):
        assert torch.isfinite(result).all()
        assert float(result.amin()) >= -1e-12
        assert float(result.amax()) > 1e-6


def test_gains_have_the_right_gradient(name: str) -> None:
    belief, candidates, states, _ = look_ahead_problem(name)
    ahead, rows = DiscreteKG(12).build(belief, generator()).at(states), torch.arange(len(candidates))
    weights = uniform(*states.shape[:2], seed=5)

    def total(points: Tensor) -> Tensor:
        return (ahead(points, rows).values * weights).sum(-1)

    gradient = ahead(candidates, rows).gradient(weights)
    assert_gradient(gradient, total, candidates, belief.space)
    assert float(gradient.abs().amax()) > 1e-4


def test_gains_of_candidates_do_not_depend_on_each_other(name: str) -> None:
    belief, candidates, states, _ = look_ahead_problem(name)
    gains = DiscreteKG(12).build(belief, generator())

    together = gains.at(states)(candidates, torch.arange(3)).values

    alone = gains.at(states)(candidates[[2]], torch.tensor([2])).values
    torch.testing.assert_close(alone[0], together[2], rtol=0, atol=1e-9)


def test_states_correlate_with_themselves_by_one_and_with_others_by_no_more(name: str) -> None:
    belief = belief_of(name)
    states = points_in(belief.space, 9, seed=3)[:, : belief.n_state_dims]
    features = belief.posterior.state_features(states)

    correlation = belief.posterior.state_correlation(features, features[:5])

    assert correlation.shape == (9, 5)
    torch.testing.assert_close(correlation[:5].diagonal(), torch.ones(5, dtype=torch.float64), rtol=0, atol=1e-7)
    torch.testing.assert_close(correlation[:5], correlation[:5].mT, rtol=0, atol=1e-9)
    assert float(correlation.abs().amax()) <= 1 + 1e-9
    assert belief.posterior.state_lengthscales.shape == (belief.n_state_dims,)
    assert bool((belief.posterior.state_lengthscales > 0).all())


def test_a_known_state_is_recognized_where_the_kernel_is_known(name: str) -> None:
    belief = belief_of(name)
    states = points_in(belief.space, 9, seed=3)[:, : belief.n_state_dims]

    alike = belief.posterior.resemble(states, states[:4], 0.999)

    assert alike.shape == (9,)
    assert alike.dtype == torch.bool
    assert bool(alike[:4].all()) == (not isinstance(belief.posterior, BotorchPosterior))


def test_a_point_is_wholly_similar_to_itself(name: str) -> None:
    belief = belief_of(name)
    points = points_in(belief.space, 9, seed=3)

    similarity = belief.posterior.similarity(points, points[:4])

    assert similarity.shape == (9, 4)
    torch.testing.assert_close(similarity[:4].diagonal(), torch.ones(4, dtype=torch.float64), rtol=0, atol=1e-6)
    assert float(similarity.amin()) >= 0
    assert float(similarity.amax()) <= 1 + 1e-6


def test_even_actions_stay_in_the_unit_cube(name: str) -> None:
    belief = belief_of(name)
    actions = uniform(20, belief.space.n_action_dims, seed=3)

    moved = belief.posterior.even_actions(actions)

    assert moved.shape == actions.shape
    assert bool(((moved >= 0) & (moved <= 1)).all())


def test_paths_have_the_moments_of_the_posterior(name: str) -> None:
    posterior, space = belief_of(name).posterior, belief_of(name).space
    points = points_in(space, 10, seed=5)
    paths = posterior.draw_paths(2000, generator(), features=512)
    if paths is None:
        with pytest.raises(SettingError, match="whole functions can be drawn from a built-in model"):
            belief_of(name).draw_paths(1, generator())
        return

    draws = paths(points)

    assert paths.n == 2000
    assert draws.shape == (10, 2000)
    error = draws.std(-1) / 2000**0.5
    assert bool(((draws.mean(-1) - posterior.mean(points)).abs() < 5 * error).all())
    if name in MAPPED:
        return  # its tail is so heavy that the variance of some thousand draws says little
    # so many features know the prior variance to about 1 / √512
    scale = posterior.prior_variance(points[:, : space.n_state_dims]).maximum(posterior.variance(points))
    assert float(((draws.var(-1) - posterior.variance(points)) / scale).abs().amax()) < 0.15


def test_single_paths_have_the_right_gradient(name: str) -> None:
    belief = belief_of(name)
    points, draws = inner_points(belief.space, 6, seed=5), torch.arange(6) % 3
    paths = belief.posterior.draw_paths(3, generator(), features=64)
    if paths is None:
        return

    values, gradient = paths.along(points, draws)

    torch.testing.assert_close(values, paths(points).gather(1, draws[:, None])[:, 0])
    assert_gradient(gradient, lambda moved: paths.along(moved, draws)[0], points, belief.space)


def test_a_saved_policy_predicts_the_same(name: str, tmp_path: Path) -> None:
    belief, path = belief_of(name), tmp_path / "policy.json"
    policy = Policy(belief)
    if belief.posterior.record() is None:
        with pytest.raises(SettingError, match="must have a built-in model to be saved"):
            policy.save(path)
        return

    policy.save(path)
    loaded = load_policy(path, kernel=READERS.get(name))

    assert json.loads(json.dumps(belief.posterior.record())) == loaded.belief.posterior.record()
    points = points_in(belief.space, 9, seed=5)
    for before, after in (
        (getattr(p.belief.posterior, m)(points) for p in (policy, loaded)) for m in ("mean", "variance")
    ):
        torch.testing.assert_close(after, before, rtol=0, atol=1e-10)
    torch.testing.assert_close(loaded.belief.posterior.noise_at(points), belief.posterior.noise_at(points))


def test_the_page_s_record_is_plain(name: str) -> None:
    belief = belief_of(name)

    record = belief.posterior.page_record(belief.space)

    knows = not isinstance(belief.posterior, UNKNOWN_TO_THE_PAGE) and name not in READERS
    assert (record is not None) == knows
    if record is not None:
        assert set(json.loads(json.dumps(record, default=Tensor.tolist))) == set(record)
        for member in record.get("members", [record]):
            assert len(member["weights"]) == len(member["noise"]) == len(belief.observations)


def test_conditioned_on_its_own_data_it_is_itself(name: str) -> None:
    belief = belief_of(name)
    told, points = belief.observations, points_in(belief.space, 9, seed=5)

    seeds = None if told.seeds is None else told.seeds.values
    again = belief.posterior.conditioned_on(told.points, told.rewards, told.noise, seeds)

    if again is None:
        assert isinstance(belief.posterior, BotorchPosterior | OneStudy)
        return
    torch.testing.assert_close(again.mean(points), belief.posterior.mean(points), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(again.variance(points), belief.posterior.variance(points), rtol=1e-9, atol=1e-9)
    if not isinstance(belief.posterior, ExactPosterior) or isinstance(belief.posterior, SeededPosterior):
        return  # the noise of a reward is known to first order, differs between members, or is that of a new seed
    known = belief.posterior.conditioned_on(told.points, told.rewards, belief.posterior.noise_at(told.points))
    assert known is not None
    torch.testing.assert_close(known.mean(points), belief.posterior.mean(points))
    torch.testing.assert_close(known.noise_at(points), belief.posterior.noise_at(points))


def test_before_any_reward_the_variance_is_that_of_the_prior(name: str) -> None:
    belief = belief_of(name)
    points = points_in(belief.space, 9, seed=5)
    scale = belief.posterior.prior_variance(points[:, : belief.n_state_dims])

    prior = belief.posterior.conditioned_on(points[:0], points.new_zeros(0), None)

    assert scale.shape == (9,)
    assert float(scale.amin()) > 0
    if isinstance(prior, ExactPosterior):
        torch.testing.assert_close(prior.variance(points), scale)


def test_leaving_one_out_is_conditioning_on_all_others(name: str) -> None:
    belief = belief_of(name)
    told, left_out = belief.observations, belief.posterior.leave_one_out()
    if left_out is None:
        assert isinstance(belief.posterior, BotorchPosterior)
        return
    if isinstance(belief.posterior, OneStudy):
        assert len(left_out[0]) == len(left_out[1]) == len(told)
        return
    if isinstance(belief.posterior, SeededPosterior):
        return  # see tests/models/test_seed_effects.py
    if name == "clipped":
        return  # the sites of the others stay as they are: see tests/models/test_truncation.py
    if isinstance(belief.posterior, ApproximatePosterior):
        return  # without one of the points, others would be the inducing points: see tests/models/test_approximate.py

    for row in range(len(told)):
        others = torch.arange(len(told)) != row
        without = belief.posterior.conditioned_on(told.points[others], told.rewards[others], None)
        assert without is not None
        here = told.points[[row]]
        sd = (without.variance(here) + without.noise_at(here)).sqrt()
        torch.testing.assert_close(left_out[0][[row]], told.rewards[[row]] - without.mean(here), rtol=0, atol=1e-8)
        torch.testing.assert_close(left_out[1][[row]], sd, rtol=0, atol=1e-8)
