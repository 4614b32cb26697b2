"""Evaluates an objective in this process, for a study on a service; a thread renews the lease of the current trial."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from conbo.errors import ConboError, RewardError, SettingError, TrialError, shortened
from conbo.setting_rules import at_least
from conbo.trials import Outcomes, Trial, outcomes_of
from conbo.values import is_number

if TYPE_CHECKING:
    from conbo.study.executors import AnyObjective
    from conbo.study.run_summary import RunSummary, Stopped

LEASE = 60.0  # default length of a lease in seconds; a run renews its leases
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between two requests while other clients have all open trials


class Service(Protocol):
    """The methods of `Client` that a run calls."""

    def status(self) -> dict[str, Any]:
        """Return settings and progress of the study."""

    def renew(self, trial: Trial, lease: float) -> None:
        """Extend the lease of a trial, so that it ends `lease` seconds from now."""

    def release(self, trial: Trial) -> None:
        """Give a trial back, so that another worker can take it."""

    def _ask(self, body: dict[str, Any]) -> list[Trial]: ...

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]: ...


class ClientRun:
    """One call of `Client.run`: ask for trials, evaluate them and tell the rewards, until enough trials are completed.

    The arguments besides `client` are those of `Client.run`; SettingError is raised if one of them is out of range.
    """

    def __init__(
        self,
        client: Service,
        objective: AnyObjective,
        evaluations: int,
        retries: int,
        max_seconds: float | None,
        lease: float,
    ) -> None:
        self._client, self._objective = client, objective
        self._evaluations, self._retries = at_least(1, "evaluations", evaluations), at_least(0, "retries", retries)
        limits = {"lease": lease} | ({} if max_seconds is None else {"max_seconds": max_seconds})
        for name, seconds in limits.items():
            if not (is_number(seconds) and 0 < seconds < float("inf")):
                raise SettingError(f"`0 < {name} < inf` must hold, but got {name}={seconds!r}.")
        self._max_seconds, self._lease, self._began = max_seconds, lease, time.monotonic()
        self._completed = self._failed = self._retried = self._late = self._failures_in_a_row = 0

    def __call__(self) -> RunSummary:
        """Evaluate trials until the run ends, and return its summary."""
        from conbo.study.run_summary import RunSummary

        began = self._began = time.monotonic()
        pause = SHORTEST_PAUSE
        stopped: Stopped = "evaluations"
        try:
            while self._client.status()["completed"] < self._evaluations:
                if self._time_is_up:
                    stopped = "max_seconds"
                    break
                trials = self._client._ask({"n": 1, "lease": self._lease, "evaluations": self._evaluations})
                for trial in trials:
                    self._evaluate(trial)
                    pause = SHORTEST_PAUSE
                if not trials:  # all missing trials are being evaluated elsewhere
                    time.sleep(pause)
                    pause = min(LONGEST_PAUSE, 1.5 * pause)
        except KeyboardInterrupt:
            stopped = "interrupted"
        seconds = time.monotonic() - began
        return RunSummary(self._completed, self._failed, self._retried, self._late, seconds, stopped)

    def _evaluate(self, trial: Trial) -> None:
        from conbo.study.worker_process import located_text

        for attempt in range(self._retries + 1):
            if self._time_is_up:
                self._client.release(trial)
                return
            self._retried += attempt > 0
            try:
                with _LeaseKeeper(self._client, trial, self._lease):
                    error = self._attempt(trial)
            except Exception:  # an error of the service, with which the trial could not be released either
                raise
            except BaseException:  # such as KeyboardInterrupt
                self._client.release(trial)
                raise
            if error is None:
                return
            if attempt == self._retries:
                self._fail(trial, located_text(error), error)

    @property
    def _time_is_up(self) -> bool:
        return self._max_seconds is not None and time.monotonic() - self._began >= self._max_seconds

    def _attempt(self, trial: Trial) -> Exception | None:
        """Evaluate a trial and tell the service its outcomes; return the error if the evaluation failed.

        An evaluation also counts as failed if the service rejects its outcomes with a RewardError.  All other errors of
        the service are raised, because they say nothing about the trial.
        """
        try:
            outcomes = outcomes_of(self._objective(*trial.arguments))
        except Exception as error:
            return error
        try:
            self._tell(trial, outcomes)
        except RewardError as error:  # a cost or an outcome that the study needs is missing
            return error
        return None

    def _tell(self, trial: Trial, outcomes: Outcomes) -> None:
        measured = {"reward": outcomes.reward, "noise": outcomes.noise, "outcomes": dict(outcomes.measured)}
        answer = self._client._post(f"/trials/{trial.number}/tell", {**measured, "worker": trial.worker})
        self._failures_in_a_row = 0
        self._completed += answer["stands"]
        self._late += not answer["stands"]

    def _fail(self, trial: Trial, text: str, error: Exception) -> None:
        from conbo.study.run import MOST_FAILURES

        answer = self._client._post(f"/trials/{trial.number}/fail", {"error": text, "worker": trial.worker})
        self._failures_in_a_row += 1
        self._failed += answer["stands"]
        self._late += not answer["stands"]  # another worker has taken over the trial
        if self._failures_in_a_row == MOST_FAILURES:
            raise ConboError(f"the objective failed {MOST_FAILURES} times in a row: {shortened(text)}") from error


class _LeaseKeeper:
    """A context manager: within its `with` block, a thread renews the lease of a trial."""

    def __init__(self, client: Service, trial: Trial, lease: float) -> None:
        self._client, self._trial, self._lease = client, trial, lease
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="conbo lease", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end.set()

    def _beat(self) -> None:
        while not self._end.wait(self._lease / 3):
            try:
                self._client.renew(self._trial, self._lease)
            except TrialError:
                return  # another worker has taken over the trial; the first of both results counts
            except ConboError:
                continue
