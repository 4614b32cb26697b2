"""Processes in which the service fits and uses models; each runs one function of `model_work.py` at a time."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any, Protocol, TypeVar

from conbo.errors import ConboError
from conbo.study.worker_process import prepare

MEMORY = 4e9  # bytes by which a process may grow before it is replaced; torch and a large model need less

Result = TypeVar("Result")
NICENESS = 5  # added to the niceness of background processes, so that fits do not delay readers on few cores


class NewExecutor(Protocol):
    """The type of functions that make an executor."""

    def __call__(self, *, background: bool = False) -> Executor:
        """Return an executor that runs one call at a time; if `background` is True, it runs at low priority."""


class OneProcess(Executor):
    """An executor with one process, which starts at the first call and ends with the executor.

    It is replaced by a new process if its memory grows by more than `MEMORY`.

    Parameters
    ----------
    background
        Whether the process runs at low priority.
    """

    def __init__(self, *, background: bool = False) -> None:
        from loky import ProcessPoolExecutor  # type: ignore[import-untyped]

        start = {
            "initializer": _begin,
            "initargs": (os.getpid(), background),
            "env": {"LOKY_MAX_MEMORY_LEAK_SIZE": str(MEMORY)},
        }
        self._pool: Any = ProcessPoolExecutor(max_workers=1, **start)

    def submit(self, work: Callable[..., Result], /, *arguments: Any, **named: Any) -> "Future[Result]":
        """Queue a call of the function `work` for the process, and return a future for its result."""
        future: Future[Result] = self._pool.submit(work, *arguments, **named)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the process, even if it is still running a call.

        Queued calls never run, so `cancel_futures` makes no difference. If `wait` is True, wait until the process has
        ended.
        """
        self._pool.shutdown(wait=wait, kill_workers=True)


def _begin(parent: int, background: bool) -> None:
    prepare(parent)
    if background and hasattr(os, "nice"):  # not on Windows
        os.nice(NICENESS)


class ModelProcesses:
    """A pool of processes, which are started when they are needed.

    Work on a study goes to an idle process whose last work was on the same study, if there is one, because that process
    still has the study's model in memory.

    Parameters
    ----------
    most
        Largest number of processes.
    new
        A function that makes an executor, which runs one call at a time.
    """

    def __init__(self, most: int, new: Callable[[], Executor]) -> None:
        self._new, self._free = new, asyncio.Semaphore(most)
        self._idle: dict[Executor, str] = {}  # idle executors, each with the study that it worked on last
        self._busy: set[Executor] = set()
        self._tasks: set[asyncio.Task[Any]] = set()  # so that the event loop keeps those whose caller has gone

    async def call(self, study: str, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run a function in a process, as soon as one is free.

        If the caller is canceled while the function runs, the process counts as busy until the function has ended.

        Parameters
        ----------
        study
            Name of the study that the work is about.
        work, arguments
            A function of `model_work`, and its arguments.

        Returns
        -------
        Result
            What the function returns.

        Raises
        ------
        ConboError
            If the process died; the next call starts a new one.
        """
        await self._free.acquire()
        task = asyncio.ensure_future(self._run(study, work, arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _run(self, study: str, work: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
        """Run a function in a process, and then let the next caller have the process, unless it has died."""
        process = self._take(study)
        self._busy.add(process)
        try:
            result = await asyncio.wrap_future(process.submit(work, *arguments))
        except BrokenExecutor as error:
            process.shutdown(wait=False)
            raise ConboError("the process that fits models has died: try again, and a new one starts.") from error
        except BaseException:
            self._idle[process] = study
            raise
        else:
            self._idle[process] = study
            return result
        finally:
            self._busy.discard(process)
            self._free.release()

    def close(self) -> None:
        """End all processes."""
        for process in (*self._idle, *self._busy):
            process.shutdown(cancel_futures=True)

    def _take(self, study: str) -> Executor:
        known = [process for process, last in self._idle.items() if last == study]
        process = (known or [*self._idle] or [self._new()])[0]
        self._idle.pop(process, None)
        return process
