"""One process at a time works on a run: an operating-system lock, which dies with the process that holds it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK_SUFFIX = ".lock"


@contextmanager
def run_lock(path: Path) -> Iterator[bool]:
    """Whether the run of this file is ours until the end of the block; it is not if another process has it.

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
