"""Records what a function launches on a GPU, and replays it, which is much faster than calling the function again.

With few rewards or few points, a GPU computes each operation in a few microseconds, but Python needs ten times as long
to launch it.  A recording (a CUDA graph) launches hundreds of operations at once.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch import Tensor

from conbo.ascent import BatchedFunction

FEWEST_REPEATED = 3  # fewer calls are not recorded, because recording takes as long as a call

_STARTED: set[torch.device] = set()  # devices on which a step was computed without a recording


class Recording:
    """A function without arguments whose operations on a GPU are recorded once, and replayed by every call.

    The function reads fixed tensors and writes its results to fixed tensors, and the next call overwrites them.  It
    must have been called before, so that all caches that it uses are filled.  If it cannot be recorded, for example
    because it waits for the GPU, every call calls the function itself.
    """

    def __init__(self, function: Callable[[], tuple[Tensor, ...]], device: torch.device) -> None:
        self._function, self._device = function, device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._results: tuple[Tensor, ...] = ()
        graph = torch.cuda.CUDAGraph()
        with suppress(RuntimeError), torch.cuda.device(device):
            self._results = _capture(graph, _first_graph(device).pool(), function)
            self._graph = graph

    def __call__(self) -> tuple[Tensor, ...]:
        """Compute the results anew from what the tensors now contain that the function reads."""
        if self._graph is None:
            return self._function()
        with torch.cuda.device(self._device):
            self._graph.replay()
        return self._results


@cache
def _first_graph(device: torch.device) -> torch.cuda.CUDAGraph:
    """Return a graph that is kept as long as the process lives, so that all others on the device can use its memory.

    Recordings share memory because they are replayed one after another.
    """
    graph = torch.cuda.CUDAGraph()
    _capture(graph, None, lambda: (torch.zeros(1, device=device),))
    return graph


def _capture(
    graph: torch.cuda.CUDAGraph, memory: Any, function: Callable[[], tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    now, apart = torch.cuda.current_stream(), torch.cuda.Stream()
    apart.wait_stream(now)
    with torch.cuda.stream(apart):
        graph.capture_begin(memory, capture_error_mode="thread_local")
        try:
            return function()
        finally:
            graph.capture_end()


def repeat(step: Callable[[], tuple[Tensor, ...]], times: int, gpu: torch.device | None) -> None:
    """Call a function `times` times, which reads and overwrites the same tensors.

    If a GPU is given, the function is recorded there and replayed.
    """
    done = 0
    if gpu is not None and times >= FEWEST_REPEATED:
        if gpu not in _STARTED:  # the first call of a process also starts libraries, which cannot be recorded
            _STARTED.add(gpu)
            step()
            done = 1
        step = Recording(step, gpu)
    for _ in range(done, times):
        step()


def recorded(function: BatchedFunction, starts: Tensor) -> BatchedFunction:
    """Return the same function for local searches from r starts (r, d), faster on a GPU.

    The first call computes the function as usual.  The second records it for all r searches, and from then on the
    recording is replayed: also the searches that have ended are computed again, at their last points.
    """
    everywhere, rows_of_all = starts.clone(), torch.arange(len(starts), device=starts.device)
    recordings: list[Recording] = []
    called = False

    def replayed(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal called
        everywhere[rows] = points
        if not called:
            called = True
            values, gradients = function(everywhere, rows_of_all)
        else:
            if not recordings:
                recordings.append(Recording(lambda: function(everywhere, rows_of_all), starts.device))
            values, gradients = recordings[0]()
        return values[rows], gradients[rows]

    return replayed
