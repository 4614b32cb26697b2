"""One run in one small file: JSON lines, only ever appended to.

=============================================================  =====================================================
line                                                           says
=============================================================  =====================================================
`{"format": "conbo-run", "version": 1, "problem": ..., ...}`   the settings; the first line of every run
`{"trial": 7, "state": ..., "action": ..., "reward": ...}`     one evaluation, and the seconds that asking for it took
`{"checkpoint": 20, "score": ..., ...}`                        how good the policy was after so many evaluations
`{"complete": 60}`                                             the run reached as many evaluations as it was to have
`{"failure": "..."}`                                           why the run stopped; the next call continues it
=============================================================  =====================================================

Many runs packed into one compressed file are the same lines, run after run; a complete run leaves its trials behind.
A folder of results may hold both kinds of file.
"""

import json
import lzma
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from conbo.errors import SettingError
from conbo.trials import Trial

FORMAT, VERSION = "conbo-run", 1
Key: TypeAlias = tuple[str, str, int, int]
RUN_SUFFIX, PACK_SUFFIX = ".jsonl", ".jsonl.xz"


@dataclass(frozen=True)
class RunSettings:
    """What a run is a function of; two runs with the same settings are the same run."""

    problem: str  # as `load_problem` reads it
    method: str  # its label
    recipe: str  # what the label stood for when the run was made
    seed: int
    initial: int
    batch: int
    every: int  # evaluations from one checkpoint to the next
    test_states: int
    replications: int
    final_round: bool = False  # whether checkpoints also look at a last evaluation in each state

    @property
    def key(self) -> Key:
        """What tells runs of one folder apart."""
        return self.problem, self.method, self.batch, self.seed

    @property
    def file_name(self) -> str:
        """Readable, and allowed in every file system."""
        batch = f"batch-{self.batch}" if self.batch > 1 else ""
        parts = filter(None, (self.problem, self.method, batch, f"{self.seed:03d}"))
        return "~".join(re.sub(r"[^\w.,=+-]+", "_", part) for part in parts) + RUN_SUFFIX


class Seconds(NamedTuple):
    """What a suggestion cost."""

    fit: float
    suggest: float


@dataclass(frozen=True)
class Checkpoint:
    """How good the policy was, and what suggestions cost since the checkpoint before."""

    evaluations: int
    score: float
    measure: str
    fit_seconds: float | None = None  # mean time to fit the model for a suggestion; None in the initial design
    suggest_seconds: float | None = None  # mean time of a suggestion (of a whole batch) with the model at hand
    best_observed: float | None = None  # where there are few states: the best reward of each, averaged
    final_round: float | None = None  # the same after a last evaluation in each state, chosen to improve it


@dataclass
class Run:
    """What is known of a run."""

    settings: RunSettings
    trials: list[Trial] = field(default_factory=list)
    seconds: dict[int, Seconds] = field(default_factory=dict)  # by the first trial of each suggestion
    checkpoints: list[Checkpoint] = field(default_factory=list)
    complete: int = 0  # evaluations at which the run was complete
    failure: str | None = None

    @property
    def evaluations(self) -> int:
        """How far the run has got."""
        return max(len(self.trials), self.checkpoints[-1].evaluations if self.checkpoints else 0)

    @property
    def is_complete(self) -> bool:
        """Whether the run ended as planned."""
        return self.complete == self.evaluations > 0


def header(settings: RunSettings) -> dict[str, Any]:
    """The first line of a run."""
    return {"format": FORMAT, "version": VERSION, **asdict(settings)}


def trial_line(trial: Trial, seconds: Seconds | None) -> dict[str, Any]:
    """The line of a completed trial."""
    line = {"trial": trial.number, "state": trial.state, "action": trial.action, "reward": trial.reward}
    return line if seconds is None else {**line, "seconds": [round(s, 5) for s in seconds]}


def checkpoint_line(checkpoint: Checkpoint) -> dict[str, Any]:
    """The line of a checkpoint, without what is unknown."""
    record = asdict(checkpoint)
    return {"checkpoint": record.pop("evaluations"), **{k: _brief(v) for k, v in record.items() if v is not None}}


def complete_line(evaluations: int) -> dict[str, Any]:
    """The line of a run that ended as planned."""
    return {"complete": evaluations}


def failure_line(error: str) -> dict[str, Any]:
    """The line of a run that stopped."""
    return {"failure": error}


def append(path: Path, *lines: Mapping[str, Any]) -> None:
    """Add lines to a run's file, whole or not at all."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read_folder(folder: Path) -> dict[Key, Run]:
    """All runs of a folder by their keys; a file of its own counts more than packs, of these the longer run."""
    packs, files = sorted(folder.glob(f"*{PACK_SUFFIX}")), sorted(folder.glob(f"*{RUN_SUFFIX}"))
    packed = sorted((run for path in packs for run in read_file(path)), key=lambda run: run.evaluations)
    single = [run for path in files for run in read_file(path)]
    return {run.settings.key: run for run in (*packed, *single)}


def read_file(path: Path) -> Iterator[Run]:
    """The run of a file, or the runs of a pack."""
    run: Run | None = None
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):
                break  # the run was stopped while it wrote: that evaluation is made again
            record = json.loads(line)
            if "format" in record:
                if run is not None:
                    yield run
                run = Run(_settings(path, record))
            elif run is None:
                raise SettingError(f"a run must begin with its settings, but line {number} of '{path}' does not.")
            else:
                _add(run, record)
    if run is not None:
        yield run


def open_run(path: Path, settings: RunSettings) -> Run:
    """The run of a file, ready to be appended to; a new one if there is none."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if not whole:
        path.write_text(json.dumps(header(settings)) + "\n", encoding="utf-8")
    elif whole != content:
        path.write_bytes(whole)  # without the line that was only half written
    (run,) = read_file(path)
    return run


def lines_of(run: Run, with_trials: bool = True) -> Iterator[dict[str, Any]]:
    """The lines that say what is known of a run."""
    yield header(run.settings)
    if with_trials:
        yield from (trial_line(trial, run.seconds.get(trial.number)) for trial in run.trials)
    yield from map(checkpoint_line, run.checkpoints)
    if run.complete:
        yield complete_line(run.complete)
    if run.failure is not None:
        yield failure_line(run.failure)


def pack(runs: Iterable[Run], path: Path) -> None:
    """Write runs to one compressed file, without the trials of those that are complete."""
    listed = sorted(runs, key=lambda run: run.settings.key)
    lines = [json.dumps(line) + "\n" for run in listed for line in lines_of(run, with_trials=not run.is_complete)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress("".join(lines).encode(), preset=9))


def _brief(value: float | str) -> float | str:
    """Numbers with as many digits as mean something."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _settings(path: Path, record: dict[str, Any]) -> RunSettings:
    if record.pop("format") != FORMAT or record.pop("version") != VERSION:
        raise SettingError(f"'{path}' must be a run of format {FORMAT}, version {VERSION}, but is not.")
    return RunSettings(**record)


def _add(run: Run, record: dict[str, Any]) -> None:
    run.failure = None  # the run went on
    if "trial" in record:
        point = record["state"], record["action"]
        run.trials.append(Trial(record["trial"], *point, status="completed", reward=record["reward"]))
        if "seconds" in record:
            run.seconds[record["trial"]] = Seconds(*record["seconds"])
    elif "checkpoint" in record:
        run.checkpoints.append(Checkpoint(evaluations=record.pop("checkpoint"), **record))
    elif "complete" in record:
        run.complete = record["complete"]
    else:
        run.failure = record["failure"]
