"""Addresses, versions of the tables, and for how long trouble is put up with."""

import logging
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, select, text

from conbo import open_study, study_names
from conbo.errors import SettingError, StorageError
from conbo.spaces import Real, Space
from conbo.study import Study, database, schema, sqlite_file
from conbo.study.database import FULL_PATIENCE, PATIENCE, Database, patience
from conbo.study.schema import STUDIES
from conbo.study.sqlite_file import is_cut_off, log_size

SPACE = Space(actions={"x": Real(0, 1)})


# Addresses


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        (3, "`storage` must be a path, a database URL or None, but got 3"),
        ("", "`storage` must be a path, a database URL or None, but got ''"),
        ("sqlite://a:b:c@d", "`storage` must be a path or a database URL"),
        ("mysql://host/db", "`storage` must be a file or a URL of SQLite or PostgreSQL, but got one of 'mysql'"),
        ("postgresql+nodriver://host/db", "`storage` needs a driver that is not there"),
    ],
)
def test_bad_addresses(storage: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Database(storage)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_one_driver_for_postgresql_and_no_password_in_messages(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(f"{scheme}://me:secret@127.0.0.1:1/nowhere?application_name=me")
    assert database.name == "'postgresql+psycopg://me:***@127.0.0.1:1/nowhere'"
    monkeypatch.setattr("conbo.study.database.PATIENCE", 0.05)
    with pytest.raises(StorageError, match=r"nowhere' cannot be used: .*refused") as raised:
        database.create()
    assert "secret" not in str(raised.value)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not move or delete open files")
@pytest.mark.parametrize("storage", ["study.db", "sqlite:///file:study.db?uri=true"])
@pytest.mark.parametrize("what", ["deleted", "moved", "replaced", "folder deleted"])
def test_a_file_that_is_gone_takes_no_rewards(
    what: str, storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    study = Study(SPACE, method="uniform", storage=storage)
    study.run(lambda state, action: action["x"], 3, progress=False)
    monkeypatch.chdir("/")  # a relative path is that of the folder in which the file was opened
    trial, path = study.ask(), folder / "study.db"
    if what == "deleted":
        path.unlink()
    elif what == "folder deleted":
        shutil.rmtree(folder)
        folder.touch()
    else:
        path.rename(tmp_path / "moved.db")
    if what == "replaced":
        Study(SPACE, method="uniform", storage=path).ask()
    gone = "the file was moved, replaced or deleted while this program had it open"
    with pytest.raises(StorageError, match=rf"study\.db.*' cannot be used: {gone}\."):
        study.tell(trial, 1.0)
    with pytest.raises(StorageError, match=gone):
        study.run(lambda state, action: action["x"], 5, progress=False)
    if what == "moved":
        (tmp_path / "moved.db").rename(path)
        study.tell(trial, 1.0)
        assert [each.reward for each in open_study(path).trials] == [each.reward for each in study.trials]


@pytest.mark.parametrize("name", ["u3.db", "a%20b.db", "./u3.db"])
def test_a_uri_of_sqlite_is_found_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = f"sqlite:///file:{name}?uri=true"
    with pytest.raises(StorageError, match="there is no database"):
        open_study(storage)
    Study(SPACE, method="uniform", storage=storage).run(lambda state, action: action["x"], 2, progress=False)
    assert study_names(storage) == ["default"]
    assert len(open_study(storage).trials) == 2
    assert [len(open_study(path).trials) for path in tmp_path.glob("*.db")] == [2]


@pytest.mark.parametrize(
    "uri",
    ["file:x?mode=memory&cache=shared&uri=true", "file::memory:?cache=shared&uri=true", "file:/y?vfs=memdb&uri=true"],
)
def test_a_uri_may_name_a_database_in_memory(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = Study(SPACE, method="uniform", storage=f"sqlite:///{uri}")
    study.run(lambda state, action: action["x"], 2, progress=False)
    assert len(study.trials) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no colons in file names")
def test_a_name_that_only_looks_like_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = "sqlite:///file:v.db?uri=false"
    Study(SPACE, method="uniform", storage=storage).ask()
    assert study_names(storage) == ["default"]
    assert (tmp_path / "file:v.db").is_file()


def test_paths_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"`storage` must not contain the character NUL, but got 'a\\x00b\.db'"):
        Study(SPACE, storage="a\0b.db")
    with pytest.raises(StorageError, match=r"cannot be used: File name too long|cannot be used: unable to open"):
        Study(SPACE, storage=tmp_path / f"{'a' * 300}.db")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have only names that are valid Unicode")
def test_a_file_name_may_be_other_than_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "a\udc80b.db"
    Study(SPACE, method="uniform", storage=path).run(lambda state, action: action["x"], 2, progress=False)
    assert len(open_study(path).trials) == 2


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match=r"missing/study.db' cannot be used: unable to open .*\(the folder does not exist\)"
    ):
        Study(SPACE, storage=tmp_path / "missing" / "study.db")


def test_a_path_means_the_same_file_wherever_the_process_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = Study(SPACE, method="uniform", storage="study.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    study.ask()
    assert len(open_study("../study.db").trials) == 1


# Files


def test_the_file_has_a_write_ahead_log_and_what_is_told_is_on_disk(tmp_path: Path) -> None:
    database = Database(tmp_path / "study.db")
    database.create()
    assert sqlite3.connect(tmp_path / "study.db").execute("PRAGMA journal_mode").fetchone() == ("wal",)
    full, normal = 2, 1
    assert database.write(lambda connection: connection.scalar(text("PRAGMA synchronous"))) == full
    assert database.write(lambda connection: connection.scalar(text("PRAGMA synchronous")), lasting=False) == normal


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "study.db")
    database.create()

    def fail(connection: Any) -> None:
        row = {"name": "half", "settings": "{}", "version": "1", "created": 0.0}
        connection.execute(STUDIES.insert().values(row))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        database.write(fail)
    assert database.read(lambda connection: connection.execute(select(STUDIES)).all()) == []


def test_a_forked_process_has_connections_of_its_own(tmp_path: Path) -> None:
    database = Database(tmp_path / "study.db")
    database.create()
    before = database._engine
    database._pid -= 1  # as if this were the child
    assert database.version() == schema.newest_version()
    assert database._engine is not before
    assert database._pid == os.getpid()


# Versions of the tables

NEWEST = schema.newest_version()


def add_cost(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE conbo_trials ADD COLUMN cost DOUBLE"))


def test_older_tables_are_brought_up_to_date_and_kept_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "conbo")
    storage = tmp_path / "study.db"
    study = Study(SPACE, method="uniform", storage=storage)  # whose connection stays open
    study.ask()
    with closing(sqlite3.connect(storage)) as connection:
        connection.execute("ALTER TABLE conbo_schema DROP COLUMN conbo")  # as conbo 0.1.0 made it
    with monkeypatch.context() as later:
        later.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, add_cost))
        assert study_names(storage) == ["default"]
        assert Database(storage).version() == NEWEST + 1
        assert f"'study.db.backup-v{NEWEST}' keeps the file as it was" in caplog.text.replace(f"{tmp_path}/", "")
        later.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, lambda connection: None))
        assert len(open_study(storage).trials) == 1
        kept = [f"study.db.backup-v{version}" for version in (NEWEST, NEWEST + 1)]
        assert sorted(path.name for path in tmp_path.glob("*.backup*")) == kept
        assert sqlite3.connect(storage).execute("SELECT version, conbo FROM conbo_schema").fetchall() == [
            (NEWEST + 2, version("conbo"))
        ]
    assert len(open_study(tmp_path / f"study.db.backup-v{NEWEST}").trials) == 1


