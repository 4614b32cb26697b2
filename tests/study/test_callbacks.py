"""Callbacks see every trial that ends, `stop` ends a run from inside, and the logger says what was done."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from conbo.errors import SettingError, StudyError
from conbo.spaces import Real, Space
from conbo.study import Study
from conbo.trials import Trial

SPACE = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)})


def reward(state: dict[str, Any], action: dict[str, Any]) -> float:
    return float(-((action["x"] - state["s"]) ** 2))


def new_study(**settings: Any) -> Study:
    return Study(**{"space": SPACE, "method": "uniform", **settings})


def test_callbacks_see_completed_and_failed_trials_as_they_are_recorded() -> None:
    def sometimes(state: dict[str, Any], action: dict[str, Any]) -> float:
        if len(seen) == 1:
            raise ValueError("no luck")
        return reward(state, action)

    seen: list[Trial] = []
    order: list[str] = []
    study = new_study()

    def first(of: Study, trial: Trial) -> None:
        assert of is study
        assert trial == study.trials[trial.number]
        seen.append(trial)
        order.append("first")

    study.run(sometimes, 3, callbacks=[first, lambda *_: order.append("second")], progress=False)
    assert [(trial.number, trial.status) for trial in seen] == [
        (0, "completed"),
        (1, "failed"),
        (2, "completed"),
        (3, "completed"),
    ]
    assert seen[1].error.startswith("ValueError: no luck (test_callbacks.py, line ")
    assert order == ["first", "second"] * 4


def test_a_retried_trial_ends_once() -> None:
    attempts: list[int] = []

    def second_time(state: dict[str, Any], action: dict[str, Any]) -> float:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("not yet")
        return 1.0

    seen: list[int] = []
    new_study().run(second_time, 1, retries=1, callbacks=[lambda _, trial: seen.append(trial.number)], progress=False)
    assert (len(attempts), seen) == (2, [0])


def test_what_a_callback_raises_ends_the_run_and_loses_nothing() -> None:
    def fails(study: Study, trial: Trial) -> None:
        raise RuntimeError("enough of this")

    study = new_study()
    with pytest.raises(RuntimeError, match="enough of this"):
        study.run(reward, 5, callbacks=[fails], progress=False)
    assert [trial.status for trial in study.trials] == ["completed"]
    assert study.run(reward, 5, progress=False).completed == 4
    assert study.trials == ran(5).trials


def ran(evaluations: int) -> Study:
    study = new_study()
    study.run(reward, evaluations, progress=False)
    return study


@pytest.mark.parametrize("callbacks", [print, [1], "ab"])
def test_callbacks_must_be_functions(callbacks: Any) -> None:
    with pytest.raises(SettingError, match="`callbacks` must be a list of functions of study and trial, but got"):
        new_study().run(reward, 2, callbacks=callbacks, progress=False)


def test_a_callback_stops_the_run() -> None:
    def enough(study: Study, trial: Trial) -> None:
        if trial.number == 2:
            study.stop()

    study = new_study()
    summary = study.run(reward, 10, callbacks=[enough], progress=False)
    assert (summary.completed, summary.stopped) == (3, "stop")
    assert str(summary).endswith(": stopped.")
    assert study.run(reward, 10, progress=False).stopped == "evaluations"  # it goes on as if it had never stopped
    assert study.trials == ran(10).trials


def test_an_objective_stops_the_run_and_its_reward_counts() -> None:
    study = new_study()

    def last(state: dict[str, Any], action: dict[str, Any]) -> float:
        study.stop()
        return 1.0

    assert study.run(last, 10, batch=4, progress=False).completed == 1
    assert [trial.reward for trial in study.trials] == [1.0, None, None, None]  # the rest of the batch is handed back
    assert study.run(reward, 4, progress=False).completed == 3
    assert [trial.status for trial in study.trials] == ["completed"] * 4


def test_running_evaluations_are_waited_for() -> None:
    study = new_study()
    both = threading.Barrier(2)
    stopped = threading.Event()

    def slow(state: dict[str, Any], action: dict[str, Any]) -> float:
        if both.wait(30) == 0:
            study.stop()
            stopped.set()
        else:
            assert stopped.wait(30)
        return 1.0

    with ThreadPoolExecutor(2) as pool:
        summary = study.run(slow, 10, executor=pool, progress=False)
    assert (summary.completed, summary.stopped) == (2, "stop")


def test_only_a_run_can_be_stopped() -> None:
    study = ran(1)
    with pytest.raises(StudyError, match="no run of this study is going on here"):
        study.stop()


def test_the_log_says_what_was_fitted_and_how_long_it_took(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="conbo"):
        Study(SPACE, method="pei", initial=3).run(reward, 4, progress=False)
    lines = [record.getMessage() for record in caplog.records if record.name == "conbo"]
    assert [line for line in lines if line.startswith("Trial 0 has reward -")]
    (fitted,) = [line for line in lines if line.startswith("Fitted 3 rewards in ")]
    assert " s: ProductKernel, " in fitted
    assert [line for line in lines if line.startswith("Chose 1 points by 'pei' in ")]


def test_routine_lines_are_not_shown_above_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    Study(SPACE, method="pei", initial=3).run(reward, 4)
    assert "Fitted" not in capsys.readouterr().err
