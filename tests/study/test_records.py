"""Who may work on what: turns to suggest, leases of trials, and results that come late."""

import re
import sqlite3
import time
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from conbo.errors import TrialError
from conbo.spaces import Real, Space
from conbo.study import Study
from conbo.study.database import Database
from conbo.study.heartbeat import Heartbeat
from conbo.study.records import Records
from conbo.study.workers import worker_name
from conbo.trials import Outcomes, Trial

SPACE = Space(actions={"x": Real(0, 1)})
LONG, SHORT = 60.0, 0.01  # seconds
GONE = re.sub(r":\d+:", ":999999999:", worker_name())  # this machine has no such process


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(SPACE, method="uniform", storage=tmp_path / "study.db")


def records_of(study: Study) -> Records:
    return study._shared.records


def leased(study: Study, worker: str, lease: float = LONG, n: int = 1) -> list[Trial]:
    """Trials that a run of this worker evaluates."""
    return study._shared.add(lambda optimizer: optimizer.suggest(n).trials, worker, lease)


def begun(study: Study, worker: str, lease: float = LONG) -> Trial:
    """A trial that a run of this worker has begun to evaluate."""
    (trial,) = leased(study, worker, lease)
    assert records_of(study).begin(trial.number, worker)
    return trial


def taken_over(study: Study, worker: str, in_hand: Any = ()) -> int | None:
    trial = records_of(study).take_over(worker, LONG, in_hand)
    return None if trial is None else trial.number


# Turns


def test_one_worker_at_a_time_suggests(study: Study) -> None:
    records, one, other = records_of(study), worker_name(), worker_name()
    assert records.take_turn(one, LONG)
    assert records.take_turn(one, LONG), "asking again takes nothing away"
    assert not records.take_turn(other, LONG)
    records.end_turn(other)
    assert not records.take_turn(other, LONG), "nobody ends the turn of another"
    records.end_turn(one)
    assert records.take_turn(other, LONG)


def test_a_turn_ends_with_its_time(study: Study) -> None:
    records, one, other = records_of(study), worker_name(), worker_name()
    assert records.take_turn(one, SHORT)
    time.sleep(2 * SHORT)
    assert records.take_turn(other, LONG)
    assert not records.add([Trial(0, {}, {"x": 0.5})], one), "who was too slow adds nothing"
    assert study.trials == ()
    assert records.add([Trial(0, {}, {"x": 0.25})], other)
    assert study.trials == (Trial(0, {}, {"x": 0.25}),)


def test_a_turn_ends_with_its_process(study: Study) -> None:
    assert records_of(study).take_turn(GONE, LONG)
    assert records_of(study).take_turn(worker_name(), LONG)


def test_adding_ends_the_turn_and_may_be_repeated(study: Study) -> None:
    records, one, other = records_of(study), worker_name(), worker_name()
    trials = [Trial(0, {}, {"x": 0.5}), Trial(1, {}, {"x": 0.25})]
    records.take_turn(one, LONG)
    assert records.add(trials, one)
    assert records.add(trials, one), "the answer to the first may have been lost"
    assert records.take_turn(other, LONG)
    assert not records.add([Trial(1, {}, {"x": 0.75})], one)
    assert study.trials == tuple(trials)


# Leases


def test_nobody_takes_over_what_is_worked_on(study: Study) -> None:
    one, other = worker_name(), worker_name()
    leased(study, one)
    study.ask()
    assert taken_over(study, other) is None
    assert taken_over(study, one, in_hand=[0]) is None


def test_a_trial_whose_lease_has_ended_is_taken_over_once(study: Study) -> None:
    trial = begun(study, worker_name(), SHORT)
    time.sleep(2 * SHORT)
    other = worker_name()
    assert taken_over(study, other) == 0
    assert taken_over(study, worker_name()) is None
    (now,) = study.trials
    assert (now.worker, now.attempts, now.leased) == (other, 2, True)
    assert now == trial, "the same point"


