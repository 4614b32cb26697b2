"""A client of the service that `conbo serve` runs: most methods of a study, over HTTP, without torch or a database."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from datetime import datetime
from numbers import Integral
from typing import TYPE_CHECKING, Any, overload
from urllib.parse import quote, urlencode

from conbo.client_run import LEASE, ClientRun
from conbo.connection import Connection
from conbo.cost_rules import with_cost
from conbo.errors import SettingError, TrialError
from conbo.names import check_study_name
from conbo.remote_policy import PAGE, RemotePolicy
from conbo.spaces import Point
from conbo.trials import Outcomes, Trial

if TYPE_CHECKING:
    from conbo.study.executors import AnyObjective
    from conbo.study.run_summary import RunSummary

__all__ = ["Client", "RemotePolicy"]


class Client:
    """A study on a service that `conbo serve` runs, with most methods of `Study`.

    Requests that get no response, or find the service busy, are repeated for up to a minute, except those of `enqueue`.
    The service handles a repeated request only once.

    Parameters
    ----------
    url
        Address of the service, such as ``http://127.0.0.1:8080``.
    token
        A token that ``conbo token`` has printed; a service on this machine may need none.
    name
        Name of the study.
    worker
        Name of this client in lists of workers; by default the name of the machine.
    timeout
        Seconds to wait for a response. A suggestion may have to wait until other clients have received theirs.

    Raises
    ------
    SettingError
        If the URL is malformed, does not begin with http:// or https://, or contains a user name, a password or a
        query; if the token or the name of the study is not valid; or if the timeout is out of range.

    Examples
    --------
    >>> client = conbo.Client("http://127.0.0.1:8080", name="warehouse")
    >>> client
    Client('http://127.0.0.1:8080', name='warehouse')
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
        check_study_name(name)
        self.name = name
        self._connection = Connection(url, token, timeout)
        self._path = f"/v1/studies/{quote(name, safe='')}"
        self._worker = worker or socket.gethostname()[:60] or "client"

    def __repr__(self) -> str:
        return f"Client({self._connection.url!r}, name={self.name!r})"

    def status(self, *, model: bool = False) -> dict[str, Any]:
        """Return settings and progress of the study.

        Parameters
        ----------
        model
            Whether to add a summary of what was learned, for which the service has to fit a model.

        Returns
        -------
        dict
            Settings and progress, with the keys of ``conbo status --json``.

        Raises
        ------
        StudyError
            If the service has no study of this name, or if `model` is True and the service can only read the study.
        ConboError
            If `model` is True and no trial is completed yet, unless the study has a `prior`.
        AccessError
            If the service refuses the request.
        StorageError
            If the service, or its database, cannot be reached.
        """
        return self._get(f"?{urlencode({'model': 'true'})}" if model else "")

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials of the study, in the order of their numbers."""
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
        """Suggest the next trial, or several together.

        Enqueued trials come first; with a `state`, only those in that state.

        Parameters
        ----------
        n
            Number of trials; without it, a single trial is returned instead of a list.
        state
            The state that the environment has set; by default, the method chooses it.
        lease
            Seconds for which the trial is yours; `renew` extends this time. Afterwards, another worker may get it.

        Returns
        -------
        Trial or list of Trial
            The trial or trials to evaluate.

        Raises
        ------
        PointError
            If the state does not belong to the space or has no feasible action.
        AccessError
            If the service refuses the request.
        """
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
        """Record the reward of a trial. Repeating the same call has no effect.

        Parameters
        ----------
        trial
            The trial or its number.
        reward
            The reward as the objective returns it, whether it is maximized or minimized.
        noise
            Noise variance of the reward. Give it for all trials of a study or for none.
        outcomes
            Further results by name, such as ``{"wait": 4.2}``.
        cost
            What the evaluation cost, for a study with ``cost="learned"``.

        Raises
        ------
        TrialError
            If the trial is unknown, has failed, or already has a result that differs from this one.
        RewardError
            If a value is not one finite number, or a constrained outcome or a required cost is missing.
        AccessError
            If the service refuses the request.
        """
        told = Outcomes(reward, noise, with_cost(outcomes, cost))  # plain numbers, because JSON cannot hold others
        body = {"reward": told.reward, "noise": told.noise, "outcomes": dict(told.measured)}
        self._post(f"/trials/{_number(trial)}/tell", body)

    def fail(self, trial: Trial | int, error: str = "") -> None:
        """Record that a trial will not get a reward.

        Parameters
        ----------
        trial
            The trial or its number. If it is the trial that `ask` returned, and another worker has taken it over since,
            nothing happens.
        error
            Why it failed. Without an error, the trial is canceled, and nothing is learned from it.

        Raises
        ------
        TrialError
            If the trial is unknown or already has a reward.
        """
        worker = trial.worker if isinstance(trial, Trial) else None
        owner = worker if worker and "/" in worker else None  # the slash marks the trials that `ask` has leased
        body = {"error": "" if error is None else str(error), "worker": owner}
        _trial(self._post(f"/trials/{_number(trial)}/fail", body)["trial"]).failed()  # an error if it has a reward

    def renew(self, trial: Trial, lease: float = LEASE) -> None:
        """Extend the lease of a trial, so that no other worker gets it.

        Parameters
        ----------
        trial
            The trial, as `ask` returned it.
        lease
            Seconds from now for which it is yours.

        Raises
        ------
        TrialError
            If another worker has the trial, or it has ended.
        """
        self._post(f"/trials/{trial.number}/renew", {"worker": trial.worker, "lease": lease})

    def release(self, trial: Trial) -> None:
        """Give a trial back, so that another worker can have it immediately.

        Parameters
        ----------
        trial
            The trial, as `ask` returned it.
        """
        self._post(f"/trials/{trial.number}/release", {"worker": trial.worker})

    def enqueue(self, state: Point, action: Point, seed: int | None = None) -> Trial:
        """Enqueue a point of your own, which is then evaluated before further suggestions.

        Parameters
        ----------
        state, action
            The point to evaluate.
        seed
            Seed of the simulator, in a study with common random numbers.

        Returns
        -------
        Trial
            The trial, which waits to be evaluated.

        Raises
        ------
        PointError
            If the point does not belong to the space.
        """
        return _trial(self._post("/trials", {"state": state, "action": action, "seed": seed}, again=False))

    def policy(self, *, fresh: bool = True) -> RemotePolicy:
        """Return the policy, which sends a request to the service for every action.

        Parameters
        ----------
        fresh
            Whether requests wait until the service has fitted the model to all rewards. Otherwise they do not wait, and
            the actions may ignore the latest rewards.

        Returns
        -------
        RemotePolicy
            A function from states to actions.
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
        """Evaluate an objective in this process until the study has enough completed trials.

        Any number of clients may do this at the same time, and share the evaluations. While the objective runs, a
        thread renews the lease of its trial.

        Parameters
        ----------
        objective
            Called as ``objective(state, action)`` with two dicts; in a study with common random numbers, as
            ``objective(state, action, seed)``; returns the reward, or a mapping, as in `Study.run`.
        evaluations
            Number of completed trials of the study, including those of other clients, at which the run ends.
        retries
            Number of times a failed evaluation is repeated.
        max_seconds
            Seconds after which no new evaluation begins.
        lease
            Seconds without a renewal after which other workers may take over the trial.

        Returns
        -------
        RunSummary
            How many trials this client has completed and failed, and why the run ended.

        Raises
        ------
        SettingError
            If the objective cannot be called, or a setting is out of range.
        ConboError
            If ten trials in a row failed.
        AccessError
            If the service refuses a request.
        """
        if not callable(objective):
            raise SettingError(f"`objective` must be a function of state and action, but got {objective!r}.")
        return ClientRun(self, objective, evaluations, retries, max_seconds, lease)()

    def _ask(self, body: dict[str, Any]) -> list[Trial]:
        # all attempts have the same key, so that a repeated request gets the same trials
        answer = self._post("/ask", {**body, "key": secrets.token_hex(16), "worker": self._worker})
        return [_trial(record) for record in answer["trials"]]

    def _get(self, path: str) -> dict[str, Any]:
        return self._connection.call("GET", f"{self._path}{path}")

    def _post(self, path: str, body: dict[str, Any], again: bool = True) -> dict[str, Any]:
        return self._connection.call("POST", f"{self._path}{path}", body, again)


def _trial(record: Mapping[str, Any]) -> Trial:
    """Create a trial from its JSON record in a response from the service."""
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
    if not isinstance(number, Integral) or isinstance(number, bool):
        raise TrialError(f"a trial must be named by its number, but got {number!r}.")
    return int(number)  # of NumPy, for example


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
