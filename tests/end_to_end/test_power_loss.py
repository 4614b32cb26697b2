"""The power is cut when a reward was just told: it is there afterwards, whatever else the disk has forgotten."""

import random
import shutil
import sqlite3
from itertools import islice
from pathlib import Path

import pytest
from traced_disk import cut_power, moments, trace

from conbo import open_study

TRIALS = 130  # so many that SQLite moves its write-ahead log into the database on the way
PROGRAM = """
import sys
from conbo import Real, Space, Study
from conbo.study.database import Database
from conbo.study.records import Records

storage, told, careless, trials = *sys.argv[1:4], int(sys.argv[4])
tell, write = Records.tell, Database.write

def tell_and_say(self, number, reward, *rest, **settings):
    stands = tell(self, number, reward, *rest, **settings)
    with open(told, "a") as journal:
        journal.write(f"{number}\\n")
    return stands

Records.tell = tell_and_say
if careless == "careless":
    Database.write = lambda self, work, lasting=True: write(self, work, lasting=False)
study = Study(Space(actions={"x": Real(0, 1)}), method="uniform", storage=storage)
for number in range(3):
    study.tell(study.ask(), 0.5)
study.run(lambda state, action: 0.5, trials, progress=False)
"""

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace shows what is synced, and is missing")


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that was traced."""
    folder = tmp_path_factory.mktemp("traced")
    trace(PROGRAM, folder / "study.db", folder / "told", "careful", str(TRIALS), log=folder / "log")
    return folder


@pytest.mark.parametrize("kept", ["none", "some"])
def test_a_told_reward_outlives_a_power_cut(kept: str, traced: Path, tmp_path: Path) -> None:
    storage, told, log = traced / "study.db", traced / "told", traced / "log"
    chance = random.Random(0) if kept == "some" else None
    n_told, checkpoints = 0, 0
    for n_told, files in enumerate(moments(log, storage, told), start=1):
        found = cut_power(files, tmp_path / f"after {n_told}", chance)
        with sqlite3.connect(found) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            rewards = connection.execute("SELECT reward FROM conbo_trials WHERE status = 'completed'").fetchall()
        connection.close()
        assert rewards == [(0.5,)] * n_told
        checkpoints += len(files[str(storage)].safe) > 4096
    assert n_told == TRIALS
    assert checkpoints > 0, "the log was never moved into the database"
    assert [trial.reward for trial in open_study(found).trials] == [0.5] * TRIALS


def test_without_a_sync_the_last_rewards_would_be_lost(tmp_path: Path) -> None:
    storage, told, log = tmp_path / "study.db", tmp_path / "told", tmp_path / "log"
    trace(PROGRAM, storage, told, "careless", "8", log=log)
    files = next(islice(moments(log, storage, told), 7, None))
    found = cut_power(files, tmp_path / "after", None)
    with sqlite3.connect(found) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE name = 'conbo_trials'").fetchall()
        rows = connection.execute("SELECT number FROM conbo_trials").fetchall() if names else []
    connection.close()
    assert len(rows) < 8
