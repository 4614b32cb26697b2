"""Limits the number of torch's threads, and runs compiled loops in several threads.

For small problems, torch is fastest with one thread.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

SMALL = 1500  # largest number of observations up to which a second thread costs more time than it saves


def available_threads() -> int:
    """Return the number of threads to use: one per available processor, but at most eight, as more are not faster."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, count)


@contextmanager
def threads_for(n_observations: int) -> Iterator[None]:
    """Let torch use only one thread within the `with` block, unless there are more than 1500 observations."""
    import torch  # slow to import, and counting processors does not need it

    before = torch.get_num_threads()
    if n_observations <= SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_threads(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """Return the function's results for all items, computed in parallel; `threads` is the largest number of threads.

    Each thread takes the next item when it is free. The function should spend its time in compiled loops, which release
    the GIL. With one thread, this is a plain loop.
    """
    if threads == 1 or len(items) == 1:
        return [function(item) for item in items]
    results: dict[int, Result] = {}
    places = iter(range(len(items)))  # shared by all threads

    def take_turns() -> None:
        for place in places:
            results[place] = function(items[place])

    helpers = [_helpers(os.getpid()).submit(take_turns) for _ in range(min(threads, len(items)) - 1)]
    take_turns()
    for helper in helpers:
        if not helper.cancel():  # it has started
            helper.result()
    return [results[place] for place in range(len(items))]


@cache
def _helpers(process: int) -> ThreadPoolExecutor:
    """Return the thread pool of the process with this id.

    Each process has its own pool, because threads do not survive a fork.
    """
    return ThreadPoolExecutor(max_workers=available_threads())
