"""Converts trials and studies to dicts that JSON can hold, and checks the fields of a request for trials.

These fields are the number of trials that the client wants, the label of its worker, an idempotency key, and the length
of the lease in seconds.
"""

import hashlib
import secrets
from datetime import datetime
from typing import Any

from conbo.errors import ConboError, SettingError, shortened
from conbo.spaces import is_number
from conbo.study.study_list import ListedStudy
from conbo.trials import Trial

LEASE = 300.0  # seconds for which a trial is leased, unless the client says otherwise
MAX_LEASE = 604_800.0  # seconds: a week
MAX_TRIALS = 100  # largest number of trials in one request
MAX_LABEL = 60  # largest number of characters in a worker's label
MAX_KEY = 200  # largest number of characters in an idempotency key


class UnknownError(ConboError):
    """Raised for a study or a trial that does not exist; `kind` is "StudyError" or "TrialError", as in the library."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def trial_record(trial: Trial) -> dict[str, Any]:
    """Return everything that is recorded about a trial, as a dict that JSON can hold."""
    return {
        "number": trial.number,
        "state": trial.state,
        "action": trial.action,
        "seed": trial.seed,
        "status": trial.status,
        "reward": trial.reward,
        "noise": trial.noise,
        "outcomes": dict(trial.measured),
        "error": trial.error,
        "worker": trial.worker,
        "attempts": trial.attempts,
        "started": _time(trial.started),
        "finished": _time(trial.finished),
        "late": trial.late,
    }


def listed_record(study: ListedStudy) -> dict[str, Any]:
    """Return a study's name, time of creation and counts of trials, as the list of all studies shows them."""
    counts = {status: study.counts.get(status, 0) for status in ("completed", "running", "failed")}
    return {"name": study.name, "created": study.created, **counts}


def owner_name(worker: Any, key: Any) -> str:
    """Return the name under which trials are leased: the client's label, a slash, and a hash of the idempotency key.

    The slash distinguishes this name from that of a process. A trial of a client can be taken over only when its lease
    has ended, but a trial of a process as soon as the process has ended.

    Parameters
    ----------
    worker
        The label that the client has given, or None.
    key
        The idempotency key that the client has given; None stands for a random one.

    Returns
    -------
    str
        The name, which is the same for the same label and key.

    Raises
    ------
    SettingError
        If the label or the key is not a string, is empty or is too long, or the label is not printable.
    """
    label = "client" if worker is None else worker
    if not isinstance(label, str) or not 0 < len(label) <= MAX_LABEL or not label.isprintable():
        rule = f"`worker` must be a printable text of 1 to {MAX_LABEL} characters"
        raise SettingError(f"{rule}, but got {shortened(repr(label))}.")
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= MAX_KEY):
        raise SettingError(f"`key` must be a string of 1 to {MAX_KEY} characters, but got {shortened(repr(key))}.")
    text = secrets.token_hex(16) if key is None else key
    return f"{label}/{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()[:16]}"


def checked_lease(lease: Any) -> float:
    """Return a lease in seconds as a float; raise SettingError unless it is positive and at most a week."""
    if not (is_number(lease) and 0 < lease <= MAX_LEASE):
        raise SettingError(f"`0 < lease <= {MAX_LEASE:g}` must hold, but got lease={shortened(repr(lease))}.")
    return float(lease)


def checked_number_of_trials(n: Any) -> int:
    """Return the number of trials that a client asks for; raise SettingError unless it is from 1 to MAX_TRIALS."""
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_TRIALS:
        raise SettingError(f"`n` must be an integer from 1 to {MAX_TRIALS}, but got n={shortened(repr(n))}.")
    return n


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
