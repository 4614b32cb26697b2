"""What the worker processes of these tests do."""

import json
import math
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conbo import Real, Space, Study
from conbo.belief import Belief
from conbo.cli.objectives import Program
from conbo.errors import ConboError
from conbo.method_table import METHODS
from conbo.optimizer import Optimizer
from conbo.proposals import Proposal, Suggestion
from conbo.proposals.penalized_batch import penalty
from conbo.study import database
from conbo.study.executors import Here
from conbo.study.records import Records
from conbo.study.run import Run

SPACE = Space(states={"s": Real(0.0, 1.0)}, actions={"x": Real(0.0, 1.0)})
# what a worker may be doing, and the byte that says so
PHASES = {b"s": "start-up", b"c": "suggestion", b"e": "evaluation", b"t": "telling", b"b": "between"}
LIVELY = {name: byte for byte, name in PHASES.items()}
LEASE = 0.5  # seconds, short enough to wait for its end


def reward(state: Mapping[str, Any], action: Mapping[str, Any]) -> float:
    """The best action is the state itself."""
    return -((float(action["x"]) - float(state["s"])) ** 2)


def hilly_reward(state: Mapping[str, Any], action: Mapping[str, Any]) -> float:
    """So rough that eight points have room to keep apart: a smooth function correlates all of them."""
    return math.sin(9 * float(state["s"])) * math.cos(11 * float(action["x"])) + reward(state, action)


def logged(log: Path, program: Callable[..., Any], *arguments: Any) -> None:
    """Run the program with all output in a file."""
    sys.stdout = sys.stderr = log.open("a", buffering=1)  # open to the end, for an error's traceback
    torch.set_num_threads(1)
    program(*arguments)


