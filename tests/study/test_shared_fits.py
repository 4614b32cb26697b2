"""Workers of one study share their fits, and nothing else changes."""

import sqlite3
from contextlib import closing
from math import sin
from pathlib import Path

import pytest

from conbo.models import fit as fit_module
from conbo.spaces import Real, Space
from conbo.study import Study, open_study
from conbo.study.database import Storage

SPACE = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)})


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rewards of every fit; from 20 rewards on fits are shared."""
    monkeypatch.setattr("conbo.models.schedule.EVERY_REWARD", 20)
    sizes, real = [], fit_module.fit
    monkeypatch.setattr(fit_module, "fit", lambda *args, **kw: sizes.append(len(args[1])) or real(*args, **kw))
    return sizes


def told(storage: Storage | None) -> Study:
    """A study of 22 rewards."""
    study = Study(SPACE, seed=1, initial=22, storage=storage)
    for trial in study.ask(22):
        study.tell(trial, sin(5 * trial.state["s"]) * trial.action["x"])
    return study


def test_a_second_worker_does_not_repeat_a_fit(tmp_path: Path, fits: list[int]) -> None:
    storage = tmp_path / "study.db"
    first, alone = told(storage), told(None)
    asked = [first.ask(), open_study(storage).ask(), open_study(storage).ask()]
    assert fits == [22]
    expected = [alone.ask() for _ in asked]
    assert [(trial.state, trial.action) for trial in asked] == [(trial.state, trial.action) for trial in expected]
    assert fits == [22, 22]
    assert open_study(storage).policy_value() == alone.policy_value()
    assert fits == [22, 22]


def test_a_fit_that_is_damaged_is_made_again(tmp_path: Path, fits: list[int]) -> None:
    storage = tmp_path / "study.db"
    value = told(storage).policy_value()
    with closing(sqlite3.connect(storage)) as connection:
        connection.execute("UPDATE conbo_fits SET fit = replace(fit, '\"constant\": ', '\"constant\": 1')")
        connection.commit()
    assert open_study(storage).policy_value() == value
    assert fits == [22, 22]


def test_a_read_only_study_has_a_policy(tmp_path: Path, fits: list[int]) -> None:
    storage = tmp_path / "study.db"
    study = told(storage)
    with closing(sqlite3.connect(storage)) as connection:  # whoever writes a fit now fails
        connection.execute("CREATE TRIGGER closed BEFORE INSERT ON conbo_fits BEGIN SELECT RAISE(ABORT, 'closed'); END")
        connection.commit()
    assert study.policy()({"s": 0.3})["x"] >= 0
    assert fits == [22]
