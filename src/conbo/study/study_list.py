"""Lists the studies of a database, with the counts of their trials."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from conbo.study.database import Database
from conbo.study.schema import STUDIES, TRIALS
from conbo.trials import Status


@dataclass(frozen=True)
class ListedStudy:
    """A study's name, the time when it was created (seconds since 1970), and the number of its trials by status."""

    name: str
    created: float
    counts: dict[Status, int]


def list_studies(database: Database) -> list[ListedStudy]:
    """List the studies of a database in the order in which they were created."""

    def work(connection: Connection) -> list[ListedStudy]:
        grouped = select(TRIALS.c.study, TRIALS.c.status, func.count()).group_by(TRIALS.c.study, TRIALS.c.status)
        counts: dict[int, dict[Status, int]] = {}
        for study, status, count in connection.execute(grouped):
            counts.setdefault(study, {})[status] = count
        rows = connection.execute(select(STUDIES.c.id, STUDIES.c.name, STUDIES.c.created).order_by(STUDIES.c.id))
        return [ListedStudy(str(row.name), float(row.created), counts.get(row.id, {})) for row in rows]

    return database.read(work)
