"""The pool of processes in which the service fits and uses models; threads take the place of processes here."""

import asyncio
import threading
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from conbo.server.model_processes import ModelProcesses
from running_server import run_async

PATIENCE = 10  # seconds after which a wait has failed


def test_a_process_is_busy_until_the_work_of_a_cancelled_caller_ends() -> None:
    made: list[Executor] = []
    begun, may_end = threading.Event(), threading.Event()

    def new() -> Executor:
        made.append(ThreadPoolExecutor(1))
        return made[-1]

    def long_work() -> None:
        begun.set()
        may_end.wait(PATIENCE)

    async def cancel_and_call_again() -> None:
        processes = ModelProcesses(2, new)
        caller = asyncio.ensure_future(processes.call("a", long_work))
        await asyncio.to_thread(begun.wait, PATIENCE)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        first, second = [await asyncio.wait_for(processes.call("a", threading.get_ident), PATIENCE) for _ in range(2)]
        assert first == second  # the idle process, which was started for the first of these calls
        assert len(made) == 2
        may_end.set()
        processes.close()

    run_async(cancel_and_call_again())


def test_a_caller_who_is_cancelled_while_waiting_takes_no_process() -> None:
    may_end, ran = threading.Event(), threading.Event()

    async def cancel_in_the_queue() -> None:
        processes = ModelProcesses(1, lambda: ThreadPoolExecutor(1))
        running = asyncio.ensure_future(processes.call("a", may_end.wait, PATIENCE))
        queued = asyncio.ensure_future(processes.call("a", ran.set))
        await asyncio.sleep(0)  # both have begun: one runs, the other waits
        queued.cancel()
        may_end.set()
        assert await running
        assert await asyncio.wait_for(processes.call("b", lambda: 7), PATIENCE) == 7
        assert not ran.is_set()
        processes.close()

    run_async(cancel_in_the_queue())
