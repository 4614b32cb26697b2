"""A study behind a service, with the verbs of a study and nothing but the standard library."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload
from urllib.parse import quote, urlencode

from conbo.connection import Connection
from conbo.errors import AccessError, ConboError, SettingError, StorageError, TrialError, shortened
from conbo.prediction import Prediction
from conbo.spaces import Point, Value
from conbo.trials import Outcomes, Trial, outcomes_of

if TYPE_CHECKING:
    from conbo.study.executors import AnyObjective
    from conbo.study.run import RunSummary, Stopped

LEASE = 60.0  # seconds; a run renews it
PAGE = 1000  # trials in one answer
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between two looks at what others do


class Client:
    """A study of a service that `conbo serve` runs. It has the verbs of `Study` that need no database.

    Requests that get no answer are repeated, for up to a minute; a repeated one changes nothing.

    Parameters
    ----------
    url
        The address of the service, such as ``http://127.0.0.1:8080``.
    token
        A token of ``conbo token``; a service on this machine may need none.
    name
        The study's name.
    worker
        How this client is called where workers are shown; by default by the name of the machine.
    timeout
        Seconds to wait for an answer. A suggestion waits for those of other clients.

    Raises
    ------
    SettingError
        If the URL is not one of HTTP, or has a token or a password in it.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        name: str = "default",
        *,
        worker: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        self.name = name
        self._connection = Connection(url, token, timeout)
        self._path = f"/v1/studies/{quote(name, safe='')}"
        self._worker = worker or socket.gethostname()[:60] or "client"

    def __repr__(self) -> str:
        return f"Client({self._connection.url!r}, name={self.name!r})"

    def status(self, *, model: bool = False) -> dict[str, Any]:
        """Settings and progress of the study; with `model`, also its summary."""
        return self._get(f"?{urlencode({'model': 'true'})}" if model else "")

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials with all that is recorded of them."""
        trials: list[Trial] = []
        while True:
            page = self._get(f"/trials?{urlencode({'offset': len(trials), 'limit': PAGE})}")
            trials += map(_trial, page["trials"])
            if not page["trials"] or len(trials) >= page["total"]:
                return tuple(trials)

    @overload
    def ask(self, *, state: Point | None = None, lease: float = LEASE) -> Trial: ...
    @overload
    def ask(self, n: int, state: Point | None = None, *, lease: float = LEASE) -> list[Trial]: ...
    def ask(self, n: int | None = None, state: Point | None = None, *, lease: float = LEASE) -> Trial | list[Trial]:
        """One new trial, or a list of n, as `Study.ask` with a lease."""
        trials = self._ask({"n": 1 if n is None else n, "state": state, "lease": lease})
        return trials[0] if n is None else trials

    def tell(
        self,
        trial: Trial | int,
        reward: float,
        noise: float | None = None,
        *,
        outcomes: Mapping[str, float] | None = None,
        cost: float | None = None,
    ) -> None:
        """The reward of a trial, as `Study.tell`; to repeat what was told does nothing."""
        Outcomes(reward, noise)  # numbers of NumPy and torch are numbers here, and no JSON
        plain = {"reward": _plain(reward), "noise": _plain(noise), "cost": _plain(cost)}
        more = None if outcomes is None else {name: _plain(value) for name, value in outcomes.items()}
        self._post(f"/trials/{_number(trial)}/tell", {**plain, "outcomes": more})

    def fail(self, trial: Trial | int, error: str = "") -> None:
        """A trial that will not have a reward, as `Study.fail`."""
        self._post(f"/trials/{_number(trial)}/fail", {"error": str(error)})

    def renew(self, trial: Trial, lease: float = LEASE) -> None:
        """Keep a trial for so many seconds from now; raises TrialError if it is another worker's by now."""
        self._post(f"/trials/{trial.number}/renew", {"worker": trial.worker, "lease": lease})

    def release(self, trial: Trial) -> None:
        """Give a trial back, so that others are given it at once."""
        self._post(f"/trials/{trial.number}/release", {"worker": trial.worker})

    def enqueue(self, state: Point, action: Point, seed: int | None = None) -> Trial:
        """Have a point of your own evaluated first, as `Study.enqueue`."""
        return _trial(self._post("/trials", {"state": state, "action": action, "seed": seed}, again=False))

    def policy(self, *, fresh: bool = True) -> RemotePolicy:
        """The best action for every state.

        Parameters
        ----------
        fresh
            Whether its answers wait until the service has fitted all rewards. Otherwise they come at once, and may
            rest on the rewards of a while ago.
        """
        return RemotePolicy(self, fresh)

    def run(
        self,
        objective: AnyObjective,
        evaluations: int,
        *,
        retries: int = 0,
        max_seconds: float | None = None,
        lease: float = LEASE,
    ) -> RunSummary:
        """Evaluate `objective(state, action)` here until the study has so many completed trials in total.

        Any number of clients may do so at once: together they stop at `evaluations`. What the objective may return,
        and what happens where it fails, is as in `Study.run`. While it runs, a thread renews the lease of its trial.

        Parameters
        ----------
        objective
            Called as ``objective(state, action)`` with two dicts; returns the reward, or a mapping with ``reward``.
        evaluations
            Total number of completed trials, including those of others.
        retries
            How often an evaluation that failed is tried again.
        max_seconds
            No evaluation begins later than this after the beginning of the run.
        lease
            Seconds after which others are given the trial if this client is silent.

        Returns
        -------
        RunSummary
            How many trials were completed and failed here, and why the run ended.
        """
        if not callable(objective):
            raise SettingError(f"`objective` must be a function of state and action, but got {objective!r}.")
        return _Run(self, objective, evaluations, retries, max_seconds, lease)()

    def _ask(self, body: dict[str, Any]) -> list[Trial]:
        # one key for all attempts: a repeated request gets the same trials
        answer = self._post("/ask", {**body, "key": secrets.token_hex(16), "worker": self._worker})
        return [_trial(record) for record in answer["trials"]]

    def _get(self, path: str) -> dict[str, Any]:
        return self._connection.call("GET", f"{self._path}{path}")

    def _post(self, path: str, body: dict[str, Any], again: bool = True) -> dict[str, Any]:
        return self._connection.call("POST", f"{self._path}{path}", body, again)


