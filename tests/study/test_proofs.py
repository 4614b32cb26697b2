"""Fresh evaluations of a policy, and its comparison with other rules."""

import json
import math
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conbo import AtMost, open_study
from conbo.confidence_interval import Interval
from conbo.errors import ConboError, PointError, RecordError, SettingError, StudyError
from conbo.gaussian_process import GaussianProcess
from conbo.policies.interaction import NoInteractionWarning
from conbo.policies.rules import rule_of
from conbo.record_fields import parse_json
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.study import Study
from conbo.study.copies import copy_study
from conbo.validation import SINGLE_ACTION, breaks_more, from_record
from learned_studies import learned, no_state, one_state, wards


def profit(state: Any, action: Any) -> float:
    """Exact; the best action is the demand, and earns 3 · 55 = 165 on average."""
    return 5 * min(state["demand"], action["stock"]) - 2 * action["stock"]


@cache
def study() -> Study:
    return one_state()


def test_it_measures_the_policy_and_what_the_state_is_worth() -> None:
    validation = study().validate(profit, 40)
    n, checks = 20, validation.checks
    assert (validation.evaluations, validation.failed, len(checks)) == (2 * n, 0, n)
    policy = study().policy()
    for check in checks:
        assert check.policy.action == pytest.approx(policy(check.state), rel=1e-5)
        assert check.policy.reward == profit(check.state, check.policy.action)
        assert check.rule is not None
        assert check.rule.action == checks[0].rule.action  # type: ignore[union-attr]
        assert check.rule.reward == profit(check.state, check.rule.action)
    demands = [float(check.state["demand"]) for check in checks]
    assert len(set(demands)) == n
    assert not {t.state["demand"] for t in study().trials} & set(demands)  # fresh
    grid = [{"demand": demand} for demand in np.linspace(10.045, 99.955, 1000)]
    single = checks[0].rule.action  # type: ignore[union-attr]
    truth = np.mean([profit(s, x) for s, x in zip(grid, policy.many(grid), strict=True)])
    alone = np.mean([profit(s, single) for s in grid])
    value, other, worth = validation.policy_value, validation.rule_value, validation.difference
    assert other is not None
    assert worth is not None
    for found, true in ((value, truth), (other, alone), (worth, truth - alone)):
        assert found.margin is not None
        assert found.margin < 15
        assert abs(found.mean - true) < 1.5 * found.margin
    assert str(validation).startswith("Measured in 20 fresh states, the policy is worth 1")
    assert "knowing the state is worth" in str(validation)
    assert json.loads(json.dumps(validation.to_dict()))["difference"]["mean"] == worth.mean


def test_it_is_kept_apart_from_the_trials(tmp_path: Path) -> None:
    kept = one_state(storage=tmp_path / "study.db")
    before, expected = kept.trials, kept.policy_value()
    first, second = kept.validate(profit, 8), kept.validate(profit, 8)
    assert first.checks[0].state != second.checks[0].state
    again = open_study(tmp_path / "study.db")
    assert again.validations() == [first, second]
    assert again.trials == before
    assert again.policy_value() == expected
    copy_study(tmp_path / "study.db", "default", tmp_path / "copy.db")
    assert open_study(tmp_path / "copy.db").validations() == [first, second]


def test_a_file_of_an_earlier_version_takes_them(tmp_path: Path) -> None:
    written = Path(__file__).parents[1] / "data" / "study_0_1.db"
    old = open_study(shutil.copy(written, tmp_path / "study.db"))
    assert old.validations() == []
    found = old.validate(lambda state, action: action["cost"], 8)
    assert open_study(tmp_path / "study.db").validations() == [found]


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    kept = one_state(storage=tmp_path / "study.db")
    record = kept.validate(profit, 4).to_record()
    text = json.dumps(record)
    assert from_record(parse_json(text)).to_record() == record
    with closing(sqlite3.connect(tmp_path / "study.db")) as file, file:
        file.execute("UPDATE conbo_validations SET record = ?", [text.replace('"stratum": 0', '"stratum": -1')])
    with pytest.raises(RecordError, match=r"validation 0: .*checks\[0\].stratum"):
        kept.validations()


def test_a_validation_that_is_not_finite_is_refused() -> None:
    known = study()
    found = known.validate(profit, 4)
    with pytest.raises(StudyError, match="a validation must have finite numbers"):
        known._shared.records.validations.add(replace(found, expected=(math.inf, *found.expected[1:])))


