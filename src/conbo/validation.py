"""The validation of a policy by new evaluations, which estimate its value without relying on the model."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from conbo.confidence_interval import Interval, interval, share_interval
from conbo.direction import sign_of
from conbo.outcome_constraints import DEFAULT_CONFIDENCE
from conbo.record_fields import Fields
from conbo.rounding import NINETY_FIVE, as_precise, counted, with_margin
from conbo.values import Value

SINGLE_ACTION = "the best single action"
INTERVAL_IN_WORDS = "± is a 95 % interval of what was measured"
NEGLIGIBLE = 1e-3  # difference between shares of states that does not matter


@dataclass(frozen=True)
class Measurement:
    """One new evaluation in a validation: its action, and the predicted and the measured reward."""

    action: dict[str, Value]
    predicted: float
    reward: float | None = None  # None if the evaluation is missing or has failed
    error: str = ""  # why the evaluation failed
    violates: bool | None = None  # whether the measured outcomes break a constraint; None if that is not known


@dataclass(frozen=True)
class Check:
    """One state of a validation, with an evaluation of the policy and, if there is one, of the decision rule."""

    state: dict[str, Value]
    stratum: int  # number of the stratum, a set of similar states; see `stratified_draws.py`
    weight: float  # weight of the state in means over P[s]; the weights of all states add up to 1
    policy: Measurement
    rule: Measurement | None = None

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The evaluations of the policy and, if there is one, of the decision rule."""
        return (self.policy,) if self.rule is None else (self.policy, self.rule)

    @property
    def is_complete(self) -> bool:
        """Whether all rewards of this state have been measured."""
        return all(measurement.reward is not None for measurement in self.measurements)


