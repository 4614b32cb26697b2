"""The file of a run, in the JSON Lines format; existing lines never change, and new ones are appended.

=============================================================  =====================================================
line                                                           content
=============================================================  =====================================================
`{"format": "conbo-run", "version": 1, "problem": ..., ...}`   the settings; the first line of every run
`{"origin": {"version": ..., "platform": ..., "code": ...}}`    which code made the lines that follow; see `origin.py`
`{"confirmed": "..."}`                                         later code that reproduces the run; see `confirmation.py`
`{"trial": 7, "state": ..., "action": ..., "reward": ...}`     one evaluation, with its constrained outcomes if there
                                                               are any, and the seconds that the suggestion took
`{"checkpoint": 20, "score": ..., ...}`                        how good the policy was after that many evaluations
`{"complete": 60}`                                             the run reached its planned number of evaluations
`{"failure": "..."}`                                           the error that stopped the run; it can be continued
=============================================================  =====================================================

A compressed file of many runs (a pack) holds the same lines, run by run, without the trials of complete runs. A
folder of results may hold both kinds of file.
"""

import json
import lzma
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from conbo.errors import RecordError
from conbo.files import write_whole
from conbo.record_fields import Fields, errors_about, parse_json
from conbo.trials import Outcomes, Trial

FORMAT, VERSION = "conbo-run", 1
Key: TypeAlias = tuple[str, str, int, int]  # problem, method, batch size and seed of a run
# Where the seeds of a simulator come from. "new": every evaluation has another seed. "chosen": the method chooses them,
# as with common random numbers. "one": all evaluations have the same seed.
SeedHabit: TypeAlias = Literal["new", "chosen", "one"]
SEED_HABITS: tuple[SeedHabit, ...] = get_args(SeedHabit)
RUN_SUFFIX, PACK_SUFFIX = ".jsonl", ".jsonl.xz"
LONGEST_LINE = 10_000_000  # largest number of characters in a line
_REMEDY = "two processes may have written this run at once; remove its file, and it is made again."


@dataclass(frozen=True)
class RunSettings:
    """The settings that determine a run, which is one method on one problem with one seed."""

    problem: str  # name of the problem, as `load_problem` reads it
    method: str  # label of the method
    recipe: str  # settings of the method when the run was made
    seed: int
    initial: int  # number of evaluations in the initial design
    batch: int  # number of points suggested together
    every: int  # number of evaluations from one checkpoint to the next
    test_states: int  # number of states in which policies are scored
    replications: int  # number of evaluations in each of these states
    final_round: bool = False  # whether checkpoints also record the best rewards after a final round
    seed_habit: SeedHabit = "new"  # where the seeds of the simulator come from

    @property
    def key(self) -> Key:
        """The settings that distinguish the runs of one folder: problem, method, batch size and seed."""
        return self.problem, self.method, self.batch, self.seed

    @property
    def file_name(self) -> str:
        """The name of the run's file, readable and allowed in every file system."""
        batch = f"batch-{self.batch}" if self.batch > 1 else ""
        parts = filter(None, (self.problem, self.method, batch, f"{self.seed:03d}"))
        return "~".join(re.sub(r"[^\w.,=+-]+", "_", part) for part in parts) + RUN_SUFFIX


class Seconds(NamedTuple):
    """Computing times of one suggestion, in seconds: to fit the model, and to search with the fitted model."""

    fit: float
    suggest: float


@dataclass(frozen=True)
class Origin:
    """The version of conbo, the platform and the code that made a run or a part of it."""

    version: str  # version of this package
    platform: str
    code: str  # fingerprint of the source code that the numbers depend on


@dataclass(frozen=True)
class Checkpoint:
    """Scores of the policy at a checkpoint, and mean computing times of suggestions since the previous checkpoint."""

    evaluations: int
    score: float
    measure: str  # what the score is: "opportunity cost" or "mean reward"
    fit_seconds: float | None = None  # mean time to fit the model for a suggestion; None in the initial design
    suggest_seconds: float | None = None  # mean time of a suggestion (of a whole batch) with the fitted model
    best_observed: float | None = None  # mean over states of the best observed reward, if there are few states
    final_round: float | None = None  # `best_observed` after one more evaluation in each state, chosen to improve it
    violation: float | None = None  # probability that the policy violates a constraint, if there are constraints
    observed_mean: float | None = None  # mean over states of the expected reward of the best observed actions


@dataclass
class Run:
    """A run, which is one method on one problem with one seed, as its file records it."""

    settings: RunSettings
    origins: list[Origin] = field(default_factory=list)  # more than one if other code continued the run
    confirmed: list[str] = field(default_factory=list)  # fingerprints of later code that makes the same run
    trials: list[Trial] = field(default_factory=list)
    seconds: dict[int, Seconds] = field(default_factory=dict)  # by the first trial of each suggestion
    checkpoints: list[Checkpoint] = field(default_factory=list)
    complete: int = 0  # number of evaluations at which the run was complete; 0 if it is not
    failure: str | None = None

    @property
    def evaluations(self) -> int:
        """Number of evaluations so far, even if the run was read from a compressed file without its trials."""
        return max(len(self.trials), self.checkpoints[-1].evaluations if self.checkpoints else 0)

    @property
    def is_complete(self) -> bool:
        """Whether the run has reached its planned number of evaluations."""
        return self.complete == self.evaluations > 0


