"""The best action that keeps learned constraints: against a dense grid, in several kinds of space."""

from dataclasses import replace

import pytest
import torch
from scipy.special import ndtri_exp
from torch import Tensor

from conbo.belief import Belief
from conbo.learned_constraints import LOWEST, LearnedConstraint, LearnedConstraints, log_probability_and_gradient
from conbo.models.exact import condition
from conbo.search.action_candidates import action_candidates
from conbo.spaces import Space
from constrained_beliefs import SPACES, constrained
from random_beliefs import belief_on, belief_with, finite_differences, generator, points_in, product_kernel, tensor


def grid_over(space: Space, k: int) -> Tensor:
    columns = [
        torch.linspace(0, 1, k, dtype=torch.float64) if p.n_levels is None else tensor(p.levels())  # type: ignore[union-attr]
        for p in space.actions.values()
    ]
    return torch.cartesian_prod(*columns).reshape(-1, len(columns))


@pytest.mark.parametrize("name", SPACES)
def test_no_action_that_is_sure_enough_is_better(name: str) -> None:
    belief = constrained(SPACES[name])
    learned, d_s = belief.constraints, belief.n_state_dims
    assert learned is not None
    states = points_in(SPACES[name], 6, seed=5)[:, :d_s]
    found = belief.search(action_candidates(belief, 96, generator())).best(states)
    points = torch.cat([states, found.actions], -1)
    assert bool(belief.contains(points).all())
    torch.testing.assert_close(found.mean, belief.posterior.mean(points))
    grid = grid_over(SPACES[name], 41 if SPACES[name].n_action_dims == 2 else 200 if name == "real" else 21)
    for state, point, mean in zip(states, points, found.mean, strict=True):
        there = torch.cat([state.expand(len(grid), -1), grid], -1)
        there = there[belief.contains(there)]
        likely = learned.probability(there)
        sure = likely >= learned.confidence
        mine = float(learned.probability(point[None]))
        if bool(sure.any()):
            assert mine >= learned.confidence - 1e-6
            assert float(mean) >= float(belief.posterior.mean(there[sure]).amax()) - 2e-3
        else:
            assert mine >= float(likely.amax()) - 2e-3


def in_a_disc() -> Belief:
    """The first action is the reward, and actions in a disc are feasible, as a precise model has learned."""
    space = SPACES["two actions"]
    points, kernel = points_in(space, 60, seed=1), product_kernel(space, 1.0, 0.7)
    state, x, y = points.T

    def learned_from(values: Tensor) -> Belief:
        return belief_on(space, condition(kernel, 0.0, 1e-4, points, values), points, values)

    slack = learned_from(1 - (x - 0.4 - 0.1 * state).square() / 0.3**2 - (y - 0.5).square() / 0.45**2)
    disc = LearnedConstraint("disc", slack.posterior, 0.0, slack.observations)
    return replace(learned_from(x), constraints=LearnedConstraints((disc,), 0.95))


def test_searches_slide_along_a_curved_boundary() -> None:
    belief = in_a_disc()
    learned, states = belief.constraints, points_in(belief.space, 20, seed=5)[:, :1]
    assert learned is not None
    found = belief.search(action_candidates(belief, 16, generator())).best(states, starts=1)
    grid = grid_over(belief.space, 101)
    for state, mean in zip(states, found.mean, strict=True):
        there = torch.cat([state.expand(len(grid), -1), grid], -1)
        sure = learned.is_sure(learned.log_probability(there))
        assert float(mean) >= float(belief.posterior.mean(there)[sure].amax()) - 1e-4


def test_where_nothing_is_sure_the_most_probable_action_is_taken() -> None:
    belief = constrained(SPACES["real"], thresholds=(2.5,), confidence=0.99)
    learned, states = belief.constraints, tensor([[0.1], [0.5], [0.9]])
    assert learned is not None
    found = belief.search(action_candidates(belief, 64, generator())).best(states)
    grid = torch.linspace(0, 1, 500, dtype=torch.float64)[:, None]
    for state, action in zip(states, found.actions, strict=True):
        best = learned.probability(torch.cat([state.expand(500, -1), grid], -1)).amax()
        assert float(best) < learned.confidence
        assert float(learned.probability(torch.cat([state, action])[None])) >= float(best) - 1e-6