def test_a_record_with_variances_is_read() -> None:
    now = study().validate(profit, 8)
    record = now.to_record()
    stds = record.pop("expected_stds")
    read = from_record({**record, "expected_variances": [std**2 for std in stds]})
    assert min(stds) > 0
    assert read.expected_stds == pytest.approx(now.expected_stds)
    with pytest.raises(RecordError, match="expected_stds"):
        from_record(record)  # neither of them is there


def bumpy(state: Any, action: Any) -> float:
    """Far from what a model of ten trials expects, so that intervals are wide."""
    return -((action["x"] - state["s"]) ** 2) + 0.1 * (37.77 * action["x"] % 1)


def intervals_of(factor: float, storage: Path) -> np.ndarray[Any, Any]:
    """Mean, low and high of every interval of a stored validation, divided by the factor of the rewards."""

    def scaled(state: Any, action: Any) -> float:
        return factor * bumpy(state, action)

    space = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)})
    measured = learned(space, scaled, 10, storage=storage).validate(scaled, 16)
    assert open_study(storage).validations() == [measured]
    found = measured.to_dict()
    rows = [list(found[name].values()) for name in ("policy_value", "rule_value", "difference")]
    return np.array(rows) / factor


@pytest.mark.parametrize("factor", [1e160, 1e299, 1e-200])
def test_intervals_scale_with_rewards_whose_squares_are_no_numbers(factor: float, tmp_path: Path) -> None:
    usual = intervals_of(1.0, tmp_path / "usual.db")
    assert intervals_of(factor, tmp_path / "scaled.db") == pytest.approx(usual, rel=1e-5)


@pytest.mark.parametrize("in_executor", [False, True])
def test_what_is_measured_survives_an_interrupt(in_executor: bool) -> None:
    calls = []

    def interrupted(state: Any, action: Any) -> float:
        calls.append(state)
        if len(calls) == 6:
            raise KeyboardInterrupt  # a terminal sends it to the processes of an executor, too
        return profit(state, action)

    own = one_state()
    with ThreadPoolExecutor(1) as threads, pytest.raises(KeyboardInterrupt):
        own.validate(interrupted, 8, executor=threads if in_executor else None)
    (kept,) = own.validations()
    assert kept.evaluations == 5
    assert kept.failed == 0


def test_a_bar_counts_the_evaluations(capsys: pytest.CaptureFixture[str]) -> None:
    study().validate(profit, 8, progress=False)
    assert capsys.readouterr().err == ""
    study().validate(profit, 8)
    assert "validating: 100%" in (bar := capsys.readouterr().err)
    assert "8/8" in bar
    study().compare({"stock": 20.0}, profit, 6)
    assert "6/6" in capsys.readouterr().err


def test_failures_are_said() -> None:
    def sometimes(state: Any, action: Any) -> float:
        if state["demand"] > 80:
            raise ArithmeticError("no solution")
        return profit(state, action)

    validation = study().validate(sometimes, 40)
    high = [check for check in validation.checks if check.state["demand"] > 80]
    assert validation.failed == 2 * len(high) > 0
    assert high[0].policy.error.startswith("ArithmeticError: no solution")
    assert f"{validation.failed} evaluations failed, so the means may be biased." in str(validation)
    with pytest.raises(ConboError, match="failed in all states of the validation: ArithmeticError: never"):
        study().validate(lambda s, x: (_ for _ in ()).throw(ArithmeticError("never")), 4)


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2"])
def test_workers_are_a_positive_number(workers: Any) -> None:
    rule = f"`workers` must be an integer of at least 1, but got workers={workers!r}"
    with ThreadPoolExecutor(1) as executor:
        for where in (None, executor):
            with pytest.raises(SettingError, match=rule):
                study().validate(profit, 4, workers=workers, executor=where)
            with pytest.raises(SettingError, match=rule):
                study().compare({"stock": 20.0}, profit, 4, workers=workers, executor=where)


def test_a_broken_executor_is_said() -> None:
    def broken() -> None:
        raise OSError("no licence")

    with (
        ThreadPoolExecutor(1, initializer=broken) as executor,
        pytest.raises(ConboError, match="the executor is broken: A thread initializer failed"),
    ):
        study().validate(profit, 4, executor=executor)
    with pytest.raises(ConboError, match="the executor takes no evaluations: A thread initializer failed"):
        study().validate(profit, 4, executor=executor)


class Cluster(ThreadPoolExecutor):
    """Like Dask, it has a client that counts its workers, the first of which comes late."""

    def __init__(self) -> None:
        super().__init__(1)
        self._client, self.in_vain, self.has_worker = self, 0, threading.Event()

    def nthreads(self) -> dict[str, int]:
        self.in_vain += not self.has_worker.is_set()
        if self.in_vain == 2:  # the first look is that of the check of the executor
            threading.Timer(0.3, self.has_worker.set).start()
        return {"late": 1} if self.has_worker.is_set() else {}


