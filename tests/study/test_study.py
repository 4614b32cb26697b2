"""The loop: what a run records, how it ends, and what the user sees."""

import csv
import io
import math
import sys
from typing import Any

import numpy as np
import pytest

from conbo.errors import ConboError, RewardError, SettingError, TrialError
from conbo.problems import branin, opportunity_cost
from conbo.spaces import Integer, Real, Space
from conbo.study import Study

SPACE = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1), "n": Integer(1, 5)})


def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
    return float(-((action["x"] - state["s"]) ** 2) - 0.1 * abs(action["n"] - 3))


def new_study(**settings: Any) -> Study:
    return Study(**{"space": SPACE, "method": "uniform", **settings})


def finished(evaluations: int = 12, **settings: Any) -> Study:
    study = new_study(**settings)
    study.run(objective, evaluations, progress=False)
    return study


def test_a_run_learns_a_policy() -> None:
    problem, generator = branin(), np.random.default_rng(0)
    study = Study(problem.space, method="uniform", state_distribution=problem.state_distribution)
    study.run(lambda s, x: problem.evaluate(s, x, generator), evaluations=60, progress=False)
    assert opportunity_cost(problem, study.policy()) < 0.5


def test_evaluations_count_completed_trials_in_total() -> None:
    study = finished(5)
    study.run(objective, evaluations=8, progress=False)
    assert len(study.trials) == 8
    study.run(objective, evaluations=8, progress=False)
    assert len(study.trials) == 8


def test_an_interrupted_study_goes_on_as_if_it_had_never_stopped() -> None:
    stopped = finished(5)
    stopped.run(objective, evaluations=9, progress=False)
    assert stopped.trials == finished(9).trials


def test_a_space_without_states_gives_the_objective_an_empty_one() -> None:
    states = []
    study = Study(Space(actions={"x": Real(0, 1)}), method="uniform")
    study.run(lambda state, action: states.append(state) or action["x"], evaluations=3, progress=False)  # type: ignore[func-returns-value, return-value]
    assert states == [{}] * 3


def test_an_objective_that_changes_its_arguments_changes_no_record() -> None:
    def careless(state: dict[str, Any], action: dict[str, Any]) -> float:
        return float(state.pop("s") + action.pop("x"))

    study = new_study()
    study.run(careless, evaluations=2, progress=False)
    assert [set(trial.state) for trial in study.trials] == [{"s"}] * 2


# Ask and tell


def test_one_trial_or_a_list_of_them() -> None:
    study = new_study()
    first = study.ask()
    assert (first.number, set(first.state), set(first.action)) == (0, {"s"}, {"x", "n"})
    assert study.space == SPACE
    assert [trial.number for trial in study.ask(1)] == [1]
    assert [trial.number for trial in study.ask(n=3, state={"s": 0.5})] == [2, 3, 4]
    assert study.ask(state={"s": 0.25}).state == {"s": 0.25}


def test_tell_by_trial_or_by_number() -> None:
    study = new_study()
    trial = study.ask()
    study.ask()
    study.tell(trial, 1.5)
    study.tell(0, 1.5)
    study.tell(1, np.float64(-2))
    assert [row["reward"] for row in study.observations] == [1.5, -2.0]
    with pytest.raises(TrialError, match=r"trial 0 was told reward=1.5 before and cannot be told 1.6 now"):
        study.tell(0, 1.6)