def append(path: Path, line: str) -> None:
    """One line in one write: those of several processes do not mix, and it is there when the process dies."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def tell_for_ever(storage: str, method: str, journal: Path) -> None:
    """Ask and tell by hand; the journal has what was acknowledged."""
    study = Study(SPACE, method=method, storage=storage)
    while True:
        trial = study.ask()
        time.sleep(0.01 * random.random())
        value = reward(trial.state, trial.action)
        study.tell(trial, value)
        append(journal, json.dumps([trial.number, value]))


def run_for_ever(storage: str, method: str, journal: Path) -> None:
    """Run one evaluation after the other; when a run has returned, its rewards are acknowledged."""

    def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
        time.sleep(0.01 * random.random())
        return reward(state, action)

    study = Study(SPACE, method=method, storage=storage)
    acknowledged: set[int] = set()
    while True:
        completed = sum(trial.status == "completed" for trial in study.trials)
        study.run(objective, evaluations=completed + 1, lease=LEASE, progress=False)
        for trial in study.trials:
            if trial.status == "completed" and trial.number not in acknowledged:
                acknowledged.add(trial.number)
                append(journal, json.dumps([trial.number, trial.reward]))


def lively(
    storage: str, method: str, phase: str, told: str, evaluated: str, scheduler: str | None = None, width: int = 1
) -> None:
    """Run for ever, alone or with a Dask cluster, and write down the phase of every moment in one byte of a file."""
    file = os.open(phase, os.O_WRONLY)

    def within(owner: type, method: str, name: str) -> None:
        inner = getattr(owner, method)

        def outer(*arguments: Any, **settings: Any) -> Any:
            os.pwrite(file, LIVELY[name], 0)
            result = inner(*arguments, **settings)
            if name == "telling" and result:
                append(Path(told), json.dumps([arguments[1], arguments[2].reward]))
            os.pwrite(file, LIVELY["between"], 0)
            return result

        setattr(owner, method, outer)

    within(Optimizer, "suggest", "suggestion")
    within(Records, "add", "suggestion")
    within(Records, "begin", "evaluation")
    within(Here if scheduler is None else Run, "submit" if scheduler is None else "_wait", "evaluation")
    within(Records, "tell", "telling")

    def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
        line = json.dumps([os.getpid(), state["s"], action["x"]])
        with open(evaluated, "a", buffering=1) as journal:
            journal.write(f"{line}\n")
        time.sleep(0.05 * random.random())
        return -((float(action["x"]) - float(state["s"])) ** 2)

    study = Study(SPACE, method=method, storage=storage, initial=4)
    with ExitStack() as stack:
        settings: dict[str, Any] = {}
        if scheduler is not None:
            from distributed import Client

            client = stack.enter_context(Client(scheduler_file=str(scheduler)))
            settings = {"executor": client.get_executor(), "workers": width}
        study.run(objective, evaluations=10**6, max_lost_workers=10**6, progress=False, **settings)


@dataclass(frozen=True)
class Recorded:
    """A proposal that writes down what it saw: the points, the pending ones and their penalty factors."""

    proposal: Proposal
    journal: Path

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        suggestion = self.proposal.propose(belief, n, generator, state)
        points = suggestion.points
        pending = belief.observations.pending
        others = torch.triu_indices(n, n, offset=1)
        between = penalty(belief, points, points)[*others]
        factors = torch.cat([penalty(belief, points, pending).flatten(), between])
        seen = {"points": points.tolist(), "pending": pending.tolist(), "factors": factors.tolist()}
        append(self.journal, json.dumps(seen))
        return suggestion


@dataclass(frozen=True)
class Part:
    """What each of several workers of a study is to do."""

    storage: str
    method: str
    evaluations: int
    seconds: float  # that an evaluation takes
    overlap: int  # an evaluation also lasts until so many others have begun after it
    evaluated: Path  # journal of evaluations
    suggested: Path  # journal of suggestions


def share(part: Part, start: Any) -> None:
    """One of several workers of a study, which start together."""
    recorded = Recorded(METHODS[part.method].proposal, part.suggested)
    METHODS[part.method] = replace(METHODS[part.method], proposal=recorded)

    def begun() -> int:
        return part.evaluated.read_bytes().count(b"\n")

    def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
        append(part.evaluated, json.dumps([state["s"], action["x"], os.getpid()]))
        enough = min(begun() + part.overlap, part.evaluations)
        time.sleep(part.seconds)
        while begun() < enough:
            time.sleep(0.01)
        return hilly_reward(state, action)

    start.wait()
    study = Study(SPACE, method=part.method, storage=part.storage, initial=4)
    study.run(objective, evaluations=part.evaluations, progress=False)


def run_to(storage: str, evaluations: int, seconds: float, evaluated: Path, lease: float = 60.0) -> None:
    """Run a cheap study to its end."""

    def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
        append(evaluated, str(os.getpid()))
        time.sleep(seconds)
        return reward(state, action)

    study = Study(SPACE, method="uniform", storage=storage)
    study.run(objective, evaluations=evaluations, lease=lease, progress=False)


def run_together(storage: str, n: int, evaluated: Path) -> None:
    """Be one of n workers with one evaluation each, which ends when all of them have begun."""

    def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
        append(evaluated, str(os.getpid()))
        while len(set(evaluated.read_text().split())) < n:
            time.sleep(0.05)
        return reward(state, action)

    study = Study(SPACE, method="uniform", storage=storage)
    study.run(objective, evaluations=n, lease=6.0, progress=False)


def tell_until_the_file_may_not_grow(storage: str, result: Path) -> None:
    """Tell until the limit on the files' size is felt; without the limit, tell what is left."""
    database.FULL_PATIENCE = 0.5
    study = Study(SPACE, method="uniform", storage=storage)
    study.run(reward, evaluations=3, progress=False)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(path.stat().st_size for path in Path(storage).parent.glob(f"{Path(storage).name}*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 100_000, unlimited[1]))
    acknowledged = 3
    try:
        while True:
            trial = study.ask()
            study.tell(trial, reward(trial.state, trial.action))
            acknowledged += 1
    except ConboError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        result.write_text(f"{acknowledged} {error}")
    for trial in study.trials:
        if trial.status == "running":
            study.tell(trial, reward(trial.state, trial.action))


def run_in_processes(storage: str, evaluated: Path) -> None:
    """Evaluate in two processes of this one, for ever."""

    def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
        with evaluated.open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        time.sleep(0.05)
        return float(action["x"])

    Study(SPACE, method="uniform", storage=storage).run(objective, evaluations=10**6, workers=2, progress=False)


def run_programs_in_processes(storage: str, started: Path) -> None:
    """Run a program that does not end in each of two processes of this one."""
    program = Program(f"sh -c 'echo $$ >> {started}; sleep 600'")
    Study(SPACE, method="uniform", storage=storage).run(program, evaluations=2, workers=2, progress=False)


def hold(storage: str, evaluations: int, bonus: float, holding: Path, go_on: Path) -> None:
    """Run a study, but hold the first evaluation until told to go on; its reward has a bonus."""

    def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
        append(holding, json.dumps([state["s"], action["x"]]))
        while not go_on.exists():
            time.sleep(0.01)
        return reward(state, action) + bonus

    study = Study(SPACE, method="uniform", storage=storage)
    study.run(objective, evaluations=evaluations, lease=LEASE, progress=False)
