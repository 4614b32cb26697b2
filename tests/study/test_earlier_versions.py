"""A study in a file that conbo 0.1.0 wrote.

`data/study_0_1.db` was made with conbo 0.1.0 as follows, and vacuumed into a new file:

    space = Space(
        states={"seed": Real(0, 1), "k": Categorical(["a", "b"])},
        actions={"cost": Real(-1, 3), "wait": Integer(1, 5)},
    )
    study = Study(space, direction="minimize", seed=7, storage="study_0_1.db")
    for trial in study.ask(4):
        study.tell(trial, trial.number / 3, noise=0.1 * trial.number)
    study.fail(study.ask(), "lost, and found")
    study.ask(2)
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from conbo import open_study
from conbo.errors import StorageError
from conbo.study import Study, schema
from conbo.study.database import Database
from conbo.study.stored_fields import settings_of
from conbo.trials import Trial

WRITTEN = Path(__file__).parents[1] / "data" / "study_0_1.db"

POINTS = [
    ({"seed": 0.8478142619132996, "k": "b"}, {"cost": 0.8432101011276245, "wait": 1}),
    ({"seed": 0.24728289432823658, "k": "a"}, {"cost": 1.2196820490062237, "wait": 4}),
    ({"seed": 0.39534066896885633, "k": "b"}, {"cost": -0.4289192073047161, "wait": 3}),
    ({"seed": 0.5134696681052446, "k": "a"}, {"cost": 2.4915133602917194, "wait": 5}),
    ({"seed": 0.6851308383047581, "k": "b"}, {"cost": 1.650769367814064, "wait": 5}),
    ({"seed": 0.28569080401211977, "k": "a"}, {"cost": 0.2870079427957535, "wait": 2}),
    ({"seed": 0.07562142983078957, "k": "b"}, {"cost": 2.888520635664463, "wait": 3}),
]
NEXT = [  # what conbo 0.1.0 suggests after these
    ({"seed": 0.9574638204649091, "k": "a"}, {"cost": -0.950811468064785, "wait": 2}),
    ({"seed": 0.8841434838250279, "k": "b"}, {"cost": 2.526091545820236, "wait": 2}),
    ({"seed": 0.015877630561590195, "k": "a"}, {"cost": -0.5886779129505157, "wait": 5}),
]


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return Path(shutil.copy(WRITTEN, tmp_path / "study.db"))


def points(trials: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(trial.state, trial.action) for trial in trials]


def test_trials_are_as_they_were(storage: Path) -> None:
    study = open_study(storage)
    assert (study.direction, study.seed, study.method) == ("minimize", 7, "conbo")
    assert points(study.trials) == POINTS
    assert [trial.status for trial in study.trials] == ["completed"] * 4 + ["failed"] + ["running"] * 2
    assert [trial.reward for trial in study.trials] == [0.0, 1 / 3, 2 / 3, 1.0, None, None, None]
    assert [trial.noise for trial in study.trials] == [0.0, 0.1, 0.2, 0.1 * 3, None, None, None]
    assert study.trials[4].error == "lost, and found"
    assert all(trial.measured == {} for trial in study.trials)


def test_the_file_is_kept_and_brought_up_to_date(storage: Path) -> None:
    open_study(storage)
    assert Database(storage).version() == schema.newest_version()
    backup = storage.with_name("study.db.backup-v1")
    assert list(storage.parent.glob("*.backup*")) == [backup]
    with closing(sqlite3.connect(backup)) as kept, closing(sqlite3.connect(WRITTEN)) as written:
        assert list(kept.iterdump()) == list(written.iterdump())


def test_the_study_goes_on_as_it_would_have(storage: Path) -> None:
    study = open_study(storage)
    asked = study.ask(3)
    for trial, (state, action) in zip(asked, NEXT, strict=True):
        assert trial.state == {"seed": pytest.approx(state["seed"], rel=1e-12), "k": state["k"]}
        assert trial.action == {"cost": pytest.approx(action["cost"], rel=1e-12), "wait": action["wait"]}
    study.tell(5, 0.5, noise=0.1, outcomes={"wait": 4.2, "seed": 3})
    told = open_study(storage).trials[5]
    assert told == Trial(5, *POINTS[5]).told(told.outcomes)
    assert told.measured == {"wait": 4.2, "seed": 3.0}
    assert Study(study.space, direction="minimize", storage=storage).trials == study.trials


def test_a_conbo_that_knows_only_the_first_version_refuses_it(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_study(storage)
    newest = schema.newest_version()
    monkeypatch.setattr(schema, "MIGRATIONS", ())
    known = f"knows tables up to version 1, but this database has tables of version {newest}"
    with pytest.raises(StorageError, match=known):
        open_study(storage)


def test_the_former_name_of_a_setting_is_read() -> None:
    model = {"type": "GaussianProcess", "states": "trend", "members": 1}
    expected = {"type": "GaussianProcess", "state_kernel": "trend", "members": 1}
    assert settings_of(json.dumps({"model": model}))["model"] == expected