def test_a_trial_may_be_named_by_an_integer_of_numpy() -> None:  # as from a column of a dataframe
    study = new_study()
    study.ask(3)
    study.tell(np.int64(1), 1.5)  # type: ignore[arg-type]
    study.fail(np.uint8(2))  # type: ignore[arg-type]
    assert [trial.status for trial in study.trials] == ["running", "completed", "failed"]
    with pytest.raises(TrialError, match="unknown trial 3: known are 0 to 2"):
        study.tell(np.int64(3), 1.5)  # type: ignore[arg-type]
    for flag in (True, False):
        with pytest.raises(TrialError, match=f"unknown trial {flag}: known are 0 to 2"):
            study.tell(flag, 1.5)
    with pytest.raises(TrialError, match=r"unknown trial 1\.0: known are 0 to 2"):
        study.tell(1.0, 1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("reward", [math.nan, math.inf, None, "high", [1.0]], ids=repr)
def test_a_bad_reward_leaves_the_study_as_it_was(reward: Any) -> None:
    study = new_study()
    trial = study.ask()
    with pytest.raises(RewardError, match="a reward must be one finite number, but got"):
        study.tell(trial, reward)
    assert study.trials == (trial,)
    study.tell(trial, 1.0)
    assert study.trials[0].reward == 1.0


def test_observations_are_a_table() -> None:
    study = finished(2)
    study.fail(study.ask(), "lost")
    study.ask()
    rows = study.observations
    assert [row["status"] for row in rows] == ["completed", "completed", "failed", "running"]
    assert list(rows[0]) == ["number", "s", "x", "n", "reward", "status"]
    assert rows[0]["reward"] == objective(rows[0], rows[0])
    assert rows[2]["reward"] is None
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0])
    writer.writerows(rows)
    assert len(file.getvalue().splitlines()) == 4


def test_minimizing_leaks_no_sign(capsys: pytest.CaptureFixture[str]) -> None:
    study = new_study(direction="minimize")
    study.run(lambda s, x: 7 + (x["x"] - s["s"]) ** 2, evaluations=25)
    assert "policy value ≈ 7" in capsys.readouterr().err
    assert min(row["reward"] for row in study.observations) >= 7
    prediction = study.policy().predict({"s": 0.4})
    assert prediction.mean == pytest.approx(7, abs=0.1)
    assert prediction.action["x"] == pytest.approx(0.4, abs=0.1)


# Failures


def test_an_objective_that_raises_fails_its_trial_only() -> None:
    def flaky(state: dict[str, Any], action: dict[str, Any]) -> float:
        if action["n"] == 3:
            raise ZeroDivisionError("no threes")
        return objective(state, action)

    study = new_study()
    study.run(flaky, evaluations=12, progress=False)
    failed = [trial for trial in study.trials if trial.status == "failed"]
    assert len(study.trials) - len(failed) == 12
    assert {trial.error.partition(" (test_study.py, line ")[0] for trial in failed} == {"ZeroDivisionError: no threes"}
    assert all(trial.action["n"] == 3 for trial in failed)
    study.policy()


@pytest.mark.parametrize("reward", [math.nan, -math.inf, None, "1.0"], ids=repr)
def test_a_bad_reward_of_an_objective_fails_its_trial(reward: Any) -> None:
    rewards = iter([reward, 1.0, 2.0])
    study = new_study()
    study.run(lambda s, x: next(rewards), evaluations=2, progress=False)
    assert [trial.status for trial in study.trials] == ["failed", "completed", "completed"]
    assert study.trials[0].error == f"RewardError: a reward must be one finite number, but got {reward!r}."


def test_a_reward_that_is_too_large_fails_its_trial() -> None:
    rewards = iter([1.7e308, 1.0, 2.0])
    study = new_study()
    study.run(lambda s, x: next(rewards), evaluations=2, progress=False)
    assert [trial.status for trial in study.trials] == ["failed", "completed", "completed"]
    assert study.trials[0].error == "RewardError: `abs(reward) <= 1e+300` must hold, but got reward=1.7e+308."


def test_ten_failures_in_a_row_end_the_run() -> None:
    study = finished(3)

    def broken(state: dict[str, Any], action: dict[str, Any]) -> float:
        raise OSError("disk full")

    with pytest.raises(ConboError, match="the objective failed 10 times in a row: OSError: disk full") as raised:
        study.run(broken, evaluations=20, progress=False)
    assert isinstance(raised.value.__cause__, OSError)
    assert len(study.trials) == 13
    study.run(objective, evaluations=5, progress=False)
    assert sum(trial.status == "completed" for trial in study.trials) == 5


