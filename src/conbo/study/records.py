"""The records of one study in a database: its trials, and which worker may change which of them.

Conflicts between workers are resolved here, in transactions of a few statements. A transaction that changes the status,
result or owner of a trial first locks the study's row, so that others wait for it. Only one worker at a time may add
trials: it holds the *turn*. To take the turn, a worker writes its name, and the time at which the turn ends, into the
study's row. It then fits its model outside of transactions, because that may take a minute. `lost_workers.py` gives the
trials of lost workers to others.
"""

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, insert, or_, select, update

from conbo.errors import RecordError, StorageError, StudyError, shortened
from conbo.record_fields import Fields, errors_about
from conbo.study.database import Database
from conbo.study.lost_workers import HANDED_BACK, LostWorkers
from conbo.study.schema import FITS, STUDIES, TRIALS
from conbo.study.stored_fields import settings_of
from conbo.study.validation_records import ValidationRecords
from conbo.study.workers import is_gone
from conbo.trials import ENQUEUED, Outcomes, Trial, unlike_before

MAX_ERROR = 10_000  # largest number of characters of an error text that are stored


@dataclass(frozen=True)
class News:
    """The trials and settings of a study that changed in the database since the last news that was `adopted`."""

    trials: list[Trial]
    settings: dict[str, Any] | None  # None if they have not changed
    changes: int  # how often trials had changed when they were read
    revision: int  # how often settings had changed


