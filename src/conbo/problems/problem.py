"""A problem as a frozen record, and how much reward a policy gives away on it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from conbo.bound_states import bind
from conbo.errors import SettingError
from conbo.outcome_constraints import OutcomeConstraints
from conbo.quasi_random import sobol
from conbo.spaces import Array, Point, Space, Value
from conbo.state_distributions import RecipeLike

Policy: TypeAlias = Callable[[dict[str, Value]], Point]
"""The action for a state. A policy may also have `many(states)`, the actions for a list of states."""


@dataclass(frozen=True)
class MeanReward:
    """The expected reward, and how well it is known."""

    mean: float
    standard_error: float


@dataclass(frozen=True)
class Problem:
    """A noisy reward of state and action to be maximised, with what is known of the truth.

    - `evaluate(state, action, generator)`: one noisy reward. Where it also takes a `seed`, all randomness is drawn from
      that, in streams that stay in step between actions;
    - `mean_reward(state, action, replications, seed)`: its expectation;
    - `optimal_action(state)`, `optimal_reward(state)`: the best action and its expected reward;
    - `noise`: the standard deviation of one reward, where it is known and the same everywhere;
    - `outcome_constraints`: limits on outcomes that `evaluate` then returns in a mapping, beside 'reward'; the optimum
      keeps them;
    - `violates(state, action)`: whether the expected outcomes break one of them.
    """

    name: str
    space: Space
    state_distribution: RecipeLike
    evaluate: Callable[..., float | Mapping[str, float]]
    mean_reward: Callable[[Point, Point, int, int], MeanReward] | None = None
    optimal_action: Callable[[Point], dict[str, Value]] | None = None
    optimal_reward: Callable[[Point], float] | None = None
    noise: float | None = None
    description: str = ""
    outcome_constraints: OutcomeConstraints | None = None
    violates: Callable[[Point, Point], bool] | None = None

    @property
    def takes_seed(self) -> bool:
        """Whether `evaluate` can be given a seed, for common random numbers."""
        return "seed" in inspect.signature(self.evaluate).parameters


def policy_reward(
    problem: Problem, policy: Policy, n_states: int = 256, replications: int = 1000, seed: int = 0
) -> float:
    """The expected reward of the policy over P[s], on a fixed set of test states."""
    states, weights = scoring_states(problem, n_states, seed)
    return float(weights @ _rewards(problem, policy, states, replications, seed))


def opportunity_cost(
    problem: Problem, policy: Policy, n_states: int = 256, replications: int = 1000, seed: int = 0
) -> float:
    """How much less than the best possible the policy earns over P[s], on a fixed set of test states."""
    if problem.optimal_reward is None:
        raise SettingError(f"`optimal_reward` must be known for an opportunity cost, but '{problem.name}' has none.")
    states, weights = scoring_states(problem, n_states, seed)
    optimal = np.array([problem.optimal_reward(state) for state in states])
    return float(weights @ (optimal - _rewards(problem, policy, states, replications, seed)))


def violation(problem: Problem, policy: Policy, n_states: int = 256, seed: int = 0) -> float:
    """In which share of the states, by P[s], the policy's action breaks a constraint in truth."""
    if problem.violates is None:
        raise SettingError(f"`violates` must be known for a violation, but '{problem.name}' has no constraints.")
    states, weights = scoring_states(problem, n_states, seed)
    broken = [problem.violates(state, action) for state, action in zip(states, _actions(policy, states), strict=True)]
    return float(weights @ np.array(broken, dtype=float))


def scoring_states(problem: Problem, n_states: int, seed: int) -> tuple[list[dict[str, Value]], Array]:
    """States and weights to integrate over P[s]: all states if these are few, else quasi-random ones."""
    if n_states < 1:
        raise SettingError(f"`n_states >= 1` must hold, but got n_states={n_states}.")
    distribution = bind(problem.state_distribution, problem.space)
    if (finite := distribution.finite(max_states=n_states)) is not None:
        states, weights = finite
    else:
        states = distribution.from_uniform(sobol(n_states, problem.space.n_state_dims, seed))
        weights = torch.full((n_states,), 1.0 / n_states, dtype=torch.float64)
    return problem.space.decode_states(states.numpy()), weights.numpy()


def _rewards(problem: Problem, policy: Policy, states: list[dict[str, Value]], replications: int, seed: int) -> Array:
    if problem.mean_reward is None:
        raise SettingError(f"`mean_reward` must be known to score a policy, but '{problem.name}' has none.")
    valid = [problem.space.validate_action(action) for action in _actions(policy, states)]
    # a seed of its own for every state: noise that all share would not average out
    rows = zip(states, valid, range(seed, seed + len(states)), strict=True)
    return np.array([problem.mean_reward(state, action, replications, own).mean for state, action, own in rows])


def _actions(policy: Policy, states: list[dict[str, Value]]) -> Sequence[Mapping[str, Any]]:
    many: Callable[[list[dict[str, Value]]], list[Mapping[str, Any]]] | None = getattr(policy, "many", None)
    return many(states) if many is not None else [policy(state) for state in states]
