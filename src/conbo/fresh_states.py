"""Plans the validation of a policy by new evaluations: draws their states, and predicts their rewards."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from conbo.belief import Belief
from conbo.confidence_interval import magnitude
from conbo.errors import PointError, SettingError
from conbo.policies.policy import Policy
from conbo.policies.policy_value import typical_states, value_of_state
from conbo.policies.rules import Actions, Rule, SameAction
from conbo.quasi_random import sobol
from conbo.spaces import Array, Point, Value
from conbo.stratified_draws import Draws, draw_each, draw_similar
from conbo.validation import Check, Measurement, Validation

# number and size of independent samples of P[s]; the variance of their means gives the sampling error
REPLICATES, REPLICATE_SIZE = 16, 256
MAX_LISTED = 4096  # largest number of states up to which all of them are used instead of a sample


def plan_validation(
    policy: Policy,
    rule: Rule | None,
    rule_name: str | None,
    evaluations: int,
    seed: Sequence[int],
    confidence: float,
    states: Sequence[Point] | None = None,
) -> Validation:
    """Plan the evaluations that validate a policy and, if there is a decision `rule`, compare the policy with it.

    The evaluations are in the given `states` or, if these are None, in states that are drawn from P[s].  With a rule,
    half of the `evaluations` are for the policy and half for the rule, in the same states.  The policy is evaluated at
    least twice in each given state if there are enough `evaluations`, and otherwise once.  `confidence` is the least
    probability with which actions must satisfy all constraints.  The result has no rewards yet.  Raises SettingError if
    there are too few `evaluations`.
    """
    space, rules = policy.belief.space, [policy] if rule is None else [policy, rule]
    n, generator = evaluations // len(rules), np.random.default_rng(list(seed))
    if n < 2:
        least = 2 * len(rules)
        raise SettingError(f"`evaluations >= {least}` must hold for an interval, but got evaluations={evaluations}.")
    named = states is not None or not space.states
    if states is None:
        pool = _pool(policy.belief, generator) if space.states else _Pool([{}], np.ones(1), None)
    else:
        known = [space.validate_state(state) for state in states]
        if not known:
            raise SettingError("`states` must have at least one state, but got none.")
        if n < len(known):
            least = len(rules) * len(known)
            rule_text = f"`evaluations` must be at least {len(rules)} for each of {len(known)} states, so {least}"
            raise SettingError(f"{rule_text}, but got evaluations={evaluations}.")
        pool = _Pool(known, np.full(len(known), 1 / len(known)), None)
    actions = [rule_actions(policy.belief, one, pool.states) for one in rules]
    predicted = np.array([[p.mean for p in policy.predict_actions(pool.states, own)] for own in actions])
    draws = _draws(pool, predicted.T, n, named, generator)
    checks = tuple(
        Check(
            dict(pool.states[row]),
            int(stratum),
            float(weight),
            *(Measurement(dict(own[row]), float(mean[row])) for own, mean in zip(actions, predicted, strict=True)),
        )
        for row, stratum, weight in zip(draws.rows, draws.strata, draws.weights, strict=True)
    )
    compared = [*predicted, *([] if rule is None else [predicted[0] - predicted[1]])]
    return Validation(
        trials=len(policy.belief.observations),
        maximize=policy.maximize,
        checks=checks,
        rule_name=rule_name,
        named=named and bool(space.states),
        pool=pool.sampled,
        expected=tuple(float(mean @ pool.weights) for mean in predicted),
        expected_stds=tuple(pool.std_of_mean(mean) for mean in compared),
        confidence=confidence,
        n_states=len({tuple(state.values()) for state in pool.states}),
    )


def best_single_rule(policy: Policy) -> Rule:
    """Return the rule with the same action in every state: the one with the best expected reward over P[s].

    The expected reward is that of the model. Where the action is infeasible, the nearest feasible one is taken.
    """
    belief = policy.belief
    states, weights = typical_states(belief)
    chosen = policy.many(belief.space.decode_states(states.numpy()))
    actions = torch.from_numpy(belief.space.encode_actions(chosen))
    return SameAction(belief, value_of_state(belief, states, weights, actions).action)


@dataclass(frozen=True)
class _Pool:
    """N weighted states over which means are taken: all states, a sample from P[s], or those that the user chose."""

    states: list[dict[str, Value]]
    weights: Array  # (N,)
    sampled: int | None  # number of sampled states; None if all states are in the pool

    def std_of_mean(self, values: Array) -> float:
        """Return the standard deviation of the mean of `values` (N,), which holds one value for each state of the pool.

        The mean is uncertain if the states are a sample from P[s].  If they are not, the result is zero.
        """
        if self.sampled is None:
            return 0.0
        means = values.reshape(REPLICATES, -1).mean(axis=1)
        unit = magnitude(means)
        return unit * float((means / unit).std(ddof=1)) / REPLICATES**0.5


def _pool(belief: Belief, generator: np.random.Generator) -> _Pool:
    if (listed := belief.states.listed(MAX_LISTED)) is not None:
        return _Pool(belief.space.decode_states(listed[0]), listed[1], None)
    seeds = [int(seed) for seed in generator.integers(2**31, size=REPLICATES)]
    if belief.states.has_quantile:
        parts = [belief.states.from_uniform(sobol(REPLICATE_SIZE, belief.n_state_dims, seed)) for seed in seeds]
    else:
        parts = [belief.states.sample(REPLICATE_SIZE, torch.Generator().manual_seed(seed)) for seed in seeds]
    states = belief.space.decode_states(torch.cat(parts).numpy())
    return _Pool(states, np.full(len(states), 1 / len(states)), len(states))


def _draws(pool: _Pool, features: Array, n: int, named: bool, generator: np.random.Generator) -> Draws:
    k = len(pool.states)
    if 2 * k <= n:
        return draw_each(pool.weights, n, generator)
    if named:  # each of the user's states is evaluated once, and they count as a sample of similar states
        return Draws(np.arange(k), np.zeros(k, dtype=np.intp), pool.weights)
    return draw_similar(features, pool.weights, n, generator)


def rule_actions(belief: Belief, rule: Rule, states: Sequence[dict[str, Value]]) -> Actions:
    """Return the actions of a decision rule in given states; raise PointError if one is not feasible."""
    actions = rule.many(states)
    if belief.space.feasible_set is not None:
        points = belief.space.encode_states(states), belief.space.encode_actions(actions)
        for state, action, feasible in zip(states, actions, belief.space.contains(np.hstack(points)), strict=True):
            if not feasible:
                raise PointError(f"a rule must return feasible actions, but got {action} for {state}.")
    return actions
