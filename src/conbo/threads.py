"""The number of threads that torch may use: one for small problems, because small operations run fastest on one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

SMALL = 1500  # largest number of observations up to which a second thread costs more time than it saves


def available_threads() -> int:
    """Return the number of processors that this process may use, at most eight, because more were never faster."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, count)


@contextmanager
def threads_for(n_observations: int) -> Iterator[None]:
    """Return a context in which torch uses one thread if there are few observations, and otherwise its usual number."""
    import torch  # slow to import, and counting processors does not need it

    before = torch.get_num_threads()
    if n_observations <= SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
