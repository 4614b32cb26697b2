"""Every reader with valid inputs, ways to damage them, and a judge of what was read all the same."""

import csv
import io
import json
import math
import random
import sqlite3
import tomllib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from damage import damaged_bytes, damaged_digits, damaged_record

from conbo import GaussianProcess, Study, open_study
from conbo.cli.study_file import TEMPLATE, read_study_file
from conbo.errors import ConboError
from conbo.experiments.run_file import Checkpoint, Run, RunSettings, Seconds, lines_of, pack, read_file
from conbo.optimizer import Optimizer
from conbo.policies.policy import Policy
from conbo.policies.policy_file import from_record as policy_from_record
from conbo.policies.policy_file import to_record
from conbo.quasi_random import sobol
from conbo.record_fields import checksum, parse_json
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.state_distributions import Normal, Weights
from conbo.study.description import Settings
from conbo.study.description import from_record as settings_from_record
from conbo.study.stored_fields import check_trial, settings_of, trial_of
from conbo.study.trial_csv import read_csv
from conbo.trials import Outcomes, Trial
from conbo.values import MAX_NAME

Outcome: TypeAlias = Literal["refused", "valid"]

SPACE = Space(
    states={"s": Real(0, 1), "k": Categorical(["a", "b", 3])},
    actions={"x": Real(0.1, 10, log=True), "n": Integer(1, 5), "c": Categorical([True, "no"])},
)
CONTROL = {chr(code) for code in (*range(32), *range(127, 160))}
DISTRIBUTION = {"s": Normal(0.4, 0.2), "k": Weights({"a": 1, "b": 2, 3: 0.5})}


@dataclass(frozen=True)
class Reader:
    """A reader under attack: `attack(generator, folder)` damages one input, reads it, and judges the result."""

    name: str
    share: int  # of 100 attacks
    attack: Callable[[random.Random, Path], Outcome]


