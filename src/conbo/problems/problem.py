"""The type of a test problem, with its true expected rewards, and the scores of policies on such a problem."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from conbo.bound_states import bind
from conbo.errors import SettingError
from conbo.outcome_constraints import OutcomeConstraints
from conbo.quasi_random import sobol
from conbo.spaces import Array, Point, Space, Value
from conbo.state_distributions import RecipeLike

Policy: TypeAlias = Callable[[dict[str, Value]], Point]
"""A function from a state to an action. It may also have a method `many(states)` that returns a list of actions."""


@dataclass(frozen=True)
class MeanReward:
    """The expected reward of a state and an action, and its standard error.

    Parameters
    ----------
    mean
        The expected reward.
    standard_error
        Standard error of the mean; 0 if it is exact.

    Examples
    --------
    >>> problem = conbo.problems.branin()
    >>> problem.mean_reward({"s": 2.5}, {"x": 2.5}, 1, 0).standard_error
    0.0
    """

    mean: float
    standard_error: float


@dataclass(frozen=True)
class Problem:
    """A test problem: a noisy reward to be maximized, with its expected rewards and best actions if they are known.

    Parameters
    ----------
    name
        Name in tables and reports.
    space
        States and actions.
    state_distribution
        P[s], as in `conbo.Study`.
    evaluate
        ``evaluate(state, action, generator)`` returns one noisy reward. It may also take a `seed`. If one is given, all
        randomness comes from it, so evaluations of different actions with the same seed use the same random numbers.
    mean_reward
        ``mean_reward(state, action, replications, seed)`` returns the expected reward as a `MeanReward`.
    optimal_action
        ``optimal_action(state)`` returns the best action.
    optimal_reward
        ``optimal_reward(state)`` returns the expected reward of the best action.
    noise
        Standard deviation of one reward, if it is known and the same everywhere.
    description
        One line on what the problem is about.
    outcome_constraints
        Limits on outcomes, by name. `evaluate` then returns a mapping with 'reward' and these outcomes, and the best
        actions satisfy the limits.
    violates
        ``violates(state, action)`` returns whether the expected outcomes violate a constraint.

    Examples
    --------
    >>> problem = conbo.problems.branin()
    >>> problem.optimal_action({"s": 2.5})
    {'x': ...}
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
    """Average the policy's true expected reward over P[s], on a fixed set of test states.

    Parameters
    ----------
    problem
        A problem with a known `mean_reward`.
    policy
        A function from states to actions, such as a `conbo.Policy`.
    n_states
        Number of test states: all states if there are at most this many, else Sobol points that follow P[s].
    replications
        Number of simulations per state whose rewards are averaged; ignored if the problem's `mean_reward` is exact.
    seed
        Seed of test states and simulations.

    Returns
    -------
    float
        The mean reward.

    Raises
    ------
    SettingError
        If `mean_reward` is not known, or ``n_states < 1``.
    PointError
        If the policy returns an action that does not belong to the space.

    Examples
    --------
    >>> problem = conbo.problems.branin()
    >>> conbo.problems.policy_reward(problem, problem.optimal_action, n_states=16) < 0
    True
    """
    states, weights = scoring_states(problem, n_states, seed)
    return float(weights @ _rewards(problem, policy, states, replications, seed))


def opportunity_cost(
    problem: Problem, policy: Policy, n_states: int = 256, replications: int = 1000, seed: int = 0
) -> float:
    """Return how much less the policy earns than the best actions, averaged over P[s] on a fixed set of test states.

    Parameters
    ----------
    problem
        A problem with known `mean_reward` and `optimal_reward`.
    policy
        A function from states to actions, such as a `conbo.Policy`.
    n_states
        Number of test states: all states if there are at most this many, else Sobol points that follow P[s].
    replications
        Number of simulations per state whose rewards are averaged; ignored if the problem's `mean_reward` is exact.
    seed
        Seed of test states and simulations.

    Returns
    -------
    float
        The mean loss; 0 for an optimal policy.

    Raises
    ------
    SettingError
        If `mean_reward` or `optimal_reward` is not known, or ``n_states < 1``.
    PointError
        If the policy returns an action that does not belong to the space.

    Examples
    --------
    >>> problem = conbo.problems.branin()
    >>> conbo.problems.opportunity_cost(problem, problem.optimal_action, n_states=16)
    0.0
    """
    if problem.optimal_reward is None:
        raise SettingError(f"`optimal_reward` must be known for an opportunity cost, but '{problem.name}' has none.")
    states, weights = scoring_states(problem, n_states, seed)
    optimal = np.array([problem.optimal_reward(state) for state in states])
    return float(weights @ (optimal - _rewards(problem, policy, states, replications, seed)))


def violation(problem: Problem, policy: Policy, n_states: int = 256, seed: int = 0) -> float:
    """Return the probability that the policy's action violates a constraint in a state drawn from P[s].

    Parameters
    ----------
    problem
        A problem with outcome constraints.
    policy
        A function from states to actions, such as a `conbo.Policy`.
    n_states
        Number of test states: all states if there are at most this many, else Sobol points that follow P[s].
    seed
        Seed of the test states.

    Returns
    -------
    float
        The probability, from 0 to 1.

    Raises
    ------
    SettingError
        If the problem has no constraints, or ``n_states < 1``.

    Examples
    --------
    >>> problem = conbo.problems.branin_constrained()
    >>> conbo.problems.violation(problem, lambda state: {"x": 15.0}, n_states=16)
    1.0
    """
    if problem.violates is None:
        raise SettingError(f"`violates` must be known for a violation, but '{problem.name}' has no constraints.")
    states, weights = scoring_states(problem, n_states, seed)
    broken = [problem.violates(state, action) for state, action in zip(states, _actions(policy, states), strict=True)]
    return float(weights @ np.array(broken, dtype=float))


def scoring_states(problem: Problem, n_states: int, seed: int) -> tuple[list[dict[str, Value]], Array]:
    """Return m test states and their weights (m,) for averages over P[s].

    If there are at most `n_states` states, they are all returned, with their probabilities. Otherwise the test states
    are Sobol points that follow P[s], with equal weights.
    """
    if n_states < 1:
        raise SettingError(f"`n_states >= 1` must hold, but got n_states={n_states}.")
    distribution = bind(problem.state_distribution, problem.space)
    if (finite := distribution.finite(max_states=n_states)) is not None:
        states, weights = finite[0], finite[1].numpy()
    else:
        states = distribution.from_uniform(sobol(n_states, problem.space.n_state_dims, seed))
        weights = np.full(n_states, 1.0 / n_states)
    return problem.space.decode_states(states.numpy()), weights


def _rewards(problem: Problem, policy: Policy, states: list[dict[str, Value]], replications: int, seed: int) -> Array:
    if problem.mean_reward is None:
        raise SettingError(f"`mean_reward` must be known to score a policy, but '{problem.name}' has none.")
    valid = [problem.space.validate_action(action) for action in _actions(policy, states)]
    # every state has its own seed, because noise that all states share would not average out
    rows = zip(states, valid, range(seed, seed + len(states)), strict=True)
    return np.array([problem.mean_reward(state, action, replications, own).mean for state, action, own in rows])


def _actions(policy: Policy, states: list[dict[str, Value]]) -> Sequence[Mapping[str, Any]]:
    many: Callable[[list[dict[str, Value]]], list[Mapping[str, Any]]] | None = getattr(policy, "many", None)
    return many(states) if many is not None else [policy(state) for state in states]
