"""Processes that do the work of `model_work`, each one piece at a time."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor
from typing import Any, TypeVar

from conbo.errors import ConboError
from conbo.study.worker_process import prepare

Result = TypeVar("Result")
NewExecutor = Callable[[], Executor]


def new_process() -> Executor:
    """A pool of one process, which ends with this one."""
    from loky import ProcessPoolExecutor  # type: ignore[import-untyped]

    pool: Executor = ProcessPoolExecutor(max_workers=1, initializer=prepare, initargs=(os.getpid(),))
    return pool


class ModelProcesses:
    """Up to so many processes, started when they are needed; a study goes to the one that knows it, if that is idle."""

    def __init__(self, most: int, new: NewExecutor = new_process) -> None:
        self._new, self._free = new, asyncio.Semaphore(most)
        self._idle: dict[Executor, str | None] = {}  # the study that each saw last

    async def call(self, study: str, work: Callable[..., Result], *arguments: Any) -> Result:
        """The result of the work; it waits for a process that is free."""
        async with self._free:
            process = self._take(study)
            future = process.submit(work, *arguments)
            try:
                return await asyncio.shield(asyncio.wrap_future(future))
            except BrokenExecutor as error:
                process.shutdown(wait=False)
                process = self._new()
                raise ConboError("the process that fits models has died, and a new one is there: try again.") from error
            finally:
                self._idle[process] = study

    def close(self) -> None:
        """End all processes that are idle; those that work end with this process."""
        for process in self._idle:
            process.shutdown(wait=False)
        self._idle.clear()

    def _take(self, study: str) -> Executor:
        known = [process for process, last in self._idle.items() if last == study]
        process = (known or [*self._idle] or [self._new()])[0]
        self._idle.pop(process, None)
        return process