def header(settings: RunSettings) -> dict[str, Any]:
    """The first line of a run's file, which holds its settings."""
    return {"format": FORMAT, "version": VERSION, **asdict(settings)}


def origin_line(origin: Origin) -> dict[str, Any]:
    """The line of a run's file which says which code, on which platform, made the lines that follow."""
    return {"origin": asdict(origin)}


def confirmed_line(code: str) -> dict[str, Any]:
    """The line of a run's file with the fingerprint of later code that reproduces the run; see `confirmation`."""
    return {"confirmed": code}


def trial_line(trial: Trial, seconds: Seconds | None) -> dict[str, Any]:
    """The line of a run's file for a completed trial.

    `seconds` are the computing times of the suggestion. A suggestion may be a batch of trials, and only the line of its
    first trial has these times; for the others, `seconds` is None.
    """
    line = {"trial": trial.number, "state": trial.state, "action": trial.action, "reward": trial.reward}
    line |= {} if trial.seed is None else {"seed": trial.seed}
    line |= {"outcomes": dict(trial.measured)} if trial.measured else {}
    return line if seconds is None else {**line, "seconds": [round(s, 5) for s in seconds]}


def checkpoint_line(checkpoint: Checkpoint) -> dict[str, Any]:
    """The line of a run's file with the policy's scores at a checkpoint, without values that are None."""
    record = asdict(checkpoint)
    return {"checkpoint": record.pop("evaluations"), **{k: _brief(v) for k, v in record.items() if v is not None}}


def complete_line(evaluations: int) -> dict[str, Any]:
    """The line of a run's file which says that the run has reached its planned number of evaluations."""
    return {"complete": evaluations}


def failure_line(error: str) -> dict[str, Any]:
    """The line of a run's file which says why the run stopped."""
    return {"failure": error}


def append(path: Path, *lines: Mapping[str, Any]) -> None:
    """Append lines to a run's file, and wait until they are on the disk."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read_folder(folder: Path) -> dict[Key, Run]:
    """All runs of a folder, in a dict whose keys are (problem, method, batch size, seed).

    If a run has its own file and is also in a pack (a compressed file of many runs), its own file is used.
    """
    packs, files = sorted(folder.glob(f"*{PACK_SUFFIX}")), sorted(folder.glob(f"*{RUN_SUFFIX}"))
    packed = sorted((run for path in packs for run in read_file(path)), key=lambda run: run.evaluations)
    single = [run for path in files for run in read_file(path)]
    return {run.settings.key: run for run in (*packed, *single)}


def read_file(path: Path) -> Iterator[Run]:
    """Yield the run of a file, or all runs of a compressed file.

    Raises
    ------
    RecordError
        If the file is damaged, or its trials are not numbered 0, 1, 2, …; the message names the file and usually
        the line.
    """
    run: Run | None = None
    for number, line in enumerate(_lines(path), start=1):
        with errors_about(f"line {number} of '{path}'"):
            fields = Fields.of(parse_json(line))
            if fields.has("format"):
                if run is not None:
                    yield run
                run = Run(_settings(fields))
            elif run is None:
                raise RecordError("a run must begin with its settings, but this one does not.")
            else:
                _add(run, fields)
    if run is not None:
        yield run


def open_run(path: Path, settings: RunSettings) -> Run:
    """Read the run in a file to which lines will be appended.

    If the file is missing or has no complete line, it is first written with the header of a new run.

    An incomplete last line is removed. Raises RecordError if the file holds several runs, or a run whose settings
    differ from `settings` in a field other than `recipe`.
    """
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if not whole:
        path.write_text(json.dumps(header(settings)) + "\n", encoding="utf-8")
    elif whole != content:
        path.write_bytes(whole)  # drops an incomplete last line
    runs = list(read_file(path))
    if len(runs) > 1:
        raise RecordError(f"'{path}' must hold one run, but holds {len(runs)}.")
    # the recipe may differ, because the sweep has already decided whether such a run is kept
    if replace(runs[0].settings, recipe="") != replace(settings, recipe=""):
        raise RecordError(f"'{path}' must hold the run {settings}, but holds {runs[0].settings}.")
    return runs[0]


def lines_of(run: Run, with_trials: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the lines of a run's file, with or without its trials."""
    yield header(run.settings)
    yield from map(origin_line, run.origins)
    yield from map(confirmed_line, run.confirmed)
    if with_trials:
        yield from (trial_line(trial, run.seconds.get(trial.number)) for trial in run.trials)
    yield from map(checkpoint_line, run.checkpoints)
    if run.complete:
        yield complete_line(run.complete)
    if run.failure is not None:
        yield failure_line(run.failure)


