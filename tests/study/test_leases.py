"""Trials that are asked for with a lease: yours for a time, and then somebody else's."""

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from conbo.errors import SettingError, TrialError
from conbo.spaces import Real, Space
from conbo.study import Study, open_study

SPACE = Space(states={"demand": Real(10, 100)}, actions={"stock": Real(0, 150)})


def reward(state: object, action: object) -> float:
    return 1.0


def test_without_a_lease_a_trial_waits_for_ever(tmp_path: Path) -> None:
    study = Study(SPACE, storage=tmp_path / "s.db")
    assert study.ask().number == 0
    study.run(reward, 1, progress=False)
    assert [trial.status for trial in study.trials] == ["running", "completed"]
    assert study.ask(lease=60).number == 2


def test_a_lease_that_ends_gives_the_trial_to_whoever_asks_next(tmp_path: Path) -> None:
    study = Study(SPACE, storage=tmp_path / "s.db")
    mine = study.ask(lease=0.01)
    time.sleep(0.02)
    theirs = open_study(tmp_path / "s.db").ask(lease=60)
    assert (theirs.number, theirs.state, theirs.action) == (mine.number, mine.state, mine.action)
    with pytest.raises(TrialError, match="trial 0 must be leased to whoever renews its lease, but it is another"):
        study.renew(mine, 60)
    study.tell(mine, 2.0)  # the first result stands
    with pytest.raises(TrialError, match=r"told reward=2\.0 before"):
        study.tell(theirs, 3.0)
    with pytest.raises(TrialError, match="but it is completed"):
        study.renew(theirs, 60)


def test_whoever_lost_a_trial_cannot_fail_it(tmp_path: Path) -> None:
    study = Study(SPACE, storage=tmp_path / "s.db")
    mine = study.ask(lease=0.01)
    time.sleep(0.02)
    theirs = open_study(tmp_path / "s.db").ask(lease=60)
    study.fail(mine, "too slow")
    assert study.trials == (theirs,)
    study.tell(theirs, 3.0)
    with pytest.raises(TrialError, match=r"told reward=3\.0 and cannot fail"):
        study.fail(theirs, "too slow")


def test_a_lease_that_has_ended_or_an_enqueued_trial_can_be_failed(tmp_path: Path) -> None:
    study = Study(SPACE, storage=tmp_path / "s.db")
    lapsed, enqueued = study.ask(lease=0.01), study.enqueue({"demand": 20}, {"stock": 30})
    time.sleep(0.02)
    assert study.ask(state={"demand": 20}, lease=60).number == enqueued.number
    study.fail(lapsed, "too slow")
    study.fail(enqueued)
    assert [trial.status for trial in study.trials] == ["failed", "failed"]


def test_a_run_takes_over_what_was_asked_for(tmp_path: Path) -> None:
    study = Study(SPACE, storage=tmp_path / "s.db")
    study.ask(lease=0.01)
    time.sleep(0.02)
    study.run(reward, 2, progress=False)
    assert [trial.status for trial in study.trials] == ["completed"] * 2


def test_the_lease_of_an_enqueued_trial_cannot_be_renewed() -> None:
    study = Study(SPACE, method="uniform")
    waiting = study.enqueue({"demand": 50}, {"stock": 60})
    with pytest.raises(TrialError, match="trial 0 must be leased to whoever renews its lease"):
        study.renew(waiting, 1000)
    study.run(reward, 2, progress=False)
    assert [trial.status for trial in study.trials] == ["completed", "completed"]


def test_a_renewed_lease_holds_and_a_released_one_does_not(tmp_path: Path) -> None:
    study = Study(SPACE, storage=tmp_path / "s.db")
    mine = study.ask(lease=0.05)
    study.renew(mine, 600)
    time.sleep(0.06)
    assert study.ask(lease=60).number == 1
    study.release(mine)
    assert study.ask(lease=60).number == 0


def test_a_dictated_state_gets_no_trial_of_another_state(tmp_path: Path) -> None:
    study = Study(SPACE, storage=tmp_path / "s.db")
    study.release(study.ask(lease=60))
    there = study.ask(state={"demand": 50}, lease=60)
    assert (there.number, there.state) == (1, {"demand": 50.0})
    study.release(there)
    assert study.ask(state={"demand": 50}, lease=60).number == 1
    assert study.ask(lease=60).number == 0


def test_several_trials_at_once(tmp_path: Path) -> None:
    study = Study(SPACE, storage=tmp_path / "s.db")
    study.enqueue({"demand": 20}, {"stock": 30})
    study.release(study.ask(state={"demand": 60}, lease=60))
    assert [trial.number for trial in study.ask(3, lease=60)] == [0, 1, 2]


def test_a_run_in_memory_keeps_its_trial_from_other_threads() -> None:
    study, begun, end = Study(SPACE, method="uniform"), threading.Event(), threading.Event()

    def slow(state: object, action: object) -> float:
        begun.set()
        end.wait(30)
        return 1.0

    run = threading.Thread(target=lambda: study.run(slow, 1, lease=0.2, progress=False))
    run.start()
    begun.wait(30)
    time.sleep(0.5)  # the lease would have ended without a heartbeat
    assert study.ask(lease=60).number == 1
    end.set()
    run.join()


def test_a_lease_of_single_precision_ends_in_time(tmp_path: Path) -> None:
    study, lease = Study(SPACE, method="uniform", storage=tmp_path / "s.db"), np.float32(60)

    def check(number: int, since: float) -> None:
        with closing(sqlite3.connect(tmp_path / "s.db")) as database:
            query = "SELECT leased_until FROM conbo_trials WHERE number = ?"
            (until,) = database.execute(query, (number,)).fetchone()
        assert since + 60 <= until <= time.time() + 60

    def evaluate(state: object, action: object) -> float:
        check(1, since)
        return 1.0

    since = time.time()
    trial = study.ask(lease=lease)  # type: ignore[call-overload]
    check(0, since)
    since = time.time()
    study.renew(trial, lease)  # type: ignore[arg-type]
    check(0, since)
    study.tell(trial, 1.0)
    since = time.time()
    assert study.run(evaluate, 2, lease=lease, progress=False).completed == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("lease", [0, -1, 1e12, float("inf"), float("nan"), "60"])
def test_what_a_lease_must_be(lease: float) -> None:
    study, rule = Study(SPACE), "`0 < lease <= 3155760000` must hold"
    with pytest.raises(SettingError, match=rule):
        study.ask(lease=lease)
    with pytest.raises(SettingError, match=rule):
        study.run(reward, 1, lease=lease, progress=False)
    trial = study.ask(lease=3e9)
    with pytest.raises(SettingError, match=rule):
        study.renew(trial, lease)
    assert study.trials == (trial,)
