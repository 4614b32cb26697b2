"""Runs: many evaluations at once, failures, ends of all kinds, and going on after them."""

import math
import os
import re
import signal
import sqlite3
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from study_programs import in_a_process, new_study, objective, run_until_killed

from conbo import AtMost, open_study
from conbo.errors import ConboError, SettingError
from conbo.optimizer import Optimizer
from conbo.spaces import Categorical, Real, Space
from conbo.study import Study
from conbo.study.workers import worker_name
from forked_processes import forked

SPACE = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)})


def reward(state: dict[str, Any], action: dict[str, Any]) -> float:
    return float(-((action["x"] - state["s"]) ** 2))


def uniform(**settings: Any) -> Study:
    return Study(**{"space": SPACE, "method": "uniform", **settings})


def statuses(study: Study) -> list[str]:
    return [trial.status for trial in study.trials]


# Many at once


class Watched:
    """An objective that knows how many evaluations of it there are at once, and waits for so many."""

    def __init__(self, expected: int) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()
        self._enough = threading.Event()
        self._expected = expected

    def __call__(self, state: dict[str, Any], action: dict[str, Any]) -> float:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now >= self._expected:
                self._enough.set()
        assert self._enough.wait(60)
        with self._lock:
            self.now -= 1
        return reward(state, action)


def test_as_many_at_once_as_there_are_workers_and_no_more_than_needed() -> None:
    study, watched = uniform(), Watched(4)
    with ThreadPoolExecutor(4) as executor:
        summary = study.run(watched, 18, executor=executor, progress=False)
    assert watched.most == 4
    assert statuses(study) == ["completed"] * 18
    assert all(trial.reward == reward(trial.state, trial.action) for trial in study.trials)
    assert (summary.completed, summary.failed, summary.stopped) == (18, 0, "evaluations")


def test_the_user_may_know_better_how_many() -> None:
    watched = Watched(2)
    with ThreadPoolExecutor(4) as executor:
        uniform().run(watched, 8, executor=executor, workers=2, progress=False)
    assert watched.most == 2


def test_a_new_trial_is_asked_for_as_soon_as_one_is_told() -> None:
    study = uniform()
    slow = threading.Event()

    def evaluate(state: dict[str, Any], action: dict[str, Any]) -> float:
        if action["x"] == study.trials[0].action["x"]:
            assert slow.wait(60)
        if len(study.trials) == 6:
            slow.set()
        return reward(state, action)

    with ThreadPoolExecutor(2) as executor:
        study.run(evaluate, 6, executor=executor, progress=False)
    assert statuses(study) == ["completed"] * 6


def test_batches_are_asked_for_together_and_told_before_the_next() -> None:
    study = uniform()
    asked = []

    def evaluate(state: dict[str, Any], action: dict[str, Any]) -> float:
        asked.append(len(study.trials))
        return reward(state, action)

    study.run(evaluate, 8, batch=3, progress=False)
    assert asked == [3, 3, 3, 6, 6, 6, 8, 8]


def test_a_batch_is_what_ask_gives() -> None:
    study, by_hand = (Study(SPACE, method="pei", initial=3) for _ in range(2))
    study.run(reward, 7, batch=3, progress=False)
    for n in (3, 3, 1):
        for trial in by_hand.ask(n):
            by_hand.tell(trial, reward(trial.state, trial.action))
    assert study.trials == by_hand.trials


def test_local_processes_take_closures_and_need_no_torch() -> None:
    here = os.getpid()

    def elsewhere(state: dict[str, Any], action: dict[str, Any]) -> float:
        assert "torch" not in sys.modules
        assert os.getpid() != here
        return float(action["x"] - state["s"])

    study = uniform()
    study.run(elsewhere, 6, workers=2, progress=False)
    assert [t.reward for t in study.trials] == [float(t.action["x"]) - float(t.state["s"]) for t in study.trials]


def test_an_objective_that_cannot_leave_this_process() -> None:
    lock = threading.Lock()
    with pytest.raises(SettingError, match=r"`objective` must be picklable to run in other processes, but got .*lock"):
        uniform().run(lambda state, action: float(lock.locked()), 2, workers=2, progress=False)


def test_trials_asked_for_by_hand_are_nobody_s_business() -> None:
    study = uniform()
    study.ask(2)
    study.run(reward, 3, progress=False)
    assert statuses(study) == ["running"] * 2 + ["completed"] * 3