def test_an_empty_database_gets_the_newest_tables_without_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, add_cost))
    storage = tmp_path / "study.db"
    Study(SPACE, method="uniform", storage=storage)
    assert Database(storage).version() == NEWEST + 1
    assert not list(tmp_path.glob("*.backup*"))


def test_a_migration_that_fails_leaves_the_tables_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(connection: Connection) -> None:
        add_cost(connection)
        raise ZeroDivisionError

    storage = tmp_path / "study.db"
    Study(SPACE, method="uniform", storage=storage).ask()
    with monkeypatch.context() as later:
        later.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                open_study(storage)
    kept = [f"study.db.backup-v{NEWEST}", f"study.db.backup-v{NEWEST}-2"]
    assert sorted(path.name for path in tmp_path.glob("*.backup*")) == kept
    assert len(open_study(storage).trials) == 1


def test_a_step_changes_tables_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = tmp_path / "study.db"
    Study(SPACE, method="uniform", storage=storage).ask()
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, add_cost))
    assert study_names(storage) == ["default"]
    assert sqlite3.connect(storage).execute("SELECT number, cost FROM conbo_trials").fetchall() == [(0, None)]
    assert len(open_study(storage).trials) == 1


def test_tables_of_a_later_version_are_left_alone(tmp_path: Path) -> None:
    storage = tmp_path / "study.db"
    Study(SPACE, method="uniform", storage=storage)
    with sqlite3.connect(storage) as connection:
        connection.execute("UPDATE conbo_schema SET version = 99, conbo = '7.1'")
    for attempt in (lambda: open_study(storage), lambda: Study(SPACE, storage=storage)):
        known = rf"knows tables up to version {NEWEST}, but .* of version 99.*conbo>=7\.1'`"
        with pytest.raises(StorageError, match=known):
            attempt()
    with sqlite3.connect(storage) as connection:
        connection.execute("ALTER TABLE conbo_schema DROP COLUMN conbo")
    with pytest.raises(StorageError, match="of version 99, by a later conbo: `pip install --upgrade conbo`"):
        open_study(storage)


