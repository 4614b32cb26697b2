"""Stores and reads a study's validations: fresh evaluations of its policy, to which no model is fitted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, insert, select, update

from conbo.errors import StudyError
from conbo.record_fields import errors_about, parse_json
from conbo.study.database import Database
from conbo.study.schema import STUDIES, VALIDATIONS

if TYPE_CHECKING:
    from conbo.validation import Validation


class ValidationRecords:
    """The stored validations of one study, each a set of fresh evaluations of its policy."""

    def __init__(self, database: Database, study: int, origin: str) -> None:
        self._database, self._study, self._origin = database, study, origin
        self._of_study = VALIDATIONS.c.study == study

    def all(self) -> list[Validation]:
        """All validations, in the order in which they were begun."""
        from conbo.validation import from_record  # imports NumPy, which reading and telling trials does not need

        query = select(VALIDATIONS.c.number, VALIDATIONS.c.record).where(self._of_study).order_by(VALIDATIONS.c.number)
        rows = self._database.read(lambda connection: connection.execute(query).all())
        known = []
        for row in rows:
            with errors_about(f"{self._origin}: validation {row.number}"):
                known.append(from_record(parse_json(row.record)))
        return known

    def count(self) -> int:
        """Number of validations."""
        query = select(func.count()).select_from(VALIDATIONS).where(self._of_study)
        return self._database.read(lambda connection: connection.scalar(query)) or 0

    def add(self, validation: Validation) -> int:
        """Store a new validation, and return its number within the study."""
        text, created = _text(validation), self._database.read(self._database.now)

        def work(connection: Connection) -> int:
            # wait for other validations, and for an unfinished first attempt of this transaction
            connection.execute(select(STUDIES.c.id).where(STUDIES.c.id == self._study).with_for_update())
            # the validation is already stored if this transaction is repeated, because its confirmation was lost
            same = VALIDATIONS.c.created == created, VALIDATIONS.c.record == text
            mine = connection.scalar(select(VALIDATIONS.c.number).where(self._of_study, *same))
            if mine is not None:
                return int(mine)
            last = connection.scalar(select(func.max(VALIDATIONS.c.number)).where(self._of_study))
            number = 0 if last is None else int(last) + 1
            values = {"study": self._study, "number": number, "record": text, "created": created}
            connection.execute(insert(VALIDATIONS).values(values))
            return number

        return self._database.write(work)

    def replace(self, number: int, validation: Validation) -> None:
        """Replace the stored validation that has this number with `validation`, which has more measurements."""
        change = update(VALIDATIONS).where(self._of_study, VALIDATIONS.c.number == number)
        values = {"record": _text(validation)}
        self._database.write(lambda connection: connection.execute(change.values(values)) and None)


def _text(validation: Validation) -> str:
    try:
        return json.dumps(validation.to_record(), allow_nan=False)
    except ValueError as error:  # a number that is not finite could never be read again
        rule = "a validation must have finite numbers, but some of its numbers overflow"
        raise StudyError(f"{rule}: give the rewards in a larger unit.") from error