class Records(LostWorkers):
    """The stored trials and settings of one study, and the transactions by which workers share them."""

    def __init__(self, database: Database, study: int, revision: int = 0, origin: str = "the study") -> None:
        super().__init__(database, study, origin)
        # the study counts the changes of its trials and those of its settings; these are the counts of the adopted news
        self._changes, self._revision = 0, revision
        self._known = 0  # number of trials that have been adopted
        self._created: Any = None  # when the study was created, as first read

    @property
    def study(self) -> int:
        """The study's id in the database."""
        return self._study

    @property
    def shared(self) -> bool:
        """Whether other processes can share the study: True unless its database is in memory."""
        return not self._database.in_memory

    @property
    def n_transactions(self) -> int:
        """Number of transactions since the database was opened."""
        return self._database.n_transactions

    @property
    def validations(self) -> ValidationRecords:
        """The study's validations: fresh evaluations of its policy, which are stored separately from the trials."""
        return ValidationRecords(self._database, self._study, self.origin)

    def release(self) -> None:
        """Close the connection to a PostgreSQL server until the next transaction; an SQLite file stays open."""
        self._database.release()

    def news(self) -> News:
        """The trials and settings that have changed since the last news that was `adopted`."""

        def work(connection: Connection) -> News:
            columns = STUDIES.c.changes, STUDIES.c.revision, STUDIES.c.settings, STUDIES.c.created
            row = self._study_row(connection, *columns)
            with errors_about(self.origin):
                fields = Fields(row._asdict())
                changes, revision = fields.whole("changes"), fields.whole("revision")
                settings = settings_of(row.settings) if revision > self._revision else None
            if self._created not in (None, row.created) or changes < self._changes:  # by a copy over the whole file
                raise StudyError(f"{self.origin}, was replaced while it was in use: open it again.")
            self._created = row.created
            trials = self._trials(connection, TRIALS.c.change > self._changes) if changes > self._changes else []
            return News(trials, settings, changes, revision)

        news, known = self._database.read(work), self._known
        for trial in news.trials:
            if trial.number > known:
                raise RecordError(f"{self.origin}: trial {known} must be there, but is missing.")
            known = max(known, trial.number + 1)
        return news

    def adopted(self, news: News) -> None:
        """Remember that the caller has adopted this news. Until then, even after an error, `news` returns it again."""
        self._known = max([self._known, *(trial.number + 1 for trial in news.trials)])
        self._changes, self._revision = news.changes, news.revision

    def _study_row(self, connection: Connection, *columns: ColumnElement[Any]) -> Row[Any]:
        """Read these columns of the study's row; raise StudyError if the study was deleted."""
        row = connection.execute(select(*columns).where(self._this_study)).one_or_none()
        if row is None:
            raise StudyError(f"the study is no longer in the database {self._database.name}.")
        return row

    def change_settings(self, settings: dict[str, Any]) -> None:
        """Replace the stored settings; only the worker whose turn it is to add trials may call this."""
        values = {"settings": json.dumps(settings), "revision": STUDIES.c.revision + 1}
        change = update(STUDIES).where(self._this_study).values(values)
        self._database.write(lambda connection: connection.execute(change) and None)

    def settle(self) -> None:
        """Merge SQLite's write-ahead log, which holds the newest records, into the database file."""
        self._database.checkpoint()

    # Fitted hyperparameters, which workers share

    def read_fit(self, key: str) -> str | None:
        """The fitted hyperparameters, as text, that some worker stored under this key; None if there are none."""
        query = select(FITS.c.fit).where(FITS.c.study == self._study, FITS.c.key == key)
        fit = self._database.read(lambda connection: connection.scalar(query))
        return fit if isinstance(fit, str) else None

    def write_fit(self, key: str, text: str) -> None:
        """Store fitted hyperparameters for other workers, unless some are already stored under this key.

        Errors of the database are ignored, because other workers can compute the fit again.
        """
        values = {"study": self._study, "key": key, "fit": text}

        def work(connection: Connection) -> None:
            known = select(FITS.c.key).where(FITS.c.study == self._study, FITS.c.key == key)
            if connection.scalar(known) is None:
                connection.execute(insert(FITS).values(values))

        with suppress(StorageError):
            self._database.write(work, lasting=False)

    # The right to suggest the next trial

    def take_turn(self, worker: str, seconds: float) -> bool:
        """Try to take the turn, the sole right to add trials, for this many seconds; return whether that worked."""

        def holder(connection: Connection) -> tuple[str | None, float | None, bool]:
            row = self._study_row(connection, STUDIES.c.suggesting, STUDIES.c.suggesting_until)
            with errors_about(self.origin):
                fields = Fields(row._asdict())
                name = fields.text("suggesting") if fields.has("suggesting") else None
                until = None if name is None else fields.number("suggesting_until")
            free = name in (None, worker) or (until or 0.0) < self._database.now(connection) or is_gone(name)
            return name, until, free

        def take(connection: Connection) -> bool:
            unchanged = and_(
                STUDIES.c.suggesting.is_not_distinct_from(name), STUDIES.c.suggesting_until.is_not_distinct_from(until)
            )
            free = or_(unchanged, STUDIES.c.suggesting == worker)
            values = {"suggesting": worker, "suggesting_until": self._database.now(connection) + seconds}
            return connection.execute(update(STUDIES).where(self._this_study, free).values(values)).rowcount == 1

        name, until, free = self._database.read(holder)
        return free and self._database.write(take, lasting=False)

    def end_turn(self, worker: str) -> None:
        """End the worker's turn (its sole right to add trials), so that another worker may take the turn."""
        values = {"suggesting": None, "suggesting_until": None}
        mine = STUDIES.c.suggesting == worker
        end = update(STUDIES).where(self._this_study, mine).values(values)
        self._database.write(lambda connection: connection.execute(end) and None, lasting=False)

    def renew(self, worker: str, numbers: Collection[int], lease: float, turn: float | None) -> int:
        """Extend the worker's leases on the trials with these numbers; return how many of these trials it still has.

        The leases then end `lease` seconds from now. Unless `turn` is None, the worker's turn to add trials is extended
        too, and ends `turn` seconds from now.
        """

        def work(connection: Connection) -> int:
            now = self._database.now(connection)
            if turn is not None:
                mine = STUDIES.c.suggesting == worker
                values = {"suggesting_until": now + turn}
                connection.execute(update(STUDIES).where(self._this_study, mine).values(values))
            if not numbers:
                return 0
            mine = and_(self._leased_to(worker), TRIALS.c.number.in_(numbers))
            return connection.execute(update(TRIALS).where(mine).values(leased_until=now + lease)).rowcount

        return self._database.write(work, lasting=False)

    # Trials

    def add(self, trials: Sequence[Trial], worker: str, lease: float | None = None, owner: str | None = None) -> bool:
        """Record new trials, and end the worker's turn, which is the sole right to add trials.

        Return False, and record nothing, if the worker no longer had the turn. Running trials, except enqueued ones,
        are leased to the worker for `lease` seconds, or assigned to it for good if `lease` is None. If an `owner` is
        given, such as a client that asked through this worker, these trials belong to the owner instead, and their
        evaluation counts as begun.
        """

        def work(connection: Connection) -> bool:
            change = self._lock(connection)
            holder = connection.scalar(select(STUDIES.c.suggesting).where(self._this_study))
            # the worker's turn has ended, or this transaction is repeated because the first confirmation was lost
            if holder != worker:
                numbers = [trial.number for trial in trials]
                mine = TRIALS.c.worker.in_([owner or worker, ENQUEUED])
                there = self._trials(connection, TRIALS.c.number.in_(numbers), mine)
                return there == list(trials)
            now = self._database.now(connection)
            values = {"suggesting": None, "suggesting_until": None, "changes": change}
            connection.execute(update(STUDIES).where(self._this_study).values(values))
            common = {"study": self._study, "change": change}
            whose = [_ownership(trial, owner or worker, now, lease, begun=owner is not None) for trial in trials]
            rows = [common | _columns(trial) | its for trial, its in zip(trials, whose, strict=True)]
            connection.execute(insert(TRIALS), rows)
            return True

        # A power cut would also end the evaluations of a run, which then suggests its trials again. So only the trials
        # of other callers must be on the disk.
        return self._database.write(work, lasting=lease is None or owner is not None)

    def begin(self, number: int, worker: str) -> bool:
        """Record that the worker begins to evaluate a leased trial; return whether it still has the trial."""

        def work(connection: Connection) -> bool:
            change = self._lock(connection)
            trial = self._trial(connection, number)
            if trial.status != "running" or trial.worker != worker:
                return False
            self._update(connection, number, change, {"started": self._database.now(connection)})
            return True

        return self._database.write(work, lasting=False)

    def tell(self, number: int, outcomes: Outcomes, worker: str | None = None) -> bool:
        """Record the outcomes of a trial, and return whether they count as its result.

        If `worker` has lost its lease, another worker may have ended the trial first. Then the first result counts, and
        the new reward, if it differs, is stored in the trial's field `late`. Without a `worker`, TrialError is raised
        if a different result was recorded before. RewardError is raised if a noise variance is given although completed
        trials have none, or the reverse.
        """

        def work(connection: Connection) -> bool:
            change = self._lock(connection)
            trial = self._trial(connection, number)
            if worker is not None and trial.status != "running":
                if outcomes.reward != trial.reward:
                    self._update(connection, number, change, {"late": outcomes.reward})
                # the worker's own result is already stored if this transaction is repeated
                return outcomes == trial.outcomes and trial.worker == worker
            told = trial.told(outcomes)
            if told == trial:
                return True
            other = TRIALS.c.noise.is_(None) if told.noise is not None else TRIALS.c.noise.is_not(None)
            unlike = select(TRIALS.c.number).where(self._of_study, TRIALS.c.status == "completed", other).limit(1)
            if connection.scalar(unlike) is not None:
                raise unlike_before(told)
            values = {"leased_until": None, "finished": self._database.now(connection)} | _results(told)
            self._update(connection, number, change, values | ({"worker": worker} if worker else {}))
            return True

        return self._database.write(work)

    def fail(self, number: int, error: str, worker: str | None = None) -> bool:
        """Record that a trial has failed, and return True.

        If `worker` no longer has the trial, record nothing and return False.
        """

        def work(connection: Connection) -> bool:
            change = self._lock(connection)
            trial = self._trial(connection, number)
            if worker is not None and (trial.status != "running" or trial.worker != worker):
                # the worker's own failure is already stored if this transaction is repeated
                return trial.status == "failed" and trial.worker == worker and trial.error == _storable(error)
            failed = trial.failed(_storable(error))
            if failed != trial:
                now = self._database.now(connection)
                values = {"status": "failed", "error": failed.error, "finished": now, "leased_until": None}
                self._update(connection, number, change, values)
            return True

        return self._database.write(work)

    def try_again(self, number: int, error: str, worker: str) -> bool:
        """Record that an evaluation failed and will be repeated; return whether the worker still has the trial."""
        # read before the transaction, so that an attempt counts once if the transaction is repeated
        attempts = self._database.read(lambda connection: self._trial(connection, number)).attempts + 1

        def work(connection: Connection) -> bool:
            change = self._lock(connection)
            trial = self._trial(connection, number)
            if trial.status != "running" or trial.worker != worker:
                return False
            now = self._database.now(connection)
            values = {"error": _storable(error), "attempts": attempts, "started": now}
            self._update(connection, number, change, values)
            return True

        return self._database.write(work)

    def take_enqueued(self, numbers: Sequence[int], worker: str, lease: float | None = None) -> list[int]:
        """Assign enqueued trials to the worker for `lease` seconds, or for good if `lease` is None.

        `numbers` are the numbers of the trials. Trials that another worker has taken first are skipped. Return
        those of `numbers` that now belong to `worker`, including any that it already had before the call.
        """

        def work(connection: Connection) -> list[int]:
            change = self._lock(connection)
            asked_for = TRIALS.c.number.in_(numbers)
            taken = [t.number for t in self._trials(connection, asked_for) if t.is_enqueued or t.worker == worker]
            now = self._database.now(connection)
            values = {"worker": worker, "leased_until": None if lease is None else now + lease, "started": now}
            for number in taken:
                self._update(connection, number, change, values)
            return taken

        return self._database.write(work)


def _columns(trial: Trial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "state": json.dumps(trial.state),
        "action": json.dumps(trial.action),
        "seed": trial.seed,
        **_results(trial),
    }


def _results(trial: Trial) -> dict[str, Any]:
    measured = json.dumps(dict(trial.measured)) if trial.measured else None
    return {"status": trial.status, "reward": trial.reward, "noise": trial.noise, "outcomes": measured}


def _ownership(trial: Trial, worker: str, now: float, lease: float | None, begun: bool) -> dict[str, Any]:
    """The columns of a new trial that say whose it is, when it started and finished, and when its lease ends."""
    if trial.is_enqueued:
        return {"worker": ENQUEUED, "started": None, "finished": None, "leased_until": HANDED_BACK}
    if trial.status == "running" and lease is not None:
        started = now if begun else None
        return {"worker": worker, "started": started, "finished": None, "leased_until": now + lease}
    finished = None if trial.status == "running" else now
    return {"worker": worker, "started": now, "finished": finished, "leased_until": None}


def _storable(text: object) -> str:
    """Convert an object to a string that every database accepts, shortened to MAX_ERROR characters and a remark.

    None becomes "".
    """
    text = "" if text is None else str(text)
    return shortened(text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8"), MAX_ERROR)
