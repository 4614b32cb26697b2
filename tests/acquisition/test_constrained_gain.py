"""The gain of a policy that keeps learned constraints."""

from dataclasses import replace
from math import exp, sqrt

import pytest
import torch

import conbo
from conbo.acquisition.constrained_gain import ConstrainedGains, state_gains, unmapped
from conbo.acquisition.expected_max import expected_max
from conbo.acquisition.improvement import ExpectedImprovement
from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.knowledge_gradient import DISCRETE, HybridKG
from conbo.acquisition.quadrature_states import StratifiedStates
from conbo.acquisition.utility_gain import MeansAhead, SlackAhead, gain_of
from conbo.acquisition.where_feasible import FeasibleAcquisition, WhereFeasible
from conbo.belief import Belief
from conbo.models.mixture import Mixture
from conbo.models.output_maps import LowTail
from conbo.models.relative import RelativePosterior
from conbo.models.seed_effects import NEW_SEED, SeededPosterior, SeedEffect, condition_with_seeds
from conbo.models.transformed import TransformedPosterior
from constrained_beliefs import SPACES, constrained
from random_beliefs import (
    finite_differences,
    generator,
    points_in,
    posterior_of,
    product_kernel,
    tensor,
    uniform,
)

FEW = StratifiedStates(n_states=4, pool=8)


def drawn_lines(seed: int, constraints: int = 2) -> tuple[MeansAhead, list[SlackAhead], torch.Tensor]:
    shape = (3, 4, 5)
    reward = MeansAhead(uniform(*shape, seed=seed), 0.5 * uniform(*shape, seed=seed + 1) - 0.2)
    slacks = [
        SlackAhead(
            uniform(*shape, seed=seed + 2 + i) - 0.5,
            0.6 * uniform(*shape, seed=seed + 9 + i) - 0.3,
            0.1 + uniform(*shape, seed=seed + 20 + i),
            threshold=0.1,
        )
        for i in range(constraints)
    ]
    return reward, slacks, torch.special.ndtri(uniform(8, constraints, seed=seed + 30))


def test_constraints_that_are_surely_kept_leave_the_discrete_knowledge_gradient() -> None:
    reward, (slack,), nodes = drawn_lines(0, constraints=1)
    kept = replace(slack, mean=slack.mean + 1e3)
    gain = gain_of(reward, reward.mean.amin(-1) - 1, [kept], None, nodes)
    torch.testing.assert_close(gain.values, expected_max(reward.mean, reward.slope).gain)
    torch.testing.assert_close(gain.constraints[0], torch.zeros_like(gain.constraints[0]))


def test_gains_are_those_of_a_simulation_and_never_negative() -> None:
    reward, slacks, _ = drawn_lines(1)
    worst = reward.mean.amin(-1)
    nodes = torch.randn(4000, 2, generator=generator(), dtype=torch.float64)
    gain = gain_of(reward, worst, slacks, None, nodes)
    assert bool((gain.values >= 0).all())
    z = torch.randn(4000, generator=generator(1), dtype=torch.float64)
    worth = (reward.mean[..., None] - worst[..., None, None]) + reward.slope[..., None] * z
    before = reward.mean - worst[..., None]
    for slack, zeta in zip(slacks, nodes.T, strict=True):
        left = (slack.variance - slack.slope**2).sqrt()[..., None]
        worth = worth * torch.special.ndtr((slack.mean[..., None] + slack.slope[..., None] * zeta - 0.1) / left)
        before = before * torch.special.ndtr((slack.mean - 0.1) / slack.variance.sqrt())
    simulated = worth.amax(-2).mean(-1) - before.amax(-1)
    assert float((gain.values - simulated).abs().amax()) < 4 / sqrt(4000)


def test_an_action_that_is_not_allowed_is_worth_the_worst() -> None:
    reward, slacks, nodes = drawn_lines(2)
    worst = reward.mean.amin(-1)
    allowed = torch.ones_like(reward.mean)
    allowed[..., 0] = 0.0
    without = [replace(s, mean=s.mean[..., 1:], slope=s.slope[..., 1:], variance=s.variance[..., 1:]) for s in slacks]
    few = MeansAhead(reward.mean[..., 1:], reward.slope[..., 1:])
    kept = gain_of(reward, worst - 1, slacks, allowed, nodes).values
    torch.testing.assert_close(kept, gain_of(few, worst - 1, without, None, nodes).values, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["real", "two actions", "limited"])
def test_gradients_are_those_of_the_values(name: str) -> None:
    belief = constrained(SPACES[name])
    pool, points = uniform(24, SPACES[name].n_action_dims, seed=2), points_in(SPACES[name], 3, seed=9)
    gains = state_gains(belief, pool, DISCRETE)
    assert isinstance(gains, ConstrainedGains)
    states = uniform(3, 4, 1, seed=4)
    ahead, rows = gains.at(states), torch.arange(3)
    first = ahead(points, rows)  # now each candidate's own action is fixed
    weights = uniform(3, 4, seed=6)
    slope = finite_differences(lambda there: (weights * ahead(there, rows).values).sum(-1), points)
    torch.testing.assert_close(first.gradient(weights), slope, rtol=1e-4, atol=1e-6)


