"""Copies and checks an SQLite file, together with its write-ahead log (`-wal`) in the same folder."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from conbo.sqlite_header import MAGIC, read_header


def copy_sqlite(source: str, target: Path) -> None:
    """Copy a consistent snapshot of a database, with the changes in its log, even while other processes write to it.

    If the target is already a database, its content is replaced in one transaction, and processes that have it open see
    the new content. Raises sqlite3.OperationalError if the source or the target stays locked.
    """

    def give_up(status: int, remaining: int, total: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):  # SQLite has waited, and would wait forever
            raise sqlite3.OperationalError("database is locked")

    with closing(_connected(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other, progress=give_up)


def keep_backup(source: str, version: int) -> Path:
    """Copy a database to a new file in its folder, as a backup before a migration; return the path of the copy.

    The name of the copy contains `version`, the version of the tables before the migration.
    """
    path = Path(source)
    names = (f"{path.name}.backup-v{version}{mark}" for mark in ("", *(f"-{n}" for n in range(2, 1000))))
    target = next(free for free in map(path.with_name, names) if not free.exists())
    part = path.with_name(f"{path.name}.backup.part")
    part.unlink(missing_ok=True)
    try:
        copy_sqlite(source, part)
        os.replace(part, target)  # in one step, so that there is a complete backup or none
    finally:
        part.unlink(missing_ok=True)
    return target


def log_size(source: str) -> int:
    """Size of a database's write-ahead log in bytes; 0 if there is none."""
    try:
        return Path(f"{source}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def file_number(path: str) -> int | None:
    """The number by which the file system knows a file, whatever its name; None if there is no file of this name."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def is_cut_off(source: str) -> bool:
    """Whether an SQLite file is truncated, which SQLite itself may not notice.

    The expected length is known only if the write-ahead log is absent or empty; otherwise the result is False. It is
    True only if two looks find the same, because another process may write to the file during a look.
    """
    found = _lengths(source)
    return found is not None and found[0] < found[1] and found == _lengths(source)


def _lengths(source: str) -> tuple[int, int] | None:
    """The length of an SQLite file and its expected length, in bytes; None if the latter is not known."""
    path = Path(source)
    if not path.is_file() or log_size(source):
        return None
    first = read_header(path)
    if len(first) < 100 or not first.startswith(MAGIC):
        return None
    page, pages = int.from_bytes(first[16:18], "big"), int.from_bytes(first[28:32], "big")
    return path.stat().st_size, (65536 if page == 1 else page) * pages


def _connected(source: str) -> sqlite3.Connection:
    return sqlite3.connect(source, uri=source.startswith("file:"))
