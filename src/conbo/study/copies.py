"""Copies stored studies to an SQLite file, even while other processes write to the studies' database.

SQLite keeps the newest changes to `study.db` in a second file, `study.db-wal`, until it merges them into `study.db`. A
plain copy of `study.db` may therefore lack the newest changes.
"""

import os
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Connection, insert, select, update

from conbo.errors import StorageError
from conbo.sqlite_header import is_sqlite
from conbo.study.database import Database, Storage
from conbo.study.schema import STUDIES, TRIALS, VALIDATIONS
from conbo.study.sqlite_file import copy_sqlite
from conbo.study.stored import open_stored


def copy_study(storage: Storage, name: str, target: Path, overwrite: bool = False) -> None:
    """Copy a study to an SQLite file.

    If the study is stored in an SQLite file, all studies of that file are copied. If it is stored on a PostgreSQL
    server, only this study is copied. Raises StorageError if the target exists and `overwrite` is False, or if the
    target is the study's own file.
    """
    if target.exists() and not overwrite:
        raise StorageError(f"a copy must not replace a file, but '{target}' exists already.")
    records, _ = open_stored(storage, name)  # raises if there is no such study
    database = Database(storage)
    if database.path is not None and target.exists() and os.path.realpath(database.path) == os.path.realpath(target):
        raise StorageError(f"a copy must not replace the database that it is made from, but got '{target}'.")
    try:
        with TemporaryDirectory(dir=target.parent, prefix=".conbo-copy-") as folder:
            part = Path(folder) / "part.db"
            if database.path is not None:
                copy_sqlite(database.path, part)
            else:
                _copy_rows(database, records.study, part)
            _end_turns(part)
            _put(part, target)
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"the copy '{target}' cannot be written: {error}") from error


def _put(part: Path, target: Path) -> None:
    """Move the finished copy `part` to the target; if the target is already a database, let SQLite replace its content.

    Another process may have the target open, and the target's write-ahead log may hold changes. Only SQLite itself can
    replace the file and the log together.
    """
    if is_sqlite(target):
        copy_sqlite(str(part), target)
        return
    log = target.with_name(f"{target.name}-wal")
    if log.exists():
        raise StorageError(f"a copy must not get the log of another database, but '{log}' exists: remove it first.")
    os.replace(part, target)


def _end_turns(path: Path) -> None:
    """End all turns in a copied database; a turn is a worker's sole right to suggest trials of a study.

    The workers continue with the original database, so none of them would end its turn in the copy.
    """

    def end(connection: Connection) -> None:
        connection.execute(update(STUDIES).values(suggesting=None, suggesting_until=None))

    copy = Database(path)
    try:
        copy.write(end)
    finally:
        copy.close()


def _copy_rows(database: Database, study: int, target: Path) -> None:
    def read(connection: Connection) -> list[list[dict[str, object]]]:
        queries = [select(STUDIES).where(STUDIES.c.id == study)]
        queries += [select(table).where(table.c.study == study) for table in (TRIALS, VALIDATIONS)]
        return [[dict(row) for row in connection.execute(query).mappings()] for query in queries]

    def write(connection: Connection) -> None:
        for table, rows in zip((STUDIES, TRIALS, VALIDATIONS), database.read(read), strict=True):
            if rows:
                connection.execute(insert(table), rows)

    copy = Database(target)
    try:
        copy.create()
        copy.write(write)
    finally:
        copy.close()
