"""The summary of what a study has learned, in numbers and in a few sentences."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from conbo.acquisition.remaining_gain import best_gains
from conbo.belief import Belief
from conbo.direction import sign_of
from conbo.policies import StatePolicy
from conbo.policies.policy_value import mean_over_states, typical_states, value_of_state
from conbo.policies.single_action import observed_in
from conbo.rounding import MARGIN_IN_WORDS, NINETY_FIVE, as_precise, listed, number, with_margin
from conbo.spaces import Array, Categorical, Space, Value
from conbo.threads import threads_for

GAIN_STATES = 32  # number of states in which the gain of one more evaluation is computed
HALF = 0.5  # fraction of all gains that the region of states named in the summary has
# A region is named only if its fraction of all gains, divided by its probability under P[s], is at least this.
CONCENTRATED = 1.3
NEARLY_EXACT = 0.1  # largest standard deviation of noise, relative to that of rewards, for nearly exact rewards
NEGLIGIBLE = 1e-3  # gain, relative to the standard deviation of rewards, below which little is left to learn


@dataclass(frozen=True)
class Region:
    """A set of states: those between two values of a numeric parameter, or with some choices of a categorical one."""

    parameter: str  # name of the state parameter
    low: Value | None = None
    high: Value | None = None
    choices: tuple[Value, ...] = ()

    def __str__(self) -> str:
        if self.choices:
            return f"{self.parameter} {listed([str(choice) for choice in self.choices])}"
        assert isinstance(self.low, int | float)
        assert isinstance(self.high, int | float)
        low, high = _rounded(self.low, self.high)
        return f"{self.parameter} {low}" if low == high else f"{self.parameter} {low} to {high}"


@dataclass(frozen=True)
class StudySummary:
    """What a study has learned, according to its model. It prints as two or three sentences.

    Standard deviations are the model's uncertainty about its estimates, without the noise of single rewards. In the
    sentences, ± is 1.96 standard deviations. Without states, `most_to_learn` and the fields after it are None.

    Parameters
    ----------
    evaluations
        Number of completed trials.
    maximize
        Whether rewards are maximized; if not, they are minimized.
    policy_value
        Expected reward of the policy, averaged over P[s].
    policy_value_std
        Standard deviation of that estimate.
    expected_gain
        The highest knowledge gradient among at most 32 typical states: how much the best evaluation in a state is
        expected to improve the best expected reward of that state. It may be higher in other states.
    reward_scale
        Standard deviation of the rewards that the model was fitted to.
    most_to_learn
        Where one more evaluation is expected to gain most: a range of one state parameter, or some of its choices, that
        accounts for at least half of the expected gains of all states. None unless the mean gain there is at least 1.3
        times the mean over all states.
    single_action
        The best single action for all states, to be taken if the state is not known.
    single_action_value
        Expected reward of the single action, averaged over P[s].
    single_action_value_std
        Standard deviation of that estimate.
    value_of_state
        How much better the policy is than the single action; never negative.
    value_of_state_std
        Standard deviation of that estimate.
    best_observed_value
        Mean over P[s] of the best observed reward of each state: measured, not estimated by the model. None unless
        there are finitely many states, all of them were observed, rewards have little noise, and no constraints are
        learned.
    failures
        Number of failed evaluations from which the study has learned where evaluations fail. It is 0 if failures are
        ignored, or seem to be accidents that may happen anywhere.

    Examples
    --------
    >>> study.summary().evaluations
    8
    """

    evaluations: int
    maximize: bool
    policy_value: float
    policy_value_std: float
    expected_gain: float
    reward_scale: float = field(repr=False)
    most_to_learn: Region | None = None
    single_action: dict[str, Value] | None = None
    single_action_value: float | None = None
    single_action_value_std: float | None = None
    value_of_state: float | None = None
    value_of_state_std: float | None = None
    best_observed_value: float | None = None
    failures: int = 0

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences on the policy's value and on what is left to learn.

        A third sentence is on failures, if the study has learned from them, or on the best observed actions, if
        `best_observed_value` is known, which needs a study without learned constraints.
        """
        known = [self._worth(), self._left()]
        if self.failures:
            known.append(f"The policy avoids points like the {self.failures} where evaluations failed.")
        if self.best_observed_value is None:
            return tuple(known)
        seen = as_precise(self.best_observed_value, self.policy_value_std)
        verb = "earned" if self.maximize else "cost"
        advice = (
            f"Rewards are nearly exact, and the best observed action of every state {verb} {seen} on average: "
            "prefer these (`best_observed`) until `compare` has shown that the policy is better."
        )
        return *known, advice

    def __str__(self) -> str:
        return f"{' '.join(self.sentences)} ({MARGIN_IN_WORDS}.)"

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain values that JSON can hold.

        Returns
        -------
        dict
            The fields and the sentences.
        """
        return {**asdict(self), "sentences": list(self.sentences)}

    def _worth(self) -> str:
        policy = with_margin(self.policy_value, self.policy_value_std)
        verb = "is worth" if self.maximize else "costs"
        if self.value_of_state is None:
            return f"The best action {verb} {policy}."
        assert self.single_action_value is not None
        assert self.value_of_state_std is not None
        if not self.value_of_state and not self.value_of_state_std:
            return f"The policy {verb} {policy}; by what is known so far, one action is the best for all states."
        single = as_precise(self.single_action_value, self.policy_value_std)
        worth = with_margin(self.value_of_state, self.value_of_state_std)
        doubt = ", which may be nothing" if self.value_of_state < NINETY_FIVE * self.value_of_state_std else ""
        return (
            f"The policy {verb} {policy}; the best single action for all states {single}: "
            f"knowing the state {'is worth' if self.maximize else 'saves'} {worth}{doubt}."
        )

    def _left(self) -> str:
        gain = number(self.expected_gain, 2)
        typical = "" if self.value_of_state is None else " in a typical state"
        at_most = f"one more evaluation is expected to gain at most {gain}{typical}"
        if self.expected_gain < NEGLIGIBLE * self.reward_scale:
            return f"Little is left to learn: {at_most}."
        if self.value_of_state is None:
            return f"{at_most.capitalize()}."
        if self.most_to_learn is None:
            return f"What is left to learn is spread over all states; {at_most}."
        where = "for" if self.most_to_learn.choices else "around"
        return f"Most is left to learn {where} {self.most_to_learn}; {at_most}."


def summarize(belief: Belief, policy: StatePolicy, maximize: bool) -> StudySummary:
    """Summarize what was learned, given a belief and its policy.

    The policy is a function from states (m, d_s) to actions (m, d_x) in the unit cube.
    """
    states, weights = typical_states(belief)
    sign = sign_of(maximize)
    with threads_for(len(belief.observations)), torch.no_grad():
        actions = policy(states)
    left = _left_to_learn(belief, policy)
    known = {"evaluations": len(belief.observations), "failures": _learned_failures(belief)}
    common = {**known, "maximize": maximize, "reward_scale": belief.scale, **left}
    if not belief.space.states:
        value, std = mean_over_states(belief, torch.cat([states, actions], -1), weights)
        return StudySummary(policy_value=sign * value, policy_value_std=std, **common)
    worth = value_of_state(belief, states, weights, actions)
    return StudySummary(
        policy_value=sign * worth.policy,
        policy_value_std=worth.policy_std,
        single_action=belief.space.decode_actions(worth.action[None].numpy())[0],
        single_action_value=sign * worth.single,
        single_action_value_std=worth.single_std,
        value_of_state=worth.difference,
        value_of_state_std=worth.difference_std,
        best_observed_value=_best_observed_value(belief, sign),
        **common,
    )


def _learned_failures(belief: Belief) -> int:
    """Return the number of failed evaluations from which the belief has learned where evaluations fail."""
    if belief.constraints is None or belief.constraints.success is None:
        return 0
    labels = belief.constraints.success.observations.rewards
    return int((labels == labels.min()).sum())


def _best_observed_value(belief: Belief, sign: int) -> float | None:
    """Return the mean over P[s] of the best reward that was observed with a feasible action in each state.

    The result is None if there are more states than observations, a state has no such reward, rewards are noisy, or
    constraints are learned.
    """
    observations = belief.observations
    finite = belief.states.finite(len(observations))
    if finite is None or belief.constraints is not None:  # the best observed action may violate a constraint
        return None
    states, weights = finite
    if observations.noise is None:
        with threads_for(len(observations)), torch.no_grad():
            noise = belief.posterior.noise_at(observations.points)
    else:
        noise = observations.noise / belief.scale / belief.scale  # the square of 1e200 overflows
    feasible = belief.contains(observations.points)  # earlier results may break a limit
    seen = [observations.rewards[observed_in(belief, state) & feasible] for state in states]
    if float(noise.max()) > NEARLY_EXACT**2 or not all(len(rewards) for rewards in seen):
        return None
    return sign * float(weights @ torch.stack([rewards.max() for rewards in seen]))


def _left_to_learn(belief: Belief, policy: StatePolicy) -> dict[str, Any]:
    states, weights = typical_states(belief, GAIN_STATES)
    with threads_for(len(belief.observations)), torch.no_grad():
        gains, _ = best_gains(belief, states, policy(states))
    region = where_concentrated(belief.space, states.numpy(), (weights * gains).numpy(), weights.numpy())
    return {"expected_gain": float(gains.max()), "most_to_learn": region}


def where_concentrated(space: Space, states: Array, gains: Array, weights: Array) -> Region | None:
    """Return the region of states where expected gains are most concentrated; None if they are not concentrated.

    Each parameter has one candidate region, with at least half of all expected gains: an interval of a numeric
    parameter, or some choices of a categorical one. The candidate with the highest ratio of gain to probability is
    returned, if this ratio is at least 1.3 times that of all states together. `states` (m, d_s) are in the unit cube,
    `weights` (m,) are their probabilities, and `gains` (m,) are their expected gains, already multiplied by these
    probabilities.
    """
    total = float(gains.sum())
    if not space.states or not total > 0:
        return None
    found: list[tuple[float, Region]] = []  # gain per probability of a region, and the region
    for column, (name, parameter) in enumerate(space.states.items()):
        places = states[:, column]
        if isinstance(parameter, Categorical):
            part, chosen = _choices(places, gains / total, weights)
            region = Region(name, choices=tuple(parameter.decode(chosen)))
        else:
            part, ends = _interval(places, gains / total, weights)
            low, high = parameter.decode(ends)
            region = Region(name, low, high)
        found.append((part, region))
    most, region = max(found, key=lambda pair: pair[0])
    return region if most >= CONCENTRATED else None


def _interval(places: Array, gains: Array, weights: Array) -> tuple[float, Array]:
    """Find the interval with the highest ratio of gain to probability, among short ones with half of all gains.

    From each state, only the shortest interval that begins there and has at least half of all gains is compared.
    Return the highest ratio, and the ends (2,) of its interval. For m states, `places` (m,) are their positions on the
    unit interval, `gains` (m,) their gains, which add up to 1, and `weights` (m,) their probabilities.
    """
    order = np.argsort(places, kind="stable")
    gain, weight = (np.concatenate([[0.0], np.cumsum(part[order])]) for part in (gains, weights))
    best, ends = 0.0, places[order[[0, -1]]]
    for first in range(len(order)):
        last = int(np.searchsorted(gain, gain[first] + HALF - 1e-12))  # index after the end of the interval
        if last > len(order):
            break
        part = (gain[last] - gain[first]) / (weight[last] - weight[first])
        if part > best:
            best, ends = float(part), places[order[[first, last - 1]]]
    return best, ends


def _choices(places: Array, gains: Array, weights: Array) -> tuple[float, Array]:
    """Take the choices with the highest ratios of gain to probability, until they have half of all gains.

    Return the total gain of the k choices taken, divided by their total probability, and their encodings (k,). For m
    states, `places` (m,) are their encoded choices, `gains` (m,) their gains, which add up to 1, and `weights` (m,)
    their probabilities.
    """
    levels = np.unique(places)
    gain, weight = (np.array([part[places == level].sum() for level in levels]) for part in (gains, weights))
    order = np.argsort(-gain / weight, kind="stable")
    n = int(np.searchsorted(np.cumsum(gain[order]), HALF - 1e-12)) + 1
    chosen = np.sort(levels[order[:n]])
    return float(gain[order[:n]].sum() / weight[order[:n]].sum()), chosen


def _rounded(low: float, high: float) -> tuple[str, str]:
    """Return the ends of an interval as strings, with few digits, but nearly always enough to tell them apart."""
    if isinstance(low, int) or low == high or high > 30 * low > 0:
        return number(low, 2 if high > 30 * low else 4), number(high, 2 if high > 30 * low else 4)
    decimals = max(0, 1 - math.floor(math.log10(high - low)))
    return f"{low:.{decimals}f}", f"{high:.{decimals}f}"
