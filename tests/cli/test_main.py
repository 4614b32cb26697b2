"""The group of commands: quick help, errors of one line, exit codes."""

import inspect
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from conbo.cli import SECTIONS, Commands, main
from conbo.errors import SettingError

Conbo = Callable[..., Result]
NAMES = [name for commands in SECTIONS.values() for name in commands]


def test_help_imports_nothing_slow() -> None:
    code = "import sys; from conbo.cli import main\ntry: main(['--help'])\nexcept SystemExit as e: print(e.code)\n"
    code += "print([name for name in ('torch', 'numpy', 'sqlalchemy', 'matplotlib') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.endswith("0\n[]\n")
    assert all(name in done.stdout for name in NAMES)


def test_help_of_a_command_does_not_import_torch() -> None:
    code = "import sys; from conbo.cli import main\nfor name in sys.argv[1:]:\n    main.get_command(None, name)\n"
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *NAMES], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", NAMES)
def test_the_list_has_the_first_line_of_every_help(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.help is not None
    (line,) = [line for commands in SECTIONS.values() for key, (_, line) in commands.items() if key == name]
    assert command.help.partition("\n")[0] == line


@pytest.mark.parametrize("name", NAMES)
def test_nothing_waits_for_an_answer(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert not [option.name for option in command.params if isinstance(option, click.Option) and option.prompt]
    home = Path(inspect.getfile(inspect.unwrap(command.callback)))  # type: ignore[arg-type]
    assert not re.search(r"\b(confirm|prompt|input|getpass)\(", home.read_text(encoding="utf-8"))


def test_an_unknown_command_is_wrong_usage(conbo: Conbo) -> None:
    assert "No such command 'rnu'" in conbo("rnu", code=2).stderr


def test_version(conbo: Conbo) -> None:
    assert conbo("--version").stdout.startswith("conbo, version 0.")


@click.command("go")
@click.argument("how")
def go(how: str) -> int:
    """Do what the argument says."""
    if how == "conbo error":
        raise SettingError("`a` must be b.")
    if how == "bug":
        raise ZeroDivisionError("first line\nsecond line")
    if how == "no file":
        open("/nowhere/at/all")  # noqa: SIM115
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "warn":
        warnings.warn("mind the step", UserWarning, stacklevel=1)
    return 3


class OneCommand(Commands):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return go


@pytest.fixture
def run() -> Callable[..., Result]:
    from click.testing import CliRunner

    group = OneCommand("conbo")
    return lambda *arguments: CliRunner().invoke(group, ["go", *arguments])


def test_exit_codes_and_messages(run: Conbo) -> None:
    error = run("conbo error")
    assert (error.exit_code, error.stderr) == (1, "Error: `a` must be b.\n")
    missing = run("no file")
    assert (missing.exit_code, missing.stderr) == (1, "Error: No such file or directory: /nowhere/at/all\n")
    bug = run("bug")
    assert (bug.exit_code, bug.stderr) == (1, "Error: ZeroDivisionError: first line (--debug shows where)\n")
    interrupted = run("interrupt")
    assert (interrupted.exit_code, interrupted.stderr.split()) == (130, ["Interrupted."])
    usage = run()
    assert usage.exit_code == 2
    assert "Missing argument 'HOW'" in usage.stderr
    assert run("quietly").exit_code == 3


def test_debug_shows_the_traceback(run: Conbo) -> None:
    assert isinstance(run("conbo error", "--debug").exception, SettingError)


def test_a_warning_is_a_line(run: Conbo) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run("warn").stderr == "Warning: mind the step\n"


def test_no_color(run: Conbo, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    group = OneCommand("conbo")
    colored = CliRunner().invoke(group, ["go", "conbo error"], color=True)
    assert "\x1b[31mError:" in colored.stderr
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in CliRunner().invoke(group, ["go", "conbo error"], color=True).stderr
