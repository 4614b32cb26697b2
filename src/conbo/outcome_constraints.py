"""The user's limits on outcomes that an evaluation measures besides the reward, such as a waiting time.

A constraint limits the mean of an outcome over repeated evaluations, not a single measurement. Which actions satisfy
it is learned from the trials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from conbo.errors import RecordError, RewardError, SettingError, shortened
from conbo.names import wrong_outcomes
from conbo.record_fields import Fields
from conbo.values import is_number

DEFAULT_CONFIDENCE = 0.95
LARGEST_BOUND = 1e300
SUCCESS = "success"  # name of the learned constraint that an evaluation must not fail
RESERVED = ("reward", "noise", SUCCESS)  # names that a constrained outcome must not have

Failures: TypeAlias = Literal["learn", "ignore"]


@dataclass(frozen=True)
class AtMost:
    """An upper limit on the mean of a measured outcome, such as a waiting time.

    Parameters
    ----------
    bound
        The limit, in the units of the outcome.

    Raises
    ------
    SettingError
        If the bound is not a number between -1e300 and 1e300.

    Examples
    --------
    >>> study = conbo.Study(space, outcome_constraints={"wait": conbo.AtMost(5.0)})
    """

    bound: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", _checked_bound(self.bound))

    def __str__(self) -> str:
        return f"<= {self.bound:g}"

    def slack(self, value: float) -> float:
        """Return by how much a value is below the limit; negative if it is above."""
        return self.bound - value


@dataclass(frozen=True)
class AtLeast:
    """A lower limit on the mean of a measured outcome, such as a yield.

    Parameters
    ----------
    bound
        The limit, in the units of the outcome.

    Raises
    ------
    SettingError
        If the bound is not a number between -1e300 and 1e300.

    Examples
    --------
    >>> study = conbo.Study(space, outcome_constraints={"yield": conbo.AtLeast(0.9)})
    """

    bound: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", _checked_bound(self.bound))

    def __str__(self) -> str:
        return f">= {self.bound:g}"

    def slack(self, value: float) -> float:
        """Return by how much a value is above the limit; negative if it is below."""
        return value - self.bound


OutcomeConstraint: TypeAlias = AtMost | AtLeast
OutcomeConstraints: TypeAlias = Mapping[str, OutcomeConstraint]

_KINDS: dict[str, type[AtMost] | type[AtLeast]] = {"at_most": AtMost, "at_least": AtLeast}


@dataclass(frozen=True)
class LearnedSettings:
    """A study's settings for what it learns besides the reward: constrained outcomes, and where evaluations fail."""

    constraints: OutcomeConstraints = field(default_factory=dict)  # by the name of the outcome
    confidence: float = DEFAULT_CONFIDENCE  # probability with which the policy's actions must satisfy all constraints
    failures: Failures = "ignore"  # whether suggestions and the policy avoid points where evaluations fail

    @classmethod
    def checked(cls, constraints: object, confidence: object, failures: object) -> LearnedSettings:
        """Create the settings from values that the user gave; raise SettingError if a value is not valid."""
        if failures not in get_args(Failures):
            raise SettingError(f"`failures` must be 'learn' or 'ignore', but got {shortened(repr(failures))}.")
        learns: Failures = "learn" if failures == "learn" else "ignore"
        return cls(checked_constraints(constraints), checked_confidence(confidence), learns)

    def check_method(self, name: str, keeps_constraints: bool) -> None:
        """Raise SettingError if outcomes are constrained, but the policy of the method `name` ignores constraints."""
        if self.constraints and not keeps_constraints:
            rule = "`outcome_constraints` need a method whose policy follows the model"
            raise SettingError(f"{rule}, like 'conbo' or 'pei', but got method='{name}'.")

    def check(self, measured: Mapping[str, float]) -> None:
        """Raise RewardError unless the measured outcomes of a trial include every constrained outcome."""
        check_constrained(self.constraints, measured)

    def satisfied_by(self, measured: Mapping[str, float]) -> bool:
        """Return whether the measured outcomes of a trial, which include noise, satisfy all constraints."""
        return all(constraint.slack(measured[name]) >= 0 for name, constraint in self.constraints.items())


