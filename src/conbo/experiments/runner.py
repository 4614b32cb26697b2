"""Makes one run: a method on a problem with one seed. All results are written to a file, so a run can be continued.

The results of a run depend only on its settings. A suggestion depends on the seed and the trials before it. The noise
of an evaluation depends on the seed and, by default, on the trial's number; see `evaluation`. The initial
design is the same for all of conbo's methods if the seed is the same.
"""

import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import torch

from conbo.experiments.contestants import Contestant, Entry
from conbo.experiments.entering import contestant
from conbo.experiments.evaluation import evaluate
from conbo.experiments.final_round import after_final_round
from conbo.experiments.origin import origin_of
from conbo.experiments.problem_names import load_problem
from conbo.experiments.run_file import (
    Checkpoint,
    Run,
    RunSettings,
    Seconds,
    append,
    checkpoint_line,
    complete_line,
    failure_line,
    open_run,
    origin_line,
    trial_line,
)
from conbo.experiments.run_lock import run_lock
from conbo.experiments.scoring import Scorer, Scoring, scorer
from conbo.method_list import Method

T = TypeVar("T")
Outcome: TypeAlias = Literal["complete", "failed", "paused", "busy"]


@dataclass(frozen=True)
class Task:
    """A run to be made, with its planned number of evaluations."""

    settings: RunSettings
    method: Entry
    evaluations: int


@dataclass(frozen=True)
class Result:
    """How a call of `make_run` ended, and how many evaluations it made."""

    outcome: Outcome
    evaluations: int
    failure: str = ""


def make_run(task: Task, folder: Path, deadline: float | None = None) -> Result:
    """Make a run or continue it, until it is complete or `time.time()` reaches the `deadline`.

    If another process is making this run, the outcome is "busy" and nothing is done.
    """
    if deadline is not None and time.time() >= deadline:
        return Result("paused", 0)
    path = folder / task.settings.file_name
    with run_lock(path) as ours:
        return _make(task, path, deadline) if ours else Result("busy", 0)


def _make(task: Task, path: Path, deadline: float | None) -> Result:
    torch.set_num_threads(1)
    run = open_run(path, task.settings)
    if run.complete >= task.evaluations:
        return Result("complete", 0)  # another process has completed the run since the sweep began
    if run.origins[-1:] != [origin := origin_of(task.settings, task.method)]:
        run.origins.append(origin)
        append(path, origin_line(origin))
    before = run.evaluations
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # policies warn users, who do not see this run
            complete = _continue(run, path, task, deadline)
    except Exception:
        append(path, failure_line(traceback.format_exc()))
        return Result("failed", run.evaluations - before, traceback.format_exc())
    return Result("complete" if complete else "paused", run.evaluations - before)


def _continue(run: Run, path: Path, task: Task, deadline: float | None) -> bool:
    """Continue the run until it is complete or the deadline has passed; return whether it is complete."""
    settings, problem = task.settings, load_problem(task.settings.problem)
    judge = _judge(settings.problem, Scoring(settings.test_states, settings.replications))
    optimizer = contestant(task.method, problem, settings, task.evaluations)
    optimizer.restore(run.trials)
    while True:
        fit_seconds = _timed(optimizer.fit)[0]
        if _is_due(run, task.evaluations):
            run.checkpoints.append(_checkpoint(run, task, judge, optimizer))
            append(path, checkpoint_line(run.checkpoints[-1]))
        if run.evaluations >= task.evaluations:
            append(path, complete_line(task.evaluations))
            return True
        if deadline is not None and time.time() >= deadline:
            return False
        designed = settings.initial - run.evaluations
        n = designed if designed > 0 else min(settings.batch, task.evaluations - run.evaluations)
        suggest_seconds, asked = _timed(partial(optimizer.ask, n))
        if designed <= 0:
            run.seconds[asked[0].number] = Seconds(fit_seconds, suggest_seconds)
        for trial in asked:
            outcomes = evaluate(problem, settings.seed, trial, settings.seed_habit)
            optimizer.tell(trial, outcomes.reward, outcomes=outcomes.measured)
        told = optimizer.trials[asked[0].number :]
        append(path, *(trial_line(trial, run.seconds.get(trial.number)) for trial in told))
        run.trials.extend(told)


def _is_due(run: Run, evaluations: int) -> bool:
    """Whether the policy is to be scored now; `evaluations` is the planned number of evaluations.

    It is scored after the initial design, each time the run passes a multiple of the setting `every`, and at the end.
    """
    if run.evaluations < run.settings.initial:
        return False
    last = run.checkpoints[-1].evaluations if run.checkpoints else 0
    passed = run.evaluations // run.settings.every > last // run.settings.every
    return last == 0 or passed or last < run.evaluations == evaluations


def _checkpoint(run: Run, task: Task, judge: Scorer, optimizer: Contestant) -> Checkpoint:
    last = run.checkpoints[-1].evaluations if run.checkpoints else 0
    costs = [seconds for number, seconds in run.seconds.items() if number >= last]
    score, policy = judge.best(optimizer.policies())
    method = task.method if run.settings.final_round and isinstance(task.method, Method) else None
    return Checkpoint(
        evaluations=run.evaluations,
        score=score,
        measure=judge.measure,
        fit_seconds=float(np.mean([cost.fit for cost in costs])) if costs else None,
        suggest_seconds=float(np.mean([cost.suggest for cost in costs])) if costs else None,
        best_observed=judge.best_observed(run.trials) if method else None,
        observed_mean=judge.mean_of_best_observed(run.trials) if method else None,
        final_round=after_final_round(judge, method, run.settings.seed, run.trials) if method else None,
        violation=judge.violation(policy),
    )


@lru_cache(maxsize=16)
def _judge(problem: str, scoring: Scoring) -> Scorer:
    return scorer(load_problem(problem), scoring)


def _timed(function: Callable[[], T]) -> tuple[float, T]:
    """The seconds that a call took, and its result."""
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result
