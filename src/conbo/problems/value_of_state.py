"""The true value of knowing the state in a test problem, computed from its expected rewards instead of a model."""

from dataclasses import dataclass

import numpy as np

from conbo.compass_search import compass_search
from conbo.problems.problem import Policy, Problem, policy_reward, scoring_states
from conbo.quasi_random import sobol_points
from conbo.spaces import Array, Point, Value

EXACT_STATES = 256  # number of states that represent P[s] if a formula gives expected rewards
STATES, REPLICATIONS = 64, 100  # numbers of states and replications if rewards are simulated, which is slow
SEARCH_STATES, SEARCH_REPLICATIONS = 16, 10  # the same numbers during the search for the single action
CANDIDATES = 32  # number of quasi-random actions from which the start of this search is chosen
SEARCH_SEED = 1  # differs from the seed of the final value, so that the search cannot exploit the noise of that value


@dataclass(frozen=True)
class TrueValueOfState:
    """The expected rewards, averaged over P[s], of the best policy and of the best single action for all states."""

    policy: float  # with the best action in every state
    single: float  # with the best single action
    action: dict[str, Value]  # the best single action

    @property
    def difference(self) -> float:
        """The value of the state: how much better the best policy is than the best single action."""
        return self.policy - self.single


def value_of_state(problem: Problem) -> TrueValueOfState | None:
    """Return the true expected rewards of the best policy and of the best single action for all states.

    The result is None if the problem has no states, if its expected or best rewards are not known, or if it has
    constraints.
    """
    if problem.violates is not None:
        return None
    if not problem.space.states or problem.mean_reward is None or problem.optimal_reward is None:
        return None
    n_states = STATES if problem.noise is None else EXACT_STATES
    states, weights = scoring_states(problem, n_states, seed=0)
    best = float(weights @ np.array([problem.optimal_reward(state) for state in states]))
    action = _best_single_action(problem)
    single = policy_reward(problem, _always(action), n_states, REPLICATIONS)
    return TrueValueOfState(best, min(single, best), action)


def _best_single_action(problem: Problem) -> dict[str, Value]:
    space = problem.space
    n_states = SEARCH_STATES if problem.noise is None else EXACT_STATES

    def mean(actions: Array) -> Array:
        rewards = [
            policy_reward(problem, _always(action), n_states, SEARCH_REPLICATIONS, SEARCH_SEED)
            for action in space.decode_actions(actions)
        ]
        return np.array(rewards)

    pool = space.snap_actions(sobol_points(CANDIDATES, space.n_action_dims, SEARCH_SEED))
    if problem.optimal_action is not None:
        states, _ = scoring_states(problem, n_states, SEARCH_SEED)
        known = space.encode_actions([problem.optimal_action(state) for state in states])
        pool = np.concatenate([space.snap_actions(known.mean(0, keepdims=True)), known, pool])
    best, _ = compass_search(space, mean, pool[int(mean(pool).argmax())])
    return space.decode_actions(best[None])[0]


def _always(action: Point) -> Policy:
    return lambda _: action
