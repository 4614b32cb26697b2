from pathlib import Path

import numpy as np
import pytest

from conbo.errors import SettingError
from conbo.experiments.problem_names import load_problem
from conbo.experiments.scoring import Scoring, scorer
from conbo.problems import Problem
from conbo.spaces import Categorical, Real, Space
from conbo.trials import Outcomes, Trial

OWN = Path(__file__).parent / "own_problems.py"


class FixedPolicy:
    """Always the same distance from the best action."""

    def __init__(self, problem, distance):
        self.problem, self.distance = problem, distance

    def many(self, states):
        return [{"x": self.problem.optimal_action(state)["x"] + self.distance} for state in states]


def test_the_best_policy_costs_nothing_and_a_worse_one_what_it_gives_away():
    problem = load_problem("rosenbrock")
    judge = scorer(problem, Scoring(states=64, replications=1))
    assert judge.measure == "opportunity cost"
    assert judge.score(FixedPolicy(problem, 0.0)) == pytest.approx(0.0)
    assert judge.score(FixedPolicy(problem, 0.1)) == pytest.approx(100 * 0.1**2)


def test_without_a_known_optimum_the_score_is_the_mean_reward():
    judge = scorer(load_problem(f"{OWN}:noisy"), Scoring(states=32, replications=50))

    class AlwaysHalf:
        def many(self, states):
            return [{"x": 0.5} for _ in states]

    # E (1/2 - s)² = 1/12 over uniform states; the noise of 1,600 evaluations is 0.1 / 40
    assert judge.measure == "mean reward"
    assert judge.score(AlwaysHalf()) == pytest.approx(-1 / 12, abs=0.01)
    assert judge.score(AlwaysHalf()) == judge.score(AlwaysHalf())


def test_test_states_meet_independent_random_numbers():
    # with one stream for all states, the noise would not average out over them
    judge = scorer(load_problem(f"{OWN}:with_optimum"), Scoring(states=256, replications=1))

    class Perfect:
        def many(self, states):
            return [{"x": state["s"]} for state in states]

    assert abs(judge.score(Perfect())) < 4 * 0.1 / np.sqrt(256)


def test_best_observed_rewards_are_averaged_over_the_states():
    space = Space(states={"set": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})
    judge = scorer(Problem("two", space, None, evaluate=lambda s, a, g: 10 * a["x"]), Scoring(5, 1))
    rewards = [("a", 1.0), ("a", 3.0), ("b", 2.0)]
    trials = [
        Trial(i, {"set": state}, {"x": i / 10}, status="completed", outcomes=Outcomes(r))
        for i, (state, r) in enumerate(rewards)
    ]
    assert judge.best_observed(trials) == pytest.approx(2.5)
    assert judge.best_observed(trials[:2]) is None
    # the expected rewards of trials 1 and 2, whatever was observed there
    assert judge.mean_of_best_observed(trials) == pytest.approx((1.0 + 2.0) / 2)
    assert judge.mean_of_best_observed(trials[:2]) is None


def test_scoring_checks_its_settings():
    with pytest.raises(SettingError, match="`states >= 1` and `replications >= 1` must hold, but got states=0"):
        Scoring(states=0)