class RemotePolicy:
    """The policy of a study behind a service, as `Policy`: `policy(state)`, `many`, `predict`, `predict_many`."""

    def __init__(self, client: Client, fresh: bool) -> None:
        self._client, self._fresh = client, fresh

    def __call__(self, state: Point | None = None, *, extrapolate: bool = False) -> dict[str, Value]:
        """The action for a state; a space without states needs none."""
        return self.predict(state, extrapolate=extrapolate).action

    def many(self, states: Sequence[Point], *, extrapolate: bool = False) -> list[dict[str, Value]]:
        """The actions for a table of states."""
        return [prediction.action for prediction in self.predict_many(states, extrapolate=extrapolate)]

    def predict(self, state: Point | None = None, *, extrapolate: bool = False) -> Prediction:
        """The action for a state, with the estimate of its reward."""
        return self.predict_many([{} if state is None else state], extrapolate=extrapolate)[0]

    def predict_many(self, states: Sequence[Point], *, extrapolate: bool = False) -> list[Prediction]:
        """The actions for a table of states, with the estimates of their rewards."""
        found: list[Prediction] = []
        for first in range(0, len(states), PAGE):
            body = {"states": list(states[first : first + PAGE]), "extrapolate": extrapolate, "fresh": self._fresh}
            found += [Prediction(**row) for row in self._client._post("/policy", body)["predictions"]]
        return found


