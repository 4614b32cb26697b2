"""Reads, checks, locks and updates the rows of one study in a database, inside a transaction."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, select, update

from conbo.errors import RecordError
from conbo.record_fields import errors_about
from conbo.study.database import Database
from conbo.study.schema import STUDIES, TRIALS
from conbo.study.stored_fields import check_trial, trial_of
from conbo.trials import Trial


class StudyRows:
    """Reads and writes the row of a study and the rows of its trials; `origin` names the study in error messages."""

    def __init__(self, database: Database, study: int, origin: str) -> None:
        self._database, self._study, self.origin = database, study, origin
        self._this_study, self._of_study = STUDIES.c.id == study, TRIALS.c.study == study

    def _leased_to(self, worker: str) -> ColumnElement[bool]:
        mine = TRIALS.c.worker == worker, TRIALS.c.status == "running", TRIALS.c.leased_until.is_not(None)
        return and_(self._of_study, *mine)

    def _lock(self, connection: Connection) -> int:
        """Lock the study's row until the transaction ends; return the number of the next change to its trials.

        The study counts all changes to its trials, so that a reader can fetch only what has changed.
        """
        changes = connection.scalar(select(STUDIES.c.changes).where(self._this_study).with_for_update())
        return int(changes or 0) + 1

    def _rows(self, connection: Connection, *conditions: ColumnElement[bool]) -> Sequence[Row[Any]]:
        rows = connection.execute(select(TRIALS).where(self._of_study, *conditions).order_by(TRIALS.c.number)).all()
        for row in rows:
            with errors_about(f"trial {row.number} of {self.origin}"):
                check_trial(row._asdict())
        return rows

    def _trials(self, connection: Connection, *conditions: ColumnElement[bool]) -> list[Trial]:
        trials = []
        for row in self._rows(connection, *conditions):
            with errors_about(f"trial {row.number} of {self.origin}"):
                trials.append(trial_of(row._asdict()))
        return trials

    def _trial(self, connection: Connection, number: int) -> Trial:
        trials = self._trials(connection, TRIALS.c.number == number)
        if not trials:
            raise RecordError(f"{self.origin}: trial {number} must be there, but is missing.")
        return trials[0]

    def _update(self, connection: Connection, number: int, change: int, values: dict[str, Any]) -> None:
        this = and_(self._of_study, TRIALS.c.number == number)
        connection.execute(update(TRIALS).where(this).values(change=change, **values))
        connection.execute(update(STUDIES).where(self._this_study).values(changes=change))
