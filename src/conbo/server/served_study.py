"""A study in the main process of the service, with its settings and trials; no model is fitted there."""

import threading
from collections import Counter
from typing import Any

from conbo.errors import StudyError, TrialError
from conbo.study.opening import open_study
from conbo.study.stored import open_stored
from conbo.study.study import Study
from conbo.trials import Status, Trial

STATUSES: tuple[Status, ...] = ("completed", "running", "failed")


class ServedStudy:
    """One study of a database, read over a separate connection, so that readers never wait for writers.

    Parameters
    ----------
    storage
        An SQLite file or the URL of a database.
    name
        Name of the study.

    Raises
    ------
    StudyError
        If there is no such study.
    """

    def __init__(self, storage: str, name: str) -> None:
        self.storage, self.name = storage, name
        self._records, self._settings = open_stored(storage, name)
        self._trials: list[Trial] = []
        self._lock = threading.Lock()
        self.version = 0  # increases whenever changes of trials or settings were read
        self._counted: tuple[int, dict[str, int]] = -1, {}  # cache: a version, and the counts of trials at that version
        self.why_read_only = ""
        self._study: Study | None = None
        try:
            self._study = open_study(storage, name)
        except StudyError as error:
            self.why_read_only = f"the study is read-only here, because {error}"

    def trials(self) -> tuple[Trial, ...]:
        """Return all trials, after reading the changes from the database."""
        with self._lock:
            news = self._records.news()
            if news.settings is not None:
                self._settings = news.settings
            for trial in sorted(news.trials, key=lambda trial: trial.number):
                self._trials[trial.number : trial.number + 1] = [trial]
            self.version += bool(news.trials or news.settings)
            self._records.adopted(news)
            return tuple(self._trials)

    def trial(self, number: int) -> Trial:
        """Return the trial with this number; raise TrialError if there is none."""
        trials = self.trials()
        if not 0 <= number < len(trials):
            known = f"known are 0 to {len(trials) - 1}" if trials else "none was asked for yet"
            raise TrialError(f"unknown trial {number!r}: {known}.")
        return trials[number]

    def writable(self) -> Study:
        """Return the study as a `Study` object, through which it can be changed.

        Raises StudyError if the study has a function (such as `feasible`) or a method of the user's own. The database
        does not store the code of functions and methods, so the service cannot use them.
        """
        if self._study is None:
            raise StudyError(self.why_read_only)
        return self._study

    def counts(self) -> dict[str, int]:
        """Return how many trials are completed, running and failed."""
        self.trials()
        with self._lock:  # another thread may read changes, and the counts must belong to their version
            if self.version != self._counted[0]:  # counts are cached, because many dashboards may ask every second
                found = Counter(trial.status for trial in self._trials)
                self._counted = self.version, {status: found[status] for status in STATUSES}
            return dict(self._counted[1])

    def status(self) -> dict[str, Any]:
        """Return the study's settings and progress, with the keys of `conbo status --json` and the key `read_only`.

        `read_only` says why the service cannot change the study, and is None if it can.
        """
        counts = self.counts()  # reads changes from the database, also those of the settings
        settings = self._settings
        method = settings["method"] if isinstance(settings["method"], str) else settings["method"].get("name")
        return {
            "name": self.name,
            "direction": settings["direction"],
            "method": method,
            "seed": settings["seed"],
            **settings["space"],
            **counts,
            "read_only": self.why_read_only or None,
        }
