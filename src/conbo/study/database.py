"""The database that stores studies, SQLite or PostgreSQL; transactions are retried while it cannot be reached."""

import logging
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, func, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.util import asbool

from conbo.errors import SettingError, StorageError
from conbo.study.schema import migrate, newest_version, schema_version
from conbo.study.sqlite_file import file_number, is_cut_off, keep_backup

Storage: TypeAlias = str | os.PathLike[str]
Result = TypeVar("Result")

PATIENCE = 60.0  # seconds to retry while a database is locked or unreachable
FULL_PATIENCE = 5.0  # seconds to retry while a disk is full
BUSY = 5.0  # seconds for which SQLite itself waits for a lock
MOST_CONNECTED = 8  # largest number of databases on servers to which a process keeps idle connections
CHECKPOINT = 1.0  # least number of seconds between two checkpoints of SQLite's write-ahead log; each takes milliseconds

# connection settings of PostgreSQL: a connection that hangs is abandoned within seconds
POSTGRESQL = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds
}
CREATION_LOCK = 0x636F6E626F  # key of PostgreSQL's advisory lock for creating tables or studies
# When PostgreSQL refuses a connection, its error has a text but no code. Refusals with these texts are permanent.
# Others may be temporary, such as those of a server that restarts or has no free connection.
LASTING_REFUSALS = (
    "authentication failed",
    "does not exist",
    "no password supplied",
    "no pg_hba.conf entry",
    "not permitted to log in",
    "permission denied",
    "resolve host",
    "translate host name",
)

_WAIT_FOR_THE_DISK = text(
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)

_log = logging.getLogger("conbo")


