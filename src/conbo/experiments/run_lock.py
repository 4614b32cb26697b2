"""A lock so that one process at a time works on a run; the operating system releases it when its process ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK_SUFFIX = ".lock"


@contextmanager
def run_lock(path: Path) -> Iterator[bool]:
    """A context that locks the run of this file; yields False if another process has the lock.

    The lock is on a file of its own, since a run's file may be replaced. That file stays behind: removing it would
    let two processes hold locks on two files of the same name.
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