def outcome(read: Callable[[], Any], judge: Callable[[Any], None]) -> Outcome:
    """Any exception but conbo's own is for the test to show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = read()
        except ConboError:
            return "refused"
        judge(result)
    return "valid"


def judge_trials(space: Space, trials: Any) -> None:
    for number, trial in enumerate(trials):
        assert trial.number == number
        judge_trial(space, trial)


def judge_trial(space: Space, trial: Trial) -> None:
    assert space.validate_state(trial.state) == trial.state
    assert space.validate_action(trial.action) == trial.action
    assert trial.status in ("running", "completed", "failed")
    assert (trial.status == "completed") == (trial.reward is not None)
    assert trial.reward is None or math.isfinite(trial.reward)
    assert trial.noise is None or 0 <= trial.noise < math.inf
    assert all(0 < len(name.encode().decode()) <= MAX_NAME and not set(name) & CONTROL for name in trial.measured)
    assert all(isinstance(value, float) and math.isfinite(value) for value in trial.measured.values())


# Policies


@cache
def policy_records() -> list[dict[str, Any]]:
    """Policies of every kind of kernel, noise, warp, map of the rewards and rule, from one small study."""
    records = []
    model = GaussianProcess(members=1, main_effects="none", output_warping="none")
    for states, noise in (("product", None), ("trend", None), ("multi-task", None), ("product", 0.1)):
        study = Study(SPACE, method="uniform", initial=1, model=model)
        study.ask(7)
        for trial in study.trials:
            study.tell(trial, math.sin(trial.number) + trial.action["x"] / 10, noise)
        record = json.loads(json.dumps(to_record(study.policy().belief, True, None)))
        record["members"][0]["kernel"] = _kernel(states)
        records.append(record)
    members = [record["members"][0] for record in records]
    members[1]["noise"] = {"log_level": -3.0, "slopes": [0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, 0.8]}
    members[2]["kernel"]["warp"] = {"log_a": [0.5, -0.5, 0.0], "log_b": [-0.25, 0.25, 0.0]}
    tail = {"pivot": 1.0, "width": 0.5, "shift": -0.25, "scale": 0.5}
    records[0]["members"] = [
        members[0] | {"weight": 0.5, "kernel": _with_main_effects(_kernel("product"), [0.5, 2.0])},
        members[0] | {"weight": 0.25, "output": {"type": "low-tail", **tail}},
        members[0] | {"weight": 0.25, "output": {"type": "limits", "low": -1.0, "high": 1.5}},
    ]
    records[3]["members"] = [
        members[3] | {"weight": 0.75, "kernel": _with_main_effects(_kernel("trend"), [0.75])},
        members[1] | {"weight": 0.25, "output": {"type": "low-tail", **tail, "power": 0.5}},
    ]
    records[0]["policy"] = {"type": "model", "candidates": 32, "starts": 2, "similar": 0.9}
    records[1]["policy"] = {"type": "nearest-neighbors", "k": 3}
    records[2]["policy"] = {"type": "policy-gradient", "spread": 0.2, "starts": 2, "iterations": 5}
    records[3]["policy"] = {"type": "single-action", "action": [0.5, 0.1, 0.25]}
    return [sealed_again(record) for record in records]


def _kernel(states: str) -> dict[str, Any]:
    common = {"profile": "matern52", "state_lengthscales": [0.5, 2.0], "action_lengthscales": [0.3, 0.5, 1.0]}
    own: dict[str, Any] = {
        "product": {"outputscale": 1.5},
        "trend": {"trend": 0.5, "difference": 0.25, "constant": 0.125},
        "multi-task": {"loadings": [[[1.0, 0.5], [0.2, -0.3], [0.1, 0.9]]], "own": [[0.1, 0.2, 0.3]], "constant": 0.1},
    }[states]
    return {"type": states, **common, **own}


def _with_main_effects(interaction: dict[str, Any], lengthscales: list[float]) -> dict[str, Any]:
    variances = {"action_variance": 0.5, "state_variance": 0.25}
    return {"type": "main-effects", "interaction": interaction, **variances, "effect_lengthscales": lengthscales}


def sealed_again(record: Any) -> Any:
    """A record whose checksum fits, so that only its fields can give it away."""
    if not isinstance(record, Mapping):
        return record
    content = {name: value for name, value in record.items() if name != "checksum"}
    try:
        return content | {"checksum": checksum(content)}
    except (ValueError, TypeError):
        return content


def as_of_conbo_0_1(record: Any) -> Any:
    """A record as the first version wrote it: no checksum, and the first model alone."""
    content = {
        name: value for name, value in record.items() if name not in ("conbo", "checksum", "members", "predictive")
    }
    listed = record.get("members")
    first = listed[0] if isinstance(listed, list) and listed else None
    model = {name: value for name, value in first.items() if name != "weight"} if isinstance(first, dict) else {}
    return content | model | {"format": "conbo-policy-1"}


def read_policy(text: bytes) -> Policy:
    return Policy(*policy_from_record(parse_json(text)))


def judge_policy(policy: Policy) -> None:
    space = policy.belief.space
    states = space.decode_states(policy.belief.states.from_uniform(sobol(3, space.n_state_dims, 0)).numpy())
    for prediction in policy.predict_many(states):
        assert math.isfinite(prediction.mean)
        assert math.isfinite(prediction.std)
        assert space.validate_action(prediction.action) == prediction.action


def attack_policy_bytes(generator: random.Random, folder: Path) -> Outcome:
    """With a checksum, what can still be read is what was written."""
    record = generator.choice(policy_records())
    damage = generator.choice((damaged_bytes, damaged_bytes, damaged_digits))
    text = damage(generator, json.dumps(record).encode())

    def judge(_: Policy) -> None:
        assert json.loads(text) == record

    return outcome(lambda: read_policy(text), judge)


def attack_policy_record(generator: random.Random, folder: Path) -> Outcome:
    """A checksum that fits, or none: the fields alone must be enough."""
    record = damaged_record(generator, generator.choice(policy_records()))
    record = sealed_again(record) if generator.random() < 0.5 else as_of_conbo_0_1(record)
    return judged_policy(record)


def judged_policy(record: Any) -> Outcome:
    try:
        text = json.dumps(record).encode()
    except ValueError:  # whole numbers of thousands of digits
        return "refused"
    return outcome(lambda: read_policy(text), judge_policy)


# Files that people write

STUDY_FILE = """
name = "wards"
storage = "wards.db"
direction = "minimize"
method = "uniform"
seed = 7
[states]
age = { type = "integer", low = 18, high = 90 }
ward = { type = "categorical", choices = ["A", "B", true] }
load = { type = "real", low = 1, high = 1000, log = true }
size = { type = "real", low = -1.5, high = 2e3 }
[actions]
dose = { type = "real", low = 0.1, high = 10, log = true }
drug = { type = "categorical", choices = ["p", 2, 3.5] }
[distribution]
age = { type = "weights", weights = { 20 = 1, 60 = 3 } }
ward = { type = "weights", weights = { A = 1, true = 2 } }
load = { type = "triangular", mode = 100 }
size = { type = "normal", mean = 10, sd = 50.5 }
"""
TABLE = """number,s,k,x,n,c,reward,status,noise,outcome:wait,comment
0,0.25,a,1.5,1,True,-1.25,completed,0.1,4.2,"first, and best"
1,0.5,b,0.1,5,no,3e2,completed,0.2,,
2,1,3,10,2,True,,failed,,,lost
3,0,a,2.5,3,no,17,,0.0,-1e-3,"two ""quotes""\nand lines"
"""
TABLE_ROWS = list(csv.reader(io.StringIO(TABLE, newline="")))


def attack_study_file(generator: random.Random, folder: Path) -> Outcome:
    if generator.random() < 0.5:
        return judged_study_file(as_toml(damaged_record(generator, tomllib.loads(STUDY_FILE))), folder)
    source = generator.choice((STUDY_FILE, STUDY_FILE, TEMPLATE.read_text(encoding="utf-8")))
    damage = generator.choice((damaged_bytes, damaged_bytes, damaged_digits))
    return judged_study_file(damage(generator, source.encode()), folder)


def as_toml(record: Mapping[str, Any]) -> bytes:
    """A record as a TOML file; null, which TOML has not, is left out."""

    def value(thing: Any) -> str:
        if isinstance(thing, dict):
            return "{" + ", ".join(pairs(thing)) + "}"
        if isinstance(thing, list):
            return "[" + ", ".join(value(item) for item in thing if item is not None) + "]"
        return json.dumps(thing).replace("NaN", "nan").replace("Infinity", "inf")

    def pairs(table: Mapping[str, Any]) -> list[str]:
        return [f"{json.dumps(key)} = {value(thing)}" for key, thing in table.items() if thing is not None]

    return "\n".join(pairs(record)).encode()


def judged_study_file(text: bytes, folder: Path) -> Outcome:
    path = folder / "study.toml"
    path.write_bytes(text)

    def read() -> Optimizer:
        file = read_study_file(path)
        return Optimizer(
            file.space,
            state_distribution=file.state_distribution,
            method=file.method,
            seed=file.seed or 0,
            direction=file.direction,  # type: ignore[arg-type]
        )

    return outcome(read, judge_optimizer)


def judge_optimizer(optimizer: Optimizer) -> None:
    judge_trials(optimizer.space, optimizer.suggest(3).trials)
    states = optimizer.states.from_uniform(sobol(8, optimizer.space.n_state_dims, 0))
    assert not optimizer.states.density(states).isnan().any()


def attack_table(generator: random.Random, folder: Path) -> Outcome:
    if generator.random() < 0.3:
        text = io.StringIO(newline="")
        rows = [row if isinstance(row, list) else [row] for row in damaged_record(generator, TABLE_ROWS)]
        csv.writer(text).writerows([[_cell(cell) for cell in row] for row in rows])
        return judged_table(text.getvalue().encode("utf-8", "surrogatepass"), folder)
    damage = generator.choice((damaged_bytes, damaged_bytes, damaged_digits))
    return judged_table(damage(generator, TABLE.encode()), folder)


def _cell(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # whole numbers of thousands of digits
        return "9" * 5000


def judged_table(text: bytes, folder: Path) -> Outcome:
    path = folder / "trials.csv"
    path.write_bytes(text)

    def judge(trials: list[Trial]) -> None:
        judge_trials(SPACE, trials)
        assert len({trial.noise is None for trial in trials}) <= 1

    return outcome(lambda: read_csv(path, Optimizer(SPACE)), judge)


# Runs


@cache
def run_lines() -> list[dict[str, Any]]:
    run = Run(RunSettings("branin", "conbo", "recipe", 3, 2, 1, 2, 16, 1), complete=5)
    run.trials = [
        Trial(i, {"s": i / 7, "k": "a"}, {"x": 0.5 + i, "n": 2, "c": True}, "completed", Outcomes(0.1 * i))
        for i in range(5)
    ]
    run.seconds = {i: Seconds(0.01, 0.25) for i in (2, 3, 4)}
    run.checkpoints = [Checkpoint(2, 1.5, "cost"), Checkpoint(4, 0.5, "cost", 0.01, 0.25, 1.0, 2.0)]
    return [json.loads(json.dumps(line)) for line in lines_of(run)]


@cache
def packed_runs(folder: Path) -> bytes:
    path = folder / "whole.jsonl.xz"
    path.write_text("".join(json.dumps(line) + "\n" for line in run_lines()))
    (run,) = read_file(path.rename(folder / "whole.jsonl"))
    run.complete = 0
    pack([run], path)
    return path.read_bytes()


def attack_run(generator: random.Random, folder: Path) -> Outcome:
    kind = generator.randrange(4)
    if kind == 0:
        return judged_run(damaged_bytes(generator, packed_runs(folder)), folder / "run.jsonl.xz")
    lines = run_lines() if kind == 1 else damaged_record(generator, run_lines())
    try:
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    except ValueError:  # whole numbers of thousands of digits
        return "refused"
    return judged_run(damaged_bytes(generator, text) if kind == 1 else text, folder / "run.jsonl")


def judged_run(text: bytes, path: Path) -> Outcome:
    path.write_bytes(text)
    return outcome(lambda: list(read_file(path)), judge_runs)


def judge_runs(runs: list[Run]) -> None:
    for run in runs:
        assert [trial.number for trial in run.trials] == list(range(len(run.trials)))
        assert all(isinstance(trial.reward, float) and math.isfinite(trial.reward) for trial in run.trials)
        evaluations = [checkpoint.evaluations for checkpoint in run.checkpoints]
        assert evaluations == sorted(set(evaluations))
        assert all(math.isfinite(checkpoint.score) for checkpoint in run.checkpoints)
        assert 0 <= run.complete <= run.evaluations
        assert run.failure is None or isinstance(run.failure, str)
        assert min(run.settings.initial, run.settings.batch, run.settings.every) >= 1


# Databases

ROW = {
    "number": 0,
    "state": {"s": 0.5, "k": "b"},
    "action": {"x": 2.5, "n": 3, "c": "no"},
    "status": "completed",
    "reward": 1.5,
    "noise": 0.25,
    "outcomes": {"wait": 4.2, "cost": -3},
    "error": "",
    "worker": "me",
    "attempts": 1,
    "lost": 0,
    "leased_until": None,
    "started": 1.7e9,
    "finished": 1.8e9,
    "late": None,
    "change": 3,
    "seed": None,
}
JSON_COLUMNS = ("state", "action", "outcomes")


@cache
def settings_record() -> dict[str, Any]:
    optimizer = Optimizer(SPACE, state_distribution=DISTRIBUTION)
    settings = Settings(SPACE, "maximize", optimizer.method, DISTRIBUTION, optimizer.model, 0, 5)
    record: dict[str, Any] = json.loads(json.dumps(settings.to_record()))
    return record


def attack_row(generator: random.Random, folder: Path) -> Outcome:
    row = damaged_record(generator, ROW)
    for name in JSON_COLUMNS:
        if name in row and generator.random() < 0.9:
            try:
                row[name] = json.dumps(row[name])
            except ValueError:  # whole numbers of thousands of digits
                row[name] = ""
    return judged_row(row)


def judged_row(row: dict[str, Any]) -> Outcome:
    optimizer = Optimizer(SPACE)

    def read() -> Trial:
        check_trial(row)
        optimizer.adopt([trial_of(row)])
        return optimizer.trials[0]

    return outcome(read, lambda trial: judge_trial(SPACE, trial))


def attack_settings(generator: random.Random, folder: Path) -> Outcome:
    record = damaged_record(generator, settings_record())
    try:
        text = json.dumps(record)
    except ValueError:  # whole numbers of thousands of digits
        return "refused"
    if generator.random() < 0.5:
        text = damaged_bytes(generator, json.dumps(settings_record()).encode()).decode(errors="replace")
    return judged_settings(text)


def judged_settings(text: str) -> Outcome:
    def read() -> Optimizer:
        s = settings_from_record(settings_of(text))
        return Optimizer(s.space, **s.of_optimizer())

    return outcome(read, judge_optimizer)


@cache
def database(folder: Path) -> bytes:
    path = folder / "whole.db"
    study = Study(SPACE, method="uniform", state_distribution=DISTRIBUTION, storage=path)
    for trial in study.ask(4):
        study.tell(trial, float(trial.number), noise=0.1, outcomes={"wait": 0.5})
    study.fail(study.ask(), "broken")
    study.ask()
    copied = folder / "copied.db"  # a file of its own, without a write-ahead log
    connection = sqlite3.connect(path)
    connection.execute("VACUUM INTO ?", (str(copied),))
    connection.close()
    return copied.read_bytes()


def attack_database(generator: random.Random, folder: Path) -> Outcome:
    """A whole database: a cell of another type or value, a row that is gone, or bytes of its file."""
    path, whole = folder / "study.db", database(folder)
    for name in ("study.db", "study.db-wal", "study.db-shm", "study.db-journal"):
        (folder / name).unlink(missing_ok=True)
    if generator.random() < 0.3:
        path.write_bytes(damaged_bytes(generator, whole))
    else:
        path.write_bytes(whole)
        _damage_cell(generator, path)

    def read() -> Study:
        study = open_study(path)
        assert study.trials is not None
        return study

    def judge(study: Study) -> None:
        judge_trials(study.space, study.trials)
        assert study.space.n_action_dims >= 1

    return outcome(read, judge)


def _damage_cell(generator: random.Random, path: Path) -> None:
    odd = (None, "", "x", "{}", b"\xff", -1, 0, 7, 2**40, 1.5, 1e300, math.inf, "[1]", '{"s": 0.5}', "failed")
    table = generator.choice(("conbo_trials", "conbo_trials", "conbo_studies", "conbo_schema"))
    connection = sqlite3.connect(path)
    try:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        where = f"WHERE number = {generator.randrange(6)}" if table == "conbo_trials" else ""
        if generator.random() < 0.15:
            connection.execute(f"DELETE FROM {table} {where}")
        else:
            column = generator.choice(columns)
            connection.execute(f"UPDATE {table} SET {column} = ? {where}", (generator.choice(odd),))
        connection.commit()
    except sqlite3.IntegrityError:
        pass  # the database refuses it itself
    finally:
        connection.close()


READERS = [
    Reader("policy files, byte by byte", 20, attack_policy_bytes),
    Reader("policy records", 15, attack_policy_record),
    Reader("study files", 15, attack_study_file),
    Reader("CSV files", 15, attack_table),
    Reader("run files", 15, attack_run),
    Reader("stored trials", 10, attack_row),
    Reader("stored settings", 7, attack_settings),
    Reader("databases", 3, attack_database),
]
