"""Functions by name, and programs that print a number."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conbo import Categorical, Real, Space
from conbo.cli import objectives
from conbo.cli.objectives import Program, load_function
from conbo.errors import ConboError, SettingError

STATE, ACTION = {"demand": 60.0}, {"stock": 50.5}
SPACE = Space(states={"demand": Real(0, 100)}, actions={"stock": Real(0, 100), "mode": Categorical(["a", "b c; rm *"])})


@pytest.mark.parametrize("name", ["simulator:profit", "simulator.py:profit", "./simulator.py:profit"])
def test_functions_by_module_or_file(folder: Path, name: str) -> None:
    assert load_function(name)(STATE, ACTION) == 5 * 50.5 - 2 * 50.5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("profit", "an objective must be module:function or file.py:function, but got 'profit'"),
        ("simulator:", "an objective must be module:function"),
        ("no_such_module:profit", "cannot import 'no_such_module': ModuleNotFoundError"),
        ("nowhere.py:profit", "the file of the objective must exist, but 'nowhere.py' does not"),
        ("simulator.py:profti", "must have a function 'profti', but it has profit, broken"),
        ("json.py:profit", "'json.py' must be renamed: a module 'json' exists already in"),
        ("time.py:profit", "'time.py' must be renamed: a module 'time' exists already in Python itself."),
        ("wrong.py:profit", "cannot import 'wrong.py': NameError: name 'x' is not defined"),
        ("script.py:profit", "cannot import 'script.py': SystemExit: 0"),
    ],
)
def test_what_is_no_function(folder: Path, name: str, message: str) -> None:
    (folder / "json.py").write_text("")
    (folder / "time.py").write_text("")
    (folder / "wrong.py").write_text("x + 1")
    (folder / "script.py").write_text("import sys\nsys.exit(0)")
    with pytest.raises(SettingError) as raised:
        load_function(name)
    assert message in str(raised.value)


def test_a_program_prints_its_reward_last() -> None:
    code = "import sys; print('working'); print(float(sys.argv[1]) - float(sys.argv[2])); print()"
    assert Program(f'{sys.executable} -c "{code}" {{demand}} {{stock:.1f}}')(STATE, ACTION) == 9.5


def test_values_are_put_in_after_the_words_are_split() -> None:
    program = Program("sim --mode={mode} 'a b' {stock:.3f}{{}}")
    assert program.words({}, {"mode": "b c; rm *", "stock": 1 / 3}) == ["sim", "--mode=b c; rm *", "a b", "0.333{}"]
    assert Program("sim {x}").words({}, {"x": 0.1 + 0.2}) == ["sim", "0.30000000000000004"]
    assert Program("sim {mode!r}").words({}, {"mode": "a b"}) == ["sim", "'a b'"]


def test_names_are_checked_before_anything_runs() -> None:
    Program("sh {demand} {stock:.2f} {{literal}}").check(SPACE)
    Program("{demand} of any kind").check(SPACE)  # known only when it runs
    with pytest.raises(SettingError, match="must begin with a program that can be run, but 'sim' is none"):
        Program("sim {demand}").check(SPACE)
    with pytest.raises(SettingError, match=r"unknown parameter \{stok\} in the command: did you mean 'stock'\?"):
        Program("sim {stok}").check(SPACE)
    with pytest.raises(SettingError, match=r"unknown parameter \{stock.__class__\}"):
        Program("sim {stock.__class__}").check(SPACE)
    with pytest.raises(SettingError, match=r"must have closed quotes and braces, but got 'sim \{demand'"):
        Program("sim {demand").check(SPACE)
    with pytest.raises(
        SettingError, match=r"the format of \{stock\} .* must fit all values of 'stock', but does not fit"
    ):
        Program("sh {stock:d}").check(SPACE)
    with pytest.raises(SettingError, match=r"the format of \{stock\} .*: Unknown conversion specifier x"):
        Program("sh {stock!x}").check(SPACE)
    with pytest.raises(SettingError, match="must have closed quotes"):
        Program("sim 'demand").check(SPACE)
    with pytest.raises(SettingError, match="a command must name a program, but it is empty"):
        Program("").check(SPACE)
    for timeout in (float("nan"), float("inf")):
        with pytest.raises(SettingError, match="`0 < timeout < inf` must hold, but got timeout="):
            Program("sh {stock}", timeout).check(SPACE)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("/no/such/program {stock}", "cannot run '/no/such/program': No such file or directory."),
        ("sh -c 'echo out; echo alas >&2; exit 7'", "'sh' ended with exit code 7: alas"),
        ("sh -c 'exit 7'", "'sh' ended with exit code 7, and its error output is empty."),
        ("echo stock {stock}", "'echo' must print a number last, but printed 'stock 50.5'."),
        ("true", "'true' must print a number last, but printed ''."),
        ("echo 1_000", "'echo' must print a number last, but printed '1_000'."),
    ],
)
def test_programs_that_fail(template: str, message: str) -> None:
    with pytest.raises(ConboError) as raised:
        Program(template)(STATE, ACTION)
    assert str(raised.value) == message


def test_a_program_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with pytest.raises(TimeoutError, match=r"'sh' took longer than 0\.5 s"):
        Program(f"sh -c 'sleep 600 & echo $! > {note}; wait'", timeout=0.5)(STATE, ACTION)
    assert _ended(int(note.read_text()))


def test_a_program_may_leave_something_running(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    assert Program(f"sh -c 'sleep 600 & echo $! > {note}; echo 5'", timeout=30)(STATE, ACTION) == 5
    os.kill(int(note.read_text()), signal.SIGKILL)  # it still runs


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP"])
def test_a_program_ends_with_conbo(number: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    program = f"sh -c 'echo $$ > {note}; sleep 600'"
    with _conbo_that_runs(program, f"signal.{number}, signal.SIG_DFL", note) as conbo:
        conbo.send_signal(signal.Signals[number])
        assert conbo.wait(60) == -signal.Signals[number]
    assert _ended(int(note.read_text()))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_a_program_goes_on_where_nohup_makes_conbo_ignore_that_the_terminal_was_closed(tmp_path: Path) -> None:
    note, go = tmp_path / "pid", tmp_path / "go"
    program = f"sh -c 'echo $$ > {note}; while [ ! -e {go} ]; do sleep 0.02; done; echo 5'"
    with _conbo_that_runs(program, "signal.SIGHUP, signal.SIG_IGN", note) as conbo:
        conbo.send_signal(signal.SIGHUP)
        go.touch()
        assert conbo.communicate(timeout=60) == (b"5.0\n", None)
    assert conbo.returncode == 0


@contextmanager
def _conbo_that_runs(program: str, handled: str, note: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that runs the program, which writes its number to the file `note`, and prints the reward.

    `handled` are a signal and what the process does with it. By default, this is what the parent does: make may be
    under nohup.
    """
    imports = "import signal; from conbo.cli.objectives import Program"
    code = f"{imports}; signal.signal({handled}); print(Program({program!r})({{}}, {{}}))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as conbo:
        deadline = time.monotonic() + 60
        while not (note.exists() and note.read_text().endswith("\n")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        try:
            yield conbo
        finally:
            conbo.kill()


def test_a_timeout_may_be_longer_than_the_operating_system_can_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Program("echo 1.5", timeout=1e10)(STATE, ACTION) == 1.5
    monkeypatch.setattr(objectives, "LONGEST_WAIT", 0.05)
    assert Program("sh -c 'echo 1; sleep 0.3; echo 2.5'", timeout=30)(STATE, ACTION) == 2.5


def _ended(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").exists() and ") Z " in Path(f"/proc/{pid}/stat").read_text():
            return True  # killed, and waits for its parent to look
        time.sleep(0.05)
    return False