def test_a_trial_whose_process_has_ended_is_taken_over_at_once(study: Study) -> None:
    leased(study, GONE, LONG, n=2)
    worker = worker_name()
    assert [taken_over(study, worker, in_hand) for in_hand in ([], [0])] == [0, 1]


def test_a_trial_that_nobody_knows_to_have_is_taken_over_by_its_worker(study: Study) -> None:
    worker = worker_name()
    leased(study, worker, LONG, n=2)
    assert taken_over(study, worker, in_hand=[0]) == 1


def test_what_is_handed_back_is_free(study: Study) -> None:
    one, other = worker_name(), worker_name()
    leased(study, one, n=2)
    leased(study, other)
    by_hand = study.ask()
    records_of(study).hand_back(one)
    third = worker_name()
    assert [taken_over(study, third, in_hand) for in_hand in ([], [0], [0, 1])] == [0, 1, None]
    assert study.trials[by_hand.number].leased is False


def test_what_others_take_over_in_the_same_moment_may_be_enough(study: Study) -> None:
    leased(study, GONE, n=3)
    other, asked = worker_name(), list[set[int]]()

    def enough(left: Any) -> bool:
        asked.append(left)
        if len(asked) == 1:
            assert taken_over(study, other) == 0
        return len(left) < 3

    assert records_of(study).take_over(worker_name(), LONG, (), enough=enough) is None
    assert asked == [{0, 1, 2}, {1, 2}]


def test_a_trial_that_outlives_too_many_workers_has_failed(study: Study) -> None:
    records = records_of(study)
    begun(study, GONE)
    for _ in range(2):
        assert records.take_over(GONE, LONG, (), max_lost_workers=3) is not None
        assert records.begin(0, GONE)
        records.hand_back(GONE)  # no loss
        assert records.take_over(GONE, LONG, (), max_lost_workers=3) is not None
        assert records.begin(0, GONE)
    assert records.take_over(worker_name(), LONG, (), max_lost_workers=4) is not None
    assert (study.trials[0].status, study.trials[0].attempts) == ("running", 6)
    records.begin(0, worker_name())
    assert study.trials[0].started is None, "only who has a trial begins it"


def test_the_number_of_lost_workers_after_which_a_trial_fails_is_a_setting(study: Study) -> None:
    records = records_of(study)
    begun(study, GONE)
    assert records.take_over(GONE, LONG, (), max_lost_workers=2) is not None
    assert records.begin(0, GONE)
    assert records.take_over(worker_name(), LONG, (), max_lost_workers=2) is None
    assert (study.trials[0].status, study.trials[0].error) == ("failed", "2 workers were lost with this trial")


def test_workers_that_are_lost_before_they_begin_a_trial_do_not_count(study: Study) -> None:
    leased(study, GONE, n=2)
    for _ in range(5):
        assert records_of(study).take_over(GONE, LONG, (), max_lost_workers=1) is not None
    worker = worker_name()
    assert taken_over(study, worker) == 0
    assert records_of(study).begin(0, worker)
    trial, untouched = study.trials
    assert (trial.status, trial.attempts, untouched.attempts) == ("running", 1, 1)
    assert trial.started is not None
    assert untouched.started is None


def test_a_heartbeat_keeps_the_leases(study: Study) -> None:
    one, other = worker_name(), worker_name()
    lease = 0.3
    leased(study, one, lease)
    records_of(study).take_turn(one, LONG)
    with Heartbeat(records_of(study), one, lease) as heartbeat:
        heartbeat.trials.add(0)
        heartbeat.has_turn = True
        time.sleep(2 * lease)
        assert taken_over(study, other) is None
        assert not records_of(study).take_turn(other, LONG)
    time.sleep(1.5 * lease)
    assert taken_over(study, other) == 0


def test_a_heartbeat_takes_nothing_back(study: Study) -> None:
    one, other = worker_name(), worker_name()
    leased(study, one, SHORT)
    time.sleep(2 * SHORT)
    assert taken_over(study, other) == 0
    records_of(study).renew(one, [0], LONG, None)
    records_of(study).hand_back(other)
    assert taken_over(study, one) == 0


# Results


