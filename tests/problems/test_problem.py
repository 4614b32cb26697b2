from dataclasses import replace

import pytest

import conbo.problems
from conbo.errors import PointError, SettingError
from conbo.problems.problem import MeanReward, Problem, opportunity_cost, policy_reward
from conbo.spaces import Categorical, Real, Space
from conbo.state_distributions import Weights

GAPS = {"mon": 0.0, "tue": 1.0, "sun": 4.0}

WEEK = Problem(
    name="week",
    space=Space(states={"day": Categorical(list(GAPS))}, actions={"x": Real(0, 1)}),
    state_distribution=Weights({"mon": 1, "tue": 2, "sun": 1}),
    evaluate=lambda state, action, generator: generator.normal(),
    mean_reward=lambda state, action, replications, seed: MeanReward(GAPS[state["day"]] * action["x"], 0.1),
    optimal_action=lambda state: {"x": 1.0},
    optimal_reward=lambda state: GAPS[state["day"]],
)


def test_a_finite_distribution_is_integrated_exactly() -> None:
    assert opportunity_cost(WEEK, lambda state: {"x": 0.5}) == pytest.approx(0.5 * (2 * 1 + 1 * 4) / 4)
    assert policy_reward(WEEK, lambda state: {"x": 0.5}) == pytest.approx(0.5 * (2 * 1 + 1 * 4) / 4)
    assert opportunity_cost(WEEK, WEEK.optimal_action) == 0


def test_quasi_random_states_stand_for_a_distribution_that_has_more() -> None:
    assert opportunity_cost(WEEK, lambda state: {"x": 0.0}, n_states=2) in (1.0, 2.5, 0.5)


def test_a_policy_with_many_is_asked_once() -> None:
    class Half:
        def __call__(self, state):
            raise AssertionError("asked one by one")

        def many(self, states):
            return [{"x": 0.5} for _ in states]

    assert opportunity_cost(WEEK, Half()) == pytest.approx(0.75)


def test_replications_reach_the_problem_and_every_state_has_a_seed_of_its_own() -> None:
    seen = []

    def mean_reward(state, action, replications, seed):
        seen.append((replications, seed))
        return MeanReward(0.0, 0.0)

    policy_reward(replace(WEEK, mean_reward=mean_reward), lambda state: {"x": 0}, replications=7, seed=3)
    assert seen == [(7, 3 + number) for number in range(len(seen))]
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("problem", "options", "message"),
    [
        (replace(WEEK, optimal_reward=None), {}, r"`optimal_reward` must be known .*, but 'week' has none\."),
        (replace(WEEK, mean_reward=None), {}, r"`mean_reward` must be known .*, but 'week' has none\."),
        (WEEK, {"n_states": 0}, r"`n_states >= 1` must hold, but got n_states=0\."),
    ],
)
def test_what_cannot_be_scored_is_refused(problem: Problem, options: dict[str, int], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        opportunity_cost(problem, lambda state: {"x": 1.0}, **options)


def test_an_invalid_action_of_a_policy_is_refused() -> None:
    with pytest.raises(PointError, match=r"`0\.0 <= x <= 1\.0` must hold, but got x=2\."):
        policy_reward(WEEK, lambda state: {"x": 2})


def test_the_package_exports_lazily() -> None:
    assert conbo.problems.Problem is Problem
    assert "branin" in dir(conbo.problems)
    with pytest.raises(AttributeError, match=r"'conbo.problems' has no attribute 'brannin'"):
        conbo.problems.brannin  # noqa: B018