NOTHING_LEARNED = LearnedSettings()


def checked_constraints(constraints: object) -> dict[str, OutcomeConstraint]:
    """Check the setting `outcome_constraints`, and return it as a dict sorted by the names of the outcomes.

    None becomes an empty dict. Raises SettingError unless the setting maps valid names of outcomes to `AtMost` or
    `AtLeast`.
    """
    if constraints is None:
        return {}
    rule = "`outcome_constraints` must map names of outcomes to conbo.AtMost or conbo.AtLeast"
    if not isinstance(constraints, Mapping):
        raise SettingError(f"{rule}, but got {shortened(repr(constraints))}.")
    for name, constraint in constraints.items():
        if not isinstance(name, str) or not name:
            raise SettingError(f"{rule}, but got the name {shortened(repr(name))}.")
        if name in RESERVED:
            taken = ", ".join(map(repr, RESERVED))
            raise SettingError(f"`outcome_constraints` must not use the names {taken}, but got the name '{name}'.")
        if not isinstance(constraint, AtMost | AtLeast):
            raise SettingError(f"{rule}, but got {shortened(repr(constraint))} for '{name}'.")
    if wrong := wrong_outcomes(constraints):  # no trial could be told such outcomes
        raise SettingError(f"in `outcome_constraints`: {wrong}")
    # sorted, because the order of the constraints has no meaning and must not change suggestions
    return dict(sorted(constraints.items()))


def checked_confidence(confidence: Any) -> float:
    """Return the setting `confidence` as a float; raise SettingError unless 0 < `confidence` < 1."""
    if not is_number(confidence) or not 0 < confidence < 1:
        raise SettingError(f"`0 < confidence < 1` must hold, but got confidence={shortened(repr(confidence))}.")
    return float(confidence)


def check_constrained(constraints: OutcomeConstraints, measured: Mapping[str, float]) -> None:
    """Raise RewardError unless the measured outcomes of a trial include every constrained outcome."""
    if missing := [name for name in constraints if name not in measured]:
        rule = f"the outcome '{missing[0]}' must be told with every reward, because it is constrained"
        told = ", ".join(map(repr, measured)) if measured else "no outcomes"
        raise RewardError(f"{rule}, but got {shortened(told)}.")


def constraint_records(constraints: OutcomeConstraints) -> list[dict[str, Any]]:
    """Convert constraints on outcomes to a list of JSON records.

    It is a list and not an object, because some databases reorder the keys of JSON objects.
    """
    kinds = {kind: name for name, kind in _KINDS.items()}
    return [
        {"name": name, "type": kinds[type(constraint)], "bound": constraint.bound}
        for name, constraint in constraints.items()
    ]


def read_constraints(fields: Fields, name: str) -> dict[str, OutcomeConstraint]:
    """Read constraints on outcomes from the field `name` of a JSON record, where `constraint_records` wrote them.

    Raises RecordError or SettingError if a constraint is not valid.
    """
    constraints: dict[str, OutcomeConstraint] = {}
    for i, record in enumerate(fields.items(name)):
        one = Fields.of(record, f"{name}[{i}]").only(("name", "type", "bound"))
        if (outcome := one.text("name")) in constraints:
            raise RecordError(f"{one.path('name')} must not be that of another constraint, but got {outcome!r}.")
        constraints[outcome] = _KINDS[one.text("type", _KINDS)](one.number("bound"))
    return checked_constraints(constraints)


def _checked_bound(bound: Any) -> float:
    if not is_number(bound) or not math.isfinite(bound) or abs(bound) > LARGEST_BOUND:
        rule = f"the bound of an outcome must be a number between -{LARGEST_BOUND:g} and {LARGEST_BOUND:g}"
        raise SettingError(f"{rule}, but got {shortened(repr(bound))}.")
    return float(bound)
