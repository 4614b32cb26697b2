"""Makes the runs of all combinations of problem, method and seed, in several processes.

Complete runs are kept, and interrupted ones are continued.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, TypeAlias

from tqdm import tqdm

from conbo.errors import SettingError
from conbo.experiments.contestants import Entry
from conbo.experiments.entering import contestant
from conbo.experiments.problem_names import load_problem
from conbo.experiments.run_file import Key, Run, RunSettings, SeedHabit, append, lines_of, read_file, read_folder
from conbo.experiments.run_lock import run_lock
from conbo.experiments.runner import Result, Task, make_run
from conbo.experiments.scoring import Scoring
from conbo.method_list import PUBLISHED_MODEL, Method

Changed: TypeAlias = Literal["stop", "keep", "again"]

DEFAULT_SCORING = Scoring()
PAUSE = 0.5  # seconds between two checks of whether other processes have ended their runs

_log = logging.getLogger("conbo")


@dataclass(frozen=True)
class Sweep:
    """The settings of a sweep: every problem with every method at every seed; see `RunSettings` for the fields."""

    problems: Sequence[str]
    methods: Sequence[Entry]  # their names are the labels in tables and files
    evaluations: int
    initial: int
    seeds: int  # number of seeds
    batch: int = 1
    every: int = 5
    scoring: Scoring = DEFAULT_SCORING
    final_round: bool = False
    seed_habit: SeedHabit = "new"
    first_seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.initial <= self.evaluations:
            given = f"initial={self.initial}, evaluations={self.evaluations}"
            raise SettingError(f"`1 <= initial <= evaluations` must hold, but got {given}.")
        if min(self.seeds, self.batch, self.every) < 1:
            given = f"seeds={self.seeds}, batch={self.batch}, every={self.every}"
            raise SettingError(f"`seeds`, `batch` and `every` must be at least 1, but got {given}.")

    def tasks(self) -> list[Task]:
        """The tasks of all runs, ordered by seed, so that a stopped sweep has run all methods at the first seeds."""
        return [
            Task(self._settings(problem, method, seed), method, self.evaluations)
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for problem in self.problems
            for method in self.methods
        ]

    def _settings(self, problem: str, method: Entry, seed: int) -> RunSettings:
        return RunSettings(
            problem=problem,
            method=method.name,
            recipe=recipe_of(method),
            seed=seed,
            initial=self.initial,
            batch=self.batch,
            every=self.every,
            test_states=self.scoring.states,
            replications=self.scoring.replications,
            final_round=self.final_round,
            seed_habit=self.seed_habit,
        )


def recipe_of(method: Entry) -> str:
    """All settings that distinguish a method from others, as a string."""
    if not isinstance(method, Method):
        return repr(method)
    policy = f", {method.policy!r}" if method.policy else ""
    model = f", {method.model!r}" if method.model != PUBLISHED_MODEL else ""
    return f"{method.proposal!r}{policy}{model}{', states as actions' if method.states_as_actions else ''}"


@dataclass(frozen=True)
class Report:
    """The numbers of runs of a sweep that are complete, paused and failed, and the error of the first failure."""

    complete: int
    paused: int
    failed: int
    first_failure: str = ""


def sweep(
    tasks: Sequence[Task],
    folder: Path,
    jobs: int = 1,
    executor: Executor | None = None,
    minutes: float | None = None,
    changed: Changed = "stop",
    progress: bool = True,
) -> Report:
    """Make or continue the runs of all tasks, and write their files to `folder`.

    Several sweeps may use the same folder at the same time, and share its runs: none is made twice. At the end, a sweep
    waits for runs that others are still making.

    - Runs are made in `jobs` processes of this machine or, if an `executor` is given, by its workers, which must see
      the same folder. An executor has the interface of `concurrent.futures`.
    - When the given number of `minutes` has passed, all runs pause, and the next call continues them.
    - If a method has changed since its runs were made, `changed` says what to do: "stop" with an error, "keep" the
      runs, or make them "again".
    """
    deadline = None if minutes is None else time.time() + 60 * minutes
    folder.mkdir(parents=True, exist_ok=True)
    known = read_folder(folder)
    for task in tasks:
        _check(task, known.get(task.settings.key), changed)
    for task in tasks:
        _prepare(task, known, folder, changed)
    todo = [task for task in tasks if not _is_made(task, known.get(task.settings.key))]
    total = sum(task.evaluations for task in tasks)
    left = sum(task.evaluations - _evaluations(known.get(task.settings.key)) for task in todo)
    results: list[Result] = []
    with tqdm(total=total, initial=total - left, unit="evaluation", disable=not progress, smoothing=0.05) as bar:
        for result in _results(todo, folder, deadline, jobs, executor):
            results.append(result)
            complete = len(tasks) - len(todo) + sum(r.outcome == "complete" for r in results)
            bar.set_postfix_str(f"{complete} of {len(tasks)} runs", refresh=False)  # many results may come at once
            bar.update(result.evaluations)
    failures = [result.failure for result in results if result.outcome == "failed"]
    paused = sum(result.outcome == "paused" for result in results)
    return Report(len(tasks) - paused - len(failures), paused, len(failures), failures[0] if failures else "")


def _results(
    todo: Sequence[Task],
    folder: Path,
    deadline: float | None,
    jobs: int,
    executor: Executor | None,
) -> Iterator[Result]:
    """Yield the result of each task when its run ends; a run that another process is making is tried again later."""
    if executor is None and jobs == 1:
        yield from _until_free(todo, lambda tasks: ((task, make_run(task, folder, deadline)) for task in tasks))
        return
    with _pool(jobs) if executor is None else _left_open(executor) as pool:

        def attempts(tasks: Sequence[Task]) -> Iterator[tuple[Task, Result]]:
            futures = {pool.submit(make_run, task, folder, deadline): task for task in tasks}
            try:
                yield from ((futures[future], future.result()) for future in as_completed(futures))
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

        yield from _until_free(todo, attempts)


def _until_free(
    tasks: Sequence[Task], attempts: Callable[[Sequence[Task]], Iterable[tuple[Task, Result]]]
) -> Iterator[Result]:
    said = False
    while tasks:
        busy: list[Task] = []
        for task, result in attempts(tasks):
            if result.outcome == "busy":
                busy.append(task)
            else:
                yield result
        tasks = busy
        if tasks and not said:
            _log.warning("%d runs are being made by another process: this one waits for them", len(tasks))
            said = True
        if tasks:
            time.sleep(PAUSE)


def _pool(jobs: int) -> Executor:
    # one thread for each process, because the processes already use all cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))


@contextmanager
def _left_open(executor: Executor) -> Iterator[Executor]:
    """Context manager that yields the executor and leaves it open, because the caller who created it closes it."""
    yield executor


def _check(task: Task, run: Run | None, changed: Changed) -> None:
    """Raise an error if a task cannot be run, or if its recorded `run` cannot be continued with the task's settings.

    A change of the method's settings is an error only if `changed` is "stop".
    """
    problem = load_problem(task.settings.problem)
    # raises an error if the method cannot be used on the problem
    contestant(task.method, problem, task.settings, task.evaluations)
    if task.settings.seed_habit != "new" and not problem.takes_seed:
        raise SettingError(f"the problem must take seeds, but `evaluate` of '{task.settings.problem}' does not.")
    if run is None:
        return
    old, new = asdict(run.settings), asdict(task.settings)
    if changed != "stop":
        del old["recipe"], new["recipe"]
    for name in new:
        if old[name] != new[name]:
            hint = ", or say what to do with changed runs." if name == "recipe" else "."
            raise SettingError(
                f"a run of '{task.settings.method}' on '{task.settings.problem}' was made with {name}={old[name]!r} "
                f"and cannot go on with {name}={new[name]!r}: use another folder{hint}"
            )
    if len(run.trials) < run.evaluations < task.evaluations and not _is_stale(task, run, changed):
        raise SettingError(
            f"a run of '{task.settings.method}' on '{task.settings.problem}' was packed after {run.evaluations} "
            f"evaluations, without its trials, and cannot go on to {task.evaluations}: use another folder."
        )


def _prepare(task: Task, known: dict[Key, Run], folder: Path, changed: Changed) -> None:
    """Prepare the file of a task's run, if the run is one of the `known` ones.

    If the method has changed and `changed` is "again", the run's file is deleted, and the run is removed from `known`.
    If the run is unfinished and stored only in a compressed file of many runs, it is written to its own file, so that
    it can be continued.
    """
    path, run = folder / task.settings.file_name, known.get(task.settings.key)
    stale = run is not None and _is_stale(task, run, changed)
    if run is None or (not stale and (path.exists() or _is_made(task, run))):
        return
    with run_lock(path) as ours:
        # do nothing if another process prepares the run now, or has done so since `known` was read
        if ours and stale and path.exists() and any(_is_stale(task, old, changed) for old in read_file(path)):
            path.unlink()
        elif ours and not stale and not path.exists():
            append(path, *lines_of(run))
    if stale:
        del known[task.settings.key]


def _is_stale(task: Task, run: Run, changed: Changed) -> bool:
    return changed == "again" and run.settings.recipe != task.settings.recipe


def _is_made(task: Task, run: Run | None) -> bool:
    return run is not None and run.complete >= task.evaluations


def _evaluations(run: Run | None) -> int:
    return 0 if run is None else run.evaluations
