"""The part of a study that evaluates an objective: `run` and `stop`. The loop itself is in `run.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from conbo.errors import StudyError
from conbo.notices import listening
from conbo.study.asking import checked_lease
from conbo.study.lost_workers import MAX_LOST_WORKERS
from conbo.study.shared import SharedOptimizer
from conbo.trials import Trial

if TYPE_CHECKING:
    from conbo.study.executors import AnyObjective
    from conbo.study.progress import Progress
    from conbo.study.run import Run
    from conbo.study.run_summary import RunSummary
    from conbo.study.study import Study


class Evaluating:
    """The part of `Study` that evaluates an objective."""

    _shared: SharedOptimizer
    _runs: list[Run]

    def run(
        self,
        objective: AnyObjective,
        evaluations: int | None = None,
        *,
        budget: float | None = None,
        max_seconds: float | None = None,
        worth: float | None = None,
        workers: int | None = None,
        executor: Executor | None = None,
        batch: int | None = None,
        timeout: float | None = None,
        retries: int = 0,
        stop_below: float | None = None,
        finish: Literal["best-observed"] | None = None,
        on_interrupt: Literal["wait", "cancel"] = "wait",
        lease: float = 60.0,
        max_lost_workers: int = MAX_LOST_WORKERS,
        callbacks: Sequence[Callable[[Study, Trial], object]] = (),
        progress: bool = True,
    ) -> RunSummary:
        """Evaluate an objective until the study has enough completed trials, or another condition ends the run.

        An evaluation that raises an exception, or returns anything but finite numbers, is repeated up to `retries`
        times. After that the trial has failed, and the run continues. Ten failed trials in a row end the run with an
        error.

        Parameters
        ----------
        objective
            Called as ``objective(state, action)`` with two dicts; in a study with common random numbers, as
            ``objective(state, action, seed)``; the state is {} in a space without states. Returns the reward, or a
            mapping such as ``{"reward": 1.2, "noise": 0.1, "wait": 4.2}``, whose other values are recorded.
        evaluations
            Total number of completed trials at which the run ends, including trials of earlier runs. By default 80, or
            unlimited if there is a `budget`.
        budget
            The run ends when the total cost of all ended trials reaches the budget. No trial is added once this total
            plus the expected cost of running trials reaches the budget; trials that were asked for without a lease do
            not count until they end. The last trial or `batch` may still take the total above the budget. The study
            needs a `cost`.
        max_seconds
            Seconds after which no new evaluation begins.
        worth
            Value of one unit of reward, in units of cost. The run ends when the next evaluation is expected to gain
            less than it costs. The study needs a `cost`.
        workers
            Number of evaluations at the same time, in local processes or in the `executor`. By default it is the size
            of the executor; without an executor, evaluations run one after the other, in this process or, if there is
            a `timeout`, in another one.
        executor
            Where to evaluate: any object with the method `submit` of concurrent.futures.Executor, such as a process
            pool, Dask's ``client.get_executor()``, or a pool of mpi4py.
        batch
            Number of trials suggested together; all of them end before the next batch is suggested. By default a new
            trial is suggested whenever a worker is free.
        timeout
            Seconds after which an evaluation counts as failed. A local process is killed. An executor is not
            interrupted, so its worker stays busy until the evaluation ends.
        retries
            Number of times a failed evaluation is repeated.
        stop_below
            The run ends when the next evaluation is expected to gain less than this, in units of reward.
        finish
            "best-observed" reserves the last evaluations, one for each state, for improving the best reward that was
            observed in that state. The number of states must be finite and less than `evaluations`.
        on_interrupt
            After Ctrl-C, "wait" for running evaluations or "cancel" them. A second Ctrl-C always cancels. A terminal
            sends Ctrl-C to the processes of an `executor`, too; evaluations that it ends there are not waited for.
        lease
            Seconds without a sign of life from this run after which another worker may take over its trials.
        max_lost_workers
            A trial counts as failed once this many workers have died while evaluating it. Raise the number if jobs are
            often preempted.
        callbacks
            Functions called in this process as ``callback(study, trial)`` after every trial that is completed or fails
            in this run. They may call `stop`. An exception in one of them ends the run.
        progress
            Whether to show a progress bar and print the summary.

        Returns
        -------
        RunSummary
            How many trials this run completed and failed, and why it ended.

        Raises
        ------
        SettingError
            If a setting is out of range, or does not fit the method or the study.
        ConboError
            If ten trials in a row failed, or the executor is broken.
        StorageError
            If the database could not be reached or written for too long; the message lists rewards that are not
            recorded.

        Examples
        --------
        >>> study = conbo.Study(space)
        >>> print(study.run(profit, evaluations=4, progress=False))
        4 evaluations completed in ... s: done.
        """
        # imported here, because `ask` and `tell` should not wait for what only a run needs
        from conbo.loops import compiling
        from conbo.study.executors import evaluators_for
        from conbo.study.plan import EVALUATIONS, Ends, Plan, check_callbacks, check_plan
        from conbo.study.progress import Progress
        from conbo.study.run import Run

        wanted = EVALUATIONS if evaluations is None and budget is None else evaluations
        ends = Ends(wanted, budget, max_seconds, stop_below, worth)
        plan = Plan(ends, batch, timeout, retries, finish, on_interrupt, checked_lease(lease), max_lost_workers)
        optimizer = self._shared.up_to_date()
        check_plan(plan, objective, optimizer)
        check_callbacks(callbacks)
        compiling.begin()  # other processes compile while torch is imported and the initial design is evaluated
        _ = optimizer.learner  # imports torch now, rather than in the middle of the run
        evaluators = evaluators_for(objective, workers, executor, killable=timeout is not None)
        completed = self._shared.up_to_date().n_completed

        def policy_value() -> float:
            return self._shared.up_to_date().policy_value()

        with Progress(completed, wanted, policy_value, progress) as bar, _shown_by(bar, progress):
            study = cast("Study", self)
            run = Run(self._shared, evaluators, objective, plan, bar, [partial(each, study) for each in callbacks])
            self._runs.append(run)
            try:
                summary = run()
            finally:
                self._runs.remove(run)
            self._shared.records.settle()
            if summary.stopped == "interrupted":
                kept = self._shared.up_to_date().n_completed
                bar.note(f"Interrupted: {kept}{'' if wanted is None else f' of {wanted}'} evaluations are kept.")
        if progress:
            print(summary)
        return summary

    def stop(self) -> None:
        """End the current run of this study: running evaluations are completed, and no new ones begin.

        Call it from a callback, from another thread, or from an objective that runs in this process.

        Raises
        ------
        StudyError
            If this `Study` object has no current run. Runs of other processes do not count.

        Examples
        --------
        >>> study = conbo.Study(space)
        >>> study.run(profit, 80, callbacks=[lambda study, trial: study.stop()], progress=False).stopped
        'stop'
        """
        if not self._runs:
            raise StudyError("`stop` ends a run that is going on, but no run of this study is going on here.")
        for run in tuple(self._runs):
            run.stop()


def _shown_by(bar: Progress, progress: bool) -> AbstractContextManager[None]:
    """Context in which log messages are printed above the progress bar; it does nothing if `progress` is False."""
    return listening(bar.note) if progress else nullcontext()
