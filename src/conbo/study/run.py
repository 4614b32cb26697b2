"""The loop of a run: get trials, evaluate many of them at a time and record their rewards, until the run ends."""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from conbo.cost_rules import check_told
from conbo.errors import ConboError, RewardError, StorageError, shortened
from conbo.optimizer import Optimizer
from conbo.spaces import Point
from conbo.study.asking import under_way
from conbo.study.executors import (
    AnyObjective,
    EvaluationInterrupted,
    Evaluators,
    check_intact,
    error_of,
    submitted,
    text_of,
)
from conbo.study.heartbeat import Heartbeat
from conbo.study.interrupts import SuggestionInterrupted, first_interrupt_waits
from conbo.study.plan import Plan
from conbo.study.run_summary import RunSummary, Stopped
from conbo.study.shared import SharedOptimizer
from conbo.study.stopping import missing_trials, reached_end, too_little_gain, wanted_trials
from conbo.study.timeouts import Timeout
from conbo.study.worker_process import MAX_MESSAGE
from conbo.study.workers import retire, worker_name
from conbo.trials import Outcomes, SuggestedTrials, Trial

if TYPE_CHECKING:
    from conbo.study.progress import Progress

Callback: TypeAlias = Callable[[Trial], object]  # called with every trial that this run completed or that failed

MOST_FAILURES = 10  # number of failed trials in a row after which a run gives up
SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.2  # seconds between two attempts to get a trial while other workers suggest
POLL_SECONDS = 1.0  # most seconds to wait for an evaluation before timeouts and requests to stop are checked

_log = logging.getLogger("conbo")


@dataclass
class _Job:
    trial: Trial
    timeout: Timeout