class Database:
    """A database that stores studies: an SQLite file, a PostgreSQL server, or the memory of this process.

    `storage` is a path or a URL; None stands for memory.
    """

    def __init__(self, storage: Storage | None) -> None:
        self.url = _url(storage)
        self.path = _file_of(self.url) if self._sqlite else None  # of the SQLite file; None for memory or a server
        self.in_memory = self._sqlite and self.path is None
        # name for messages, without a password
        self.name = f"'{self.url.database if self._sqlite else self.url.set(query={}).render_as_string()}'"
        self._lock = threading.Lock()  # held during a transaction, so that one connection is enough
        self.n_transactions = 0  # number of transactions since the database was opened
        self._checkpointed = float("-inf")  # time of the last checkpoint, by time.monotonic
        try:
            cut_off = self.path is not None and is_cut_off(self.path)
        except OSError as error:
            raise StorageError(f"the database {self.name} cannot be used: {error.strerror}.") from error
        if cut_off:
            raise StorageError(f"the database {self.name} cannot be used: the file is corrupt, its end is missing.")
        self._connect()

    def exists(self) -> bool:
        """Whether the SQLite file exists; always true for memory and for a server, which is not contacted."""
        return self.path is None or Path(self.path).exists()

    def create(self) -> None:
        """Create the tables, or migrate them to the current version."""
        if self.version() < newest_version():
            self._create()

    def has_tables(self) -> bool:
        """Whether the database has conbo's tables; if they are of an older version, this call migrates them."""
        version = self.version()
        if 0 < version < newest_version():
            self._create()
        return version > 0

    def version(self) -> int:
        """The version of the database's tables; 0 if it has none."""
        return self.read(schema_version)

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run `work` in a transaction that only reads, and return its result.

        In SQLite, all queries of `work` see the same data; PostgreSQL does not guarantee this by default.
        """
        return self._patiently(lambda: self._transaction(work, writing=False, lasting=False))

    def write(self, work: Callable[[Connection], Result], lasting: bool = True) -> Result:
        """Run `work` in one transaction, and return its result.

        With `lasting`, the changes are on the disk when this returns, so that a power cut cannot undo them. `lasting`
        matters only in SQLite. On a server, every transaction is lasting: the server may crash while workers on other
        machines continue, and these must not rely on changes that the crash has undone. If the connection is lost
        before the server has confirmed the transaction, `work` is run again, so running it twice must have the same
        effect as running it once.
        """
        result = self._patiently(lambda: self._transaction(work, writing=True, lasting=lasting))
        if lasting and time.monotonic() - self._checkpointed > CHECKPOINT:
            self.checkpoint()
        return result

    def checkpoint(self) -> None:
        """Merge as much of SQLite's write-ahead log into the database file as is possible without waiting for locks."""
        self._checkpointed = time.monotonic()
        if self.path is not None:
            with self._lock, self._engine.connect() as connection, suppress(sqlite3.Error):
                raw: Any = connection.connection.dbapi_connection
                raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Close the connection; the next transaction opens a new one."""
        self._engine.dispose()

    def release(self) -> None:
        """Close the connection to a server unless a transaction is using it; the next transaction opens a new one."""
        if not self._sqlite and os.getpid() == self._pid and self._lock.acquire(blocking=False):
            try:
                self._engine.dispose()
            finally:
                self._lock.release()

    def now(self, connection: Connection) -> float:
        """Seconds since 1970, by a clock that all workers share."""
        if self._sqlite:
            return time.time()  # workers that share an SQLite file are on one machine
        return float(connection.scalar(select(func.extract("epoch", func.clock_timestamp()))))  # type: ignore[arg-type]

    def exclude_others(self, connection: Connection) -> None:
        """Prevent other processes from creating tables or studies until the end of this transaction."""
        if not self._sqlite:  # SQLite never has two writers
            connection.execute(select(func.pg_advisory_xact_lock(CREATION_LOCK)))

    def _create(self) -> None:
        if self._sqlite and not self.in_memory:
            self._patiently(self._write_ahead)
        self.write(self._migrate)

    def _migrate(self, connection: Connection) -> None:
        self.exclude_others(connection)
        version = schema_version(connection)  # checked again, because another process may have created the tables first
        if self.path is not None and 0 < version < newest_version():
            kept = keep_backup(self.path, version)
            _log.info("The tables of %s are brought up to date; '%s' keeps the file as it was.", self.name, kept)
        migrate(connection)

    @property
    def _sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    def _connect(self) -> None:
        self._pid = os.getpid()
        self._engine = _engine(self.url, self.in_memory)
        weakref.finalize(self, _dispose, self._engine, self._pid)

    def _transaction(self, work: Callable[[Connection], Result], writing: bool, lasting: bool) -> Result:
        if os.getpid() != self._pid and not self.in_memory:  # after a fork, the connection belongs to the parent
            self._engine.dispose(close=False)
            self._lock = threading.Lock()
            self._connect()
        with self._lock, self._engine.connect() as connection:
            if self._sqlite:
                raw: Any = connection.connection.dbapi_connection
                self._check_place(connection.info)
                raw.execute(f"PRAGMA synchronous={'FULL' if lasting else 'NORMAL'}")
                raw.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
            with connection.begin():
                if writing and not self._sqlite:
                    # a server may be set to answer before a commit is on its disk; stricter settings are kept
                    connection.execute(_WAIT_FOR_THE_DISK)
                result = work(connection)
            self.n_transactions += 1
        if not self._sqlite:
            _connected(self._pid).add(self)
        return result

    def _check_place(self, info: dict[Any, Any]) -> None:
        """Raise StorageError if the open SQLite file was moved or deleted, or another one took its place.

        SQLite would go on writing to a file that nobody finds any more. The dictionary `info` of the open connection
        keeps which file it was when the connection was used for the first time.
        """
        if self.path is None:
            return
        if info.setdefault("file", file_number(self.path)) != file_number(self.path):
            why = "the file was moved, replaced or deleted while this program had it open"
            raise StorageError(f"the database {self.name} cannot be used: {why}.")

    def _write_ahead(self) -> None:
        """Turn on SQLite's write-ahead log, so that readers and the writer do not wait for each other."""
        with self._lock, self._engine.connect() as connection:
            raw: Any = connection.connection.dbapi_connection
            raw.execute("PRAGMA journal_mode=WAL")

    def _patiently(self, attempt: Callable[[], Result]) -> Result:
        """Call `attempt` and return its result; after a temporary error, call it again, with short pauses.

        Raises StorageError if the error is permanent, or still occurs after the number of seconds that the function
        `patience` returns for it.
        """
        began, pause, warned = time.monotonic(), 0.02, False
        while True:
            try:
                return attempt()
            except (DBAPIError, self._engine.dialect.loaded_dbapi.Error) as error:
                original = (error.orig or error) if isinstance(error, DBAPIError) else error
                waited = time.monotonic() - began
                what, most = " ".join(str(original).split()), patience(original, reached=self.n_transactions > 0)
                if waited > most:
                    raise StorageError(
                        f"the database {self.name} cannot be used: {what}{self._hint(original)}"
                    ) from error
                if waited > 1 and not warned:
                    _log.warning("the database %s is not available, trying for %g s: %s", self.name, most, what)
                    warned = True
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(1.0, 1.5 * pause)

    def _hint(self, error: BaseException) -> str:
        """A hint at why an SQLite file cannot be opened or written, for the error message; empty if there is none."""
        kind, path = getattr(error, "sqlite_errorname", ""), Path(self.path or "")
        if kind.startswith("SQLITE_IOERR"):
            return " (the disk may be full)"
        if not kind.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
            return ""
        if not path.parent.is_dir():
            return " (the folder does not exist)"
        read_only = [str(place) for place in (path.parent, path) if place.exists() and not os.access(place, os.W_OK)]
        return f" (read-only is {read_only[0]})" if read_only else ""


