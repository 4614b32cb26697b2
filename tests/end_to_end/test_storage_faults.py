"""A full disk, a read-only or broken file, a database that goes away: clear errors, and nothing lost."""

import gc
import logging
import os
import re
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgresql_server import PostgresServer
from worker_processes import Processes, wait_until
from worker_programs import SPACE, reward, run_to, run_together, tell_until_the_file_may_not_grow

from conbo import Study, open_study
from conbo.errors import ConboError, StudyError

CONNECTIONS = 5  # of the small server


@pytest.fixture
def small_server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server with few connections."""
    with tempfile.TemporaryDirectory(prefix="conbo-postgresql-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        with psycopg.connect(server.url("postgres", driver=""), autocommit=True) as connection:
            for name, value in (("max_connections", CONNECTIONS), ("superuser_reserved_connections", 0)):
                connection.execute(f"ALTER SYSTEM SET {name} = {value}".encode())
        server.stop()
        server.start()
        yield server
        server.stop(signal.SIGQUIT)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes where one may be mounted, else a folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with suppress(subprocess.CalledProcessError, FileNotFoundError):
        mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", folder)
    yield folder
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", folder], check=True)


def mount(*options: str | Path) -> None:
    subprocess.run(["mount", *options], check=True, capture_output=True)


def make_writable(disk: Path, writable: bool) -> None:
    if disk.is_mount():
        mount("-o", f"remount,{'rw' if writable else 'ro'}", disk)
        return
    for path in (disk, *disk.iterdir()):
        path.chmod(0o755 if writable else 0o555)
    if os.access(disk, os.W_OK) != writable:
        pytest.skip("root may write to any folder, and here no disk may be mounted")


def new_study(storage: Path | str, evaluations: int = 5) -> Study:
    study = Study(SPACE, method="uniform", storage=str(storage))
    study.run(reward, evaluations=evaluations, progress=False)
    return study


def test_a_process_with_many_studies_leaves_connections_to_others(
    small_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a limit, every study keeps one, until the server has no more."""
    monkeypatch.setattr("conbo.study.database.MOST_CONNECTED", 2)
    monkeypatch.setattr("conbo.study.database.PATIENCE", 2.0)
    url = small_server.url(small_server.new_database())
    studies = [Study(SPACE, method="uniform", storage=url, name=str(k)) for k in range(3 * CONNECTIONS)]
    for study in studies:
        study.run(reward, evaluations=1, progress=False)
    assert [study.trials[0].status for study in studies] == ["completed"] * len(studies)
    with psycopg.connect(small_server.url("postgres", driver=""), autocommit=True) as connection:
        rows = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE datname LIKE 'test_%'").fetchall()
    assert rows == [(2,)]