def test_ctrl_c_keeps_everything_told(capsys: pytest.CaptureFixture[str]) -> None:
    def impatient(state: dict[str, Any], action: dict[str, Any]) -> float:
        if len(study.trials) == 7:
            raise KeyboardInterrupt
        return objective(state, action)

    study = new_study()
    study.run(impatient, evaluations=20)
    assert "Interrupted: 6 of 20 evaluations are kept." in capsys.readouterr().err
    assert [trial.status for trial in study.trials] == ["completed"] * 6 + ["running"]
    study.policy()
    study.run(objective, evaluations=8, progress=False)
    assert study.trials == finished(8).trials, "it goes on with the trial that was interrupted"


def test_other_ends_of_the_process_leave_no_trial_running() -> None:
    study = new_study()
    with pytest.raises(SystemExit):
        study.run(lambda s, x: sys.exit(1), evaluations=2, progress=False)
    assert study.trials[0].status == "failed"
    assert study.trials[0].error.startswith("SystemExit: 1 (test_study.py, line ")


# The progress bar


def test_the_bar_shows_the_value_of_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    study = new_study()
    study.run(objective, evaluations=12)
    bar = capsys.readouterr().err
    assert "12/12" in bar
    assert "policy value ≈" in bar


def test_a_line_under_the_bar_sums_the_run_up(capsys: pytest.CaptureFixture[str]) -> None:
    rewards = iter([1.0, math.nan, 2.0])
    summary = new_study().run(lambda s, x: next(rewards), evaluations=2)
    assert (summary.completed, summary.failed, summary.retried, summary.late) == (2, 1, 0, 0)
    assert summary.stopped == "evaluations"
    assert capsys.readouterr().out == f"2 evaluations completed, 1 failed in {summary.seconds:.1f} s: done.\n"


def test_no_bar_no_output(capsys: pytest.CaptureFixture[str]) -> None:
    finished(3)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


# What is refused


@pytest.mark.parametrize("evaluations", [0, -1, 2.5, True])
def test_bad_evaluations(evaluations: Any) -> None:
    study = new_study()
    message = f"`evaluations` must be an integer of at least 1, but got evaluations={evaluations}"
    with pytest.raises(SettingError, match=message):
        study.run(objective, evaluations)
    assert study.trials == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "`workers` must be an integer of at least 1, but got workers=0"),
        ({"batch": 0}, "`batch` must be an integer of at least 1, but got batch=0"),
        ({"retries": -1}, "`retries` must be an integer of at least 0, but got retries=-1"),
        ({"timeout": 0}, "`0 < timeout < inf` must hold, but got timeout=0"),
        ({"lease": math.inf}, "`0 < lease <= 3155760000` must hold, but got lease=inf"),
        ({"stop_below": "low"}, "`0 < stop_below < inf` must hold, but got stop_below='low'"),
        ({"stop_below": 0.1}, "`stop_below` needs a method that knows what an evaluation gains.*method='uniform'"),
        ({"finish": "best"}, "`finish` must be None or 'best-observed', but got 'best'"),
        ({"finish": "best-observed"}, "needs more of them than states, but got evaluations=80 for inf states"),
        ({"on_interrupt": "stop"}, "`on_interrupt` must be 'wait' or 'cancel', but got 'stop'"),
        ({"executor": 3}, "`executor` must be a concurrent.futures.Executor, but got 3"),
    ],
)
def test_bad_settings_of_a_run(settings: dict[str, Any], message: str) -> None:
    study = new_study()
    with pytest.raises(SettingError, match=message):
        study.run(objective, progress=False, **settings)
    assert study.trials == ()


def test_an_objective_that_is_none() -> None:
    with pytest.raises(SettingError, match="`objective` must be a function of state and action, but got 3"):
        new_study().run(3)  # type: ignore[arg-type]


def test_an_unknown_method() -> None:
    with pytest.raises(SettingError, match="unknown method 'unifrm': did you mean 'uniform'"):
        new_study(method="unifrm")
