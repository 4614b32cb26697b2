"""The validation of a policy by new evaluations, which estimate its value without relying on the model."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from conbo.confidence_interval import Interval, interval
from conbo.direction import sign_of
from conbo.record_fields import Fields
from conbo.rounding import NINETY_FIVE, as_precise, counted, with_margin
from conbo.values import Value

SINGLE_ACTION = "the best single action"
INTERVAL_IN_WORDS = "± is a 95 % interval of what was measured"


@dataclass(frozen=True)
class Measurement:
    """One new evaluation in a validation: its action, and the predicted and the measured reward."""

    action: dict[str, Value]
    predicted: float
    reward: float | None = None  # None if the evaluation is missing or has failed
    error: str = ""  # why the evaluation failed


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

    def _interval(self, of: Callable[[Check], Measurement | None], which: int) -> Interval:
        known = [check for check in self.checks if check.is_complete]
        deviations = [_deviation(of(check)) for check in known]
        return self._of(known, deviations, self.expected[which], self.expected_stds[which])

    def _of(self, known: Sequence[Check], deviations: Sequence[float], expected: float, std: float) -> Interval:
        strata, weights = [check.stratum for check in known], [check.weight for check in known]
        return interval(expected, deviations, strata, weights, math.inf if self.pool is None else self.pool, std)

    @property
    def has_result(self) -> bool:
        """Whether there is a state whose rewards have all been measured; without one, there are no intervals."""
        return any(check.is_complete for check in self.checks)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences on the value of the policy, and on how much better it is than the decision rule."""
        if not self.has_result:
            return ("No evaluation of this validation is complete.",)
        verb = "is worth" if self.maximize else "costs"
        value = self.policy_value
        expected = as_precise(self.expected[0], (value.margin or 0.0) / NINETY_FIVE)
        said = [f"Measured {self._where()}, the policy {verb} {in_words(value)}; the model expects {expected}."]
        if self.rule_value is not None and self.difference is not None:
            said.append(f"{_capital(self.rule_name)} {verb} {in_words(self.rule_value)}: {self._difference()}.")
        if self.failed:
            said.append(f"{counted(self.failed, 'evaluation')} failed, so the means may be biased.")
        return tuple(said)

    def _where(self) -> str:
        known = [check.state for check in self.checks if check.is_complete]
        different = len({tuple(state.values()) for state in known})
        if not known[0]:
            return counted(len(known), "time")
        if different < len(known):
            return f"{counted(len(known), 'time')} in {counted(different, 'state')}"
        return f"in {counted(different, 'named state' if self.named else 'fresh state')}"

    def _difference(self) -> str:
        assert self.difference is not None
        return difference_in_words(self.difference, self.rule_name == SINGLE_ACTION, self.maximize)

    def __str__(self) -> str:
        return f"{' '.join(self.sentences)} ({INTERVAL_IN_WORDS}.)"

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
        counts = {"evaluations": self.evaluations, "failed": self.failed}
        return {**self.to_record(), **intervals, **counts, "sentences": list(self.sentences)}

    def to_record(self) -> dict[str, Any]:
        """Return the validation as a dict for JSON, which `from_record` reads."""
        record = asdict(self)
        lists = {name: list(record[name]) for name in ("checks", "expected", "expected_stds")}
        return {**record, **lists}

    def with_result(self, place: int, which: int, reward: float | None, error: str) -> "Validation":
        """Return the validation with one more result: the reward of an evaluation, or the error with which it failed.

        `place` is the index of the state, and `which` is 0 for the policy or 1 for the decision rule.
        """
        check = self.checks[place]
        told = replace(check.measurements[which], reward=reward, error=error)
        changed = replace(check, policy=told) if which == 0 else replace(check, rule=told)
        return replace(self, checks=(*self.checks[:place], changed, *self.checks[place + 1 :]))


def difference_in_words(difference: Interval, of_knowing: bool, maximize: bool) -> str:
    """Return a phrase that says how much better the policy is than a decision rule.

    If `of_knowing` is true, the rule is the best single action, so the difference is the value of knowing the state.
    """
    if of_knowing:
        text = f"knowing the state {'is worth' if maximize else 'saves'} {in_words(difference)}"
    elif difference.mean >= 0:
        text = f"the policy is better by {in_words(difference)}"
    else:
        text = f"the policy is worse by {in_words(Interval(-difference.mean, *_swapped(difference)))}"
    unsure = difference.low is None or difference.high is None or difference.low <= 0 <= difference.high
    return f"{text}, which may be nothing" if unsure else text


def in_words(value: Interval) -> str:
    """Return a mean with its margin as text, such as "165.9 ± 7.1"."""
    return f"{value.mean:.4g}" if value.margin is None else with_margin(value.mean, value.margin / NINETY_FIVE)


def _swapped(value: Interval) -> tuple[float | None, float | None]:
    return (None, None) if value.low is None or value.high is None else (-value.high, -value.low)


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
    return Measurement(fields.point("action"), fields.number("predicted"), reward, fields.text("error"))