# Failures


def test_a_failed_evaluation_is_tried_again_at_the_same_point() -> None:
    seen: list[float] = []

    def flaky(state: dict[str, Any], action: dict[str, Any]) -> float:
        seen.append(action["x"])
        return math.nan if seen.count(action["x"]) < 3 else 1.0

    study = uniform()
    summary = study.run(flaky, 2, retries=2, progress=False)
    assert [(t.status, t.attempts) for t in study.trials] == [("completed", 3)] * 2
    assert study.trials[0].error == "RewardError: a reward must be one finite number, but got nan."
    assert (summary.completed, summary.failed, summary.retried) == (2, 0, 4)
    assert len(set(seen)) == 2


def test_after_its_retries_a_trial_has_failed() -> None:
    study = uniform()

    def picky(state: dict[str, Any], action: dict[str, Any]) -> float:
        if action["x"] < 0.5:
            raise ValueError("too small")
        return 1.0

    summary = study.run(picky, 4, retries=1, progress=False)
    failed = [trial for trial in study.trials if trial.status == "failed"]
    assert failed
    assert {(trial.error.partition(" (")[0], trial.attempts) for trial in failed} == {("ValueError: too small", 2)}
    assert (summary.failed, summary.retried) == (len(failed), len(failed))


def test_a_process_that_hangs_or_dies_costs_its_own_trial_only() -> None:
    def dangerous(state: dict[str, Any], action: dict[str, Any]) -> float:
        if action["x"] < 0.25:
            os.kill(os.getpid(), signal.SIGKILL)
        if action["x"] < 0.5:
            time.sleep(60)
        return 1.0

    study = uniform()
    study.run(dangerous, 5, workers=2, timeout=0.5, progress=False)
    kinds = {
        trial.error.partition(":")[0] if trial.status == "failed" else trial.status: trial.action["x"] // 0.25
        for trial in study.trials
    }
    assert kinds == {"TerminatedWorkerError": 0, "TimeoutError": 1, "completed": kinds["completed"]}
    assert kinds["completed"] in (2, 3)
    assert {t.error for t in study.trials if t.error.startswith("Timeout")} == {"TimeoutError: no result after 0.5 s"}
    assert statuses(study).count("completed") == 5


def test_an_executor_that_cannot_be_stopped_keeps_its_place_busy() -> None:
    study, end = uniform(), threading.Event()

    def evaluate(state: dict[str, Any], action: dict[str, Any]) -> float:
        if action["x"] == study.trials[0].action["x"]:
            end.wait(60)
        elif len(study.trials) == 4:
            end.set()
        return 1.0

    with ThreadPoolExecutor(2) as executor:
        study.run(evaluate, 3, executor=executor, timeout=0.2, progress=False)
    assert statuses(study) == ["failed"] + ["completed"] * 3
    assert study.trials[0].error == "TimeoutError: no result after 0.2 s"


def test_a_run_says_when_it_waits_for_places_of_an_executor_that_cannot_be_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def evaluate(state: dict[str, Any], action: dict[str, Any]) -> float:
        deadline = time.monotonic() + 60
        while "all places of the executor (1) are busy" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return 1.0

    study = uniform()
    with ThreadPoolExecutor(1) as executor:
        study.run(evaluate, 2, executor=executor, timeout=0.5, progress=False)
    assert statuses(study) == ["failed", "completed", "completed"]


class Broken(Executor):
    """A pool of someone else's that breaks after two evaluations."""

    _max_workers = 1

    def __init__(self, how: str) -> None:
        self._how, self._left = how, 2

    def submit(self, call: Any, *arguments: Any) -> Any:  # type: ignore[override]
        future: Future[float] = Future()
        self._left -= 1
        if self._left >= 0:
            future.set_result(call(*arguments))
        elif self._how == "cancelled":
            future.cancel()
        else:
            future.set_exception(BrokenExecutor("a child process terminated"))
        return future


@pytest.mark.parametrize(("how", "why"), [("died", "a child process terminated"), ("cancelled", "it canceled trial 2")])
def test_an_executor_that_breaks_ends_the_run_but_fails_no_trial(how: str, why: str) -> None:
    study, never_broken = uniform(), uniform()
    with pytest.raises(ConboError, match=f"the executor is broken: {why}"):
        study.run(reward, 5, executor=Broken(how), progress=False)
    assert statuses(study) == ["completed", "completed", "running"]
    for each in (study, never_broken):
        each.run(reward, 5, progress=False)
    assert study.trials == never_broken.trials