def test_it_waits_for_workers() -> None:
    with Cluster() as cluster:
        assert study().validate(profit, 4, executor=cluster).evaluations == 4
    assert cluster.in_vain < 100


def test_states_that_the_user_names() -> None:
    states = [{"demand": 20.0}, {"demand": 70.0}]
    twice = study().validate(profit, 10, states=states)
    assert sorted(float(check.state["demand"]) for check in twice.checks) in (
        [20, 20, 70, 70, 70],
        [20, 20, 20, 70, 70],
    )
    policy = study().policy()
    assert twice.policy_value.mean == pytest.approx(np.mean([profit(s, policy(s)) for s in states]))
    assert twice.policy_value.margin == pytest.approx(0)  # exact rewards of these very states
    assert str(twice).startswith("Measured 5 times in 2 states, the policy")
    once = study().validate(profit, 4, states=states)
    assert once.policy_value.mean == pytest.approx(twice.policy_value.mean)
    assert once.policy_value.margin is not None
    assert once.policy_value.margin > 50  # for states like these
    with pytest.raises(SettingError, match="at least 2 for each of 3 states, so 6, but got evaluations=5"):
        study().validate(profit, 5, states=[*states, {"demand": 99}])


def test_spaces_of_finitely_many_states_and_of_none() -> None:
    def effect(state: Any, action: Any) -> float:
        return -((action["dose"] - 2 * "ABCD".index(state["ward"])) ** 2) / 10 + (action["drug"] == "q")

    few, none = wards(), no_state()
    validation = few.validate(effect, 20)
    true = np.mean([effect({"ward": ward}, few.policy()({"ward": ward})) for ward in "ABCD"])
    assert validation.policy_value.mean == pytest.approx(true)  # every ward was evaluated, and rewards are exact
    assert validation.policy_value.margin == pytest.approx(0, abs=1e-9)
    alone = none.validate(lambda state, action: action["x"], 6)
    assert alone.rule_name is None
    assert (alone.difference, len(alone.checks), alone.checks[0].state) == (None, 6, {})
    assert alone.policy_value.mean == pytest.approx(none.policy()()["x"])


def test_one_of_several_states_leaves_no_interval() -> None:
    def only_in_a(state: Any, action: Any) -> float:
        return float(action["dose"]) if state["ward"] == "A" else math.nan

    few = wards()
    found = few.validate(only_in_a, 16)
    assert found.n_states == 4
    assert (found.policy_value.margin, found.difference.margin) == (None, None)  # type: ignore[union-attr]
    assert str(found).startswith("Measured 2 times in 1 state, the policy is worth ")
    assert "These measurements are too few for an interval." in str(found)
    assert "knowing the state is worth" not in str(found)
    assert "±" not in str(found)
    assert from_record(found.to_record()) == found
    named = few.validate(only_in_a, 4, states=[{"ward": "A"}])
    assert named.policy_value.margin == pytest.approx(0)  # of this very state


@pytest.mark.parametrize(
    "rule",
    [
        lambda state: {"stock": 50},
        {"stock": 50},
        [{"demand": 30, "stock": 50}, {"demand": 80, "stock": 50}],
        [{"state": {"demand": 30}, "action": {"stock": 50}, "reward": None}],
    ],
    ids=["function", "action", "table", "best observed"],
)
def test_rules_in_every_form(rule: Any) -> None:
    found = study().compare(rule, profit, 20, name="fifty")
    reference = study().compare({"stock": 50.0})
    assert found.rule_value == reference.rule_value
    assert found.difference == pytest.approx(found.policy_value - found.rule_value)
    assert found.validation is not None
    assert found.validation.rule_name == "fifty"
    assert all(check.rule.action == {"stock": 50} for check in found.validation.checks)  # type: ignore[union-attr]
    assert "By the model, the policy is worth" in str(found)
    assert "Fifty is worth" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["validation"]["evaluations"] == 20


def test_a_policy_is_as_good_as_itself() -> None:
    same = study().compare(study().policy(), profit, 8)
    assert same.difference == pytest.approx(0)
    assert same.validation is not None
    assert same.validation.difference is not None
    assert same.validation.difference.mean == pytest.approx(0)
    assert str(same).count("which may be nothing") == 2


