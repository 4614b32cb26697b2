"""Compares the learned policy with the user's own decision rule.

Both are compared by the rewards that the model expects and, if there are new evaluations of both, by measured rewards.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.confidence_interval import Interval
from conbo.direction import sign_of
from conbo.fresh_states import rule_actions
from conbo.policies.policy import Policy
from conbo.policies.policy_value import mean_over_states, typical_states
from conbo.policies.rules import Rule
from conbo.rounding import MARGIN_IN_WORDS, NINETY_FIVE, as_precise, with_margin
from conbo.threads import threads_for
from conbo.validation import Validation, breaks_more, difference_in_words


@dataclass(frozen=True)
class Comparison:
    """A comparison of the policy with a decision rule, by expected rewards. It prints as a few sentences.

    Standard deviations are the model's uncertainty about its estimates, without the noise of single rewards.

    Parameters
    ----------
    rule_name
        Name of the decision rule.
    maximize
        Whether rewards are maximized; if not, they are minimized.
    policy_value
        Expected reward of the policy under the model, averaged over P[s].
    policy_value_std
        Standard deviation of that estimate.
    rule_value
        Expected reward of the decision rule under the model, averaged over P[s].
    rule_value_std
        Standard deviation of that estimate.
    difference
        How much better the policy is: positive if it is better, even if rewards are minimized. The estimate is
        optimistic: the policy takes the actions that look best under the model, and some of these are overestimated.
    difference_std
        Standard deviation of that estimate.
    validation
        The result of new evaluations of the policy and the decision rule in the same states; None if there are none.
    policy_probability
        Probability that the policy's action satisfies all learned constraints, averaged over P[s]; None if there are
        no learned constraints.
    rule_probability
        The same probability for the decision rule.
    confidence
        Least probability with which actions must satisfy all learned constraints; None if there are none.

    Examples
    --------
    >>> comparison = study.compare(lambda state: {"stock": state["demand"]}, name="stock the demand")
    >>> comparison.rule_name
    'stock the demand'
    """

    rule_name: str
    maximize: bool
    policy_value: float
    policy_value_std: float
    rule_value: float
    rule_value_std: float
    difference: float
    difference_std: float
    validation: Validation | None = None
    policy_probability: float | None = None
    rule_probability: float | None = None
    confidence: float | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences with the model's estimates and, if there are new evaluations, with their results.

        Neither of the two is called better if it breaks constraints more often than the other, and more often than
        `confidence` permits.
        """
        verb = "is worth" if self.maximize else "costs"
        margin = NINETY_FIVE * self.difference_std
        better = Interval(self.difference, self.difference - margin, self.difference + margin)
        fault, probabilities = "", []
        if self.policy_probability is not None and self.rule_probability is not None and self.confidence is not None:
            ours, theirs = self.policy_probability, self.rule_probability
            if breaks_more(better, 1 - ours, 1 - theirs, self.confidence):
                fault = "satisfies the constraints too rarely"
            probabilities = [
                f"The policy satisfies the learned constraints with a mean probability of {ours:.3f} "
                f"and {self.rule_name} with {theirs:.3f}; {self.confidence:g} is required."
            ]
        by_model = (
            f"By the model, the policy {verb} {with_margin(self.policy_value, self.policy_value_std)} and "
            f"{self.rule_name} {as_precise(self.rule_value, self.policy_value_std)}: "
            f"{difference_in_words(better, self.rule_name, self.maximize, fault)}."
        )
        return (by_model, *probabilities, *(() if self.validation is None else self.validation.sentences))

    def __str__(self) -> str:
        has_margins = self.validation is not None and self.validation.has_margins
        measured = "; of what was measured, it is a 95 % interval" if has_margins else ""
        return f"{' '.join(self.sentences)} ({MARGIN_IN_WORDS}{measured}.)"

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values that JSON can hold.

        Returns
        -------
        dict
            The fields and the sentences.
        """
        measured = None if self.validation is None else self.validation.to_dict()
        return {**asdict(self), "validation": measured, "sentences": list(self.sentences)}


def compare_by_model(policy: Policy, rule: Rule, rule_name: str, validation: Validation | None) -> Comparison:
    """Compare the expected rewards of a policy and of a decision rule, under the policy's model and averaged over P[s].

    If there are new evaluations of both, `validation` holds their results.
    """
    belief, sign = policy.belief, sign_of(policy.maximize)
    states, weights = typical_states(belief)
    named = belief.space.decode_states(states.numpy())
    ours, theirs = (
        torch.from_numpy(np.hstack([states.numpy(), belief.space.encode_actions(rule_actions(belief, one, named))]))
        for one in (policy, rule)
    )
    value, std = mean_over_states(belief, ours, weights)
    rule_value, rule_std = mean_over_states(belief, theirs, weights)
    probabilities = [_mean_probability(belief, points, weights) for points in (ours, theirs)]
    _, difference_std = mean_over_states(belief, torch.cat([ours, theirs]), torch.cat([weights, -weights]))
    return Comparison(
        rule_name=rule_name,
        maximize=policy.maximize,
        policy_value=sign * value,
        policy_value_std=std,
        rule_value=sign * rule_value,
        rule_value_std=rule_std,
        difference=value - rule_value,
        difference_std=difference_std,
        validation=validation,
        policy_probability=probabilities[0],
        rule_probability=probabilities[1],
        confidence=None if belief.constraints is None else belief.constraints.confidence,
    )


def _mean_probability(belief: Belief, points: Tensor, weights: Tensor) -> float | None:
    """Return the probability that points (m, d) satisfy all learned constraints, averaged with `weights` (m,).

    The result is None if there are no learned constraints.
    """
    with threads_for(len(belief.observations)), torch.no_grad():
        probability = belief.probability(points)
    return None if probability is None else float(weights @ probability)