class _Run:
    """One client's part in a study."""

    def __init__(
        self,
        client: Client,
        objective: AnyObjective,
        evaluations: int,
        retries: int,
        max_seconds: float | None,
        lease: float,
    ) -> None:
        self._client, self._objective, self._evaluations = client, objective, evaluations
        self._retries, self._max_seconds, self._lease = retries, max_seconds, lease
        self._completed = self._failed = self._retried = self._late = self._failures_in_a_row = 0

    def __call__(self) -> RunSummary:
        from conbo.study.run import RunSummary

        began, pause = time.monotonic(), SHORTEST_PAUSE
        stopped: Stopped = "evaluations"
        try:
            while self._client.status()["completed"] < self._evaluations:
                if self._max_seconds is not None and time.monotonic() - began >= self._max_seconds:
                    stopped = "max_seconds"
                    break
                trials = self._client._ask({"n": 1, "lease": self._lease, "evaluations": self._evaluations})
                for trial in trials:
                    self._evaluate(trial)
                    pause = SHORTEST_PAUSE
                if not trials:  # all that are missing are being evaluated elsewhere
                    time.sleep(pause)
                    pause = min(LONGEST_PAUSE, 1.5 * pause)
        except KeyboardInterrupt:
            stopped = "interrupted"
        seconds = time.monotonic() - began
        return RunSummary(self._completed, self._failed, self._retried, self._late, seconds, stopped)

    def _evaluate(self, trial: Trial) -> None:
        from conbo.study.worker_process import located_text

        for attempt in range(self._retries + 1):
            try:
                with _Heartbeat(self._client, trial, self._lease):
                    outcomes = outcomes_of(self._objective(*trial.arguments))
                    self._tell(trial, outcomes)
                return
            except (AccessError, StorageError, TrialError):
                raise
            except Exception as error:
                text = located_text(error)
                if attempt < self._retries:
                    self._retried += 1
                else:
                    self._fail(trial, text, error)
            except BaseException:
                self._client.release(trial)
                raise

    def _tell(self, trial: Trial, outcomes: Outcomes) -> None:
        measured = {"reward": outcomes.reward, "noise": outcomes.noise, "outcomes": dict(outcomes.measured)}
        answer = self._client._post(f"/trials/{trial.number}/tell", {**measured, "worker": trial.worker})
        self._failures_in_a_row = 0
        self._completed += answer["stands"]
        self._late += not answer["stands"]

    def _fail(self, trial: Trial, text: str, error: Exception) -> None:
        from conbo.study.run import MOST_FAILURES

        self._client._post(f"/trials/{trial.number}/fail", {"error": text, "worker": trial.worker})
        self._failed += 1
        self._failures_in_a_row += 1
        if self._failures_in_a_row == MOST_FAILURES:
            raise ConboError(f"the objective failed {MOST_FAILURES} times in a row: {shortened(text)}") from error


class _Heartbeat:
    """While this lasts, a thread renews the lease of a trial."""

    def __init__(self, client: Client, trial: Trial, lease: float) -> None:
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
                return  # another worker has it: the first result will stand
            except ConboError:
                continue


def _trial(record: Mapping[str, Any]) -> Trial:
    """A trial from its record."""
    measured, reward = record["outcomes"], record["reward"]
    return Trial(
        number=record["number"],
        state=record["state"],
        action=record["action"],
        seed=record["seed"],
        status=record["status"],
        outcomes=None if reward is None else Outcomes(reward, record["noise"], measured),
        error=record["error"],
        worker=record["worker"],
        leased=record["status"] == "running",
        attempts=record["attempts"],
        started=_time(record["started"]),
        finished=_time(record["finished"]),
        late=record["late"],
    )


def _number(trial: Trial | int) -> int:
    number = trial.number if isinstance(trial, Trial) else trial
    if not isinstance(number, int) or isinstance(number, bool):
        raise TrialError(f"a trial must be named by its number, but got {number!r}.")
    return number


def _plain(value: Any) -> Any:
    """A number of NumPy or torch as one of Python."""
    return value.item() if hasattr(value, "item") else value


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
