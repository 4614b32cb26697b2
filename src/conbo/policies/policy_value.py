"""Estimates the value of a policy, averaged over P[s], and how much of it comes from knowing the state.

=================  ======================================================================================
symbol             meaning
=================  ======================================================================================
μ(s, x)            expected reward under the model
π(s)               the policy
E                  mean over states s from P[s]
x₀                 the best single action for all states: argmax over x of E[μ(s, x)]
policy value       E[μ(s, π(s))]
value of state     E[μ(s, π(s))] − E[μ(s, x₀)]: what is lost if the state is not known
=================  ======================================================================================

Rewards are maximized here; those to be minimized are negated. If there are known limits or learned constraints, the
search for x₀ subtracts a large penalty from the reward in every state where an action violates a limit, or does not
satisfy the learned constraints with the required confidence. In states where x₀ itself violates a known limit, a
feasible action nearby is taken instead, if one is found.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.compass_search import compass_search
from conbo.models.snapping import FAR_BELOW
from conbo.quasi_random import sobol
from conbo.search.action_candidates import action_candidates
from conbo.spaces import Array
from conbo.threads import threads_for

STATES = 256  # number of states that represent P[s] in averages
SEARCH_STATES = 64  # number of states that represent P[s] in the search for the single action
CANDIDATES = 128  # number of quasi-random actions from which the starts of this search are chosen
STARTS = 3  # number of the best candidates from which a local search starts
MOST_POINTS = 10_000  # number of points whose means are computed at once


@dataclass(frozen=True)
class ValueOfState:
    """The values of a policy and of the best single action for all states, in units of the reward.

    Rewards that are to be minimized are negated. Standard deviations are the model's uncertainty about these values,
    without the noise of single rewards.
    """

    policy: float  # value of the policy
    policy_std: float
    single: float  # value of the best single action
    single_std: float
    difference_std: float  # standard deviation of `difference`
    action: Tensor  # the best single action (d_x,), in the unit cube

    @property
    def difference(self) -> float:
        """The value of the state: how much better the policy is than the best single action."""
        return self.policy - self.single


def typical_states(belief: Belief, most: int = STATES) -> tuple[Tensor, Tensor]:
    """Return states (m, d_s) that represent P[s], and their weights (m,), which add up to one.

    These are all states if there are at most `most`, and otherwise `most` quasi-random states.
    """
    if (finite := belief.states.finite(most)) is not None:
        return finite
    weights = torch.full((most,), 1 / most, dtype=torch.float64)
    return belief.states.from_uniform(sobol(most, belief.n_state_dims, seed=0)), weights


def mean_over_states(belief: Belief, points: Tensor, weights: Tensor) -> tuple[float, float]:
    """Return the mean of the expected rewards at points (m, d), weighted by `weights` (m,), and its standard deviation.

    The standard deviation is the model's uncertainty about this mean.
    """
    with threads_for(len(belief.observations)), torch.no_grad():
        mean = weights @ belief.to_reward(belief.predictive.mean(points))
        variance = weights @ belief.predictive.covariance(points, points) @ weights
    return float(mean), belief.scale * max(float(variance), 0.0) ** 0.5


def value_of_state(belief: Belief, states: Tensor, weights: Tensor, actions: Tensor) -> ValueOfState:
    """Compare a policy, which takes `actions` (m, d_x) in states (m, d_s), with the best single action for all states.

    `weights` (m,) are the probabilities of the states.
    """
    center = belief.snap_actions((weights @ actions)[None])
    single = best_single_action(belief, torch.cat([center, actions[:SEARCH_STATES]]))
    m = len(states)
    chosen = torch.cat([states, actions], -1)
    same = torch.cat([states, belief.feasible_actions(states, single.expand(m, -1))], -1)
    policy, policy_std = mean_over_states(belief, chosen, weights)
    value, value_std = mean_over_states(belief, same, weights)
    _, difference_std = mean_over_states(belief, torch.cat([chosen, same]), torch.cat([weights, -weights]))
    if torch.equal(chosen, same):
        difference_std = 0.0  # the difference is exactly zero; computed, it would have rounding errors
    # a negative difference means that the policy's search narrowly missed a maximum, so it counts as zero
    value = min(value, policy)
    return ValueOfState(policy, policy_std, value, value_std, difference_std, single)


def best_single_action(belief: Belief, likely: Tensor) -> Tensor:
    """Return the action (d_x,) with the highest expected reward over P[s] if the same action is taken in every state.

    There is a large penalty for every state in which the action violates a known limit, or does not satisfy the learned
    constraints with the required confidence. Local searches start from the best actions of a pool, which includes the
    actions `likely` (k, d_x).
    """
    # a new quasi-random sequence, because every fourth state of the longer one would not be evenly spread
    states, weights = typical_states(belief, SEARCH_STATES)

    def mean(candidates: Array) -> Array:
        return _means(belief, states, weights, torch.from_numpy(candidates)).numpy()

    spread = action_candidates(belief, CANDIDATES, torch.Generator().manual_seed(0))
    pool = torch.cat([likely, spread]).numpy()
    starts = pool[(-mean(pool)).argsort(kind="stable")[:STARTS]]
    found = [compass_search(belief.space, mean, start) for start in starts]
    best, _ = max(found, key=lambda end: end[1])
    return torch.from_numpy(best)


def _means(belief: Belief, states: Tensor, weights: Tensor, actions: Tensor) -> Tensor:
    """Return the standardized expected reward (k,) of each of k actions (k, d_x), averaged over m states (m, d_s).

    `weights` (m,) are the probabilities of the states. Before averaging, a large penalty is subtracted from the
    expected reward in every state where the action violates a known limit, or does not satisfy the learned constraints
    with the required confidence.
    """
    m, parts = len(states), []
    with threads_for(len(belief.observations)), torch.no_grad():
        for some in actions.split(max(1, MOST_POINTS // m)):
            points = torch.cat([states.repeat(len(some), 1), some.repeat_interleave(m, 0)], -1)
            mean = belief.posterior.mean(points)
            if belief.space.feasible_set is not None:
                mean = torch.where(belief.contains(points), mean, mean - FAR_BELOW)
            if belief.constraints is not None:
                sure = belief.constraints.is_sure(belief.constraints.log_probability(points))
                mean = torch.where(sure, mean, mean - FAR_BELOW)
            parts.append(mean.reshape(len(some), m) @ weights)
    return torch.cat(parts)
