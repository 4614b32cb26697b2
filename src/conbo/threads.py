"""The number of threads that torch may use: one for small problems, because small operations run fastest on one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

SMALL = 1500  # largest number of observations up to which a second thread costs more time than it saves


def available_threads() -> int:
    """Return the number of threads to use: one per available processor, but at most eight, as more are not faster."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, count)


@contextmanager
def threads_for(n_observations: int) -> Iterator[None]:
    """Let torch use one thread while the context is active, if there are few observations."""
    import torch  # slow to import, and counting processors does not need it

    before = torch.get_num_threads()
    if n_observations <= SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
