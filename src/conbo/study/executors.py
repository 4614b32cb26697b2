"""Evaluates objectives: in this process, in local processes, or in an executor that the user provides."""

import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from conbo.errors import ConboError, SettingError
from conbo.setting_rules import at_least
from conbo.study.worker_process import Failure, evaluate, load, load_and_evaluate, located_text, prepare
from conbo.trials import LOST, outcomes_of

KILLED_WORKER = "KilledWorker"  # Dask's error if workers died with an evaluation several times


class Objective(Protocol):
    """The type of an objective: anything that can be called with a state and an action.

    Examples
    --------
    >>> def profit(state, action):
    ...     return 5 * min(state["demand"], action["stock"]) - 2 * action["stock"]
    """

    def __call__(self, state: dict[str, Any], action: dict[str, Any], /) -> float | Mapping[str, float]:
        """Evaluate the action in the state.

        Parameters
        ----------
        state
            The state as a dict from names to values; {} in a space without states.
        action
            The action as a dict from names to values.

        Returns
        -------
        float or mapping
            The reward, or a mapping with `reward`, optionally `noise` (the reward's noise variance), and other
            numbers to record.
        """
        ...


class SeededObjective(Protocol):
    """The type of an objective that is also called with a seed, as in a study with common random numbers.

    Examples
    --------
    >>> def profit(state, action, seed):
    ...     demand = random.Random(seed).gauss(state["demand"], 5)
    ...     return 5 * min(demand, action["stock"]) - 2 * action["stock"]
    """

    def __call__(self, state: dict[str, Any], action: dict[str, Any], seed: int, /) -> float | Mapping[str, float]:
        """Evaluate the action in the state, with all randomness drawn from the seed.

        Parameters
        ----------
        state
            The state as a dict from names to values; {} in a space without states.
        action
            The action as a dict from names to values.
        seed
            Seed of all randomness.

        Returns
        -------
        float or mapping
            The reward, or a mapping with `reward`, optionally `noise` (the reward's noise variance), and other
            numbers to record.
        """
        ...


AnyObjective: TypeAlias = Objective | SeededObjective


class EvaluationError(ConboError):
    """Stands for an exception that an evaluation raised in another process; it has the message and the traceback."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error)
        self.add_note(f"In the process that evaluated it:\n{failure.traceback}")


class EvaluationInterrupted(KeyboardInterrupt):
    """Raised if Ctrl-C, which a terminal sends to all its processes, ended an evaluation in one of an executor."""


def error_of(future: "Future[Any]") -> BaseException | None:
    """The exception that ended an evaluation, in this or another process; None if the evaluation succeeded."""
    if (error := future.exception()) is not None:
        return error
    return EvaluationError(result) if isinstance(result := future.result(), Failure) else None


def text_of(error: BaseException) -> str:
    """The message that is recorded when an evaluation has failed with this error."""
    text = str(error) if isinstance(error, EvaluationError) else located_text(error)
    return f"{text}: {LOST}" if type(error).__name__ == KILLED_WORKER else text


class Evaluators(Protocol):
    """The common interface of the classes that evaluate objectives: `Here`, `Processes` and `Borrowed`."""

    replaces_lost_workers: bool  # whether a process that died is replaced; otherwise the run ends with an error

    def width(self) -> int:
        """Number of evaluations that may run at the same time; it may change during a run."""

    def submit(self, objective: AnyObjective, *arguments: Any) -> "Future[Any]":
        """Begin an evaluation, and return its future.

        The result of the future is an `Outcomes`, or a `Failure` if the objective raised an exception in another
        process. An exception in this process, or the loss of the worker, becomes the future's exception.
        """

    def has_begun(self, future: "Future[Any]") -> bool:
        """Whether the evaluation has begun; True if that is not known."""

    def stop(self, future: "Future[Any]") -> bool:
        """Abandon an evaluation, and return whether its worker is free for another one."""

    def close(self) -> None:
        """Abandon all evaluations: end those that can be ended, and cancel those that have not begun."""


class Here:
    """Evaluates in the calling thread: `submit` returns when the evaluation is done."""

    replaces_lost_workers = True

    def width(self) -> int:
        """Number of evaluations that may run at the same time: one."""
        return 1

    def submit(self, objective: AnyObjective, *arguments: Any) -> "Future[Any]":
        """Evaluate now; an exception is stored in the future, but Ctrl-C and SystemExit are raised."""
        future: Future[Any] = Future()
        try:
            future.set_result(outcomes_of(objective(*arguments)))
        except Exception as error:
            future.set_exception(error)
        return future

    def has_begun(self, future: "Future[Any]") -> bool:
        """Return True, because the evaluation is already over."""
        return True

    def stop(self, future: "Future[Any]") -> bool:
        """Return True: the evaluation is already over, so its worker is free."""
        return True

    def close(self) -> None:
        """Do nothing, because no evaluation is running."""


class Processes:
    """Evaluates in up to n local processes.

    Each process is the only worker of a pool of its own, so that a hanging one can be replaced without ending others.
    """

    replaces_lost_workers = True

    def __init__(self, n: int, objective: AnyObjective) -> None:
        _pickled(objective)
        self._n = n
        # the process of every evaluation; an ended evaluation stays until its process gets the next one
        self._evaluations: dict[Future[Any], _Process] = {}

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
            except BrokenExecutor:  # the process died during or after its last evaluation
                process.kill()
        return self._submit(_Process(call[0]), *call)

    def has_begun(self, future: "Future[Any]") -> bool:
        """Whether the evaluation's process has started and imported the objective, which may take seconds."""
        return self._evaluations[future].ready.done()

    def stop(self, future: "Future[Any]") -> bool:
        """Kill the process of an evaluation, and return True."""
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
    def __init__(self, objective: bytes) -> None:
        from loky import ProcessPoolExecutor  # type: ignore[import-untyped]  # slow to import

        self.pool: Any = ProcessPoolExecutor(max_workers=1, initializer=prepare, initargs=(os.getpid(),))
        with _without_interrupts():
            self.ready: Future[Any] = self.pool.submit(load, objective)

    def kill(self) -> None:
        self.pool.shutdown(wait=True, kill_workers=True)


