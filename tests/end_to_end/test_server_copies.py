"""A study of a server as a file."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from conbo import open_study, study_names
from conbo.spaces import Categorical, Real, Space
from conbo.study import Study, schema
from conbo.study.copies import copy_study
from conbo.study.database import Database

SPACE = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})


def test_a_study_of_a_server_becomes_a_file_that_goes_on_exactly(
    new_storage: Callable[[str], str], tmp_path: Path
) -> None:
    storage = new_storage("postgresql")
    Study(SPACE, method="uniform", storage=storage, name="other").ask()
    study = Study(SPACE, method="uniform", storage=storage, name="mine", seed=4)
    study.tell(study.ask(), -1.5)
    study.fail(study.ask(), "broken")
    copy_study(storage, "mine", tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.glob("copy.db*")) == ["copy.db"]
    assert study_names(tmp_path / "copy.db") == ["mine"]
    copy = open_study(tmp_path / "copy.db", "mine")
    assert (copy.trials, copy.seed) == (study.trials, 4)
    assert copy.ask() == study.ask()


def test_tables_of_a_server_are_brought_up_to_date(
    new_storage: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_cost(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE conbo_trials ADD COLUMN cost DOUBLE PRECISION"))

    def as_of_the_first_version(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE conbo_schema DROP COLUMN conbo"))
        connection.execute(text("UPDATE conbo_schema SET version = 1"))

    storage = new_storage("postgresql")
    Study(SPACE, method="uniform", storage=storage).ask()
    Database(storage).write(as_of_the_first_version)
    monkeypatch.setattr(schema, "MIGRATIONS", (add_cost,))
    assert len(open_study(storage).trials) == 1
    assert Database(storage).version() == 2