@pytest.mark.parametrize(
    ("states", "actions", "message"),
    [
        ({"demand": Real(10, 100)}, {"stock": Real(500, 900)}, r"must return .*: `0\.0 <= stock <= 150\.0` must hold"),
        ({"demand": Real(10, 100)}, {"order": Real(0, 150)}, "must return .*: unknown action parameter 'order'"),
        ({"demand": Real(10, 11)}, {"stock": Real(0, 150)}, "must have an action for every state of the space"),
    ],
)
def test_a_policy_of_another_space_is_refused(states: Any, actions: Any, message: str) -> None:
    other = Study(Space(states=states, actions=actions), method="uniform")
    other.tell(other.ask(), 1.0)
    with pytest.warns(NoInteractionWarning), pytest.raises(PointError, match=f"the rule {message}"):
        study().compare(other.policy())


def test_a_table_means_its_nearest_row_of_the_same_categories() -> None:
    space = Space(states={"load": Real(1, 1000, log=True), "k": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})
    rows = [{"load": 1, "k": "a", "x": 0.1}, {"load": 1000, "k": "a", "x": 0.2}, {"load": 20, "k": "b", "x": 0.3}]
    rule = rule_of(rows, space)
    states = [{"load": 20, "k": "a"}, {"load": 100, "k": "a"}, {"load": 999, "k": "b"}]
    assert [action["x"] for action in rule.many(states)] == [0.1, 0.2, 0.3]
    with pytest.raises(PointError, match="a row with the categories of every state"):
        rule_of(rows[:2], space).many([{"load": 20, "k": "b"}])
    with pytest.raises(SettingError, match="row 1 of the rule's table must have a value for 'k'"):
        rule_of([{"load": 20, "x": 0.3}], space)


@pytest.mark.filterwarnings("ignore::conbo.policies.interaction.NoInteractionWarning")
def test_states_without_a_completed_trial_are_left_out_of_the_best_observed() -> None:
    def observed(parameter: Categorical | Integer, *states: int) -> Study:
        own = Study(Space(states={"s": parameter}, actions={"x": Real(0, 1)}), method="uniform")
        for state in states:
            own.add_trial({"s": state}, {"x": 0.1 * state}, 1.0)
        return own

    numbers = observed(Integer(1, 3), 1, 2)
    rows = numbers.best_observed()
    assert rows[2]["action"] is None
    assert [action["x"] for action in rule_of(rows, numbers.space).many([{"s": 2}, {"s": 3}])] == [0.2, 0.2]
    assert numbers.compare(rows) == numbers.compare(rows[:2])
    categories = observed(Categorical([1, 2, 3]), 1, 2)
    with pytest.raises(PointError, match=r"a row with the categories of every state, but has none for \{'s': 3\}"):
        categories.compare(categories.best_observed())


def test_rules_that_cannot_be() -> None:
    with pytest.raises(PointError, match="the rule must return an action of the space for"):
        study().compare(lambda state: {"stock": 1000})
    with pytest.raises(SettingError, match=r"the rule must return an action .* but raised KeyError: 'price'"):
        study().compare(lambda state: {"stock": state["price"]})
    with pytest.raises(SettingError, match="a rule must be a policy, a function, an action or a table, but got 'x'"):
        study().compare("x")
    with pytest.raises(SettingError, match="`name` must be a string other than '' and 'the best single action'"):
        study().compare({"stock": 1}, name=SINGLE_ACTION)
    with pytest.raises(SettingError, match=r"`name` must be text that can be encoded in UTF-8, but got '\\ud800'"):
        study().compare({"stock": 1}, name="\ud800")
    with pytest.raises(SettingError, match=r"`evaluations >= 4` must hold for an interval, but got evaluations=3"):
        study().validate(profit, 3)


def test_infeasible_rules_are_refused() -> None:
    space = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)}, constraints=["x <= s"])
    limited = Study(space, method="uniform")
    for trial in limited.ask(20):
        limited.tell(trial, float(trial.action["x"]) * float(trial.state["s"]))
    assert limited.validate(lambda state, action: action["x"], 8).failed == 0
    with pytest.raises(PointError, match="a rule must return feasible actions, but got"):
        limited.compare({"x": 1.0})


def test_minimized_costs_are_said_as_costs() -> None:
    costs = one_state(direction="minimize")  # whose policy stocks what earns least
    validation = costs.validate(profit, 8)
    assert "the policy costs" in str(validation)
    assert validation.difference is not None
    assert validation.rule_value is not None
    assert validation.difference.mean == pytest.approx(validation.rule_value.mean - validation.policy_value.mean)


def queue(state: Any, action: Any) -> dict[str, float]:
    """More is better, but from x = 0.25 + 0.05 s on the wait is too long."""
    return {"reward": action["x"], "wait": 0.25 + action["x"] - 0.05 * state["s"]}