def test_rough_values_are_those_at_the_same_states() -> None:
    belief = constrained(SPACES["limited"])
    gains = state_gains(belief, uniform(24, 2, seed=2), DISCRETE)
    states, points = uniform(5, 1, seed=4), points_in(SPACES["limited"], 6, seed=9)
    exact = gains.at(states.expand(6, -1, -1))(points, torch.arange(6)).values
    torch.testing.assert_close(gains.rough(states)(points), exact)
    assert bool((exact >= 0).all())


def belief_with_success() -> Belief:
    belief = constrained(SPACES["real"])
    assert belief.constraints is not None
    first, second = belief.constraints.outcomes
    return replace(belief, constraints=replace(belief.constraints, outcomes=(first,), success=second))


def test_what_looks_ahead_is_weighed_by_success_alone_and_all_else_by_every_constraint() -> None:
    belief, points = belief_with_success(), points_in(SPACES["real"], 5, seed=8)
    learned = belief.constraints
    assert learned is not None
    assert learned.success is not None
    success = torch.special.ndtr(learned.success.margins(points))
    for recipe, share in ((ConBO(HybridKG(), FEW), success), (ExpectedImprovement(), learned.probability(points))):
        plain, weighed = recipe.build(belief, generator()), WhereFeasible(recipe).build(belief, generator())
        torch.testing.assert_close(weighed(points), plain(points) * share)
        torch.testing.assert_close(weighed.screen(points), plain.screen(points) * share)
        rows = torch.arange(len(points))
        local = weighed.local(points)
        _, slope = local(points, rows)
        numeric = finite_differences(lambda there, local=local, rows=rows: local(there, rows)[0], points)
        torch.testing.assert_close(slope, numeric, rtol=1e-3, atol=1e-5)


def test_without_constraints_nothing_changes() -> None:
    belief = replace(constrained(SPACES["real"]), constraints=None)
    recipe = ExpectedImprovement()
    assert WhereFeasible(recipe).build(belief, generator()) == recipe.build(belief, generator())
    assert not isinstance(state_gains(belief, uniform(8, 1), DISCRETE), ConstrainedGains)


def test_gains_of_mapped_rewards_are_computed_before_the_map_is_undone() -> None:
    belief = constrained(SPACES["real"], thresholds=(-1e6,))  # the constraint is surely satisfied
    process = posterior_of(belief)
    mapped = TransformedPosterior(process, LowTail(pivot=0.5, width=0.05, shift=-1.0, scale=2.0))
    gains = state_gains(replace(belief, posterior=mapped), uniform(24, 1, seed=2), DISCRETE)
    assert isinstance(gains, ConstrainedGains)
    states, points = uniform(3, 4, 1, seed=4), points_in(SPACES["real"], 3, seed=9)
    own = points[:, None, None, 1:].expand(3, 4, 1, 1)
    actions = torch.cat([gains.lists(states.flatten(0, 1)).actions.unflatten(0, (3, 4)), own], 2)
    lines = process.look_ahead_lines(points, states, actions)
    rise = expected_max(lines.mean, lines.slope).gain
    noise = torch.full_like(rise, process.usual_noise)
    expected, _ = mapped.output.gain(lines.mean.amax(-1), rise, noise)
    torch.testing.assert_close(gains.at(states)(points, torch.arange(3)).values, expected)


@pytest.mark.parametrize("relative_actions", ["none", "auto"])
def test_gains_of_mapped_rewards_have_the_right_gradients(relative_actions: str) -> None:
    space = conbo.Space({"s": conbo.Real(0, 1)}, {"x": conbo.Real(0, 1)})
    model = conbo.GaussianProcess(
        "squared-exponential", input_warping="none", relative_actions=relative_actions, main_effects="none"
    )
    study = conbo.Study(space, method="uniform", model=model, outcome_constraints={"wait": conbo.AtMost(1.2)})
    study.run(
        lambda s, x: {"reward": -exp(8 * abs(x["x"] - s["s"])), "wait": s["s"] + x["x"]}, evaluations=24, progress=False
    )
    belief = study.policy().belief
    members = belief.posterior.members if isinstance(belief.posterior, Mixture) else (belief.posterior,)
    assert any(unmapped(one)[1] is not None for one in members)
    assert all(isinstance(one, RelativePosterior) for one in members) == (relative_actions == "auto")
    gains = state_gains(belief, uniform(24, 1, seed=2), DISCRETE)
    states, points = uniform(3, 4, 1, seed=4), points_in(belief.space, 3, seed=9).clamp(0.1, 0.9)
    ahead, rows = gains.at(states), torch.arange(3)
    first = ahead(points, rows)
    weights = uniform(3, 4, seed=6)
    slope = finite_differences(lambda there: (weights * ahead(there, rows).values).sum(-1), points)
    torch.testing.assert_close(first.gradient(weights), slope, rtol=1e-3, atol=1e-4 * float(slope.abs().amax()))
    again = gains.at(states[:1].expand(3, -1, -1))(points, rows).values
    torch.testing.assert_close(gains.rough(states[0])(points), again)