@dataclass(frozen=True)
class Validation:
    """New evaluations of a policy and, optionally, of a decision rule in the same states. It prints as a few sentences.

    `Study.validate` returns it. The intervals `policy_value`, `rule_value` and `difference` can be computed only if
    `has_result` is true.

    Parameters
    ----------
    trials
        Number of completed trials that the policy was learned from.
    maximize
        Whether rewards are maximized; if not, they are minimized.
    checks
        The states, with the evaluations in each.
    rule_name
        Name of the decision rule with which the policy is compared; None if there is no rule.
    named
        Whether the user chose the states. If so, all means are over these states instead of P[s].
    pool
        Size of the sample of states that represents P[s]; None if all states are used.
    expected
        Expected rewards under the model, averaged over P[s]: of the policy and, if there is one, of the rule.
    expected_stds
        Standard deviations of the means in `expected` and, if there is a rule, of their difference, due to the sampling
        of states; zero if the means do not come from a sample.
    confidence
        Least probability with which actions must satisfy all constraints.
    n_states
        Number of different states over which means are taken; None if not known, as in records of earlier versions.

    Examples
    --------
    >>> validation = study.validate(profit, evaluations=8)
    >>> validation.evaluations, validation.failed
    (8, 0)
    """

    trials: int
    maximize: bool
    checks: tuple[Check, ...]
    rule_name: str | None
    named: bool
    pool: int | None
    expected: tuple[float, ...]
    expected_stds: tuple[float, ...]
    confidence: float = DEFAULT_CONFIDENCE
    n_states: int | None = None

    @property
    def evaluations(self) -> int:
        """Number of rewards that were measured."""
        return sum(m.reward is not None for check in self.checks for m in check.measurements)

    @property
    def failed(self) -> int:
        """Number of evaluations that failed. Their states are left out of all means, which may then be biased."""
        return sum(bool(m.error) for check in self.checks for m in check.measurements)

    @property
    def policy_value(self) -> Interval:
        """The policy's mean reward over P[s], estimated without bias, with a 95 % interval."""
        return self._interval(lambda check: check.policy, 0)

    @property
    def rule_value(self) -> Interval | None:
        """The decision rule's mean reward over P[s], with a 95 % interval; None if there is no rule."""
        return None if self.rule_name is None else self._interval(lambda check: check.rule, 1)

    @property
    def difference(self) -> Interval | None:
        """How much better the policy is than the decision rule, with a 95 % interval; None if there is no rule.

        If the rule is the best single action for all states, this is the value of knowing the state.
        """
        if self.rule_name is None:
            return None
        sign = sign_of(self.maximize)
        known = [check for check in self.checks if check.is_complete]
        deviations = [sign * (_deviation(check.policy) - _deviation(check.rule)) for check in known]
        expected = sign * (self.expected[0] - self.expected[1])
        return self._of(known, deviations, expected, self.expected_stds[2])

    @property
    def policy_violation(self) -> Interval | None:
        """Share of the states in which the policy's evaluation broke a constraint or failed, with a 95 % interval.

        An evaluation breaks a constraint if an outcome that it measured, noise included, is beyond its limit. None if
        no evaluation of the policy has ended.
        """
        return _violation([(check.policy, check.weight) for check in self.checks])

    @property
    def rule_violation(self) -> Interval | None:
        """Share of the states in which the rule's evaluation broke a constraint or failed, with a 95 % interval.

        None if there is no rule, or none of its evaluations has ended.
        """
        return _violation([(check.rule, check.weight) for check in self.checks if check.rule is not None])

    def _interval(self, of: Callable[[Check], Measurement | None], which: int) -> Interval:
        known = [check for check in self.checks if check.is_complete]
        deviations = [_deviation(of(check)) for check in known]
        return self._of(known, deviations, self.expected[which], self.expected_stds[which])

    def _of(self, known: Sequence[Check], deviations: Sequence[float], expected: float, std: float) -> Interval:
        strata, weights = [check.stratum for check in known], [check.weight for check in known]
        found = interval(expected, deviations, strata, weights, math.inf if self.pool is None else self.pool, std)
        # equal rewards of one state say nothing about the other states
        only_one = self.n_states is not None and _count_states(known) == 1 < self.n_states
        return Interval(found.mean, None, None) if only_one else found

    @property
    def has_result(self) -> bool:
        """Whether there is a state whose rewards have all been measured; without one, there are no intervals."""
        return any(check.is_complete for check in self.checks)

    @property
    def has_margins(self) -> bool:
        """Whether there are enough measurements for intervals with two ends."""
        return self.has_result and self.policy_value.margin is not None

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences on the value of the policy, how much better it is than the decision rule, and broken constraints.

        Neither of the two is called better if it breaks constraints more often than the other, and more often than
        `confidence` permits.
        """
        if not self.has_result:
            return ("In no state were all rewards measured.", *self._violations())
        verb = "is worth" if self.maximize else "costs"
        value = self.policy_value
        expected = as_precise(self.expected[0], (value.margin or 0.0) / NINETY_FIVE)
        said = [f"Measured {self._where()}, the policy {verb} {in_words(value)}; the model expects {expected}."]
        if self.rule_value is not None and self.difference is not None:
            compared = f": {self._difference()}" if self.has_margins else ""
            said.append(f"{_capital(self.rule_name)} {verb} {in_words(self.rule_value)}{compared}.")
        if not self.has_margins:
            said.append("These measurements are too few for an interval.")
        said += self._violations()
        if self.failed:
            said.append(f"{counted(self.failed, 'evaluation')} failed, so the means may be biased.")
        return tuple(said)

    def _where(self) -> str:
        known = [check for check in self.checks if check.is_complete]
        different = _count_states(known)
        if not known[0].state:
            return counted(len(known), "time")
        if different < len(known):
            return f"{counted(len(known), 'time')} in {counted(different, 'state')}"
        return f"in {counted(different, 'named state' if self.named else 'fresh state')}"

    def _difference(self) -> str:
        assert self.difference is not None
        assert self.rule_name is not None
        assert self.policy_violation is not None
        assert self.rule_violation is not None
        shares = self.policy_violation.mean, self.rule_violation.mean
        fault = f"{self._fault()} more often" if breaks_more(self.difference, *shares, self.confidence) else ""
        return difference_in_words(self.difference, self.rule_name, self.maximize, fault)

    def _violations(self) -> list[str]:
        """Return sentences on how often the policy and the decision rule broke a constraint or failed.

        There is none if outcomes are not constrained and no evaluation failed.
        """
        fault = self._fault()
        shares = (("the policy", self.policy_violation), (self.rule_name, self.rule_violation))
        known = [(name, share) for name, share in shares if share is not None and fault]
        return [f"{_capital(name)} {fault} in {_in_percent(share)}." for name, share in known]

    def _fault(self) -> str:
        """Return what an evaluation may have done wrong, such as "broke a constraint or failed"; empty if nothing."""
        constrained = any(m.violates is not None for check in self.checks for m in check.measurements)
        return " or ".join((["broke a constraint"] if constrained else []) + (["failed"] if self.failed else []))

    def __str__(self) -> str:
        return " ".join([*self.sentences, *([f"({INTERVAL_IN_WORDS}.)"] if self.has_margins else [])])

    def to_dict(self) -> dict[str, Any]:
        """Return the validation as plain values that JSON can hold.

        Returns
        -------
        dict
            The fields, the intervals, the counts and the sentences.
        """
        known = self.has_result
        intervals = {
            "policy_value": asdict(self.policy_value) if known else None,
            "rule_value": asdict(self.rule_value) if known and self.rule_value else None,
            "difference": asdict(self.difference) if known and self.difference else None,
        }
        shares = {
            "policy_violation": asdict(self.policy_violation) if self.policy_violation else None,
            "rule_violation": asdict(self.rule_violation) if self.rule_violation else None,
        }
        counts = {"evaluations": self.evaluations, "failed": self.failed}
        return {**self.to_record(), **intervals, **shares, **counts, "sentences": list(self.sentences)}

    def to_record(self) -> dict[str, Any]:
        """Return the validation as a dict for JSON, which `from_record` reads."""
        record = asdict(self)
        lists = {name: list(record[name]) for name in ("checks", "expected", "expected_stds")}
        return {**record, **lists}

    def with_result(
        self, place: int, which: int, reward: float | None, error: str, violates: bool | None
    ) -> "Validation":
        """Return the validation with one more result: the reward of an evaluation, or the error with which it failed.

        `place` is the index of the state, and `which` is 0 for the policy or 1 for the decision rule. `violates` says
        whether the evaluation broke a constraint; None if it failed or nothing is constrained.
        """
        check = self.checks[place]
        told = replace(check.measurements[which], reward=reward, error=error, violates=violates)
        changed = replace(check, policy=told) if which == 0 else replace(check, rule=told)
        return replace(self, checks=(*self.checks[:place], changed, *self.checks[place + 1 :]))


def breaks_more(difference: Interval, policy: float, rule: float, confidence: float) -> bool:
    """Return whether the one with the better rewards breaks constraints more often than the other and than permitted.

    `difference` is how much better the policy's rewards are than the rule's. `policy` and `rule` are the shares of
    states in which each breaks a constraint; up to 1 - `confidence` is permitted.
    """
    better, worse = (policy, rule) if difference.mean >= 0 else (rule, policy)
    return better > max(worse, 1 - confidence) + NEGLIGIBLE


def difference_in_words(difference: Interval, rule_name: str, maximize: bool, fault: str) -> str:
    """Return a phrase that says how much better the policy is than a decision rule.

    If the rule is the best single action, the difference is the value of knowing the state. A `fault` of the one with
    the better rewards is a predicate, such as "failed more often". Then only its rewards are called better.
    """
    size = in_words(difference if difference.mean >= 0 else Interval(-difference.mean, *_swapped(difference)))
    if fault:
        text = f"the rewards of {'the policy' if difference.mean >= 0 else rule_name} are better by {size}"
    elif rule_name == SINGLE_ACTION:
        text = f"knowing the state {'is worth' if maximize else 'saves'} {in_words(difference)}"
    else:
        text = f"the policy is {'better' if difference.mean >= 0 else 'worse'} by {size}"
    unsure = difference.low is None or difference.high is None or difference.low <= 0 <= difference.high
    return text + (", which may be nothing" if unsure else "") + (f", but it {fault}" if fault else "")


def in_words(value: Interval) -> str:
    """Return a mean with its margin as text, such as "165.9 ± 7.1", or the mean alone if it has no margin."""
    return f"{value.mean:.4g}" if value.margin is None else with_margin(value.mean, value.margin / NINETY_FIVE)


def _count_states(checks: Sequence[Check]) -> int:
    return len({tuple(check.state.values()) for check in checks})


def _swapped(value: Interval) -> tuple[float | None, float | None]:
    return (None, None) if value.low is None or value.high is None else (-value.high, -value.low)


def _violation(weighted: Sequence[tuple[Measurement, float]]) -> Interval | None:
    """Return the share of evaluations that broke a constraint or failed, given evaluations with their weights.

    Evaluations that have not ended do not count; None if none has ended.
    """
    ended = [(one, weight) for one, weight in weighted if one.error or one.reward is not None]
    if not ended:
        return None
    return share_interval([bool(one.error or one.violates) for one, _ in ended], [weight for _, weight in ended])


def _in_percent(share: Interval) -> str:
    mean, low, high = (f"{100 * (end or 0.0):.0f}" for end in (share.mean, share.low, share.high))
    return f"{mean} % of the cases (95 % interval {low} to {high} %)"


def _capital(text: str | None) -> str:
    return "" if not text else text[0].upper() + text[1:]


def _deviation(measurement: Measurement | None) -> float:
    assert measurement is not None
    assert measurement.reward is not None
    return measurement.reward - measurement.predicted


def from_record(record: object) -> Validation:
    """Read a validation from the record that `to_record` returned; raise RecordError if the record is damaged."""
    fields = Fields.of(record, "validation")
    checks = fields.items("checks")
    return Validation(
        trials=fields.whole("trials"),
        maximize=fields.flag("maximize"),
        checks=tuple(_check(Fields.of(check, f"validation.checks[{i}]")) for i, check in enumerate(checks)),
        rule_name=fields.text("rule_name") if fields.has("rule_name") else None,
        named=fields.flag("named"),
        pool=fields.whole("pool", 1) if fields.has("pool") else None,
        expected=tuple(fields.numbers("expected", 2 if fields.has("rule_name") else 1)),
        expected_stds=_expected_stds(fields, 3 if fields.has("rule_name") else 1),
        # records of earlier versions have no confidence
        confidence=fields.number("confidence", 0.0, 1.0) if fields.has("confidence") else DEFAULT_CONFIDENCE,
        n_states=fields.whole("n_states", 1) if fields.has("n_states") else None,
    )


def _expected_stds(fields: Fields, count: int) -> tuple[float, ...]:
    """Return the list in the field `expected_stds`, which must have the length `count`.

    Records of earlier versions have `expected_variances` instead; the square roots of these are returned.
    """
    if "expected_stds" not in fields.record and fields.has("expected_variances"):
        return tuple(math.sqrt(one) for one in fields.numbers("expected_variances", count, 0.0))
    return tuple(fields.numbers("expected_stds", count, 0.0))


def _check(fields: Fields) -> Check:
    rule = _measurement(fields.fields("rule")) if fields.has("rule") else None
    stratum, weight = fields.whole("stratum"), fields.number("weight", 0.0)
    return Check(fields.point("state"), stratum, weight, _measurement(fields.fields("policy")), rule)


def _measurement(fields: Fields) -> Measurement:
    reward = fields.number("reward") if fields.has("reward") else None
    violates = fields.flag("violates") if fields.has("violates") else None
    return Measurement(fields.point("action"), fields.number("predicted"), reward, fields.text("error"), violates)
