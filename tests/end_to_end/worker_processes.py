"""Worker processes that start fast, because they are forked from a template, and that a test may kill."""

import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import worker_programs

from forked_processes import forked

PATIENCE = 60.0  # seconds in which a worker must get something done
LONGEST = 1800.0  # seconds in which it must be done


class Processes:
    """Starts worker processes by forking a template."""

    def __init__(self, log: Path) -> None:
        self._context = forked()
        self._log = log
        self._started: list[ForkServerProcess] = []

    def start(self, program: Callable[..., Any], *arguments: Any) -> ForkServerProcess:
        """A process that runs the program; what it prints is in the log."""
        process = self._context.Process(target=worker_programs.logged, args=(self._log, program, *arguments))
        process.start()
        self._started.append(process)
        return process

    def barrier(self, parties: int) -> Any:
        """Lets so many processes start together."""
        return self._context.Barrier(parties)

    def finish(self, processes: list[ForkServerProcess]) -> None:
        """Wait until all have ended by themselves, and well."""
        deadline = time.monotonic() + LONGEST
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
            assert process.exitcode == 0, f"exit status {process.exitcode}:\n{self.log()}"

    def log(self) -> str:
        """All that was printed, with the errors."""
        return self._log.read_text() if self._log.exists() else ""

    def kill_all(self) -> None:
        """None outlives its test."""
        for process in self._started:
            process.kill()
            process.join()


def wait_for_growth(journal: Path, processes: Processes) -> None:
    """Until a worker has written another line."""
    before = _size(journal)
    wait_until(lambda: _size(journal) > before, processes)


def wait_until(condition: Callable[[], bool], processes: Processes) -> None:
    """Until the workers have got so far."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"the workers do not get on:\n{processes.log()}"
        time.sleep(0.002)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