class Borrowed:
    """Evaluates in an executor that the user provides."""

    replaces_lost_workers = False

    def __init__(self, executor: Executor, workers: int | None) -> None:
        if not callable(getattr(executor, "submit", None)):
            raise SettingError(f"`executor` must be a concurrent.futures.Executor, but got {executor!r}.")
        self._executor, self._workers = executor, workers
        self._running: set[Future[Any]] = set()
        self._is_dask = type(executor).__module__.startswith("distributed.")
        # by default, Dask caches results, so that two evaluations of the same point would have the same noise
        self._options = {"pure": False} if self._is_dask else {}
        self.width()

    def width(self) -> int:
        """The number of workers that the user has set; by default, the number that the executor has."""
        try:
            return self._workers or n_workers(self._executor)
        except SettingError:
            raise
        except Exception as error:  # Dask asks its scheduler, which may not answer
            raise ConboError(f"the executor is broken: {error}") from error

    def submit(self, objective: AnyObjective, *arguments: Any) -> "Future[Any]":
        """Send the evaluation to the executor."""
        future = self._executor.submit(evaluate, objective, *arguments, **self._options)
        self._running = {other for other in self._running if not other.done()} | {future}
        return future

    def has_begun(self, future: "Future[Any]") -> bool:
        """Return True; the evaluation may still wait in a queue, but few executors report this."""
        return True

    def stop(self, future: "Future[Any]") -> bool:
        """Cancel the evaluation if it has not begun; return whether it was canceled. With Dask, just return False."""
        # a canceled future of Dask counts as ended while its evaluation still runs, so the next one would wait for it
        return not self._is_dask and future.cancel()

    def close(self) -> None:
        """Cancel all evaluations that have not begun; the executor itself stays open."""
        for future in self._running:
            future.cancel()


def evaluators_for(
    objective: AnyObjective, workers: int | None, executor: Executor | None, killable: bool = False
) -> Evaluators:
    """Choose where an objective is evaluated: in the user's executor, in local processes, or in this process.

    Without an executor, local processes are used if there are several workers, or if evaluations must be
    `killable`, because an evaluation in this process cannot be killed. Raises SettingError unless `workers` is None or
    a positive integer.
    """
    if workers is not None:
        at_least(1, "workers", workers)
    if executor is not None:
        return Borrowed(executor, workers)
    wanted = workers or 1
    return Processes(wanted, objective) if wanted > 1 or killable else Here()


def submitted(evaluators: Evaluators, objective: AnyObjective, arguments: tuple[Any, ...]) -> "Future[Any]":
    """Begin an evaluation, and return its future; raise ConboError if no evaluation can begin."""
    try:
        return evaluators.submit(objective, *arguments)
    except Exception as error:
        raise ConboError(f"the executor takes no evaluations: {error}") from error


def check_intact(evaluators: Evaluators, future: "Future[Any]", what: str) -> None:
    """Raise ConboError if the user's executor broke or cannot run the objective; `what` names the evaluation.

    An exception of the objective itself comes back as a `Failure`, so the exception of the future is the executor's,
    as when the objective cannot be pickled. Only a worker that died with its evaluation is the fault of neither.
    EvaluationInterrupted is raised if Ctrl-C ended the evaluation.
    """
    if future.cancelled():  # by the executor, because nobody cancels an evaluation whose result is still wanted
        why = f"it canceled {what}, as Dask does when the scheduler is lost"
        raise ConboError(f"the executor is broken: {why}. All results so far are kept.")
    error = future.exception()
    if isinstance(error, KeyboardInterrupt):
        raise EvaluationInterrupted from error
    if evaluators.replaces_lost_workers or not isinstance(error, Exception):
        return
    if isinstance(error, BrokenExecutor):
        raise ConboError(f"the executor is broken: {error}") from error
    if type(error).__name__ != KILLED_WORKER:
        why = f"{type(error).__name__}: {error}"
        raise ConboError(f"the executor cannot run the objective: {why}. All results so far are kept.") from error


def n_workers(executor: Any) -> int:
    """Number of evaluations that an executor runs at the same time; raise SettingError if that is unknown."""
    if hasattr(executor, "_client"):  # Dask, whose workers come and go
        return sum(executor._client.nthreads().values())
    for name in ("_max_workers", "num_workers"):  # concurrent.futures and loky, mpi4py
        if isinstance(number := getattr(executor, name, None), int) and number > 0:
            return number
    raise SettingError(f"`workers` must say how many evaluations {executor!r} runs at once.")


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Context in which new processes start with Ctrl-C blocked."""
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
