"""Where evaluations happen: here, in processes of our own, or in any executor of the user's."""

import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from conbo.errors import ConboError, SettingError
from conbo.study.worker_process import Failure, evaluate, load, load_and_evaluate, located_text, prepare
from conbo.trials import outcomes_of


class Objective(Protocol):
    """A function of a state and an action that returns the reward, or a mapping with `reward` and what else to record.

    In a space without states the state is {}. Any object that can be called like this will do.
    """

    def __call__(self, state: dict[str, Any], action: dict[str, Any], /) -> float | Mapping[str, float]:
        """Evaluate the action in the state."""
        ...


class SeededObjective(Protocol):
    """The same for studies with common random numbers: a function of state, action and the simulator's seed."""

    def __call__(self, state: dict[str, Any], action: dict[str, Any], seed: int, /) -> float | Mapping[str, float]:
        """Evaluate the action in the state, with all randomness drawn from the seed."""
        ...


AnyObjective: TypeAlias = Objective | SeededObjective


class EvaluationError(ConboError):
    """An exception of an evaluation in another process, of which only the text has come here."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error)
        self.add_note(f"In the process that evaluated it:\n{failure.traceback}")


def error_of(future: "Future[Any]") -> BaseException | None:
    """What an evaluation that is done raised, here or in another process; None if it has outcomes."""
    if (error := future.exception()) is not None:
        return error
    return EvaluationError(result) if isinstance(result := future.result(), Failure) else None


def text_of(error: BaseException) -> str:
    """What is recorded of an error."""
    return str(error) if isinstance(error, EvaluationError) else located_text(error)


class Evaluators(Protocol):
    """Something that evaluates objectives."""

    replaces_lost_workers: bool  # else it is broken for good when it says that it is

    def width(self) -> int:
        """How many evaluations there may be at once, now."""

    def submit(self, objective: AnyObjective, *arguments: Any) -> "Future[Any]":
        """Begin an evaluation with these arguments of the objective, whose result is an `Outcomes` or a `Failure`."""

    def has_begun(self, future: "Future[Any]") -> bool:
        """Whether the evaluation has begun, as far as is known."""

    def stop(self, future: "Future[Any]") -> bool:
        """Give an evaluation up; whether its place is free again."""

    def close(self) -> None:
        """End all evaluations that are running."""


class Here:
    """In the calling thread: `submit` returns when the evaluation is done."""

    replaces_lost_workers = True

    def width(self) -> int:
        """One."""
        return 1

    def submit(self, objective: AnyObjective, *arguments: Any) -> "Future[Any]":
        """Evaluate; what ends the process, like Ctrl-C, is raised."""
        future: Future[Any] = Future()
        try:
            future.set_result(outcomes_of(objective(*arguments)))
        except Exception as error:
            future.set_exception(error)
        return future

    def has_begun(self, future: "Future[Any]") -> bool:
        """It is over already."""
        return True

    def stop(self, future: "Future[Any]") -> bool:
        """It is over already."""
        return True

    def close(self) -> None:
        """Nothing is running."""


class Processes:
    """Local processes, each in a pool of its own, so that one that dies or hangs is replaced alone."""

    replaces_lost_workers = True

    def __init__(self, n: int, objective: AnyObjective) -> None:
        _pickled(objective)
        self._n = n
        self._evaluations: dict[Future[Any], _Process] = {}  # the last one of every process

    def width(self) -> int:
        """The number of processes."""
        return self._n

    def submit(self, objective: AnyObjective, *arguments: Any) -> "Future[Any]":
        """Evaluate in an idle process, or in a new one."""
        call = _pickled(objective), *arguments
        for last in [future for future in self._evaluations if future.done()]:
            process = self._evaluations.pop(last)
            try:
                return self._submit(process, *call)
            except BrokenExecutor:  # it died after its last evaluation, or with it
                process.kill()
        return self._submit(_Process(call[0]), *call)

    def has_begun(self, future: "Future[Any]") -> bool:
        """Whether the process is up, with all that the objective imports: that may take seconds."""
        return self._evaluations[future].ready.done()

    def stop(self, future: "Future[Any]") -> bool:
        """Kill the process of an evaluation."""
        self._evaluations.pop(future).kill()
        return True

    def close(self) -> None:
        """Kill all processes."""
        for future in list(self._evaluations):
            self.stop(future)

    def _submit(self, process: "_Process", *call: Any) -> "Future[Any]":
        future: Future[Any] = process.pool.submit(load_and_evaluate, *call)
        self._evaluations[future] = process
        return future


class _Process:
    """A pool of one process."""

    def __init__(self, objective: bytes) -> None:
        from loky import ProcessPoolExecutor  # type: ignore[import-untyped]  # slow, and not needed by most

        self.pool: Any = ProcessPoolExecutor(max_workers=1, initializer=prepare, initargs=(os.getpid(),))
        with _without_interrupts():
            self.ready: Future[Any] = self.pool.submit(load, objective)

    def kill(self) -> None:
        """End it, whatever it does."""
        self.pool.shutdown(wait=True, kill_workers=True)


class Borrowed:
    """An executor of the user's."""

    replaces_lost_workers = False

    def __init__(self, executor: Executor, workers: int | None) -> None:
        if not callable(getattr(executor, "submit", None)):
            raise SettingError(f"`executor` must be a concurrent.futures.Executor, but got {executor!r}.")
        self._executor, self._workers = executor, workers
        self._running: set[Future[Any]] = set()
        self._is_dask = type(executor).__module__.startswith("distributed.")
        # Dask keeps results and would answer the same question twice with the same noise
        self._options = {"pure": False} if self._is_dask else {}
        self.width()

    def width(self) -> int:
        """As many as the user says, or as the executor has workers."""
        try:
            return self._workers or n_workers(self._executor)
        except SettingError:
            raise
        except Exception as error:  # Dask asks its scheduler
            raise ConboError(f"the executor is broken: {error}") from error

    def submit(self, objective: AnyObjective, *arguments: Any) -> "Future[Any]":
        """Evaluate somewhere."""
        future = self._executor.submit(evaluate, objective, *arguments, **self._options)
        self._running = {other for other in self._running if not other.done()} | {future}
        return future

    def has_begun(self, future: "Future[Any]") -> bool:
        """It may be waiting in a queue, but few executors tell."""
        return True

    def stop(self, future: "Future[Any]") -> bool:
        """Ask to cancel; what is running in a foreign place usually goes on."""
        # Dask would forget an evaluation that goes on, and send others to wait behind it
        return not self._is_dask and future.cancel()

    def close(self) -> None:
        """Ask to cancel all that is not begun; the executor stays the user's."""
        for future in self._running:
            future.cancel()


def n_workers(executor: Any) -> int:
    """How many evaluations an executor runs at once."""
    if hasattr(executor, "_client"):  # Dask, whose workers come and go
        return sum(executor._client.nthreads().values())
    for name in ("_max_workers", "num_workers"):  # concurrent.futures and loky, mpi4py
        if isinstance(number := getattr(executor, name, None), int) and number > 0:
            return number
    raise SettingError(f"`workers` must say how many evaluations {executor!r} runs at once.")


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """A process that is started here gets no Ctrl-C, not even before it can choose."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pickled(objective: AnyObjective) -> bytes:
    import cloudpickle  # type: ignore[import-untyped]

    try:
        return bytes(cloudpickle.dumps(objective))
    except Exception as error:
        raise SettingError(
            f"`objective` must be picklable to run in other processes, but got {objective!r}: {error}"
        ) from error
