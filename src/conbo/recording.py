"""Records the operations that a function launches on a GPU, and replays them.

Most operations of a search are so small that launching them from Python takes longer than computing them on the GPU.  A
recording (a CUDA graph) launches hundreds of operations at once, so it is much faster than calling the function again.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from conbo.ascent import BatchedFunction

Function: TypeAlias = Callable[[], tuple[Tensor, ...]]

FEWEST_REPEATED = 3  # fewer calls are not recorded, because recording takes as long as a call

_log = logging.getLogger("conbo")


@dataclass
class _Recorder:
    """The CUDA stream and the memory that all recordings of one thread on one GPU share."""

    stream: torch.cuda.Stream  # only for recording; recordings are replayed on the current stream
    first: torch.cuda.CUDAGraph  # kept, because later recordings use its memory: they are replayed one after another
    works: bool = True  # False after something could not be recorded

    def record(self, graph: torch.cuda.CUDAGraph, memory: Any, function: Function) -> tuple[Tensor, ...]:
        """Record the operations that a function launches on the GPU into `graph`, and return the function's results.

        `memory` is the memory pool of another graph, or None for a new pool.  If the function cannot be recorded, an
        empty tuple is returned, and the recorder's attribute `works` becomes False.
        """
        self.stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self.stream):
                graph.capture_begin(memory, capture_error_mode="thread_local")
                try:
                    return function()
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            self.works = False
            first = error.__context__ or error  # after an error, `capture_end` raises another one
            _log.info("A search is not recorded on the GPU, and takes longer: %s", first)
            return ()


class _Recorders(threading.local):
    """The recorders of CUDA graphs, one for each thread and GPU.

    Threads do not share a recorder, because they would overwrite each other's results.
    """

    def __init__(self) -> None:
        self.of: dict[torch.device, _Recorder] = {}


_recorders = _Recorders()


class Recording:
    """A function without arguments whose operations on a GPU are recorded once, and replayed by every call.

    The function must always read the same tensors.  Each call overwrites the results of the previous call.  All caches
    that the function uses must already be filled.  If the function cannot be recorded, for example because it waits for
    the GPU, every call runs the function itself, and nothing more is recorded on this GPU in this thread.
    """

    def __init__(self, function: Function, device: torch.device) -> None:
        self._function, self._device = function, device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._results: tuple[Tensor, ...] = ()
        with torch.cuda.device(device):
            recorder, graph = _recorder(device), torch.cuda.CUDAGraph()
            if recorder.works:
                self._results = recorder.record(graph, recorder.first.pool(), function)
            if recorder.works:
                self._graph = graph

    @property
    def is_recorded(self) -> bool:
        """Whether calls replay the recording, instead of calling the function."""
        return self._graph is not None

    def __call__(self) -> tuple[Tensor, ...]:
        """Compute the results from the current contents of the tensors that the function reads."""
        if self._graph is None:
            return self._function()
        with torch.cuda.device(self._device):
            self._graph.replay()
        return self._results


def _recorder(device: torch.device) -> _Recorder:
    if device not in _recorders.of:
        _start_libraries(device)
        recorder = _recorders.of[device] = _Recorder(torch.cuda.Stream(), torch.cuda.CUDAGraph())
        recorder.record(recorder.first, None, lambda: (torch.zeros(1, device=device),))
    return _recorders.of[device]


def _start_libraries(device: torch.device) -> None:
    """Use the GPU's linear algebra libraries once in this thread, because their initialization cannot be recorded."""
    identity = torch.eye(2, dtype=torch.float64, device=device)
    for matrices in (identity, identity.expand(2, 2, 2)):
        factors, _ = torch.linalg.cholesky_ex(matrices)
        torch.linalg.solve_triangular(factors, factors @ matrices, upper=False)


def repeat(step: Function, times: int, gpu: torch.device | None) -> None:
    """Call the function `step` the given number of times; it must always read and overwrite the same tensors.

    If a GPU is given, `step` is recorded there and replayed, unless there are few calls or the caller itself is being
    recorded.
    """
    if gpu is not None and times >= FEWEST_REPEATED and not torch.cuda.is_current_stream_capturing():
        step = Recording(step, gpu)
    for _ in range(times):
        step()


@runtime_checkable
class Recordable(Protocol):
    """A function of candidates and sets of states, with a property that says whether a CUDA graph can record it."""

    @property
    def is_recordable(self) -> bool:
        """Whether all calls but the first run the same operations, without waiting for the GPU.

        A call has two arguments: k candidates (k, d), and the indices (k,) of their sets of states.  All calls are
        assumed to pass the same tensor of indices, with the same content.
        """


def recorded(function: BatchedFunction, starts: Tensor) -> BatchedFunction:
    """Return a version of `function` that is faster on a GPU, for local searches from r `starts` (r, d).

    The function takes points (k, d) and the indices (k,) of their searches; a call may have at most one point of each
    search.  The first call computes the function as usual.  The second call records it, and later calls replay the
    recording.  Every call computes the function for all r searches.  A search without a point in this call uses its
    latest point again.
    """
    everywhere, everyone = starts.clone(), torch.arange(len(starts), device=starts.device)
    recording: Recording | None = None
    was_called = False

    def whole() -> tuple[Tensor, Tensor]:
        return function(everywhere, everyone)

    def replayed(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal recording, was_called
        everywhere[rows] = points
        if was_called:
            recording = recording or Recording(whole, starts.device)
            values, gradients = recording()
        else:
            was_called = True
            values, gradients = whole()
        return values[rows], gradients[rows]

    return replayed
