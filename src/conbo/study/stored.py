"""Creates, resumes, opens and lists the studies of a database by their names."""

import json
from collections.abc import Collection, Mapping
from importlib.metadata import version
from typing import Any

from sqlalchemy import Connection, insert, select

from conbo.errors import RecordError, StorageError, StudyError
from conbo.names import check_study_name, is_encodable
from conbo.record_fields import Fields, errors_about
from conbo.study.database import Database, Storage
from conbo.study.differences import differences
from conbo.study.records import Records
from conbo.study.schema import STUDIES
from conbo.study.stored_fields import settings_of

# settings that a user may leave out when a study is resumed; it then keeps the stored ones
MAY_BE_LEFT_OUT = ("model", "seed", "initial", "failures")
TAKEN_ONCE = ("prior",)  # settings that matter only when a study is created, because what they name may have changed


def study_names(storage: Storage) -> list[str]:
    """List the studies in a database.

    Parameters
    ----------
    storage
        Path of an SQLite file, or URL of a PostgreSQL database.

    Returns
    -------
    list of str
        The names, in the order in which the studies were created.

    Raises
    ------
    StorageError
        If there is no such database, or it cannot be read.

    Examples
    --------
    >>> study = conbo.Study(space, storage="warehouse.db", name="monday")
    >>> conbo.study_names("warehouse.db")
    ['monday']
    """
    return _names(_existing(storage))


def names_in(storage: Storage) -> list[str]:
    """List the studies in a database, like `study_names`; the list is empty if there is no such database."""
    database = Database(storage)
    return _names(database) if database.exists() else []


def open_stored(storage: Storage, name: str) -> tuple[Records, dict[str, Any]]:
    """Open a stored study without its model; return its `Records` and its stored settings.

    Raises StudyError, which lists the names of all studies, if there is no such study.
    """
    database = _existing(storage)
    # a database raises an error if it is asked for a text that it cannot hold
    there = database.has_tables() and isinstance(name, str) and is_encodable(name) and "\0" not in name
    row = database.read(lambda connection: _find(connection, name)) if there else None
    if row is None:
        raise _missing(database, name)
    records = _records(database, row)
    with errors_about(records.origin):
        return records, settings_of(row.settings)


def _missing(database: Database, name: str) -> StudyError:
    names = _names(database)
    if name in names:  # the study was created just now, or the database's index of names is damaged
        return StudyError(f"the study {name!r} could not be found in the database {database.name}.")
    present = f"there are {', '.join(map(repr, names))}" if names else "there is none"
    return StudyError(f"there is no study {name!r} in the database {database.name}: {present}.")


def create_or_resume(
    database: Database,
    name: str,
    settings: dict[str, Any],
    not_given: Collection[str],
) -> tuple[Records, dict[str, Any]]:
    """Create a study, or resume the stored one of this name; return its `Records` and its stored settings.

    Raises StudyError if there are `changed_settings`. A study that an older version of conbo created may lack a newer
    setting. If the user does not give this setting either, the study behaves as it did in that version.
    """
    check_study_name(name)

    def create(connection: Connection) -> Any:
        database.exclude_others(connection)
        if (row := _find(connection, name)) is None:
            values = {"name": name, "settings": json.dumps(settings), "version": version("conbo")}
            connection.execute(insert(STUDIES).values(**values, created=database.now(connection)))
            row = _find(connection, name)
        return row

    database.create()
    row = database.read(lambda connection: _find(connection, name)) or database.write(create)
    with errors_about(_origin(database, row)):
        stored = settings_of(row.settings)
    if lines := changed_settings(stored, settings, not_given):
        raise StudyError(
            f"the study {name!r} in the database {database.name} was begun with other settings (stored → given):\n  "
            + "\n  ".join(lines)
            + "\nGive it the stored ones, open it with conbo.open_study, or choose another name for a new study."
        )
    return _records(database, row), stored


def changed_settings(stored: Mapping[str, Any], given: Mapping[str, Any], not_given: Collection[str]) -> list[str]:
    """List the settings of a stored study that a user gives another value, as lines such as `seed: 1 → 2`.

    `not_given` names the settings that the user did not give. For these, and for those that are `TAKEN_ONCE`, a study
    keeps its stored values. A setting that is given but not stored is listed, too.
    """
    wanted = {key: value for key, value in given.items() if key not in not_given}
    wanted |= {key: stored[key] for key in (*not_given, *TAKEN_ONCE) if stored.get(key) is not None}
    return list(differences(stored, json.loads(json.dumps(wanted))))


def _records(database: Database, row: Any) -> Records:
    origin = _origin(database, row)
    with errors_about(origin):
        return Records(database, row.id, Fields(row._asdict()).whole("revision"), origin)


def _origin(database: Database, row: Any) -> str:
    return f"the study {row.name!r} in the database {database.name}, created by conbo {row.version}"


def _existing(storage: Storage) -> Database:
    database = Database(storage)
    if not database.exists():
        raise StorageError(f"there is no database {database.name}.")
    return database


def _names(database: Database) -> list[str]:
    if not database.has_tables():
        return []
    names = database.read(lambda connection: connection.scalars(select(STUDIES.c.name).order_by(STUDIES.c.id)).all())
    for name in names:
        if not isinstance(name, str):
            raise RecordError(f"a study's name must be a string, but got {name!r} in the database {database.name}.")
    return list(names)


def _find(connection: Connection, name: str) -> Any:
    return connection.execute(select(STUDIES).where(STUDIES.c.name == name)).one_or_none()