def test_an_executor_that_cannot_run_the_objective_fails_no_trial() -> None:
    study = uniform()
    with ProcessPoolExecutor(1) as executor, pytest.raises(ConboError, match="the executor cannot run the objective: "):
        study.run(lambda state, action: 1.0, 5, executor=executor, progress=False)  # a lambda cannot be pickled
    assert set(statuses(study)) == {"running"}
    study.run(reward, 5, progress=False)
    assert statuses(study) == ["completed"] * 5


def test_an_executor_that_is_shut_down() -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(ConboError, match="the executor takes no evaluations: cannot schedule new futures"):
        uniform().run(reward, 5, executor=executor, progress=False)


def test_an_executor_of_unknown_size() -> None:
    class Unknown(Executor):
        pass

    with pytest.raises(SettingError, match=r"`workers` must say how many evaluations <.*Unknown.*> runs at once"):
        uniform().run(reward, 5, executor=Unknown(), progress=False)


# Ends


def test_little_left_to_gain() -> None:
    study = Study(SPACE, method="expected-improvement")
    summary = study.run(reward, 60, stop_below=1e-2, progress=False)
    assert summary.stopped == "stop_below"
    assert 6 <= len(study.trials) < 60
    assert statuses(study) == ["completed"] * len(study.trials)
    again = study.run(reward, 60, stop_below=1e-2, progress=False)
    assert (again.completed, again.stopped) == (0, "stop_below")
    assert study.run(reward, len(study.trials) + 1, stop_below=1e-9, progress=False).stopped == "evaluations"


@pytest.mark.parametrize("batch", [None, 4])
def test_the_last_evaluations_visit_every_state(batch: int | None) -> None:
    space = Space(states={"k": Categorical(["a", "b", "c"])}, actions={"x": Real(0, 1)})
    best = {"a": 0.2, "b": 0.5, "c": 0.8}

    def hill(state: dict[str, Any], action: dict[str, Any]) -> float:
        return -((action["x"] - best[state["k"]]) ** 2)

    study = uniform(space=space)
    study.run(hill, 15, finish="best-observed", batch=batch, progress=False)
    assert [trial.state["k"] for trial in study.trials[-3:]] == ["a", "b", "c"]
    assert all(abs(row["action"]["x"] - best[row["state"]["k"]]) < 0.1 for row in study.best_observed())


def interrupted(study: Study, times: int, **settings: Any) -> Any:
    """A run with Ctrl-C during its third evaluation, which gets it as often as said."""

    def evaluate(state: dict[str, Any], action: dict[str, Any]) -> float:
        if len(study.trials) == 3:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        return reward(state, action)

    return study.run(evaluate, 9, **settings)


def test_after_ctrl_c_a_run_waits_for_what_is_running(capsys: pytest.CaptureFixture[str]) -> None:
    study = uniform()
    before = signal.getsignal(signal.SIGINT)
    summary = interrupted(study, times=1)
    assert signal.getsignal(signal.SIGINT) is before
    assert (summary.completed, summary.stopped) == (3, "interrupted")
    assert statuses(study) == ["completed"] * 3
    lines = capsys.readouterr().err
    assert "Interrupted: waiting for the running evaluations; Ctrl-C again cancels them." in lines
    assert "Interrupted: 3 of 9 evaluations are kept." in lines


@pytest.mark.parametrize(("times", "on_interrupt"), [(1, "cancel"), (2, "wait")])
def test_or_cancels_it_and_the_study_goes_on_exactly(times: int, on_interrupt: Any) -> None:
    study, never_interrupted = uniform(), uniform()
    summary = interrupted(study, times, on_interrupt=on_interrupt, progress=False)
    assert (summary.completed, summary.stopped) == (2, "interrupted")
    assert statuses(study) == ["completed"] * 2 + ["running"]
    for each in (study, never_interrupted):
        each.run(reward, 9, progress=False)
    assert study.trials == never_interrupted.trials


