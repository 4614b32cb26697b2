"""Copies stored studies to an SQLite file, even while other processes write to their database.

SQLite keeps the newest changes to `study.db` in a second file, `study.db-wal`, until it merges them into `study.db`. A
plain copy of `study.db` may therefore lack the newest changes.
"""

import os
import sqlite3
from pathlib import Path

from sqlalchemy import Connection, insert, select

from conbo.errors import StorageError
from conbo.study.database import Database, Storage
from conbo.study.schema import STUDIES, TRIALS, VALIDATIONS
from conbo.study.sqlite_file import copy_sqlite
from conbo.study.stored import open_stored


def copy_study(storage: Storage, name: str, target: Path, overwrite: bool = False) -> None:
    """Copy a study to a new SQLite file.

    If the study is stored in an SQLite file, all studies of that file are copied; from a PostgreSQL server, only this
    one is. Raises StorageError if the target exists, unless `overwrite` is True.
    """
    if target.exists() and not overwrite:
        raise StorageError(f"a copy must not replace a file, but '{target}' exists already.")
    records, _ = open_stored(storage, name)  # raises if there is no such study
    database = Database(storage)
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        if database.path is not None:
            copy_sqlite(database.path, part)
        else:
            _copy_rows(database, records.study, part)
        os.replace(part, target)
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"the copy '{target}' cannot be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)


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