def pack(runs: Iterable[Run], path: Path) -> None:
    """Write runs to one compressed file (a pack), without the trials of complete runs."""
    listed = sorted(runs, key=lambda run: run.settings.key)
    lines = [json.dumps(line) + "\n" for run in listed for line in lines_of(run, with_trials=not run.is_complete)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lzma.compress("".join(lines).encode(), preset=9))


def _brief(value: float | str) -> float | str:
    """Round a number to seven significant digits; return a string unchanged."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _lines(path: Path) -> Iterator[str]:
    """Yield the complete lines of a file; an incomplete last line, left by an interrupted write, is dropped."""
    try:
        with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
            while (line := file.readline(LONGEST_LINE)).endswith("\n"):
                yield line
    except (UnicodeDecodeError, lzma.LZMAError, EOFError) as error:
        raise RecordError(f"'{path}' must be a file of runs, but is damaged: {error}.") from error
    if len(line) == LONGEST_LINE:
        raise RecordError(f"'{path}' must have lines of at most {LONGEST_LINE} characters, but has a longer one.")


def _settings(fields: Fields) -> RunSettings:
    if fields.value("format") != FORMAT or fields.value("version") != VERSION:
        raise RecordError(f"a run must be of format {FORMAT}, version {VERSION}, but this one is not.")
    names = [field.name for field in dataclass_fields(RunSettings)]
    optional = ("final_round", "seed_habit")
    fields.only(("format", "version", *(name for name in names if name not in optional)), optional)
    return RunSettings(
        problem=fields.text("problem"),
        method=fields.text("method"),
        recipe=fields.text("recipe"),
        seed=fields.whole("seed"),
        initial=fields.whole("initial", least=1),
        batch=fields.whole("batch", least=1),
        every=fields.whole("every", least=1),
        test_states=fields.whole("test_states", least=1),
        replications=fields.whole("replications", least=1),
        final_round=fields.flag("final_round") if "final_round" in fields.record else False,
        seed_habit=_seed_habit(fields) if "seed_habit" in fields.record else "new",
    )


def _seed_habit(fields: Fields) -> SeedHabit:
    return next(habit for habit in SEED_HABITS if habit == fields.text("seed_habit", SEED_HABITS))


def _add(run: Run, fields: Fields) -> None:
    run.failure = None  # the run continued after the failure
    if fields.has("origin"):
        names = [field.name for field in dataclass_fields(Origin)]
        origin = fields.only(("origin",)).fields("origin").only(names)
        run.origins.append(Origin(*(origin.text(name) for name in names)))
    elif fields.has("confirmed"):
        run.confirmed.append(fields.only(("confirmed",)).text("confirmed"))
    elif fields.has("trial"):
        optional = ("seconds", "seed", "outcomes")
        _add_trial(run, fields.only(("trial", "state", "action", "reward"), optional=optional))
    elif fields.has("checkpoint"):
        run.checkpoints.append(_checkpoint(run, fields))
    elif fields.has("complete"):
        run.complete = fields.only(("complete",)).whole("complete", least=1, most=run.evaluations)
    else:
        run.failure = fields.only(("failure",)).text("failure")


def _add_trial(run: Run, fields: Fields) -> None:
    number, expected = fields.whole("trial"), len(run.trials)
    if number != expected:
        what = "is there twice" if number < expected else "is missing"
        raise RecordError(f"trials must be numbered 0, 1, 2, …, but trial {min(number, expected)} {what}: {_REMEDY}")
    point = fields.point("state"), fields.point("action")
    seed = fields.whole("seed") if fields.has("seed") else None
    measured = fields.fields("outcomes") if fields.has("outcomes") else Fields({})
    outcomes = Outcomes(fields.number("reward"), None, {name: measured.number(name) for name in measured.record})
    run.trials.append(Trial(number, *point, "completed", outcomes, seed=seed))
    if fields.has("seconds"):
        run.seconds[number] = Seconds(*fields.numbers("seconds", 2, least=0))


def _checkpoint(run: Run, fields: Fields) -> Checkpoint:
    optional = ("fit_seconds", "suggest_seconds", "best_observed", "observed_mean", "final_round", "violation")
    fields.only(("checkpoint", "score", "measure"), optional)
    evaluations = fields.whole("checkpoint", least=1)
    if run.checkpoints and evaluations <= (last := run.checkpoints[-1].evaluations):
        raise RecordError(f"checkpoints must follow each other, but {evaluations} comes after {last}: {_REMEDY}")
    if run.trials and evaluations > len(run.trials):  # a pack does not hold the trials of complete runs
        raise RecordError(f"a checkpoint must come after its trials, but {evaluations} comes after {len(run.trials)}.")
    return Checkpoint(
        evaluations,
        fields.number("score"),
        fields.text("measure"),
        **{name: fields.number(name) for name in optional if fields.has(name)},
    )