def test_ctrl_c_during_a_suggestion_ends_it_and_begins_no_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    study, never_interrupted = uniform(), uniform()
    suggest, evaluated, went_on = Optimizer.suggest, [], []

    def interrupted_suggest(optimizer: Optimizer, *arguments: Any) -> Any:
        if len(optimizer.trials) == 2:
            signal.raise_signal(signal.SIGINT)
            went_on.append(True)  # a fit may take a minute
        return suggest(optimizer, *arguments)

    def evaluate(state: dict[str, Any], action: dict[str, Any]) -> float:
        evaluated.append(action)
        return reward(state, action)

    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "suggest", interrupted_suggest)
        summary = study.run(evaluate, 9, progress=False)
    assert (len(evaluated), summary.stopped) == (2, "interrupted")
    assert not went_on
    for each in (study, never_interrupted):
        each.run(reward, 9, progress=False)
    assert study.trials == never_interrupted.trials


@pytest.mark.parametrize("on_interrupt", ["wait", "cancel"])
def test_ctrl_c_with_processes(on_interrupt: Any, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def evaluate(state: dict[str, Any], action: dict[str, Any]) -> float:
        with begun.open("ab", buffering=0) as file:
            file.write(b"x")
            number = file.tell()  # the place of this byte, also if another process has written since
        if number == 3:
            os.kill(os.getppid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)  # a terminal sends it to all
        time.sleep(0.3)
        return 1.0

    study = uniform(storage=tmp_path / "study.db")
    summary = study.run(evaluate, 50, workers=2, on_interrupt=on_interrupt, progress=False)
    assert summary.stopped == "interrupted"
    if on_interrupt == "wait":
        assert begun.stat().st_size == statuses(study).count("completed") >= len(study.trials) - 1
    else:
        assert "running" in statuses(study)
    study.run(reward, 8, progress=False)
    assert statuses(study) == ["completed"] * 8


def test_ctrl_c_that_reaches_an_executor_s_evaluation_interrupts_the_run() -> None:
    study, never_interrupted = uniform(), uniform()

    def evaluate(state: dict[str, Any], action: dict[str, Any]) -> float:
        if len(study.trials) == 3:
            raise KeyboardInterrupt  # a terminal sends it to all processes
        return reward(state, action)

    with ThreadPoolExecutor(1) as threads:
        summary = study.run(evaluate, 9, executor=threads, retries=1, progress=False)
    assert (summary.completed, summary.failed, summary.stopped) == (2, 0, "interrupted")
    assert statuses(study) == ["completed"] * 2 + ["running"]
    for each in (study, never_interrupted):
        each.run(reward, 9, progress=False)
    assert study.trials == never_interrupted.trials


def uninterrupted(begun: Path, state: dict[str, Any], action: dict[str, Any]) -> float:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a function of C, which no signal ends
    begun.touch()
    time.sleep(60)
    return 1.0


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_that_ends_an_idle_process_of_a_pool_interrupts_the_run(tmp_path: Path) -> None:
    study, begun = uniform(), tmp_path / "begun"
    with ProcessPoolExecutor(2, forked()) as pool:
        list(pool.map(time.sleep, [0.1] * 2))  # starts both

        def interrupt() -> None:
            while not begun.exists():
                time.sleep(0.01)
            for number in (os.getpid(), *pool._processes):  # a terminal sends it to all
                os.kill(number, signal.SIGINT)

        threading.Thread(target=interrupt).start()
        summary = study.run(partial(uninterrupted, begun), 9, executor=pool, workers=1, progress=False)
        with pytest.raises(BrokenExecutor):
            pool.submit(abs, 1)
    assert (summary.completed, summary.failed, summary.stopped) == (0, 0, "interrupted")
    study.run(reward, 2, progress=False)
    assert statuses(study) == ["completed"] * 2


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_between_two_evaluations_in_a_pool_interrupts_the_run() -> None:
    class Interrupted(ProcessPoolExecutor):
        def submit(self, *call: Any, **named: Any) -> Any:  # type: ignore[override]
            if len(study.trials) == 2:
                os.kill(os.getpid(), signal.SIGINT)
                for process in self._processes.values():
                    os.kill(process.pid, signal.SIGINT)
                with suppress(BrokenExecutor):  # as soon as the pool notices
                    while True:
                        super().submit(abs, 1).result()
            return super().submit(*call, **named)

    study = uniform()
    with Interrupted(1, forked()) as pool:
        summary = study.run(reward, 9, executor=pool, progress=False)
    assert (summary.completed, summary.failed, summary.stopped) == (1, 0, "interrupted")
    assert statuses(study) == ["completed", "running"]
    assert study.run(reward, 2, progress=False).completed == 1


def test_results_of_the_last_moment_are_kept() -> None:
    study, interrupted = uniform(), threading.Event()

    def evaluate(state: dict[str, Any], action: dict[str, Any]) -> float:
        assert interrupted.wait(60)
        if action["x"] == study.trials[0].action["x"]:
            raise ValueError
        return 2.0

    class Impatient(ThreadPoolExecutor):
        def submit(self, *call: Any) -> Any:
            if len(study.trials) == 4:
                interrupted.set()
                self.shutdown()
                raise KeyboardInterrupt
            return super().submit(*call)

    summary = study.run(evaluate, 9, executor=Impatient(3), workers=4, progress=False)
    assert statuses(study) == ["running", "completed", "completed", "running"]
    assert (summary.completed, summary.stopped) == (2, "interrupted")


def test_a_run_that_ends_with_an_error_records_no_incomplete_results(tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def forgetful(state: dict[str, Any], action: dict[str, Any]) -> float:
        together.wait(10)
        return 1.0  # without "wait"

    settings: dict[str, Any] = {"outcome_constraints": {"wait": AtMost(5)}, "storage": tmp_path / "study.db"}
    study = Study(SPACE, method="uniform", **settings)
    with ThreadPoolExecutor(4) as threads, pytest.raises(ConboError, match="failed 10 times in a row"):
        study.run(forgetful, 50, batch=4, executor=threads, progress=False)
    again = Study(SPACE, method="uniform", **settings)  # every stored trial can be read
    assert len(again.trials) == 12
    assert not [trial for trial in again.trials if trial.status == "completed"]


def test_too_many_failures_hand_back_what_is_running() -> None:
    study, end = uniform(), threading.Event()

    def evaluate(state: dict[str, Any], action: dict[str, Any]) -> float:
        if action["x"] == study.trials[0].action["x"]:
            end.wait(60)
        raise OSError("disk full")

    executor = ThreadPoolExecutor(2)
    with pytest.raises(ConboError, match="the objective failed 10 times in a row: OSError: disk full"):
        study.run(evaluate, 20, executor=executor, progress=False)
    end.set()
    executor.shutdown()
    assert statuses(study) == ["running"] + ["failed"] * 10
    study.run(reward, 1, progress=False)
    assert study.trials[0].status == "completed"


# Several runs of one study


def test_runs_at_once_share_the_work(tmp_path: Path) -> None:
    evaluated: list[float] = []
    gate = threading.Barrier(3, timeout=60)

    def evaluate(state: dict[str, Any], action: dict[str, Any]) -> float:
        evaluated.append(action["x"])
        time.sleep(0.02)
        return reward(state, action)

    def work() -> None:
        gate.wait()  # they even create the database together
        uniform(storage=tmp_path / "study.db").run(evaluate, 20, progress=False)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    trials = open_study(tmp_path / "study.db").trials
    assert [trial.status for trial in trials] == ["completed"] * 20
    assert sorted(evaluated) == sorted(trial.action["x"] for trial in trials)
    assert len(set(evaluated)) == 20
    assert len({trial.worker for trial in trials}) == 3


def test_a_run_waits_for_another_one_s_trial_and_takes_it_over(tmp_path: Path) -> None:
    study = uniform(storage=tmp_path / "study.db")
    other = worker_name()
    (left,) = study._shared.add(lambda optimizer: optimizer.suggest(1).trials, other, lease=0.5)
    study._shared.records.begin(left.number, other)
    summary = study.run(reward, 2, progress=False)
    assert (summary.completed, summary.stopped) == (2, "evaluations")
    assert [trial.attempts for trial in study.trials] == [2, 1]
    assert study.trials[0].action == left.action


@pytest.mark.parametrize("ends", [{"evaluations": 3}, {"budget": 3.0}])
def test_a_run_evaluates_no_more_of_what_was_handed_back_or_enqueued_than_is_missing(ends: dict[str, Any]) -> None:
    study = uniform(cost=lambda s, x: 1.0)
    study.run(reward, 9, batch=4, callbacks=[lambda study, trial: study.stop()], progress=False)
    study.enqueue({"s": 0.5}, {"x": 0.5})
    assert statuses(study) == ["completed"] + ["running"] * 4
    assert study.run(reward, **ends, progress=False).completed == 2
    assert study.run(reward, **ends, progress=False).completed == 0
    assert statuses(study) == ["completed"] * 3 + ["running"] * 2
    assert study.run(reward, 5, progress=False).completed == 2


@pytest.mark.parametrize("ends", [{"evaluations": 2}, {"budget": 2.0}])
def test_runs_at_once_evaluate_no_more_of_it_than_is_missing(ends: dict[str, Any], tmp_path: Path) -> None:
    def another() -> Study:
        return uniform(storage=tmp_path / "study.db", cost=lambda s, x: 1.0)

    def evaluate(state: dict[str, Any], action: dict[str, Any]) -> float:
        if another().run(reward, **ends, max_seconds=0.2, progress=False).completed:
            others.append(action)
        return reward(state, action)

    study, others = another(), list[Any]()
    study.run(reward, 9, batch=4, callbacks=[lambda study, trial: study.stop()], progress=False)
    study.enqueue({"s": 0.5}, {"x": 0.5})
    assert study.run(evaluate, **ends, progress=False).completed == 1
    assert not others
    assert statuses(study) == ["completed"] * 2 + ["running"] * 3


def test_a_late_result_is_counted(tmp_path: Path) -> None:
    study = uniform(storage=tmp_path / "study.db")

    def overtaken(state: dict[str, Any], action: dict[str, Any]) -> float:
        study.tell(0, 5.0)
        return 4.0

    summary = study.run(overtaken, 1, progress=False)
    assert (summary.completed, summary.late) == (0, 1)
    assert "0 evaluations completed, 1 late in" in str(summary)
    assert (study.trials[0].reward, study.trials[0].late) == (5.0, 4.0)


def test_an_equal_result_of_two_runs_is_counted_by_one_of_them(tmp_path: Path) -> None:
    slow, fast = (uniform(storage=tmp_path / "study.db") for _ in range(2))
    summaries = []

    def overtaken(state: dict[str, Any], action: dict[str, Any]) -> float:
        with sqlite3.connect(tmp_path / "study.db") as connection:
            connection.execute("UPDATE conbo_trials SET leased_until = 1")  # as if this one had been silent for long
        connection.close()
        summaries.append(fast.run(reward, 1, progress=False))
        return reward(state, action)

    summaries.append(slow.run(overtaken, 1, progress=False))
    assert [(summary.completed, summary.late) for summary in summaries] == [(1, 0), (0, 1)]


def test_a_trial_may_outlive_more_workers(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="`max_lost_workers` must be an integer of at least 1, but got"):
        uniform().run(reward, 1, max_lost_workers=0, progress=False)
    study = uniform(storage=tmp_path / "study.db")
    study.run(reward, 1, progress=False)
    gone = re.sub(r":\d+:", ":999999999:", worker_name())
    for lost, most, status in ((10, 11, "completed"), (10, 10, "failed")):
        (trial,) = study._shared.add(lambda optimizer: optimizer.suggest(1).trials, gone, lease=60)
        study._shared.records.begin(trial.number, gone)
        with sqlite3.connect(tmp_path / "study.db") as connection:
            connection.execute(f"UPDATE conbo_trials SET lost = {lost - 1} WHERE number = {trial.number}")
        connection.close()
        study.run(reward, len(study.trials), max_lost_workers=most, progress=False)
        assert study.trials[trial.number].status == status


# Exact resume


@pytest.fixture(scope="module")
def never_killed() -> Study:
    study = new_study(None)
    study.run(objective, 8, progress=False)
    return study


@pytest.mark.parametrize(
    ("moment", "done"),
    [
        ("evaluating", 2),  # in the initial design
        ("suggesting", 5),
        ("before it is recorded", 5),
        ("evaluating", 5),
        ("before it is told", 5),
        ("when it is told", 5),
    ],
)
def test_killed_at_any_moment(moment: str, done: int, never_killed: Study, tmp_path: Path) -> None:
    storage = tmp_path / "study.db"
    assert in_a_process(run_until_killed, storage, done, moment) == -signal.SIGKILL
    study = new_study(storage)
    study.run(objective, 8, progress=False)
    assert study.trials == never_killed.trials
    killed_while_running = moment in ("evaluating", "before it is told")
    assert study.trials[done].attempts == (2 if killed_while_running else 1)
