"""Scores policies over P[s], on test states that are the same for all methods and seeds.

In each test state, all policies are evaluated with the same random numbers, so that differences between policies are
far more precise than their mean rewards. Different test states have different random numbers, so that the errors of the
states average out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch

from conbo.bound_states import bind
from conbo.errors import SettingError
from conbo.experiments.contestants import ActionRule
from conbo.problems.problem import Problem
from conbo.quasi_random import sobol
from conbo.spaces import Array, Point, Value
from conbo.trials import Trial, outcomes_of

Measure: TypeAlias = Literal["opportunity cost", "mean reward"]


@dataclass(frozen=True)
class Scoring:
    """The number of test states in which a policy is scored, and the number of replications in each of them."""

    states: int = 128
    replications: int = 100

    def __post_init__(self) -> None:
        if self.states < 1 or self.replications < 1:
            given = f"states={self.states}, replications={self.replications}"
            raise SettingError(f"`states >= 1` and `replications >= 1` must hold, but got {given}.")


@dataclass(frozen=True)
class Scorer:
    """Scores policies on the test states of a problem."""

    problem: Problem
    replications: int
    states: Sequence[dict[str, Value]]
    weights: Array  # probabilities of the states under P[s]
    optimal: Array | None  # the highest expected reward in each of these states; None if they are not known

    @property
    def measure(self) -> Measure:
        """What the scores are: opportunity costs (lower is better) or mean rewards (higher is better)."""
        return "mean reward" if self.optimal is None else "opportunity cost"

    def score(self, policy: ActionRule) -> float:
        """The opportunity cost of a policy over P[s], or its mean reward if the best possible reward is unknown."""
        pairs = enumerate(zip(self.states, policy.many(self.states), strict=True))
        rewards = np.array([self._mean_reward(state, action, number) for number, (state, action) in pairs])
        return float(self.weights @ (rewards if self.optimal is None else self.optimal - rewards))

    def best(self, policies: Sequence[ActionRule]) -> tuple[float, ActionRule]:
        """The best score among several policies, and the policy that has it."""
        sign = 1 if self.optimal is not None else -1
        scored = [(self.score(policy), policy) for policy in policies]
        return min(scored, key=lambda pair: sign * pair[0])

    def violation(self, policy: ActionRule) -> float | None:
        """The probability under P[s] of states where the policy violates a constraint; None without constraints."""
        breaks = self.problem.violates
        if breaks is None:
            return None
        pairs = zip(self.states, policy.many(self.states), strict=True)
        return float(self.weights @ np.array([breaks(state, action) for state, action in pairs], dtype=float))

    def best_observed(self, trials: Sequence[Trial]) -> float | None:
        """The best reward observed in each state, averaged over P[s]; None if some test state was not tried."""
        best = self._best_trials(trials)
        return None if best is None else float(self.weights @ np.array([reward for reward, _ in best]))

    def mean_of_best_observed(self, trials: Sequence[Trial]) -> float | None:
        """The expected rewards of the best observed actions, averaged over P[s]; None if some test state was not tried.

        Unlike the observed rewards, they do not profit from lucky noise.
        """
        best = self._best_trials(trials)
        if best is None:
            return None
        pairs = enumerate(zip(self.states, best, strict=True))
        means = [self._mean_reward(state, action, number) for number, (state, (_, action)) in pairs]
        return float(self.weights @ np.array(means))

    def _best_trials(self, trials: Sequence[Trial]) -> list[tuple[float, Point]] | None:
        """The best reward of each test state and its action; None if some test state was not tried."""
        seen = [
            [(t.reward, t.action) for t in trials if t.state == state and t.reward is not None] for state in self.states
        ]
        return [max(pairs, key=lambda pair: pair[0]) for pairs in seen] if all(seen) else None

    def _mean_reward(self, state: Point, action: Point, number: int) -> float:
        if self.problem.mean_reward is not None:
            return self.problem.mean_reward(state, action, self.replications, number).mean
        generator = np.random.default_rng(number)
        drawn = (self.problem.evaluate(state, action, generator) for _ in range(self.replications))
        return float(np.mean([outcomes_of(one).reward for one in drawn]))


def scorer(problem: Problem, scoring: Scoring) -> Scorer:
    """Create the scorer of a problem; its test states are all states if there are few, else a Sobol sample of P[s]."""
    distribution = bind(problem.state_distribution, problem.space)
    if (finite := distribution.finite(max_states=scoring.states)) is not None:
        points, weights = finite
    else:
        points = distribution.from_uniform(sobol(scoring.states, problem.space.n_state_dims, seed=0))
        weights = torch.full((scoring.states,), 1.0 / scoring.states, dtype=torch.float64)
    states = problem.space.decode_states(points.numpy())
    optimal = None if problem.optimal_reward is None else np.array([problem.optimal_reward(s) for s in states])
    return Scorer(problem, scoring.replications, states, weights.numpy(), optimal)
