"""The number of threads that torch may use: many small tensor operations run fastest on one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

SMALL = 1500  # number of observations up to which a second thread costs more time than it saves


def available_threads() -> int:
    """Number of processors that this process may use, at most eight: more were never faster for work of this size."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, count)


@contextmanager
def threads_for(n_observations: int) -> Iterator[None]:
    """A context in which torch uses one thread for a small problem, and its own choice for a large one."""
    import torch  # slow to import, and counting processors does not need it

    before = torch.get_num_threads()
    if n_observations <= SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