def seeded(name: str) -> tuple[Belief, SeededPosterior]:
    """A belief with learned constraints whose rewards have seeds that shift all rewards and change single ones."""
    belief = constrained(SPACES[name], thresholds=(-0.8, -1.0))
    points, rewards = (told[:9] for told in (belief.observations.points, belief.observations.rewards))
    effect = SeedEffect(0.8, product_kernel(SPACES[name], 0.6, 0.7, 0.4))
    kernel, seeds = posterior_of(belief).kernel, torch.arange(9) % 4
    posterior = condition_with_seeds(kernel, 0.3, 0.05, effect, points, rewards, seeds)
    return replace(belief, posterior=posterior), posterior


@pytest.mark.parametrize("name", ["real", "limited"])
def test_gains_of_seeds_have_the_right_gradient_and_do_not_depend_on_each_other(name: str) -> None:
    (belief, _), seeds = seeded(name), torch.tensor([2, NEW_SEED, 0])
    pool, points = uniform(24, SPACES[name].n_action_dims, seed=2), points_in(SPACES[name], 3, seed=9)
    gains = state_gains(belief, pool, DISCRETE)
    assert isinstance(gains, ConstrainedGains)
    assert sorted(gains.seen_seeds) == [0, 1, 2, 3]
    states, rows, weights = uniform(3, 4, 1, seed=4), torch.arange(3), uniform(3, 4, seed=6)
    ahead = gains.for_seeds(seeds).at(states)
    first = ahead(points, rows)  # now each candidate's own action is fixed
    slope = finite_differences(lambda there: (weights * ahead(there, rows).values).sum(-1), points)
    torch.testing.assert_close(first.gradient(weights), slope, rtol=1e-4, atol=1e-6)
    together = gains.for_seeds(seeds).rough(states[0])(points)
    for row, seed in enumerate(seeds):
        alone = gains.for_seeds(seed[None])
        torch.testing.assert_close(
            first.values[[row]], alone.at(states[[row]])(points[[row]], torch.tensor([0])).values
        )
        torch.testing.assert_close(together[[row]], alone.rough(states[0])(points[[row]]))
    new = gains.for_seeds(torch.tensor([NEW_SEED])).at(states)(points, rows).values
    torch.testing.assert_close(first.values[1], new[1])
    assert float((first.values - new)[[0, 2]].abs().amax()) > 1e-3


def test_the_reward_of_a_seen_seed_is_the_one_that_the_look_ahead_expects() -> None:
    belief, posterior = seeded("real")
    gains = state_gains(belief, uniform(24, 1, seed=2), DISCRETE).for_seeds(torch.tensor([2]))
    states, points = uniform(1, 4, 1, seed=4), points_in(SPACES["real"], 1, seed=9)
    line = gains.at(states)(points, torch.tensor([0])).lines[0]
    expected = posterior.for_seeds(torch.tensor([2])).look_ahead_lines(
        points, states, gains.lists(states[0]).actions[None]
    )
    torch.testing.assert_close(line.slope[..., :-1], expected.slope)


def test_several_models_have_gains_of_their_own_if_one_knows_seeds_and_are_weighed_by_success_alone() -> None:
    belief, posterior = seeded("real")
    assert belief.constraints is not None
    first, second = belief.constraints.outcomes
    learned = replace(belief.constraints, outcomes=(first,), success=second)
    plain = posterior_of(constrained(SPACES["real"]))
    mixed = replace(belief, posterior=Mixture((posterior, plain), tensor([0.7, 0.3])), constraints=learned)
    recipe, points = ConBO(HybridKG(), FEW), points_in(SPACES["real"], 3, seed=8)
    average, weighed = recipe.build(mixed, generator()), WhereFeasible(recipe).build(mixed, generator())
    assert isinstance(weighed, FeasibleAcquisition)
    assert sorted(weighed.seen_seeds) == [0, 1, 2, 3]
    success = torch.special.ndtr(second.margins(points))
    torch.testing.assert_close(weighed(points), average(points) * success)
    seeds = torch.tensor([2, NEW_SEED, 0])
    torch.testing.assert_close(weighed.for_seeds(seeds)(points), average.for_seeds(seeds)(points) * success)