def test_a_full_disk(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not disk.is_mount():
        pytest.skip("no small disk may be mounted; the next test does the same with a limit on the size of files")
    monkeypatch.setattr("conbo.study.database.FULL_PATIENCE", 0.5)
    storage, filler = disk / "full.db", disk / "filler"
    study = new_study(storage)
    with filler.open("wb", buffering=0) as stream, suppress(OSError):
        while stream.write(bytes(4096)):
            pass
    with pytest.raises(ConboError, match=r"full\.db.*full"):
        study.run(reward, evaluations=1000, progress=False)
    kept = {t.number: t.reward for t in study.trials if t.status == "completed"}

    filler.unlink()
    study = open_study(str(storage))
    assert kept.items() <= {t.number: t.reward for t in study.trials}.items()
    study.run(reward, evaluations=len(kept) + 10, lease=0.1, progress=False)
    assert [t.status for t in study.trials] == ["completed"] * (len(kept) + 10)


def test_a_file_that_may_not_grow(tmp_path: Path, processes: Processes) -> None:
    storage, result = tmp_path / "limited.db", tmp_path / "result"
    processes.finish([processes.start(tell_until_the_file_may_not_grow, str(storage), result)])
    acknowledged, error = result.read_text().split(" ", 1)
    assert re.search(r"limited\.db.*(full|I/O error)", error)
    assert int(acknowledged) > 3
    told = [t for t in open_study(str(storage)).trials if t.status == "completed"]
    assert len(told) in (int(acknowledged), int(acknowledged) + 1), "the last could be told when there was room again"
    assert [t.reward for t in told] == [reward(t.state, t.action) for t in told]


def test_a_read_only_disk(disk: Path) -> None:
    storage = disk / "read_only.db"
    study = new_study(storage)
    trial = study.ask()
    del study  # a disk with open files stays writable
    gc.collect()
    make_writable(disk, False)
    with pytest.raises(ConboError, match=r"read_only\.db.*read-?only"):
        open_study(str(storage)).tell(trial, 0.5)
    with pytest.raises(ConboError, match=r"new\.db.*read-?only"):
        Study(SPACE, storage=str(disk / "new.db"))
    make_writable(disk, True)
    open_study(str(storage)).tell(trial, 0.5)
    assert open_study(str(storage)).trials[trial.number].reward == 0.5


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    storage = tmp_path / "notes.db"
    storage.write_text("Buy milk. " * 1000)
    for attempt in (lambda: open_study(str(storage)), lambda: Study(SPACE, storage=str(storage))):
        with pytest.raises(ConboError, match=r"notes\.db.*not a database"):
            attempt()
    assert storage.read_text() == "Buy milk. " * 1000


@pytest.mark.parametrize("damage", ["overwritten", "cut off"])
def test_a_corrupted_file(tmp_path: Path, damage: str) -> None:
    storage = tmp_path / "corrupted.db"
    new_study(storage, evaluations=50)
    with sqlite3.connect(storage) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with storage.open("r+b") as file:
        half = storage.stat().st_size // 2
        if damage == "cut off":
            file.truncate(half)
        else:
            file.seek(4096)  # all but the first page, which says what the file is
            file.write(b"\xff" * (2 * half - 4096))
    before = storage.read_bytes()
    with pytest.raises(ConboError, match=r"corrupted\.db.*(corrupt|malformed)"):
        _ = open_study(str(storage)).trials
    with pytest.raises(ConboError, match=r"corrupted\.db.*(corrupt|malformed)"):
        Study(SPACE, method="uniform", storage=str(storage)).ask()
    assert storage.read_bytes() == before


@pytest.mark.parametrize("seconds", [1.5, pytest.param(10, marks=pytest.mark.soak)])
def test_a_server_that_goes_away_during_a_run(
    seconds: float, postgresql: PostgresServer, processes: Processes, tmp_path: Path
) -> None:
    storage, evaluated = postgresql.url(postgresql.new_database()), tmp_path / "evaluated"
    workers = [processes.start(run_to, storage, 40, 0.05, evaluated) for _ in range(2)]
    wait_until(lambda: evaluated.exists() and len(set(evaluated.read_text().split())) == 2, processes)  # both are in
    away(postgresql, seconds)
    processes.finish(workers)
    trials = open_study(storage).trials
    assert [t.status for t in trials] == ["completed"] * 40
    assert all(t.reward == reward(t.state, t.action) for t in trials)
    assert len(evaluated.read_text().splitlines()) == 40, "no evaluation was lost"


def test_a_tell_waits_for_a_server_that_is_away(postgresql: PostgresServer) -> None:
    storage = postgresql.url(postgresql.new_database())
    study = new_study(storage)
    trial = study.ask()
    postgresql.stop()
    back = threading.Timer(1.0, postgresql.start)
    back.start()
    study.tell(trial, 0.5)
    back.join()
    assert open_study(storage).trials[trial.number].reward == 0.5


def test_more_workers_than_the_server_has_connections(
    small_server: PostgresServer, processes: Processes, tmp_path: Path
) -> None:
    storage, evaluated = small_server.url(small_server.new_database()), tmp_path / "evaluated"
    # a long evaluation needs no connection: all workers are in one at the same time
    processes.finish([processes.start(run_together, storage, 12, evaluated) for _ in range(12)])
    trials = open_study(storage).trials
    assert [t.status for t in trials] == ["completed"] * 12
    assert all(t.reward == reward(t.state, t.action) for t in trials)
    assert len(set(evaluated.read_text().split())) == 12


def test_a_connection_that_is_refused_is_waited_for_and_the_reason_said_once(
    small_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    storage = small_server.url(small_server.new_database())
    address = small_server.url("postgres", driver="")
    others = [psycopg.connect(address) for _ in range(CONNECTIONS)]
    free = threading.Timer(2.5, others[0].close)
    free.start()
    with caplog.at_level(logging.WARNING, "conbo"):
        new_study(storage)
    free.join()
    for other in others:
        other.close()
    (said,) = (record.getMessage() for record in caplog.records)
    assert "is not available, trying for 60 s: " in said
    assert "too many clients already" in said
    assert "\n" not in said


def test_a_worker_that_starts_while_the_server_restarts(
    small_server: PostgresServer, processes: Processes, tmp_path: Path
) -> None:
    storage, evaluated = small_server.url(small_server.new_database()), tmp_path / "evaluated"
    small_server.stop()
    worker = processes.start(run_to, storage, 5, 0.0, evaluated)
    wait_until(lambda: "is not available" in processes.log(), processes)
    small_server.start()
    processes.finish([worker])
    assert [t.status for t in open_study(storage).trials] == ["completed"] * 5


def test_what_no_waiting_mends_is_said_at_once(postgresql: PostgresServer) -> None:
    with pytest.raises(ConboError, match="does not exist"):
        open_study(postgresql.url("nowhere"))
    with pytest.raises(ConboError, match="authentication failed"):
        open_study(re.sub(":[0-9a-f]+@", ":wrong@", postgresql.url("postgres")))
    with pytest.raises(ConboError, match=r"nowhere\.invalid"):
        open_study(postgresql.url("postgres", host="nowhere.invalid"))


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", 5])
def test_a_name_that_no_database_can_hold_is_that_of_no_study(postgresql: PostgresServer, name: Any) -> None:
    storage = postgresql.url(postgresql.new_database())
    Study(SPACE, storage=storage)
    with pytest.raises(StudyError, match=r"there is no study .*: there are 'default'"):
        open_study(storage, name)


def test_what_is_told_outlives_a_crash_of_a_server_that_answers_before_it_writes(postgresql: PostgresServer) -> None:
    database = postgresql.new_database()
    with psycopg.connect(postgresql.url("postgres", driver=""), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {database} SET synchronous_commit = off".encode())
    study = new_study(postgresql.url(database))
    for _ in range(5):
        trial = study.ask()
        study.tell(trial, 0.5)
        postgresql.stop(signal.SIGQUIT)  # at once, with all that is in its memory alone
        postgresql.start()
        assert study.trials[trial.number].reward == 0.5


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conbo.study.database.PATIENCE", 0.05)
    storage = "postgresql+psycopg://conbo:secret@127.0.0.1:1/nowhere"
    with pytest.raises(ConboError, match=r"127\.0\.0\.1:1/nowhere.*refused") as error:
        open_study(storage)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("seconds", [1.5, pytest.param(10, marks=pytest.mark.soak)])
def test_a_file_that_another_program_keeps_locked(seconds: float, tmp_path: Path) -> None:
    storage = tmp_path / "locked.db"
    study = new_study(storage)
    trial = study.ask()
    locked = threading.Event()

    def lock() -> None:
        connection = sqlite3.connect(storage, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        locked.set()
        time.sleep(seconds)
        connection.execute("COMMIT")
        connection.close()

    other = threading.Thread(target=lock)
    other.start()
    locked.wait()
    study.tell(trial, 0.5)
    other.join()
    assert open_study(str(storage)).trials[trial.number].reward == 0.5


def away(server: PostgresServer, seconds: float) -> None:
    server.stop()
    time.sleep(seconds)
    server.start()