def test_gradients_of_probabilities() -> None:
    belief = constrained(SPACES["two actions"])
    learned, points = belief.constraints, points_in(SPACES["two actions"], 8, seed=7)
    assert learned is not None
    _, slope = log_probability_and_gradient(learned.all, points)
    torch.testing.assert_close(slope, finite_differences(learned.log_probability, points), rtol=1e-4, atol=1e-5)
    level, rise = learned.levels(points)
    torch.testing.assert_close(torch.special.ndtr(level), learned.probability(points))
    torch.testing.assert_close(rise, finite_differences(lambda p: learned.levels(p)[0], points), rtol=1e-4, atol=1e-5)


def test_tiny_probabilities_have_levels_slopes_and_an_order() -> None:
    belief = constrained(SPACES["two actions"], thresholds=(400.0,))  # out of reach, by about 40 standard deviations
    learned, points = belief.constraints, points_in(SPACES["two actions"], 8, seed=7)
    assert learned is not None
    likely = learned.log_probability(points)
    assert bool((likely < LOWEST).all())
    level, rise = learned.levels(points)
    torch.testing.assert_close(level, torch.from_numpy(ndtri_exp(likely.numpy())), rtol=1e-4, atol=0)
    torch.testing.assert_close(rise, finite_differences(lambda p: learned.levels(p)[0], points), rtol=1e-2, atol=1e-3)
    assert learned.ranks(likely).argsort().tolist() == likely.argsort().tolist()
    assert bool((learned.ranks(likely) > -50).all())


def test_levels_are_continuous_where_their_computation_changes() -> None:
    learned, point = constrained(SPACES["real"]).constraints, tensor([[0.4, 0.7]])
    assert learned is not None
    one = learned.outcomes[0]
    mean, sd = float(one.posterior.mean(point)), float(one.posterior.variance(point).sqrt())
    found = []
    for nearly in (LOWEST - 1e-6, LOWEST + 1e-6):
        margin = float(ndtri_exp(nearly))
        level, rise = replace(learned, outcomes=(replace(one, threshold=mean - margin * sd),)).levels(point)
        assert float(level) == pytest.approx(margin, rel=1e-5)
        found.append(rise)
    torch.testing.assert_close(*found, rtol=1e-2, atol=1e-6)


def test_one_posterior_beside_the_others_says_whether_evaluations_succeed() -> None:
    belief = constrained(SPACES["real"], thresholds=(0.0, 0.2))
    assert belief.constraints is not None
    first, second = belief.constraints.outcomes
    split = replace(belief.constraints, outcomes=(first,), success=second)
    points = points_in(SPACES["real"], 5, seed=3)
    torch.testing.assert_close(split.probability(points), belief.constraints.probability(points))


@pytest.mark.parametrize(("name", "confidence"), [("two actions", 0.95), ("mixed", 0.95), ("limited", 0.2)])
def test_an_action_of_the_pool_that_is_sure_enough_is_not_passed_over(name: str, confidence: float) -> None:
    """Starts are chosen by the most probable models, but averaged ones decide, and are less sure of most actions."""
    space = SPACES[name]
    belief = constrained(space, confidence=confidence)
    learned, d_s = belief.constraints, belief.n_state_dims
    assert learned is not None
    wavier = product_kernel(space, 0.35, 0.3)
    outcomes = tuple(
        replace(one, average=lambda seed=seed: belief_with(space, wavier, n=40, noise=0.01, seed=seed).posterior)
        for seed, one in enumerate(learned.outcomes, start=1)
    )
    belief = replace(belief, constraints=replace(learned, outcomes=outcomes))
    learned = belief.constraints
    assert learned is not None
    states = points_in(space, 40, seed=6)[:, :d_s]
    pool = action_candidates(belief, 96, generator())
    found = belief.search(pool).best(states, starts=1)
    mine, safe = learned.probability(torch.cat([states, found.actions], -1)), 0
    for state, probability in zip(states, mine, strict=True):
        there = torch.cat([state.expand(len(pool), -1), pool], -1)
        safest = there[belief.contains(there)]
        safest = safest[learned.of_most_probable().probability(safest).argmax()]
        if float(learned.probability(safest[None])) >= learned.confidence:
            assert float(probability) >= learned.confidence - 1e-6
            safe += 1
    assert safe >= 3
