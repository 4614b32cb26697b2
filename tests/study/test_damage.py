"""Stored studies that are damaged: the error names the study, its database, the conbo that wrote it, and the field."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from conbo import open_study, study_names
from conbo.cli.stored_study import StoredStudy
from conbo.errors import ConboError, RecordError, StorageError, StudyError
from conbo.server.served_study import ServedStudy
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.state_distributions import Triangular, Weights
from conbo.study import Study

SPACE = Space(states={"s": Real(0, 1), "k": Categorical(["a", "b"])}, actions={"x": Real(0, 1), "n": Integer(1, 5)})
STATES = {"s": Triangular(0.5), "k": Weights({"a": 1, "b": 2})}


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """A study with four completed trials, one that failed and one that runs."""
    path = str(tmp_path / "study.db")
    study = Study(SPACE, method="uniform", state_distribution=STATES, storage=path)
    for trial in study.ask(4):
        study.tell(trial, trial.action["x"])
    study.fail(study.ask(), "broken")
    study.ask()
    return path


def execute(storage: str, statement: str, *values: Any) -> None:
    connection = sqlite3.connect(storage)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def settings(storage: str) -> Any:
    connection = sqlite3.connect(storage)
    (text,) = connection.execute("SELECT settings FROM conbo_studies").fetchone()
    connection.close()
    return json.loads(text)


ORIGIN = r"the study 'default' in the database '.*study.db', created by conbo \d+\.\d+.*: "


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("reward", "high", "`reward` must be a finite number, but got 'high'"),
        ("reward", None, "`reward` must be a finite number, but got None"),
        ("reward", float("inf"), "`reward` must be a finite number, but got inf"),
        ("state", "{", "a record must be JSON"),
        ("state", "[1]", r"`state` must be an object with names, but got \[1\]"),
        ("state", '{"s": 0.5}', "trial 2: state must give every parameter a value, but 'k' is missing"),
        ("state", '{"s": 0.5, "k": "c"}', "trial 2: 'k' must be one of 'a', 'b', but got 'c'"),
        ("action", '{"x": 2, "n": 1}', "trial 2: `0.0 <= x <= 1.0` must hold, but got x=2"),
        ("action", '{"x": null, "n": 1}', "`action.x` must be a string, a finite number, true or false, but got None"),
        ("action", '{"x": NaN, "n": 1}', "a record must hold finite numbers, but got NaN"),
        ("status", "done", "`status` must be one of running, completed, failed, but got 'done'"),
        ("status", "running", "`reward` must not be there before the trial is completed"),
        ("noise", -1.0, "`noise` must be a number of at least 0, but got -1.0"),
        ("outcomes", "{", "a record must be JSON"),
        ("outcomes", "[4.2]", r"`outcomes` must be an object with names, but got \[4.2\]"),
        ("outcomes", '{"wait": "long"}', "`outcomes.wait` must be a finite number, but got 'long'"),
        ("outcomes", '{"wait": true}', "`outcomes.wait` must be a finite number, but got True"),
        ("outcomes", '{"wait": NaN}', "a record must hold finite numbers, but got NaN"),
        ("outcomes", '{"wait": 1, "wait": 2}', "`wait` must be there once, but is there twice"),
        ("outcomes", '{"": 1}', "the name of an outcome must be a non-empty string, but got ''"),
        ("outcomes", b"\xff", r"`outcomes` must be a string, but got b'\\xff'"),
        ("attempts", "two", "`attempts` must be a whole number from 0"),
        ("started", 1e300, r"`started` must be a number from 0 to .*, but got 1e\+300"),
        ("error", b"\xff", r"`error` must be a string, but got b'\\xff'"),
    ],
)
def test_a_damaged_trial_is_named(storage: str, column: str, value: Any, message: str) -> None:
    execute(storage, f"UPDATE conbo_trials SET {column} = ? WHERE number = 2", value)
    study = open_study(storage)
    with pytest.raises(RecordError, match=f"(trial 2 of )?{ORIGIN}{message}"):
        study.trials  # noqa: B018


def test_outcomes_before_a_trial_is_completed(storage: str) -> None:
    execute(storage, "UPDATE conbo_trials SET outcomes = '{}' WHERE number = 5")
    with pytest.raises(
        RecordError, match=r"`outcomes` must not be there before the trial is completed, but got '\{\}'"
    ):
        open_study(storage).trials  # noqa: B018


def test_a_trial_that_is_missing(storage: str) -> None:
    execute(storage, "DELETE FROM conbo_trials WHERE number = 2")
    with pytest.raises(RecordError, match=f"{ORIGIN}trial 2 must be there, but is missing"):
        open_study(storage).ask()
    with pytest.raises(RecordError, match=f"{ORIGIN}trial 2 must be there, but is missing"):
        StoredStudy(storage, "default")


@pytest.mark.parametrize("damage", ["UPDATE conbo_trials SET action = '{}'", "DELETE FROM conbo_trials"])
def test_a_damaged_trial_is_an_error_every_time(storage: str, damage: str) -> None:
    execute(storage, f"{damage} WHERE number = 2")
    study = open_study(storage)
    for _ in range(3):
        with pytest.raises(RecordError, match="trial 2"):
            study.trials  # noqa: B018


def test_a_missing_trial_is_an_error_of_a_service_every_time(storage: str) -> None:
    execute(storage, "DELETE FROM conbo_trials WHERE number = 2")
    study = ServedStudy(storage, "default")
    for _ in range(3):
        with pytest.raises(RecordError, match="trial 2 must be there, but is missing"):
            study.trials()


def test_a_trial_that_goes_missing(storage: str) -> None:
    study = open_study(storage)
    assert len(study.trials) == 6
    execute(storage, "DELETE FROM conbo_trials WHERE number = 5")
    with pytest.raises(RecordError, match=f"{ORIGIN}trial 5 must be there, but is missing"):
        study.tell(5, 1.0)


def test_noise_that_some_trials_have_lost(storage: str) -> None:
    execute(storage, "UPDATE conbo_trials SET noise = 0.1 WHERE number = 2")
    with pytest.raises(ConboError, match="`noise` must be given with every reward or with none"):
        open_study(storage).policy()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seed", "one", "`seed` must be a whole number from 0 to .*, but got 'one'"),
        ("initial", 0, "`initial` must be a whole number from 1 to .*, but got 0"),
        ("direction", "up", "`direction` must be one of maximize, minimize, but got 'up'"),
        ("direction", ["maximize"], "`direction` must be one of maximize, minimize, but got"),
        ("space", {"states": []}, "`space.actions` must be there, but is missing"),
        ("space", {"states": [], "actions": [{"type": "real"}]}, r"`space.actions\[0\].name` must be there"),
        ("state_distribution", {"s": {"type": "gamma"}}, "`state_distribution.k` must be there, but is missing"),
        (
            "state_distribution",
            {"s": {"type": "gamma"}, "k": {"type": "uniform"}},
            "`state_distribution.s.type` must be one of uniform, triangular, normal, weights, but got 'gamma'",
        ),
        (
            "state_distribution",
            {"s": {"type": "uniform"}, "k": {"type": "weights", "weights": [["a", 1], ["a", 2]]}},
            "`state_distribution.k.weights` must name every value once",
        ),
        ("model", {"type": "DeepKernel"}, "`model.type` must be one of GaussianProcess, but got 'DeepKernel'"),
        ("model", {"type": "GaussianProcess", "rank": "2"}, "`model.rank` must be like 2, but got '2'"),
        ("model", {"type": "GaussianProcess", "layers": 2}, "`model.layers` must not be there"),
        ("model", {"type": "GaussianProcess", "profile": "flat"}, "`profile` must be one of auto, .* but got 'flat'"),
        ("method", {}, "`method.name` must be there, but is missing"),
        ("constraints", [], "`constraints` must not be there: no such field is known"),
    ],
)
def test_damaged_settings_are_named(storage: str, name: str, value: Any, message: str) -> None:
    execute(storage, "UPDATE conbo_studies SET settings = ?", json.dumps(settings(storage) | {name: value}))
    with pytest.raises(RecordError, match=ORIGIN + message):
        open_study(storage)


@pytest.mark.parametrize("name", ["seed", "space", "method", "model", "state_distribution", "initial", "direction"])
def test_settings_that_are_missing(storage: str, name: str) -> None:
    record = settings(storage)
    del record[name]
    execute(storage, "UPDATE conbo_studies SET settings = ?", json.dumps(record))
    with pytest.raises(RecordError, match=f"{ORIGIN}`{name}` must be there, but is missing"):
        open_study(storage)
    with pytest.raises((RecordError, StudyError), match=name):
        Study(SPACE, method="uniform", state_distribution=STATES, storage=storage)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"seed": NaN}', b"\xff\xfe"])
def test_settings_that_are_no_record(storage: str, text: str | bytes) -> None:
    execute(storage, "UPDATE conbo_studies SET settings = ?", text)
    for attempt in (
        lambda: open_study(storage),
        lambda: Study(SPACE, method="uniform", state_distribution=STATES, storage=storage),
    ):
        with pytest.raises(RecordError, match=ORIGIN):
            attempt()


@pytest.mark.parametrize(
    ("statement", "kind", "message"),
    [
        ("UPDATE conbo_studies SET revision = 'x'", RecordError, "`revision` must be a whole number"),
        ("UPDATE conbo_studies SET changes = 'x'", RecordError, "`changes` must be a whole number"),
        ("UPDATE conbo_schema SET version = 'x'", StorageError, "version of its tables must be a whole number, but"),
        ("UPDATE conbo_schema SET version = 99", StorageError, "by a later conbo"),
        ("DROP TABLE conbo_trials", StorageError, "no such table: conbo_trials"),
        ("UPDATE conbo_studies SET name = x'ff'", RecordError, r"a study's name must be a string, but got b'\\xff'"),
    ],
)
def test_damaged_tables(storage: str, statement: str, kind: type[ConboError], message: str) -> None:
    execute(storage, statement)
    with pytest.raises(kind, match=message):
        open_study(storage).ask()


def test_a_damaged_turn(storage: str) -> None:
    execute(storage, "UPDATE conbo_studies SET suggesting = 'someone', suggesting_until = 'soon'")
    with pytest.raises(RecordError, match=f"{ORIGIN}`suggesting_until` must be a finite number, but got 'soon'"):
        open_study(storage).ask()
    assert study_names(storage) == ["default"]