# The write-ahead log


def copied(storage: Path) -> Path:
    return Path(shutil.copy(storage, storage.with_name("alone.db")))


def test_the_file_alone_is_whole_when_a_run_has_ended(tmp_path: Path) -> None:
    study = Study(SPACE, method="uniform", storage=tmp_path / "study.db")  # whose connection stays open
    study.run(lambda state, action: 1.0, 12, progress=False)
    assert open_study(copied(tmp_path / "study.db")).trials == study.trials


def test_rewards_are_folded_in_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def n_trials() -> int:
        (count,) = (
            sqlite3.connect(copied(tmp_path / "study.db")).execute("SELECT count(*) FROM conbo_trials").fetchone()
        )
        return int(count)

    monkeypatch.setattr(database, "CHECKPOINT", 1e9)
    study = Study(SPACE, method="uniform", storage=tmp_path / "study.db")
    study.tell(study.ask(), 1.0)
    assert n_trials() == 0
    monkeypatch.setattr(database, "CHECKPOINT", 0.0)
    study.tell(study.ask(), 2.0)
    assert n_trials() == 2
    assert open_study(tmp_path / "alone.db").trials == study.trials


# Trouble


def sqlite_error(name: str) -> sqlite3.Error:
    error = sqlite3.OperationalError(name)
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("error", "reached", "seconds"),
    [
        (sqlite_error("SQLITE_BUSY"), False, PATIENCE),
        (sqlite_error("SQLITE_LOCKED_SHAREDCACHE"), True, PATIENCE),
        (sqlite_error("SQLITE_FULL"), True, FULL_PATIENCE),
        (sqlite_error("SQLITE_IOERR_WRITE"), True, FULL_PATIENCE),
        (sqlite_error("SQLITE_READONLY"), True, 0.0),
        (sqlite_error("SQLITE_CORRUPT"), True, 0.0),
        (sqlite_error("SQLITE_NOTADB"), False, 0.0),
        (sqlite_error("SQLITE_CANTOPEN"), False, 0.0),
        (psycopg.OperationalError("connection refused"), False, PATIENCE),
        (psycopg.errors.ConnectionTimeout("connection timeout expired"), False, PATIENCE),
        (psycopg.OperationalError("FATAL: sorry, too many clients already"), False, PATIENCE),
        (psycopg.OperationalError("FATAL: the database system is starting up"), False, PATIENCE),
        (psycopg.OperationalError('FATAL: password authentication failed for user "me"'), False, 0.0),
        (psycopg.OperationalError('FATAL: database "nowhere" does not exist'), False, 0.0),
        (psycopg.OperationalError("failed to resolve host 'nowhere'"), False, 0.0),
        (psycopg.OperationalError("failed to resolve host 'server'"), True, PATIENCE),
        (psycopg.OperationalError("server closed the connection unexpectedly"), True, PATIENCE),
        (psycopg.errors.AdminShutdown(), True, PATIENCE),
        (psycopg.errors.CannotConnectNow(), True, PATIENCE),
        (psycopg.errors.DeadlockDetected(), True, PATIENCE),
        (psycopg.errors.TooManyConnections(), True, PATIENCE),
        (psycopg.errors.DiskFull(), True, FULL_PATIENCE),
        (psycopg.errors.InsufficientPrivilege(), True, 0.0),
        (psycopg.errors.UndefinedTable(), True, 0.0),
    ],
    ids=lambda value: str(value) or type(value).__name__,
)
def test_for_how_long_to_hope(error: BaseException, reached: bool, seconds: float) -> None:
    assert patience(error, reached) == seconds


