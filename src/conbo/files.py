"""Writes whole files, so that an error or a reader in between never meets half of one."""

import errno
import os
import shutil
from pathlib import Path

from conbo.errors import StorageError
from conbo.sqlite_header import is_sqlite

LONGEST = 50  # number of characters of a file's name in the name of its temporary file


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file in one step, so that an error leaves the old file unchanged; text is encoded in UTF-8.

    Raises StorageError if the old file is a database, because its studies would be lost.
    """
    encoded = content.encode("utf-8") if isinstance(content, str) else content
    path = Path(path)
    if path.exists() and not path.is_file():  # a pipe or a device, which cannot be replaced
        path.write_bytes(encoded)
        return
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    check_no_database(path)
    path = Path(os.path.realpath(path))
    part = path.with_name(f"{path.name[:LONGEST]}.{os.getpid()}.part")
    try:
        part.write_bytes(encoded)
        if path.exists():
            shutil.copymode(path, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def ending(path: Path) -> str:
    """The ending of a file's name in lower case, such as ".csv", even if the name is nothing but the ending."""
    dot, last = path.name.rpartition(".")[1:]
    return f"{dot}{last}".lower() if dot else ""


def check_no_database(path: Path) -> None:
    """Raise StorageError if a file is an SQLite database, which no other file must replace."""
    if is_sqlite(path):
        raise StorageError(f"a file must not replace a database, but '{path}' is one.")
