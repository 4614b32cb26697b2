"""A lock that lets one process at a time work on a run; the operating system releases it when the process ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK_SUFFIX = ".lock"


@contextmanager
def run_lock(path: Path) -> Iterator[bool]:
    """Context manager that locks the run whose file is `path`; yields False if another process has the lock, else True.

    The lock is on a separate file, because a run's own file may be replaced. The lock file remains when the lock is
    released, except on Windows.
    """
    lock = FileLock(path.with_name(path.name + LOCK_SUFFIX), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
