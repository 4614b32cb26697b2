"""Copies of a database while others write to it."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from conbo import open_study, study_names
from conbo.errors import StorageError, StudyError
from conbo.spaces import Categorical, Real, Space
from conbo.study import Study
from conbo.study.copies import copy_study

SPACE = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    study = Study(SPACE, method="uniform", storage=tmp_path / "study.db", name="mine", seed=4)
    Study(SPACE, method="uniform", storage=tmp_path / "study.db", name="other")
    for number, trial in enumerate(study.ask(5)):
        study.tell(trial, number / 3)
    study.fail(study.ask(), "broken")
    yield study
    assert study.trials  # its connection is open until here


def test_a_copy_has_what_is_still_in_the_log(study: Study, tmp_path: Path) -> None:
    copy_study(tmp_path / "study.db", "mine", tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.glob("copy.db*")) == ["copy.db"]
    assert study_names(tmp_path / "copy.db") == ["mine", "other"]
    copy = open_study(tmp_path / "copy.db", "mine")
    assert copy.trials == study.trials
    assert copy.ask() == study.ask()


def test_a_copy_is_made_while_another_process_writes(study: Study, tmp_path: Path) -> None:
    writer = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE conbo_trials SET reward = 99")
    copy_study(tmp_path / "study.db", "mine", tmp_path / "copy.db")
    writer.execute("ROLLBACK")
    assert open_study(tmp_path / "copy.db", "mine").trials == study.trials


def test_nothing_is_replaced_unless_it_is_said(study: Study, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(StorageError, match=r"must not replace a file, but '.*copy\.db' exists already"):
        copy_study(tmp_path / "study.db", "mine", target)
    assert target.read_text() == "precious"
    copy_study(tmp_path / "study.db", "mine", target, overwrite=True)
    assert len(open_study(target, "mine").trials) == 6
    with pytest.raises(StudyError, match="there is no study 'mien'"):
        copy_study(tmp_path / "study.db", "mien", tmp_path / "more.db")
    with pytest.raises(StorageError, match=r"the copy '.*more\.db' cannot be written"):
        copy_study(tmp_path / "study.db", "mine", tmp_path / "nowhere" / "more.db")
    assert not list(tmp_path.glob("more*"))


def test_a_database_that_is_open_elsewhere_is_replaced_with_its_log(study: Study, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    earlier = Study(SPACE, method="uniform", storage=target, name="mine", seed=4)
    for _ in range(30):
        earlier.add_trial({"k": "a"}, {"x": 0.5}, -1.0)
    copy_study(tmp_path / "study.db", "mine", target, overwrite=True)
    assert open_study(target, "mine").trials == study.trials
    assert study_names(target) == ["mine", "other"]
    with pytest.raises(StudyError, match="was replaced while it was in use: open it again"):
        earlier.add_trial({"k": "a"}, {"x": 0.5}, 7.0)
    assert open_study(target, "mine").trials == study.trials


def test_a_locked_target_is_an_error(study: Study, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    copy_study(tmp_path / "study.db", "mine", target)
    holder = sqlite3.connect(target, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="cannot be written: database is locked"):
        copy_study(tmp_path / "study.db", "mine", target, overwrite=True)
    holder.close()


def test_a_copy_replaces_neither_its_source_nor_gets_a_foreign_log(study: Study, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "study.db")
    with pytest.raises(StorageError, match="must not replace the database that it is made from"):
        copy_study(tmp_path / "study.db", "mine", tmp_path / "link.db", overwrite=True)
    (tmp_path / "copy.db-wal").write_text("changes")
    with pytest.raises(StorageError, match="must not get the log of another database"):
        copy_study(tmp_path / "study.db", "mine", tmp_path / "copy.db")
    assert len(open_study(tmp_path / "study.db", "mine").trials) == 6


def test_nobody_has_the_turn_in_a_copy(study: Study, tmp_path: Path) -> None:
    assert study._shared.records.take_turn("a worker of another machine", 30)
    copy_study(tmp_path / "study.db", "mine", tmp_path / "copy.db")
    assert open_study(tmp_path / "copy.db", "mine")._shared.records.take_turn("mine", 30)