def locked(storage: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(storage, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN EXCLUSIVE")
    return connection


def test_a_lock_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "BUSY", 0.01)
    storage = tmp_path / "study.db"
    study = Study(SPACE, method="uniform", storage=storage)
    trial = study.ask()
    other = locked(storage)
    timer = threading.Timer(1.5, other.execute, ["COMMIT"])
    timer.start()
    with caplog.at_level(logging.WARNING, "conbo"):
        study.tell(trial, 1.0)
    timer.join()
    other.close()
    assert study.trials[0].reward == 1.0
    (said,) = (record.getMessage() for record in caplog.records)
    assert said == f"the database '{storage}' is not available, trying for 60 s: database is locked"


def test_a_lock_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY", 0.01)
    monkeypatch.setattr(database, "PATIENCE", 0.1)
    storage = tmp_path / "study.db"
    study = Study(SPACE, method="uniform", storage=storage)
    trial = study.ask()
    other = locked(storage)
    with pytest.raises(StorageError, match=r"the database '.*study.db' cannot be used: database is locked"):
        study.tell(trial, 1.0)
    other.execute("ROLLBACK")
    other.close()
    study.tell(trial, 1.0)
    assert open_study(storage).trials[0].reward == 1.0


@pytest.mark.parametrize("result", [2.5, {"reward": 2.5, "noise": 0.1}, {"reward": 2.5, "wait": 4.2}], ids=str)
def test_a_run_that_cannot_record_a_reward_says_which(
    result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY", 0.01)
    monkeypatch.setattr(database, "PATIENCE", 0.1)
    storage = tmp_path / "study.db"
    study = Study(SPACE, method="uniform", storage=storage)
    locks = []

    def objective(state: Any, action: Any) -> Any:
        locks.append(locked(storage))
        return result

    shown = re.escape(f"by trial: { ({0: result}) }: ")
    with pytest.raises(StorageError, match=rf"could not be recorded, {shown}.* database is locked"):
        study.run(objective, 1, progress=False)
    locks[0].close()
    study.run(lambda state, action: 2.5, 1, progress=False)
    assert [trial.reward for trial in study.trials] == [2.5]


def test_a_second_look_at_a_file_leaves_its_locks_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "study.db")

    def elsewhere(program: str) -> None:
        subprocess.run([sys.executable, "-c", f"import sys, conbo; path = sys.argv[1]; {program}", path], check=True)

    elsewhere("conbo.Study(conbo.Space(actions={'x': conbo.Real(0, 1)}), storage=path)")
    study = open_study(path)
    assert study.trials == ()
    assert study_names(path) == ["default"]
    elsewhere("study = conbo.open_study(path); study.tell(study.ask(), 1.0)")
    assert [trial.reward for trial in study.trials] == [1.0]
    study.tell(study.ask(), 2.0)
    elsewhere("assert len(conbo.open_study(path).trials) == 2")


def test_a_log_that_is_removed_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE t (x)")
    look = Path.stat

    def look_and_close(path: Path, **options: Any) -> os.stat_result:
        found = look(path, **options)
        writer.close()  # the last one who closes the file removes the log
        return found

    monkeypatch.setattr(Path, "stat", look_and_close)
    assert log_size(str(tmp_path / "study.db")) > 0
    assert log_size(str(tmp_path / "study.db")) == 0


def test_a_file_that_grows_while_it_is_looked_at_is_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("CREATE TABLE t (x)")
        before = path.read_bytes()
        writer.execute("INSERT INTO t VALUES (zeroblob(30000))")
    after, look = path.read_bytes(), sqlite_file.read_header
    # a checkpoint writes the first page, which has the new number of pages, before the others
    contents = iter([after[:4096] + before[4096:], after])

    def write_and_look(file: Path) -> bytes:
        file.write_bytes(next(contents))
        return look(file)

    with monkeypatch.context() as patched:
        patched.setattr(sqlite_file, "read_header", write_and_look)
        assert not is_cut_off(str(path))
    assert not is_cut_off(str(path))
    path.write_bytes(after[:-1])
    assert is_cut_off(str(path))