@cache
def constrained() -> Study:
    space = Space(
        states={"s": Integer(0, 10)}, actions={"x": Real(0, 1)}
    )  # few states: each costs a constrained search
    model = GaussianProcess("squared-exponential", main_effects="none", input_warping="none", members=1)
    limits = {"wait": AtMost(0.5)}
    own = Study(space, method="uniform", model=model, outcome_constraints=limits, confidence=0.9)
    own.run(queue, 20, progress=False)
    return own


def test_a_rule_that_breaks_constraints_is_not_called_better() -> None:
    found = constrained().compare({"x": 0.9}, queue, 20)
    assert found.policy_probability is not None
    assert found.policy_probability > 0.9 - 1e-3
    assert found.rule_probability == pytest.approx(0, abs=0.01)
    by_model, probabilities, _, measured, _, broken = found.sentences
    assert by_model.endswith(", but it satisfies the constraints too rarely.")
    assert probabilities.endswith("and your rule with 0.000; 0.9 is required.")
    assert measured.endswith(", but it broke a constraint more often.")
    assert broken == "Your rule broke a constraint in 100 % of the cases (95 % interval 72 to 100 %)."
    assert all(": the rewards of your rule are better by " in sentence for sentence in (by_model, measured))
    assert json.loads(json.dumps(found.to_dict()))["validation"]["rule_violation"]["mean"] == 1
    careful = str(constrained().compare({"x": 0.1}, queue, 20))
    assert careful.count(": the policy is better by ") == 2
    assert "your rule with 1.000; 0.9 is required." in careful


def test_without_constraints_nothing_is_said_of_them() -> None:
    found = study().compare({"stock": 50.0}, profit, 8)
    assert (found.policy_probability, found.rule_probability, found.confidence) == (None, None, None)
    assert "constraint" not in str(found)
    assert "cases" not in str(found)


def test_broken_constraints_are_counted() -> None:
    def crowded(state: Any, action: Any) -> dict[str, float]:
        return {"reward": 1.0, "wait": state["s"] / 10}  # whatever is done

    found = constrained().validate(crowded, 40)
    share = np.mean([float(check.state["s"]) > 5 for check in found.checks])
    assert 0 < share < 1
    assert found.policy_violation == found.rule_violation
    assert found.policy_violation is not None
    assert found.policy_violation.mean == pytest.approx(share)
    said = f"The policy broke a constraint in {100 * share:.0f} % of the cases (95 % interval "
    assert said in str(found)
    assert constrained().validations()[-1] == found


@pytest.mark.parametrize(
    ("difference", "policy", "rule", "expected"),
    [
        (-1.0, 0.0, 0.05, False),  # the rule is better, and the confidence permits what it breaks
        (-1.0, 0.0, 0.2, True),
        (-1.0, 0.3, 0.2, False),  # the policy breaks more
        (1.0, 0.0, 0.2, False),
        (1.0, 0.3, 0.2, True),
    ],
)
def test_who_breaks_too_much(difference: float, policy: float, rule: float, expected: bool) -> None:
    assert breaks_more(Interval(difference, None, None), policy, rule, 0.9) is expected


def test_a_rule_that_always_fails_leaves_what_the_policy_did() -> None:
    def picky(state: Any, action: Any) -> float:
        if action["stock"] == 50:
            raise ArithmeticError("no solution")
        return profit(state, action)

    found = study().compare({"stock": 50.0}, picky, 20).validation
    assert found is not None
    assert (found.evaluations, found.failed, found.has_result) == (10, 10, False)
    assert found.sentences == (
        "In no state were all rewards measured.",
        "The policy failed in 0 % of the cases (95 % interval 0 to 28 %).",
        "Your rule failed in 100 % of the cases (95 % interval 72 to 100 %).",
    )
    assert found.to_dict()["difference"] is None
    assert "±" not in str(found)


def test_an_evaluation_without_a_constrained_outcome_fails() -> None:
    with pytest.raises(ConboError, match="RewardError: the outcome 'wait' must be told with every reward"):
        constrained().validate(lambda state, action: action["x"], 4)


def test_a_record_from_before_constraints_were_counted_is_read() -> None:
    now = constrained().validate(queue, 8)
    record = now.to_record()
    del record["confidence"]
    for check in record["checks"]:
        del check["policy"]["violates"], check["rule"]["violates"]
    read = from_record(record)
    assert read.policy_value == now.policy_value
    assert "constraint" in str(now)
    assert "constraint" not in str(read)
