"""Limits on outcomes as settings: what they may be, and what they are as records."""

import math
from typing import Any

import pytest

import conbo
from conbo.errors import ConboError, RecordError, RewardError, SettingError
from conbo.outcome_constraints import (
    LearnedSettings,
    OutcomeConstraint,
    check_constrained,
    constraint_records,
    read_constraints,
)
from conbo.record_fields import Fields
from conbo.trials import Trial

LIMITS: dict[str, OutcomeConstraint] = {"yield": conbo.AtLeast(0.9), "wait": conbo.AtMost(5)}


def test_slack_is_how_much_room_there_is() -> None:
    assert conbo.AtMost(5).slack(4.2) == pytest.approx(0.8)
    assert conbo.AtLeast(0.9).slack(0.8) == pytest.approx(-0.1)
    assert [str(limit) for limit in LIMITS.values()] == [">= 0.9", "<= 5"]


@pytest.mark.parametrize("bound", [math.nan, math.inf, "5", None, True, 1e301])
def test_a_bound_is_a_finite_number(bound: Any) -> None:
    for kind in (conbo.AtMost, conbo.AtLeast):
        with pytest.raises(SettingError, match="the bound of an outcome must be a number between"):
            kind(bound)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (([("wait", conbo.AtMost(5))], 0.95, "learn"), "must map names of outcomes to conbo.AtMost or conbo.AtLeast"),
        (({"wait": 5.0}, 0.95, "learn"), "but got 5.0 for 'wait'"),
        (({"reward": conbo.AtMost(5)}, 0.95, "learn"), "but got the name 'reward'"),
        (({"success": conbo.AtLeast(0.9)}, 0.95, "learn"), "must not use the names 'reward', 'noise', 'success'"),
        (({"": conbo.AtMost(5)}, 0.95, "learn"), "but got the name ''"),
        (({"wait\n": conbo.AtMost(5)}, 0.95, "learn"), r"in `outcome_constraints`: .* no control characters, but got"),
        (({"w" * 201: conbo.AtMost(5)}, 0.95, "learn"), "must have at most 200 characters, but got 201"),
        (({f"wait {i}": conbo.AtMost(5) for i in range(101)}, 0.95, "learn"), "at most 100 outcomes"),
        ((LIMITS, 0.0, "learn"), "`0 < confidence < 1` must hold, but got confidence=0.0"),
        ((LIMITS, 1, "learn"), "`0 < confidence < 1` must hold, but got confidence=1"),
        ((LIMITS, math.nan, "learn"), "`0 < confidence < 1`"),
        ((LIMITS, "much", "learn"), "`0 < confidence < 1`"),
        ((LIMITS, 0.95, "forget"), "`failures` must be 'learn' or 'ignore', but got 'forget'"),
    ],
)
def test_settings_that_cannot_be(settings: tuple[Any, Any, Any], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        LearnedSettings.checked(*settings)


def test_every_constrained_outcome_must_be_told() -> None:
    check_constrained(LIMITS, {"wait": 1.0, "yield": 1.0, "more": 2.0})
    with pytest.raises(RewardError, match=r"the outcome 'yield' must be told with every reward.*but got 'wait'"):
        check_constrained(LIMITS, {"wait": 1.0})
    with pytest.raises(RewardError, match="but got no outcomes"):
        check_constrained(LIMITS, {})


def test_records_hold_them_and_damaged_ones_are_refused() -> None:
    checked = LearnedSettings.checked(LIMITS, 0.9, "ignore")
    assert list(checked.constraints) == ["wait", "yield"]  # in one order, however they were given
    records = constraint_records(checked.constraints)
    assert read_constraints(Fields({"limits": records}), "limits") == LIMITS
    for damaged in (
        [{"name": "wait", "type": "at_most"}],
        [{"name": "wait", "type": "about", "bound": 1.0}],
        [{"name": "wait", "type": "at_most", "bound": "1"}],
        [{"name": "reward", "type": "at_most", "bound": 1.0}],
        [records[0], records[0]],
    ):
        with pytest.raises((RecordError, SettingError)) as error:
            read_constraints(Fields({"limits": damaged}), "limits")
        assert isinstance(error.value, ConboError)


def test_which_failures_teach() -> None:
    trial = Trial(0, {}, {"x": 0.5})
    assert trial.failed("ValueError: no convergence (simulator.py, line 7)").teaches_failure
    assert trial.failed("TimeoutError: no result after 5 s").teaches_failure
    assert not trial.failed("").teaches_failure  # cancelled by hand
    assert not trial.failed("10 workers were lost with this trial").teaches_failure
    assert not trial.failed("TerminatedWorkerError: A worker process was killed").teaches_failure
    assert not trial.teaches_failure
