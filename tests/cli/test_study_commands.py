"""init, run and worker."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import Result

import conbo as library

Conbo = Callable[..., Result]
PROGRAM = f"{sys.executable} -c 'import sys; print(sys.argv[1])' {{stock}}"


def test_init_writes_a_study_file_that_runs(conbo: Conbo, folder: Path) -> None:
    assert "study.toml exists already: --force replaces it." in conbo("init", code=2).stderr
    assert "conbo run mine.toml simulator.py:reward" in conbo("init", "mine.toml").stdout
    assert 'storage = "mine.db"' in (folder / "mine.toml").read_text()
    assert "A study file ends in .toml, but got 'mine'." in conbo("init", "mine", code=2).stderr
    assert not (folder / "mine").exists()
    before = (folder / "study.toml").read_text()
    (folder / "study.toml").rename(folder / "a\udcff.toml")  # a name that is not UTF-8 cannot be in the file
    conbo("init", "--force", "a\udcff.toml", code=1)
    assert (folder / "a\udcff.toml").read_text() == before
    conbo("init", "--force")
    conbo("run", "simulator.py:profit", "-n", "2")
    assert library.open_study("study.db").method == "conbo"


def test_the_case_of_a_study_files_ending_does_not_matter(conbo: Conbo, folder: Path) -> None:
    assert "conbo run MINE.TOML simulator.py:reward" in conbo("init", "MINE.TOML").stdout
    conbo("run", "MINE.TOML", "simulator.py:profit", "-n", "2")
    assert "2 completed" in conbo("status", "MINE.TOML").stdout
    assert len(library.open_study("MINE.db").trials) == 2


def test_init_quotes_odd_names(conbo: Conbo, folder: Path) -> None:
    said = conbo("init", 'my "best".toml').stdout
    assert """conbo run 'my "best".toml' simulator.py:reward""" in said
    assert 'my "best".db, not yet' in conbo("check", 'my "best".toml').stdout
    refused = conbo("status", 'my "best".toml', code=1).stderr
    assert """`conbo ask 'my "best".toml'` asks for the first point""" in refused


@pytest.mark.parametrize("study", [[], ["study.toml"]])
def test_run_a_function_then_nothing_is_left_to_do(conbo: Conbo, folder: Path, study: list[str]) -> None:
    assert conbo("run", *study, "simulator.py:profit", "-n", "3").stdout.startswith("3 evaluations completed")
    assert conbo("run", *study, "simulator.py:profit", "-n", "3", code=3).stdout.startswith("0 evaluations completed")
    summary = json.loads(conbo("run", *study, "simulator.py:profit", "-n", "4", "--json").stdout)
    assert (summary["completed"], summary["failed"], summary["stopped"]) == (1, 0, "evaluations")
    assert [trial.status for trial in library.open_study("study.db").trials] == ["completed"] * 4


def test_an_objective_that_calls_exit_does_not_end_conbo_with_its_code(conbo: Conbo, folder: Path) -> None:
    (folder / "leaving.py").write_text("import sys\n\ndef leave(*point):\n    sys.exit(0)\n")
    told = "a function of yours must return or raise an error, but it ended the program by SystemExit: 0"
    assert told in conbo("run", "leaving.py:leave", "-n", "2", code=1).stderr
    (trial,) = library.open_study("study.db").trials
    assert (trial.status, trial.error) == ("failed", "SystemExit: 0 (leaving.py, line 4)")
    conbo("run", "simulator.py:profit", "-n", "3", code=0)
    assert told in conbo("validate", "leaving.py:leave", "-n", "4", code=1).stderr
    assert told in conbo("compare", "leaving.py:leave", code=1).stderr


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
    assert (
        result.stderr
        == "Error: the objective failed 10 times in a row: ArithmeticError: no solution (simulator.py, line 6)\n"
    )


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
        (["run"], 2, "What to evaluate is missing: OBJECTIVE or --command."),
        (["run", "study.toml"], 2, "What to evaluate is missing: OBJECTIVE or --command."),
        (["run", "study.toml", "simulator:profit", "more"], 2, "Expected [STUDY] OBJECTIVE, but got study.toml"),
        (["run", "study.toml", "simulator:profit", "--command", "x"], 2, "Expected [STUDY], but got study.toml sim"),
        (["run", "no.toml", "simulator.py:profit"], 1, "but 'no.toml' does not: `conbo init` writes one."),
        (["run", "simulator.py:profti"], 1, "must have a function 'profti'"),
        (["run", "--command", "sim {stok}"], 1, "unknown parameter {stok} in the command: did you mean 'stock'?"),
        (["run", "simulator.py:profit", "-n", "0"], 2, "0 is not in the range x>=1"),
        (["run", "--command", "no-such-program {stock}"], 1, "with a program that can be run, but 'no-such-program'"),
        (["worker", "simulator.py:profit"], 1, "study.toml has not been run yet: `conbo run study.toml simulator.py"),
    ],
)
def test_wrong_calls(conbo: Conbo, folder: Path, arguments: list[str], code: int, message: str) -> None:
    assert message in conbo(*arguments, code=code).stderr
    assert not (folder / "study.db").exists()


def test_a_failure_names_the_exception_the_file_and_the_line(conbo: Conbo, folder: Path) -> None:
    (folder / "simulator.py").write_text(
        "def odd(state, action):\n    if state['demand'] > 50:\n        return 1 / 0\n    return 1\n"
    )
    wanted = "ZeroDivisionError: division by zero (simulator.py, line 3)"
    for workers in ("1", "2"):
        result = conbo("run", "simulator.py:odd", "-n", "3", "-w", workers, "--name", workers, code=3)
        assert re.fullmatch(rf"The last failure was trial \d+: {re.escape(wanted)}\n", result.stderr)
        assert wanted in conbo("status", "--name", workers).stdout
        assert wanted in conbo("export", "--name", workers).stdout


def test_a_run_without_anything_to_do_says_why(conbo: Conbo, folder: Path) -> None:
    assert conbo("run", "simulator.py:profit", "-n", "1").stdout.startswith("1 evaluation completed in ")
    again = conbo("run", "simulator.py:profit", "-n", "1", code=3).stdout
    assert again == "0 evaluations completed: the study already has as many as were asked for.\n"


def test_check(conbo: Conbo, folder: Path) -> None:
    text = conbo("check").stdout
    assert "demand: real from 10 to 100" in text
    assert "study.db, not yet" in text
    assert text.endswith("study.toml is right.\n")
    assert not (folder / "study.db").exists()
    conbo("run", "simulator.py:profit", "-n", "1")
    assert "study.db, with 1 evaluation\n" in conbo("check", "study.toml").stdout
    file = folder / "study.toml"
    file.write_text(file.read_text().replace("high = 150", "high = 200"))
    assert "stock.high: 150.0 → 200.0" in conbo("check", code=1).stderr
    assert "ends in .toml, but got 'study.db'" in conbo("check", "study.db", code=2).stderr


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('method = "uniform"', "method = 3", "study.toml: `method` must be a string, but got 3."),
        ('method = "uniform"', 'method = "unifrm"', "study.toml: unknown method 'unifrm'"),
        ('method = "uniform"', 'metod = "uniform"', "study.toml: unknown key `metod`: did you mean 'method'?"),
        ("low = 0,", 'low = "0",', "study.toml: in `actions.stock`: "),
        ("[actions]", "[actoins]", "study.toml: unknown key `actoins`: did you mean 'actions'?"),
    ],
)
def test_every_verb_reports_a_mistake_in_the_study_file(
    conbo: Conbo, folder: Path, before: str, after: str, message: str
) -> None:
    file = folder / "study.toml"
    file.write_text(file.read_text().replace(before, after))
    verbs = ["check", "status", "policy", "report", "export", "ask", "tell 0 1", "fail 0", "plot slices"]
    for verb in [*verbs, "run simulator.py:profit", "worker simulator.py:profit"]:
        assert message in conbo(*verb.split(), code=1).stderr


def test_settings_that_changed(conbo: Conbo, folder: Path) -> None:
    conbo("ask", "-n", "2")
    conbo("tell", "0", "1")
    file = folder / "study.toml"
    file.write_text('direction = "minimize"\n' + file.read_text().replace("high = 150", "high = 200"))
    changes = ["  space.actions.stock.high: 150.0 → 200.0", "  direction: 'maximize' → 'minimize'"]
    for verb in ("check", "ask", "tell 1 1", "worker simulator.py:profit", "policy --state demand=50"):
        lines = conbo(*verb.split(), code=1).stderr.splitlines()
        assert lines[1:-1] == changes
        way_out = "give its storage instead of study.toml, as in `conbo status study.db`."
        assert verb == "ask" or lines[-1].endswith(way_out)
    for verb in ("status", "export", "export --database copy.db"):  # show what is stored
        shown = conbo(*verb.split())
        rule = "study.toml has other settings than the study 'default' was begun with (stored → given):"
        assert shown.stderr.splitlines() == [f"Warning: This is the study as it is stored. {rule}", *changes]
        assert "database" in verb or shown.stdout == conbo(verb, "study.db").stdout
    assert [trial.status for trial in library.open_study("study.db").trials] == ["completed", "running"]


def test_a_study_with_a_model_of_ones_own_is_told_rewards_by_its_file(conbo: Conbo, folder: Path) -> None:
    def model(*_: object) -> NoReturn:
        raise AssertionError("these commands need no model")

    space = library.Space({"demand": library.Real(10, 100)}, {"stock": library.Real(0, 150)})
    study = library.Study(space, method="uniform", model=model, storage="study.db")
    study.ask(3)
    for verb in ("tell 0 1.5", "fail 1", "status", "export", "check"):
        assert conbo(*verb.split()).stderr == ""
    assert [trial.status for trial in study.trials] == ["completed", "failed", "running"]
    assert "the study's model is a function" in conbo("ask", code=1).stderr


@pytest.mark.filterwarnings("always")
def test_a_command_warns_once(conbo: Conbo, folder: Path) -> None:
    file = folder / "study.toml"
    whole = file.read_text().replace('"real"', '"integer"')
    file.write_text('constraints = ["stock <= demand - 11"]\n' + whole)
    once = "Warning: 1 of 91 states have no feasible action and are left out of the integral over states.\n"
    for verb in ("check", "ask -o batch.csv", "check", "run simulator.py:profit -n 2", "plot state-coverage -o p.svg"):
        assert conbo(*verb.split()).stderr.count(once) == 1, verb
    for verb in ("tell 0 1", "status", "export"):  # as with the storage
        assert once not in conbo(*verb.split()).stderr


def test_files_may_have_no_name_before_their_ending(conbo: Conbo, folder: Path) -> None:
    (folder / "study.toml").rename(folder / ".TOML")
    assert "study.db, not yet" in conbo("check", ".TOML").stdout
    conbo("ask", ".TOML", "-o", ".json")
    assert "1 left for later" in conbo("tell", ".TOML", "--file", ".json", code=3).stdout


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
    *before, last = library.open_study("study.db").trials
    assert {trial.status for trial in before} <= {"completed"}
    assert last.status in ("completed", "running")  # the next point was being looked for: it is handed back


def _completed() -> bool:
    try:
        return any(trial.status == "completed" for trial in library.open_study("study.db").trials)
    except library.errors.ConboError:  # not there yet
        return False