def slow_and_fast(study: Study) -> tuple[str, str]:
    """Two workers with the same trial: the lease of the first has ended."""
    slow, fast = worker_name(), worker_name()
    leased(study, slow, SHORT)
    time.sleep(2 * SHORT)
    assert taken_over(study, fast) == 0
    return slow, fast


def test_the_first_result_stands_and_the_other_is_late(study: Study) -> None:
    slow, fast = slow_and_fast(study)
    assert records_of(study).tell(0, Outcomes(1.5), fast)
    assert not records_of(study).tell(0, Outcomes(2.5), slow)
    (trial,) = study.trials
    assert (trial.reward, trial.late, trial.worker) == (1.5, 2.5, fast)
    assert records_of(study).tell(0, Outcomes(1.5), fast), "the answer to the first may have been lost"


def test_a_late_result_of_the_same_value_does_not_stand_a_second_time(study: Study) -> None:
    slow, fast = slow_and_fast(study)
    assert records_of(study).tell(0, Outcomes(1.5), fast)
    assert not records_of(study).tell(0, Outcomes(1.5), slow)
    (trial,) = study.trials
    assert (trial.reward, trial.late, trial.worker) == (1.5, None, fast)


def test_the_slow_one_may_be_the_first(study: Study) -> None:
    slow, fast = slow_and_fast(study)
    assert records_of(study).tell(0, Outcomes(2.5), slow)
    assert not records_of(study).tell(0, Outcomes(1.5), fast)
    (trial,) = study.trials
    assert (trial.reward, trial.late, trial.worker) == (2.5, 1.5, slow)


def test_who_lost_a_trial_cannot_fail_it(study: Study) -> None:
    slow, fast = slow_and_fast(study)
    assert not records_of(study).fail(0, "broken", worker=slow)
    assert not records_of(study).try_again(0, "broken", worker=slow)
    assert study.trials[0].status == "running"
    assert records_of(study).fail(0, "broken", worker=fast)
    assert not records_of(study).tell(0, Outcomes(1.0), slow)
    assert (study.trials[0].status, study.trials[0].late) == ("failed", 1.0)


@pytest.fixture
def confirmations_get_lost(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transaction that writes is committed, but looks as if it had failed, and is repeated."""
    run, answers = Database._transaction, cycle([False, True])

    def transaction(self: Database, work: Any, writing: bool, lasting: bool) -> Any:
        result = run(self, work, writing, lasting)
        if writing and not next(answers):
            lost = sqlite3.OperationalError("the connection is lost")
            lost.sqlite_errorname = "SQLITE_BUSY"
            raise lost
        return result

    monkeypatch.setattr(Database, "_transaction", transaction)


@pytest.mark.usefixtures("confirmations_get_lost")
def test_what_is_written_twice_counts_once(study: Study) -> None:
    records, worker = records_of(study), worker_name()
    begun(study, worker)
    assert records.try_again(0, "broken", worker)
    assert study.trials[0].attempts == 2
    assert records.fail(0, "broken \0", worker)
    assert not records.fail(0, "broken otherwise", worker)
    assert (study.trials[0].status, study.trials[0].error) == ("failed", "broken \\0")
    study.add_trial({}, {"x": 0.5}, 1.0)
    first, second = (study.validate(lambda state, action: action["x"], 2, progress=False) for _ in range(2))
    assert study.validations() == [first, second]


def test_a_result_after_the_end_of_a_lease_that_nobody_took_over_is_not_late(study: Study) -> None:
    worker = worker_name()
    leased(study, worker, SHORT)
    time.sleep(2 * SHORT)
    assert records_of(study).tell(0, Outcomes(1.0), worker)
    assert (study.trials[0].reward, study.trials[0].late) == (1.0, None)


def test_only_workers_may_be_late(study: Study) -> None:
    _, fast = slow_and_fast(study)
    records_of(study).tell(0, Outcomes(1.5), fast)
    with pytest.raises(TrialError, match=r"trial 0 was told reward=1.5 before and cannot be told 2.5 now"):
        study.tell(0, 2.5)
    assert study.trials[0].late is None