class _Connected:
    """The databases on servers to which a process has connections, at most `MOST_CONNECTED` idle ones.

    A server has few connections, and a process may use many studies, each with a `Database` of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._databases: dict[int, weakref.ref[Database]] = {}  # by id, the most recently used last

    def add(self, database: Database) -> None:
        """Note that a database was used just now, and close the connection that has not been used for longest."""
        with self._lock:
            self._databases.pop(id(database), None)
            self._databases[id(database)] = weakref.ref(database)
            oldest = list(self._databases)[:-MOST_CONNECTED]
            surplus = [self._databases.pop(key)() for key in oldest]
        for each in surplus:
            if each is not None:
                each.release()


@lru_cache(maxsize=1)
def _connected(pid: int) -> _Connected:
    """The connected databases of the process with this id, because a fork does not share its parent's connections."""
    return _Connected()


def patience(error: BaseException, reached: bool) -> float:
    """Number of seconds for which to retry after this error; 0 if it is permanent.

    `reached` says whether the database has answered before. If it has, a disk error of SQLite or a refused login to a
    server counts as temporary, too.
    """
    if isinstance(error, sqlite3.Error):
        kind = getattr(error, "sqlite_errorname", "")
        if kind.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")):
            return PATIENCE
        if kind.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            return FULL_PATIENCE if reached else 0.0
        return 0.0
    state = getattr(error, "sqlstate", None)
    if state is None:  # the server did not answer, or there is no connection
        if not any(kind.__name__ in ("OperationalError", "InterfaceError") for kind in type(error).__mro__):
            return 0.0
        return 0.0 if not reached and any(refusal in str(error) for refusal in LASTING_REFUSALS) else PATIENCE
    if state.startswith(("08", "40", "53300", "55P03", "57P")):  # connections, conflicts, locks, a server that restarts
        return PATIENCE
    return FULL_PATIENCE if state.startswith("53") else 0.0


def _dispose(engine: Engine, pid: int) -> None:
    """Close the connections of an engine, but only in the process `pid` that opened them, not in a fork of it."""
    if os.getpid() == pid:
        engine.dispose()


def _url(storage: Storage | None) -> URL:
    if storage is None:
        return URL.create("sqlite")
    if not isinstance(storage, str | os.PathLike) or not os.fspath(storage):
        raise SettingError(f"`storage` must be a path, a database URL or None, but got {storage!r}.")
    address = os.fspath(storage)
    if "\0" in address:
        raise SettingError(f"`storage` must not contain the character NUL, but got {address!r}.")
    if "://" not in address:
        return URL.create("sqlite", database=os.path.abspath(address))
    try:
        url = make_url(address)
    except ArgumentError as error:
        raise SettingError(f"`storage` must be a path or a database URL, but got {address!r}.") from error
    kind = url.get_backend_name()
    if kind not in ("sqlite", "postgresql", "postgres"):
        raise SettingError(f"`storage` must be a file or a URL of SQLite or PostgreSQL, but got one of '{kind}'.")
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    if kind == "sqlite" and url.database and not url.database.startswith((":memory:", "file:")):
        return url.set(database=os.path.abspath(url.database))
    return url


def _file_of(url: URL) -> str | None:
    """The absolute path of the file that a URL of SQLite names; None for a database in memory."""
    name = url.database or ":memory:"
    if asbool(url.query.get("uri", False)):  # the database is itself a URI, such as file:study.db
        from urllib.request import url2pathname  # takes time to import

        in_memory = url.query.get("mode") == "memory" or url.query.get("vfs") == "memdb"
        name = ":memory:" if in_memory else url2pathname(urlsplit(name).path)
    return None if name == ":memory:" else os.path.abspath(name)


def _engine(url: URL, in_memory: bool) -> Engine:
    try:
        if url.get_backend_name() != "sqlite":
            options = {name: value for name, value in POSTGRESQL.items() if name not in url.query}
            return create_engine(url, pool_size=1, max_overflow=0, pool_pre_ping=True, connect_args=options)
        pool = {"poolclass": StaticPool} if in_memory else {"pool_size": 1, "max_overflow": 0}
        connect = {"timeout": BUSY, "check_same_thread": False, "isolation_level": None}
        return create_engine(url, connect_args=connect, **pool)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise SettingError(
            f"`storage` needs a driver that is not there ({error}): `pip install conbo[postgres]`."
        ) from None
    except ArgumentError as error:
        raise SettingError(f"`storage` must be a path or a database URL, but got {url}: {error}") from error
