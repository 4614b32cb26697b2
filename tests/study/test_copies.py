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
