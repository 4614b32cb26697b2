"""Points of one's own that are evaluated first, and earlier results that count."""

from pathlib import Path
from typing import Any

import pytest

from conbo import open_study
from conbo.errors import PointError, RewardError
from conbo.spaces import Integer, Real, Space
from conbo.study import Study
from conbo.trials import Trial

SPACE = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1), "n": Integer(1, 5)})
GUESS = {"s": 0.25}, {"x": 0.5, "n": 3}
OTHER = {"s": 0.75}, {"x": 0.125, "n": 1}


def reward(state: dict[str, Any], action: dict[str, Any]) -> float:
    return float(-((action["x"] - state["s"]) ** 2))


def new_study(**settings: Any) -> Study:
    return Study(**{"space": SPACE, "method": "uniform", **settings})


def points(study: Study) -> list[tuple[Any, Any]]:
    return [(trial.state, trial.action) for trial in study.trials]


def test_a_run_evaluates_enqueued_trials_first_and_counts_them() -> None:
    study = new_study()
    enqueued = study.enqueue(*GUESS)
    study.enqueue(*OTHER)
    assert (enqueued.number, enqueued.status, enqueued.is_enqueued) == (0, "running", True)
    seen: list[Any] = []
    study.run(lambda s, x: seen.append((s, x)) or reward(s, x), 4, progress=False)  # type: ignore[func-returns-value]
    assert seen[:2] == [GUESS, OTHER]
    assert [trial.status for trial in study.trials] == ["completed"] * 4
    assert [trial.attempts for trial in study.trials] == [1] * 4
    assert not any(trial.is_enqueued for trial in study.trials)


def test_a_run_takes_no_more_from_the_queue_than_it_was_asked_for() -> None:
    study = new_study()
    for _ in range(3):
        study.enqueue(*GUESS)
    assert study.run(reward, 2, progress=False).completed == 2
    assert [trial.status for trial in study.trials] == ["completed", "completed", "running"]
    assert study.trials[2].is_enqueued


def test_a_run_with_enough_trials_leaves_the_queue_alone_while_others_evaluate() -> None:
    study = new_study()
    study.run(reward, 2, progress=False)
    study.ask(lease=600)
    study.enqueue(*GUESS)
    assert study.run(reward, 2, progress=False).completed == 0
    assert study.run(reward, 3, max_seconds=0.1, progress=False).completed == 0
    assert study.trials[3].is_enqueued
    assert study.run(reward, 4, max_seconds=0.5, progress=False).completed == 1


def test_who_asks_gets_enqueued_trials_first() -> None:
    study = new_study()
    study.enqueue(*GUESS)
    study.enqueue(*OTHER)
    first, second, third = study.ask(3)
    assert (first.number, first.state, first.action) == (0, *GUESS)
    assert (second.number, second.state, second.action) == (1, *OTHER)
    assert third.number == 2
    assert first.started is not None
    study.tell(first, 1.0)
    study.run(reward, 2, progress=False)  # what was asked for by hand is not taken over
    assert [trial.status for trial in study.trials] == ["completed", "running", "running", "completed"]


@pytest.mark.parametrize("lease", [None, 60.0])
def test_enqueued_trials_stay_enqueued_if_the_suggestion_is_interrupted(lease: float | None) -> None:
    interrupts = list[type[BaseException]]()

    def feasible(state: dict[str, Any], action: dict[str, Any]) -> bool:
        if interrupts:
            raise interrupts.pop()
        return True

    study = new_study(space=Space(SPACE.states, SPACE.actions, feasible=feasible))
    study.enqueue(*GUESS)
    interrupts.append(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        study.ask(2, lease=lease)
    (trial,) = study.trials
    assert trial.is_enqueued
    assert [trial.number for trial in study.ask(2, lease=lease)] == [0, 1]


def test_whoever_loses_an_enqueued_trial_to_another_gets_a_new_one() -> None:
    rivals, theirs = list[Study](), list[Trial]()

    def feasible(state: dict[str, Any], action: dict[str, Any]) -> bool:
        if rivals:
            theirs.append(rivals.pop().ask())
        return True

    study = new_study(space=Space(SPACE.states, SPACE.actions, feasible=feasible))
    study.enqueue(*GUESS)
    rivals.append(study)  # asks while the second trial is searched for
    mine = study.ask(2)
    assert [trial.number for trial in theirs] == [0]
    assert [trial.number for trial in mine] == [1, 2]


def test_a_dictated_state_gets_only_what_was_enqueued_for_it() -> None:
    study = new_study()
    study.enqueue(*GUESS)
    assert study.ask(state={"s": 0.5}).number == 1
    assert study.ask(state={"s": 0.25}).action == GUESS[1]


def test_a_stored_queue_is_there_for_others(tmp_path: Path) -> None:
    new_study(storage=tmp_path / "a.db").enqueue(*GUESS)
    other = open_study(tmp_path / "a.db")
    assert other.trials[0].is_enqueued
    other.run(reward, 1, progress=False)
    assert points(other) == [GUESS]


def test_an_earlier_result_is_a_completed_trial() -> None:
    study = new_study(initial=2)
    study.ask()
    added = study.add_trial(*GUESS, 1.5, outcomes={"wait": 2.0})
    assert (added.number, added.status, added.reward, added.measured) == (1, "completed", 1.5, {"wait": 2.0})
    assert added == study.trials[1]
    with pytest.raises(RewardError, match="`noise` must be given with every reward or with none"):
        study.add_trial(*GUESS, 1.5, noise=0.1)
    assert len(study.trials) == 2


def test_a_study_with_known_noise_has_a_queue_too() -> None:
    study = new_study()
    study.add_trial(*GUESS, 1.5, noise=0.1)
    study.tell(study.enqueue(*OTHER), 2.0, noise=0.2)
    assert [trial.noise for trial in study.trials] == [0.1, 0.2]


@pytest.mark.parametrize("call", ["enqueue", "add_trial"])
def test_points_must_be_in_the_space(call: str) -> None:
    study = new_study()
    more = (1.0,) if call == "add_trial" else ()
    with pytest.raises(PointError, match=r"`0\.0 <= x <= 1\.0` must hold, but got x=2"):
        getattr(study, call)({"s": 0.5}, {"x": 2, "n": 1}, *more)
    with pytest.raises(PointError, match="unknown state parameter 't'"):
        getattr(study, call)({"t": 0.5}, {"x": 1, "n": 1}, *more)
    assert study.trials == ()
