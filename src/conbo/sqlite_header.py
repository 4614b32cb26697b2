"""Reads the first bytes of an SQLite file, by which it is recognized."""

import os
from pathlib import Path

MAGIC = b"SQLite format 3\0"  # the first bytes of every SQLite file

_kept_open: dict[tuple[int, int], int] = {}  # file descriptors that are never closed, by device and inode


def is_sqlite(path: Path) -> bool:
    """Whether a file exists and begins like an SQLite database."""
    return path.is_file() and read_header(path).startswith(MAGIC)


def read_header(path: Path) -> bytes:
    """Return the first 100 bytes of an SQLite file.

    If the database has a write-ahead log, SQLite may have the file open in this process. On POSIX systems, closing any
    handle of a file releases all locks that the process has on it, including those of SQLite. Other processes could
    then remove the log while it is in use. So if there is a log, this function never closes the file on these systems.
    """
    if os.name != "posix" or not Path(f"{path}-wal").exists():
        with path.open("rb") as file:
            return file.read(100)
    status = path.stat()
    key = status.st_dev, status.st_ino
    if key not in _kept_open:
        _kept_open[key] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return os.pread(_kept_open[key], 100, 0)
