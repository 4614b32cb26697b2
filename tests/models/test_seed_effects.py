"""What seeds do to rewards, and the posterior of what they do not change."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.knowledge_gradient import DiscreteKG, HybridKG
from conbo.belief import Belief, fit_belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models.exact import condition
from conbo.models.exact_gains import ExactGains
from conbo.models.fit import fit
from conbo.models.gains import KnowsSeeds
from conbo.models.log_posterior import LogPosterior
from conbo.models.mixture import Mixture
from conbo.models.profiles import MATERN52
from conbo.models.seed_effects import NEW_SEED, SeededPosterior, SeedEffect, condition_with_seeds
from conbo.models.seeded_family import SeededFamily
from conbo.models.seeded_modes import PARTS
from conbo.observations import Observations, Seeds
from conbo.proposals.maximizer import Maximizer
from conbo.proposals.simulator_seeds import REWARDS_PER_SEED, open_seeds, paired_seeds
from random_beliefs import (
    belief_on,
    finite_differences,
    generator,
    points_in,
    product_kernel,
    reals,
    relative_errors,
    tensor,
    uniform,
)

SPACE = reals(1, 2)
KERNEL = product_kernel(SPACE, 0.5, [0.3, 0.8], 1.3)
EFFECT = SeedEffect(0.8, product_kernel(SPACE, 0.6, 0.7, 0.4))
CASES = json.loads((Path(__file__).parents[1] / "data" / "main_effects_and_seeds_cases.json").read_text())["models"]
SEEDED = {model["name"]: model for model in CASES if "train_seeds" in model}


def seeded_belief(effect: SeedEffect = EFFECT, n: int = 14, seeds: int = 4) -> Belief:
    points, rewards = points_in(SPACE, n, seed=1), 2 * uniform(n, seed=2)
    posterior = condition_with_seeds(KERNEL, 0.3, 0.05, effect, points, rewards, torch.arange(n) % seeds)
    return belief_on(SPACE, posterior, points, rewards)


def joint_prior(effect: SeedEffect, a: Tensor, seeds_a: Tensor, b: Tensor, seeds_b: Tensor) -> Tensor:
    """Covariance of rewards without noise, term by term."""
    of_f = KERNEL.covariance(KERNEL.scaled(a), KERNEL.scaled(b))
    assert effect.function is not None
    of_seed = effect.constant + effect.function.covariance(effect.function.scaled(a), effect.function.scaled(b))
    same = seeds_a[:, None] == seeds_b
    return of_f + torch.where(same, 1.0, effect.between) * of_seed


def reference_belief(model: dict[str, Any]) -> Belief:
    space = reals(len(model["state_lengthscales"]), len(model["action_lengthscales"]))
    kernel = product_kernel(space, model["state_lengthscales"], model["action_lengthscales"], model["outputscale"])
    of_seed = model["seed_state_lengthscales"], model["seed_action_lengthscales"], model["seed_function_variance"]
    effect = SeedEffect(model["seed_offset_variance"], product_kernel(space, *of_seed))
    points = torch.cat([tensor(model["train_states"]), tensor(model["train_actions"])], -1)
    told = points, tensor(model["train_rewards"]), torch.tensor(model["train_seeds"])
    posterior = condition_with_seeds(kernel, model["mean"], model["noise_variance"], effect, *told)
    return belief_on(space, posterior, points, told[1])


@pytest.mark.parametrize("name", SEEDED)
def test_posterior_and_knowledge_gradient_are_those_of_the_reference(name: str) -> None:
    belief, queries = reference_belief(SEEDED[name]), SEEDED[name]["queries"]
    states, actions = (tensor([query[key] for query in queries]) for key in ("state", "candidate_action"))
    moments = belief.posterior.moments(torch.cat([states, actions], -1))
    for found, what in ((moments.mean, "mean"), (moments.variance, "variance")):
        truth = tensor([query[f"posterior_{what}_at_state_and_candidate_action"] for query in queries])
        assert float(relative_errors(found, truth).amax()) < 1e-8

    seeds = torch.tensor([NEW_SEED if q["candidate_seed"] is None else q["candidate_seed"] for q in queries])
    candidates = torch.cat([tensor([query["candidate_state"] for query in queries]), actions], -1)
    gains = HybridKG(27).build(belief, generator())
    assert isinstance(gains, KnowsSeeds)
    values = gains.for_seeds(seeds).at(states[:, None])(candidates, torch.arange(len(queries))).values[:, 0]
    truth = tensor([query["knowledge_gradient"] for query in queries])
    assert float(relative_errors(values, truth).amax()) < 0.02


@pytest.mark.parametrize("between", [0.0, -0.2])
def test_the_posterior_is_that_of_the_joint_prior(between: float) -> None:
    effect = replace(EFFECT, between=between)
    belief = seeded_belief(effect)
    posterior, told = belief.posterior, belief.observations
    assert isinstance(posterior, SeededPosterior)
    here = points_in(SPACE, 5, seed=7)
    total = joint_prior(effect, told.points, posterior.seeds, told.points, posterior.seeds) + 0.05 * torch.eye(14)
    of_f = KERNEL.covariance(KERNEL.scaled(here), KERNEL.scaled(told.points))
    solved = torch.linalg.solve(total, of_f.mT)
    torch.testing.assert_close(posterior.mean(here), 0.3 + solved.mT @ (told.rewards - 0.3))
    own = KERNEL.covariance(KERNEL.scaled(here), KERNEL.scaled(here))
    torch.testing.assert_close(posterior.covariance(here, here), own - of_f @ solved)


@pytest.mark.parametrize("between", [0.0, -0.2])
@pytest.mark.parametrize("seed", [NEW_SEED, 0, 3])
def test_look_ahead_slopes_are_what_one_more_reward_changes(seed: int, between: float) -> None:
    belief = seeded_belief(replace(EFFECT, between=between))
    posterior, told = belief.posterior, belief.observations
    assert isinstance(posterior, SeededPosterior)
    candidate, here = points_in(SPACE, 1, seed=5), points_in(SPACE, 6, seed=6)

    def mean_after(reward: float) -> Tensor:
        seeds = torch.cat([posterior.seeds, torch.tensor([9 if seed == NEW_SEED else seed])])
        more = torch.cat([told.points, candidate]), torch.cat([told.rewards, tensor([reward])]), seeds
        return condition_with_seeds(KERNEL, 0.3, 0.05, posterior.effect, *more).mean(here)

    view = posterior.for_seeds(torch.tensor([seed]))
    change = mean_after(1.0) - mean_after(0.0)  # σ̃ / σ_y, since rewards enter linearly
    torch.testing.assert_close(view.look_ahead_slopes(candidate, here)[0] / view.look_ahead(candidate).sd, change)
    torch.testing.assert_close(view.mean(here), posterior.mean(here))


def test_gains_of_seeds_have_the_right_gradient_and_do_not_depend_on_each_other() -> None:
    belief, seeds = seeded_belief(), torch.tensor([2, NEW_SEED, 0])
    gains = DiscreteKG(12).build(belief, generator())
    assert isinstance(gains, ExactGains)
    assert sorted(gains.seen_seeds) == [0, 1, 2, 3]
    points, states = 0.1 + 0.8 * points_in(SPACE, 3, seed=3), uniform(3, 2, 1, seed=4)
    rows, weights = torch.arange(3), uniform(3, 2, seed=5)
    ahead = gains.for_seeds(seeds).at(states)

    together = ahead(points, rows)

    expected = finite_differences(lambda moved: (ahead(moved, rows).values * weights).sum(-1), points)
    torch.testing.assert_close(together.gradient(weights), expected, rtol=1e-4, atol=2e-6)
    for row, seed in enumerate(seeds):
        alone = gains.for_seeds(seed[None]).at(states)(points[[row]], rows[[row]])
        torch.testing.assert_close(alone.values[0], together.values[row], rtol=0, atol=1e-9)
        torch.testing.assert_close(ahead(points[[row]], rows[[row]]).values, alone.values, rtol=0, atol=1e-9)


def test_rough_gains_of_seeds_do_not_depend_on_each_other() -> None:
    belief, seeds = seeded_belief(), torch.tensor([2, NEW_SEED, 0])
    gains = HybridKG(5).build(belief, generator())
    assert isinstance(gains, ExactGains)
    points, states = points_in(SPACE, 3, seed=3), uniform(4, 1, seed=4)
    together = gains.for_seeds(seeds).rough(states)(points)
    alone = [gains.for_seeds(seed[None]).rough(states)(points[[row]]) for row, seed in enumerate(seeds)]
    torch.testing.assert_close(torch.cat(alone), together)
    plain = HybridKG(5).build(belief, generator()).rough(states)(points)
    torch.testing.assert_close(plain[1], together[1])
    assert float((plain - together)[[0, 2]].abs().amax()) > 1e-3


def test_imagined_rewards_are_as_expected() -> None:
    belief = seeded_belief()
    posterior, told = belief.posterior, belief.observations
    assert isinstance(posterior, SeededPosterior)
    more, seeds, here = points_in(SPACE, 2, seed=5), torch.tensor([1, -2]), points_in(SPACE, 6, seed=6)
    after = posterior.imagined(more, seeds)
    rewards = torch.cat([told.rewards, tensor([0.7, -0.2])])  # whatever they are, they reduce the variance
    whole = torch.cat([told.points, more]), rewards, torch.cat([posterior.seeds, torch.tensor([1, 8])])
    expected = condition_with_seeds(KERNEL, 0.3, 0.05, EFFECT, *whole)
    torch.testing.assert_close(after.mean(here), posterior.mean(here))
    torch.testing.assert_close(after.variance(here), expected.variance(here))
    for mine, theirs in ((-2, 8), (1, 1), (NEW_SEED, NEW_SEED)):
        views = after.for_seeds(torch.tensor([mine])), expected.for_seeds(torch.tensor([theirs]))
        slopes = [view.look_ahead_slopes(here, here) for view in views]
        torch.testing.assert_close(*slopes)


def test_points_of_a_batch_share_a_new_seed_where_its_constant_hides_everything() -> None:
    belief = seeded_belief(SeedEffect(30.0, None), seeds=14)
    points = torch.cat([uniform(2, 1, seed=8).mean().expand(2, 1), tensor([[0.2, 0.5], [0.8, 0.5]])], -1)
    first, second = paired_seeds(ConBO(HybridKG()), belief, points, [None, None], generator())
    assert first is not None
    assert first == second < 0
    assert paired_seeds(ConBO(HybridKG()), belief, points, [3, None], generator()) == [3, None]


def test_a_seed_with_many_rewards_is_closed_unless_there_are_no_new_ones() -> None:
    often = torch.tensor([7] * REWARDS_PER_SEED + [3] * (REWARDS_PER_SEED - 1) + [5])
    belief = seeded_belief(n=len(often))
    points, rewards = belief.observations.points, belief.observations.rewards
    posterior = condition_with_seeds(KERNEL, 0.3, 0.05, EFFECT, points, rewards, often)
    for total, expected in ((None, [3, 5]), (4, [3, 5]), (3, [7, 3, 5])):
        told = replace(belief.observations, seeds=Seeds(often, total))
        acquisition = ConBO(HybridKG()).build(replace(belief, observations=told, posterior=posterior), generator())
        assert open_seeds(acquisition, told) == expected


def test_where_all_used_seeds_are_closed_the_next_one_is_new() -> None:
    which = torch.arange(2 * REWARDS_PER_SEED) % 2
    belief = seeded_belief(SeedEffect(30.0, None), n=len(which), seeds=2)
    maximizer = Maximizer(ConBO(HybridKG()), screened=64, starts=4)
    chosen = {}
    for total in (None, 2):
        told = replace(belief.observations, seeds=Seeds(which, total))
        chosen[total] = maximizer.propose(replace(belief, observations=told), 1, generator()).seeds
    assert chosen[None] == [None]
    assert chosen[2] in ([0], [1])


def test_where_all_listed_seeds_are_used_one_more_reward_has_the_least_used_one() -> None:
    # the effect of a third seed cannot be the opposite of two others, which are opposites of each other
    effect, seeds = replace(EFFECT, between=-1.0), torch.arange(14) % 2 * 3
    points, rewards, here = points_in(SPACE, 14, seed=1), 2 * uniform(14, seed=2), points_in(SPACE, 6, seed=3)
    for n, used in ((13, 3), (14, 0), (1, NEW_SEED)):
        posterior = condition_with_seeds(KERNEL, 0.3, 0.05, effect, points[:n], rewards[:n], seeds[:n])
        view = posterior.for_seeds(torch.tensor([used]))
        torch.testing.assert_close(posterior.look_ahead_slopes(here, here), view.look_ahead_slopes(here, here))
    unlimited = condition_with_seeds(KERNEL, 0.3, 0.05, EFFECT, points, rewards, seeds)
    assert unlimited.next_seeds.tolist() == [NEW_SEED]


def test_points_of_a_batch_have_no_more_new_seeds_than_the_study_lists() -> None:
    belief = seeded_belief(SeedEffect(30.0, None, between=-0.5), seeds=2)
    told = replace(belief.observations, seeds=Seeds(torch.arange(14) % 2, total=3))
    points = points_in(SPACE, 4, seed=8)
    seeds = paired_seeds(ConBO(HybridKG()), replace(belief, observations=told), points, [None] * 4, generator())
    assert seeds == [NEW_SEED - 1] * 4  # they share the only new one


def test_with_all_listed_seeds_at_a_point_its_mean_is_known() -> None:
    effect = SeedEffect(0.8, None, Seeds(torch.arange(4), total=4).between)
    point = points_in(SPACE, 1)
    rewards = tensor([1.0, -2.0, 0.5, 3.0])
    posterior = condition_with_seeds(KERNEL, 0.0, 1e-8, effect, point.expand(4, -1), rewards, torch.arange(4))
    torch.testing.assert_close(posterior.mean(point), rewards.mean(0, keepdim=True), rtol=1e-6, atol=1e-6)
    assert float(posterior.variance(point)) < 1e-6


def test_a_seed_of_its_own_for_every_reward_is_independent_noise() -> None:
    points, rewards, here = points_in(SPACE, 12, seed=1), uniform(12, seed=2), points_in(SPACE, 6, seed=3)
    noisy = condition(KERNEL, 0.1, 0.05 + EFFECT.variance, points, rewards)
    seeded = condition_with_seeds(KERNEL, 0.1, 0.05, EFFECT, points, rewards, torch.arange(12))
    torch.testing.assert_close(seeded.mean(here), noisy.mean(here))
    torch.testing.assert_close(seeded.look_ahead_slopes(here, here), noisy.look_ahead_slopes(here, here))


def test_leaving_one_out_is_conditioning_on_all_others() -> None:
    belief = seeded_belief()
    posterior, told = belief.posterior, belief.observations
    assert isinstance(posterior, SeededPosterior)
    left_out = posterior.leave_one_out()
    assert left_out is not None
    total = joint_prior(EFFECT, told.points, posterior.seeds, told.points, posterior.seeds) + 0.05 * torch.eye(14)
    for row in range(3):
        others = torch.arange(14) != row
        solved = torch.linalg.solve(total[others][:, others], total[others, row])
        residual = told.rewards[row] - 0.3 - solved @ (told.rewards[others] - 0.3)
        torch.testing.assert_close(left_out[0][row], residual)
        torch.testing.assert_close(left_out[1][row], (total[row, row] - solved @ total[others, row]).sqrt())


@pytest.mark.parametrize("parts", PARTS)
def test_the_log_density_has_the_right_gradient(parts: tuple[bool, bool]) -> None:
    plain, *_ = GaussianProcess(profile="matern52").structures(SPACE).plain
    family = SeededFamily(plain, MATERN52, *parts, between=-0.25)
    points = torch.cat([points_in(SPACE, 10), (torch.arange(10) % 3)[:, None].double()], -1)
    target = LogPosterior(family, points, uniform(10, seed=1), "moderate")
    start = target.prior.starts()[:2]
    gradient = target(start)[1]
    torch.testing.assert_close(gradient, finite_differences(lambda p: target(p)[0], start), rtol=1e-5, atol=1e-5)
    effect, kernel = family.effect(start[0]), family.kernel(start[0])
    assert (effect.constant > 0, effect.function is not None) == parts
    scaled, features = kernel.scaled(points[:, :-1]), effect.scaled(points[:, :-1])
    expected = kernel.covariance(scaled, scaled)
    expected = expected + effect.shared(points[:, -1], points[:, -1]) * effect.covariance(features, features)
    torch.testing.assert_close(family.covariance(start[:1], points)[0][0], expected)


def simulated(effect: float, noise: float, n: int = 48, seeds: int = 6) -> Observations:
    """Rewards of a smooth function, with a constant of each seed and independent noise."""
    points, which = points_in(reals(1, 1), n, seed=1), torch.arange(n) % seeds
    constants = torch.randn(seeds, generator=generator(3), dtype=torch.float64)
    errors = torch.randn(n, generator=generator(4), dtype=torch.float64)
    rewards = (4 * (points[:, 0] - points[:, 1])).sin() + effect * constants[which] + noise * errors
    return Observations(points, rewards, points[:0], seeds=Seeds(which))


def test_effects_of_seeds_are_there_only_if_rewards_ask_for_them() -> None:
    space, model = reals(1, 1), GaussianProcess(profile="matern52", main_effects="none")
    for effect, noise in ((1.0, 0.1), (0.0, 0.7)):
        told = simulated(effect, noise)
        assert told.seeds is not None
        points = torch.cat([told.points, told.seeds.column], -1)
        rewards = (told.rewards - told.rewards.mean()) / told.rewards.std()
        best, *_ = fit(model.structures(space, told.seeds), points, rewards, members=4)
        assert (best.effect is not None) == (effect > 0)
        assert best.effect is None or best.effect.function is not None  # so few rewards do not rule it out


def test_rewards_with_common_seeds_are_fitted_better_by_a_model_that_knows_them() -> None:
    space, model = reals(1, 1), GaussianProcess(profile="matern52", main_effects="none", members=3)
    told = simulated(1.0, 0.1)
    here = points_in(space, 40, seed=9)
    truth = (4 * (here[:, 0] - here[:, 1])).sin()
    errors = []
    for observations in (told, replace(told, seeds=None)):
        belief = fit_belief(space, bind(None, space), observations, model)
        guess = belief.to_reward(belief.posterior.mean(here))
        errors.append(float((guess - guess.mean() - truth + truth.mean()).square().mean().sqrt()))
    assert errors[0] < 0.8 * errors[1]


def test_with_a_new_seed_for_every_reward_the_belief_is_that_without_seeds() -> None:
    space, model, told = reals(1, 1), GaussianProcess(profile="matern52"), simulated(0.0, 0.3)
    here = points_in(space, 9, seed=9)
    each = replace(told, seeds=Seeds(torch.arange(len(told)) + 3))
    beliefs = [fit_belief(space, bind(None, space), one, model) for one in (each, replace(told, seeds=None))]
    for moment in ("mean", "variance"):
        torch.testing.assert_close(*(getattr(belief.posterior, moment)(here) for belief in beliefs), rtol=0, atol=0)


def test_a_mixture_knows_the_seeds_of_its_members() -> None:
    belief = seeded_belief()
    told, plain = (
        belief.observations,
        condition(KERNEL, 0.3, 0.9, belief.observations.points, belief.observations.rewards),
    )
    mixture = Mixture((belief.posterior, plain), tensor([0.75, 0.25]))
    parts = [HybridKG(5).build(replace(belief, posterior=one), generator()) for one in (belief.posterior, plain)]
    gains = HybridKG(5).build(replace(belief, posterior=mixture), generator())
    assert isinstance(gains, KnowsSeeds)
    assert sorted(gains.seen_seeds) == [0, 1, 2, 3]
    assert parts[1].seen_seeds == ()
    states, rows = uniform(2, 1, 1, seed=4), torch.arange(2)
    used = gains.for_seeds(torch.tensor([1])).at(states)(told.points[:2], rows).values
    assert bool((used > 0).all())
