"""init, run and worker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import conbo as library

Conbo = Callable[..., Result]
PROGRAM = f"{sys.executable} -c 'import sys; print(sys.argv[1])' {{stock}}"


def test_init_writes_a_study_file_that_runs(conbo: Conbo, folder: Path) -> None:
    assert "study.toml exists already: --force replaces it." in conbo("init", code=2).stderr
    assert "conbo run mine.toml simulator.py:reward" in conbo("init", "mine.toml").stdout
    assert 'storage = "mine.db"' in (folder / "mine.toml").read_text()
    conbo("init", "--force")
    conbo("run", "simulator.py:profit", "-n", "2")
    assert library.open_study("study.db").method == "conbo"


@pytest.mark.parametrize("study", [[], ["study.toml"]])
def test_run_a_function_then_nothing_is_left_to_do(conbo: Conbo, folder: Path, study: list[str]) -> None:
    assert conbo("run", *study, "simulator.py:profit", "-n", "3").stdout.startswith("3 evaluations completed")
    assert conbo("run", *study, "simulator.py:profit", "-n", "3", code=3).stdout.startswith("0 evaluations completed")
    summary = json.loads(conbo("run", *study, "simulator.py:profit", "-n", "4", "--json").stdout)
    assert (summary["completed"], summary["failed"], summary["stopped"]) == (1, 0, "evaluations")
    assert [trial.status for trial in library.open_study("study.db").trials] == ["completed"] * 4


def test_run_a_program(conbo: Conbo, folder: Path) -> None:
    conbo("run", "--command", PROGRAM, "-n", "3")
    trials = library.open_study("study.db").trials
    assert [trial.reward for trial in trials] == [trial.action["stock"] for trial in trials]


@pytest.mark.slow
def test_run_in_several_processes(conbo: Conbo, folder: Path) -> None:
    conbo("run", "study.toml", "simulator.py:profit", "-n", "4", "-w", "2")
    conbo("run", "study.toml", "--command", PROGRAM, "-n", "6", "-w", "2")
    assert len(library.open_study("study.db").trials) == 6


def test_evaluations_that_fail(conbo: Conbo, folder: Path) -> None:
    code = "import sys; 1 / (float(sys.argv[1]) < 100); print(1)"
    command = f'{sys.executable} -c "{code}" {{stock}}'
    assert " failed, " in conbo("run", "--command", command, "-n", "6", "--retries", "1", code=3).stdout
    failed = [trial for trial in library.open_study("study.db").trials if trial.status == "failed"]
    assert "exit code 1: ZeroDivisionError: division by zero" in failed[0].error
    result = conbo("run", "study.toml", "simulator.py:broken", "-n", "9", code=1)
    assert result.stderr == "Error: the objective failed 10 times in a row: ArithmeticError: no solution\n"


def test_how_many_workers_a_trial_may_outlive_is_an_option(conbo: Conbo, folder: Path) -> None:
    conbo("run", "study.toml", "simulator.py:profit", "-n", "2", "--max-lost-workers", "1000")
    for command in ("run", "worker"):
        result = conbo(command, "study.toml", "simulator.py:profit", "--max-lost-workers", "0", code=2)
        assert "0 is not in the range x>=1" in result.stderr


def test_a_program_that_is_too_slow(conbo: Conbo, folder: Path) -> None:
    result = conbo("run", "--command", "sleep 600", "--timeout", "0.05", "-n", "1", code=1)
    assert "failed 10 times in a row: TimeoutError: 'sleep' took longer than 0.05 s" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run"], 2, "Expected [STUDY] OBJECTIVE, but got nothing."),
        (["run", "study.toml"], 2, "What to evaluate is missing: OBJECTIVE or --command."),
        (["run", "study.toml", "simulator:profit", "more"], 2, "Expected [STUDY] OBJECTIVE, but got study.toml"),
        (["run", "study.toml", "simulator:profit", "--command", "x"], 2, "Expected [STUDY], but got study.toml sim"),
        (["run", "no.toml", "simulator.py:profit"], 1, "but 'no.toml' does not: `conbo init` writes one."),
        (["run", "simulator.py:profti"], 1, "must have a function 'profti'"),
        (["run", "--command", "sim {stok}"], 1, "unknown parameter {stok} in the command: did you mean 'stock'?"),
        (["run", "simulator.py:profit", "-n", "0"], 2, "0 is not in the range x>=1"),
        (["worker", "simulator.py:profit"], 1, "there is no database"),
    ],
)
def test_wrong_calls(conbo: Conbo, folder: Path, arguments: list[str], code: int, message: str) -> None:
    assert message in conbo(*arguments, code=code).stderr
    assert not (folder / "study.db").exists() or "{stok}" in message


def test_settings_that_changed(conbo: Conbo, folder: Path) -> None:
    conbo("run", "simulator.py:profit", "-n", "1")
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("high = 150", "high = 200"))
    assert "stock.high: 150.0 → 200.0" in conbo("run", "simulator.py:profit", "-n", "2", code=1).stderr


def test_workers_join_by_storage_and_name(conbo: Conbo, folder: Path) -> None:
    conbo("run", "simulator.py:profit", "-n", "1", "--name", "first")
    conbo("worker", "study.db", "simulator.py:profit", "-n", "2")  # the only one
    conbo("run", "simulator.py:profit", "-n", "1", "--name", "second")
    assert "is meant: first, second." in conbo("worker", "study.db", "simulator.py:profit", code=1).stderr
    conbo("worker", "study.db", "simulator.py:profit", "-n", "3", "--name", "first")
    assert len(library.open_study("study.db", "first").trials) == 3


@pytest.mark.slow
def test_an_interrupt_keeps_the_rewards(folder: Path) -> None:
    conbo = str(Path(sys.executable).with_name("conbo"))
    command = [conbo, "run", "--command", "sh -c 'sleep 0.2; echo 1'", "-n", "9999"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        while not _completed():
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted" in output
    assert {trial.status for trial in library.open_study("study.db").trials} == {"completed"}


def _completed() -> bool:
    try:
        return any(trial.status == "completed" for trial in library.open_study("study.db").trials)
    except library.errors.ConboError:  # not there yet
        return False