class Run:
    """One run of a study: a worker that evaluates trials, possibly alongside workers in other processes."""

    def __init__(
        self,
        shared: SharedOptimizer,
        evaluators: Evaluators,
        objective: AnyObjective,
        plan: Plan,
        bar: "Progress",
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self._shared, self._records, self._evaluators = shared, shared.records, evaluators
        self._objective, self._plan, self._bar, self._callbacks = objective, plan, bar, callbacks
        self._worker = worker_name()
        self._heartbeat = Heartbeat(self._records, self._worker, plan.lease)
        self._queue: deque[Trial] = deque()  # trials that are leased to this worker and wait to be evaluated
        self._jobs: dict[Future[Any], _Job] = {}
        self._given_up: set[Future[Any]] = set()  # abandoned evaluations that still occupy a worker
        self._retries: Counter[int] = Counter()  # number of retries by trial number
        self._stopped: Stopped | None = None  # why the run ends; once it is set, no new trial is asked for
        self._stop_asked = False
        self._interrupted = threading.Event()  # set by Ctrl-C, in this process or in one of an executor
        self._ended: deque[int] = deque()  # trials that the callbacks have not seen yet
        self._completed = self._failed = self._late = self._failures_in_a_row = 0
        self._pause = SHORTEST_PAUSE
        self._began = time.monotonic()
        self._suggesting = False  # a model is being fitted or searched, which may take a minute

    def __call__(self) -> RunSummary:
        """Evaluate trials until an end condition is met or the run is stopped; then hand back the unfinished trials."""
        began = self._began = time.monotonic()
        try:
            with self._heartbeat:
                try:
                    self._loop()
                finally:
                    self._evaluators.close()
        except KeyboardInterrupt:
            self._stopped = "interrupted"
        except StorageError:
            raise  # nothing can be recorded now, so the leases on the trials expire by themselves
        except BaseException:
            self._give_up()
            raise
        finally:
            retire(self._worker)
        self._give_up()
        assert self._stopped is not None
        seconds, retried = time.monotonic() - began, self._retries.total()
        return RunSummary(self._completed, self._failed, retried, self._late, seconds, self._stopped)

    def stop(self) -> None:
        """Begin no more evaluations, and end when the running ones are done."""
        self._stop_asked = True

    def _give_up(self) -> None:
        """Record the results that have arrived but are not recorded yet, and hand back this run's other trials."""
        for number, outcomes in self._results().items():
            with suppress(RewardError):
                stands = self._tell(number, outcomes)
                self._completed += stands
                self._late += not stands
        self._records.hand_back(self._worker)

    def _loop(self) -> None:
        waits = self._plan.on_interrupt == "wait"
        with first_interrupt_waits(waits, self._interrupted, self._bar.note, lambda: self._suggesting):
            while True:
                self._collect()
                self._call_back()
                if self._interrupted.is_set() or self._stop_asked:
                    self._stopped = "interrupted" if self._interrupted.is_set() else "stop"
                    self._hand_back_queue()
                elif self._time_is_up:
                    self._stopped = self._stopped or "max_seconds"
                    self._hand_back_queue()
                elif self._n_busy < self._evaluators.width():
                    trial = self._queue.popleft() if self._queue else self._next()
                    # while the trial was searched for
                    if self._interrupted.is_set() or self._stop_asked or self._time_is_up:
                        self._queue.extendleft([] if trial is None else [trial])
                        continue
                    if trial is not None:
                        self._begin(trial)
                        continue
                if self._stopped and not self._jobs and not self._queue:
                    if self._stopped == "max_seconds":  # the last evaluations may have met another condition
                        self._stopped = self._reached_end()
                    return
                self._wait()

    def _hand_back_queue(self) -> None:
        """Hand back the trials that wait to be evaluated, so that another worker or a later run can have them."""
        for trial in self._queue:
            self._heartbeat.trials.discard(trial.number)
            self._records.hand_back(self._worker, trial.number)
        self._queue.clear()

    # Evaluations

    @property
    def _n_busy(self) -> int:
        return len(self._jobs) + len(self._given_up)

    def _begin(self, trial: Trial) -> None:
        if not self._records.begin(trial.number, self._worker):  # it waited so long that another worker has it now
            self._heartbeat.trials.discard(trial.number)
            return
        try:
            future = submitted(self._evaluators, self._objective, trial.arguments)
        except ConboError as error:
            self._not_evaluated(trial, error)
            return
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the objective wants to end the process
            self._records.fail(trial.number, text_of(error), self._worker)
            raise
        self._jobs[future] = _Job(trial, Timeout(self._plan.timeout))
        self._pause = SHORTEST_PAUSE

    def _wait(self) -> None:
        """Wait until an evaluation ends, but at most a second.

        The wait is short so that the run soon notices timeouts, requests to stop, and trials that other workers have
        given up.
        """
        if self._n_busy < self._evaluators.width() and not self._stopped:
            seconds, self._pause = self._pause, min(LONGEST_PAUSE, 1.5 * self._pause)
        else:
            nearest = min((job.timeout.deadline for job in self._jobs.values()), default=float("inf"))
            look_up = POLL_SECONDS if self._plan.timeout is None else min(POLL_SECONDS, self._plan.timeout / 10)
            seconds = max(0.0, min(look_up, nearest - time.monotonic()))
        if self._n_busy:
            wait([*self._jobs, *self._given_up], timeout=seconds, return_when=FIRST_COMPLETED)
        else:
            time.sleep(seconds)

    def _collect(self) -> None:
        """Record the results of evaluations that are done, and the failure of those that have timed out."""
        self._given_up = {future for future in self._given_up if not future.done()}
        for future, job in list(self._jobs.items()):
            if future.done():
                del self._jobs[future]
                try:
                    self._record(job.trial, future)
                except KeyboardInterrupt:
                    self._jobs[future] = job  # put back, so that its result is recorded before the run gives up
                    raise
            elif job.timeout.is_over:
                del self._jobs[future]
                if not self._evaluators.stop(future):
                    self._keep_busy(future)
                self._failure(job.trial, job.timeout.error())
            elif job.timeout.waits and self._evaluators.has_begun(future):
                job.timeout.start()

    def _keep_busy(self, future: "Future[Any]") -> None:
        self._given_up.add(future)
        if (n := len(self._given_up)) >= self._evaluators.width():
            _log.warning("all places of the executor (%d) are busy with evaluations that timed out: waiting for one", n)

    def _tell(self, number: int, outcomes: Outcomes) -> bool:
        """Record the outcomes of a trial, and return whether they count as its result.

        Raises RewardError if a constrained outcome is missing, or a cost that is to be learned.
        """
        optimizer = self._shared.up_to_date()
        check_told(optimizer.cost, outcomes.measured)
        optimizer.learned.check(outcomes.measured)
        return self._records.tell(number, outcomes, self._worker)

    def _record(self, trial: Trial, future: "Future[Any]") -> None:
        try:
            check_intact(self._evaluators, future, f"trial {trial.number}")
        except (EvaluationInterrupted, ConboError) as trouble:
            self._not_evaluated(trial, trouble)
            return
        if (error := error_of(future)) is not None:
            self._failure(trial, error)
            return
        try:
            stands = self._tell(trial.number, future.result())
        except RewardError as wrong:
            self._failure(trial, wrong)
            return
        except StorageError as trouble:
            results = {trial.number: future.result(), **self._results()}
            rewards = shortened(str({number: _plain(told) for number, told in results.items()}), MAX_MESSAGE)
            raise StorageError(f"rewards that could not be recorded, by trial: {rewards}: {trouble}") from trouble
        self._heartbeat.trials.discard(trial.number)
        self._failures_in_a_row = 0
        self._completed += stands
        self._late += not stands
        if stands:
            self._end(trial, f"has reward {future.result().reward:g}")
        self._bar.show(self._shared.up_to_date().n_completed)

    def _not_evaluated(self, trial: Trial, error: BaseException) -> None:
        """Queue a trial that was not evaluated because of Ctrl-C, so that it is handed back; raise any other error.

        A terminal sends Ctrl-C to the executor's processes, too. It ends an idle process of a pool, and that breaks the
        pool.
        """
        if isinstance(error, EvaluationInterrupted):
            self._interrupted.set()
        if not self._interrupted.is_set():
            raise error
        self._queue.append(trial)

    def _end(self, trial: Trial, what: str) -> None:
        """Log how a trial ended, and queue it for the callbacks; `what` is the message, such as "has reward 3"."""
        _log.debug("Trial %d %s.", trial.number, what)
        if self._callbacks:
            self._ended.append(trial.number)

    def _call_back(self) -> None:
        """Call the callbacks with every trial that has ended since the last call."""
        while self._ended:
            trial = self._shared.up_to_date().find(self._ended.popleft())
            for callback in self._callbacks:
                callback(trial)

    def _results(self) -> dict[int, Outcomes]:
        """The results of successful evaluations that are not recorded yet, by trial number."""
        done = [future for future in self._jobs if future.done() and not future.cancelled()]
        return {self._jobs[future].trial.number: future.result() for future in done if error_of(future) is None}

    def _failure(self, trial: Trial, error: BaseException) -> None:
        again, text = self._retries[trial.number] < self._plan.retries, text_of(error)
        _log.debug("an evaluation of trial %d failed: %s", trial.number, text, exc_info=error)
        if again and (self._stop_asked or self._time_is_up):
            self._queue.append(trial)  # to be handed back, and repeated by a later run
            return
        if again and self._records.try_again(trial.number, text, self._worker):
            self._retries[trial.number] += 1
            self._queue.appendleft(trial)
            return
        self._heartbeat.trials.discard(trial.number)
        if self._records.fail(trial.number, text, self._worker):
            self._failed += 1
            self._failures_in_a_row += 1
            self._end(trial, f"has failed: {shortened(text)}")
            if self._failures_in_a_row == MOST_FAILURES:
                raise ConboError(f"the objective failed {MOST_FAILURES} times in a row: {shortened(text)}") from error

    # Trials

    def _next(self) -> Trial | None:
        """The next trial to evaluate: an enqueued one, one of a lost worker, or a new one; None if there is none."""
        if self._stopped:
            return None
        optimizer = self._shared.up_to_date()
        ends, lease, mine = self._plan.ends, self._plan.lease, self._heartbeat.trials
        if any(trial.leased and trial.number not in mine for trial in optimizer.trials):
            trial = self._records.take_over(
                self._worker,
                lease,
                mine,
                self._plan.max_lost_workers,
                enough=lambda left: missing_trials(ends, optimizer, left) == 0,
            )
            if trial is not None:
                mine.add(trial.number)
                return trial
        self._stopped = self._reached_end()
        if self._stopped:
            return None
        synchronous = self._plan.batch is not None and self._last_states(optimizer) is None
        if missing_trials(ends, optimizer) == 0 or (synchronous and self._jobs):
            return None
        try:
            added = self._shared.try_to_add(self._choose, self._heartbeat, lease) or []
        except SuggestionInterrupted:
            return None
        mine.update(trial.number for trial in added)
        self._queue.extend(added)
        return self._queue.popleft() if added else None

    @property
    def _time_is_up(self) -> bool:
        most = self._plan.ends.max_seconds
        return most is not None and time.monotonic() - self._began >= most

    def _reached_end(self) -> Stopped | None:
        return reached_end(self._plan.ends, self._shared.up_to_date(), self._time_is_up)

    def _choose(self, optimizer: Optimizer) -> list[Trial]:
        missing = missing_trials(self._plan.ends, optimizer)
        if missing == 0:
            return []
        self._suggesting = True
        try:
            suggested = self._suggested(optimizer, missing)
        finally:
            self._suggesting = False
        self._stopped = too_little_gain(self._plan.ends, suggested)
        return [] if self._stopped else suggested.trials

    def _suggested(self, optimizer: Optimizer, missing: float) -> SuggestedTrials:
        if last := self._last_states(optimizer):
            return SuggestedTrials([optimizer.suggest_improving(last[0])])
        before_the_last = missing - (len(_all_states(optimizer)) if self._plan.finish else 0)
        return optimizer.suggest(int(min(self._plan.batch or 1, before_the_last)))

    def _last_states(self, optimizer: Optimizer) -> list[Point] | None:
        """The states that have no trial in the final round yet; None before that round, or without the option `finish`.

        The final round has one trial in every state. If every state already has its trial, all states are returned.
        """
        if self._plan.finish is None:
            return None
        states, trials = _all_states(optimizer), under_way(optimizer)
        n_last = len(trials) - (wanted_trials(self._plan.ends) - len(states))
        if n_last < 0:
            return None
        last = [trial.state for trial in trials[len(trials) - int(n_last) :]]
        return [state for state in states if state not in last] or states


def _plain(outcomes: Outcomes) -> float | dict[str, float]:
    """The outcomes as an objective returns them: the reward, or a dict if there is also noise or another outcome."""
    noise = {} if outcomes.noise is None else {"noise": outcomes.noise}
    more = {**noise, **outcomes.measured}
    return {"reward": outcomes.reward, **more} if more else outcomes.reward


def _all_states(optimizer: Optimizer) -> list[Point]:
    listed = optimizer.states.listed()
    assert listed is not None  # checked when the run began
    return list(optimizer.space.decode_states(listed[0]))
