"""Objectives on the command line: a Python function, given by its name, or any program that prints a number."""

import importlib
import math
import os
import shlex
import shutil
import signal
import string
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from conbo.cli.study_source import Command, is_study_file, leading_study
from conbo.cli.tables import number_text
from conbo.common_random_numbers import SEED
from conbo.errors import ConboError, SettingError, quoted
from conbo.study.worker_process import PROGRAMS, end_program, end_programs

if TYPE_CHECKING:
    from conbo.spaces import Parameter, Point, Space, Value
    from conbo.study.executors import AnyObjective

LONGEST_WAIT = 2_000_000.0  # seconds of one wait for a program; the operating system counts at most 2**31 milliseconds
# a scheduler or `timeout` ends a process by SIGTERM, and a terminal that is closed by SIGHUP, which Windows lacks
ENDING_SIGNALS = [signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if name in signal.Signals.__members__]

command_option = click.option(
    "--command", metavar="WORDS", help='A program that prints a number: "./simulator {demand} {stock}".'
)
workers_option = click.option(
    "-w",
    "--workers",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of local processes.",
)


def timeout_option(meaning: str) -> Callable[[Command], Command]:
    """A decorator that adds the option `--timeout`, in seconds, with the help text `meaning`."""
    seconds = click.FloatRange(0, min_open=True)
    return click.option("--timeout", metavar="SECONDS", type=seconds, help=meaning)


def refuse_options(needed: str, *names: str) -> None:
    """Raise click.UsageError if one of these options was given to the running command.

    Without `needed`, such as "--command", they would have no effect.
    """
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in names and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{option.opts[-1]} needs {needed}.")


def source_and_objective(
    arguments: tuple[str, ...], command: str | None, timeout: float | None
) -> "tuple[str, AnyObjective]":
    """Return the source of the study, which is a study file or a storage, and the objective.

    The source is the first argument, or study.toml if it is left out. The objective is the program of `--command`, for
    which `timeout` is the limit in seconds; without that option, it is the function that the last argument names.
    """
    if command is not None:
        (source,) = leading_study(arguments)
        return source, Program(command, timeout)
    if not arguments or (len(arguments) == 1 and is_study_file(arguments[0])):
        raise click.UsageError("What to evaluate is missing: OBJECTIVE or --command.")
    source, function = leading_study(arguments, "OBJECTIVE")
    return source, load_function(function)


def checked(
    objective: "AnyObjective", space: "Space", seeded: bool = False, needed: Sequence[str] = ()
) -> "AnyObjective":
    """Return the objective unchanged, after checking that a program of `--command` fits the parameters of the space.

    `seeded` says whether trials have simulator seeds. `needed` are the outcomes that must be told with every reward.
    """
    if isinstance(objective, Program):
        objective.check(space, seeded, needed)
    return objective


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """In the body of a `with` statement, turn a SystemExit of the user's function into a ConboError.

    Otherwise conbo would end without a word, with the exit code of the function, which may mean success.
    """
    try:
        yield
    except SystemExit as error:
        rule = "a function of yours must return or raise an error"
        raise ConboError(f"{rule}, but it ended the program by SystemExit: {error.code}") from error


def load_function(name: str) -> "AnyObjective":
    """The function that `module:function` or `path/to/file.py:function` names."""
    home, _, attribute = name.rpartition(":")
    if not home or not attribute:
        raise SettingError(f"an objective must be module:function or file.py:function, but got {name!r}.")
    path = Path(home)
    is_file = path.suffix == ".py"
    if is_file and not path.is_file():
        raise SettingError(f"the file of the objective must exist, but '{home}' does not.")
    # the folder is added to the path, because worker processes import the module again by its name
    sys.path.insert(0, str(path.resolve().parent if is_file else Path.cwd()))
    try:
        module = importlib.import_module(path.stem if is_file else home)
    except (Exception, SystemExit) as error:  # a script may end with sys.exit
        raise SettingError(f"cannot import '{home}': {type(error).__name__}: {error}") from error
    file = getattr(module, "__file__", None) or "Python itself"  # a builtin module has no file
    if is_file and Path(file).resolve() != path.resolve():
        raise SettingError(f"'{home}' must be renamed: a module '{path.stem}' exists already in {file}.")
    function: Any = getattr(module, attribute, None)
    if not callable(function):
        raise SettingError(f"'{home}' must have a function '{attribute}', but it has {_functions(vars(module))}.")
    return function


def _functions(members: dict[str, object]) -> str:
    names = [name for name, member in members.items() if callable(member) and not name.startswith("_")]
    return ", ".join(names) or "none"


@dataclass(frozen=True)
class Program:
    """An objective that runs a program for every evaluation; the last line that the program prints is the reward.

    `template` is the command line. Each of its words may contain {names} of states and actions, optionally with a
    format, as in {stock:.2f}, and {seed} if trials have seeds. The template is split into words before values are
    inserted, and no shell is involved, so that a value can never run as a command.
    """

    template: str  # command line with {names}
    timeout: float | None = None  # seconds

    def __call__(self, state: "Point", action: "Point", seed: int | None = None) -> float:
        """Run the program, and return the reward that it prints."""
        words = self.words(state, action, seed)
        code, printed, complaints = self._run(words)
        if code != 0:
            complaint = _last_line(complaints)
            reason = f": {complaint}" if complaint else ", and its error output is empty."
            raise ConboError(f"'{words[0]}' ended with exit code {code}{reason}")
        try:
            return float(number_text(_last_line(printed)))
        except ValueError:
            rule = f"'{words[0]}' must print a number last"
            raise ConboError(f"{rule}, but printed {_last_line(printed)!r}.") from None

    def _run(self, words: list[str]) -> tuple[int, str, str]:
        """Run the command line that consists of these words; return exit code, standard output and standard error.

        The program runs in a session of its own, which Ctrl-C does not reach. Its output goes to files, because a pipe
        would stay open as long as anything that the program has started and left behind.
        """
        with _output_file() as printed, _output_file() as complaints:
            try:
                process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=printed, stderr=complaints, start_new_session=True
                )
            except OSError as error:
                raise ConboError(f"cannot run '{words[0]}': {error.strerror}.") from error
            with process, _ends_with_this_process(process.pid):
                try:
                    _wait(process, self.timeout)
                except BaseException as error:
                    end_program(process.pid)
                    if isinstance(error, subprocess.TimeoutExpired):
                        raise TimeoutError(f"'{words[0]}' took longer than {self.timeout:g} s") from None
                    raise
            return process.returncode, _text(printed), _text(complaints)

    def words(self, state: "Point", action: "Point", seed: int | None = None) -> list[str]:
        """The words of the command line, with the values inserted."""
        values = {**state, **action, **({} if seed is None else {SEED: seed})}
        return ["".join(_filled(word, values)) for word in shlex.split(self.template)]

    def check(self, space: "Space", seeded: bool = False, needed: Sequence[str] = ()) -> None:
        """Raise SettingError unless the program exists and each {name} in its command line is a parameter of the space.

        A format, as in {stock:.2f}, must fit the values of its parameter, and the timeout must be positive and finite.
        If trials have seeds (`seeded`), the command line must contain {seed} as well. Outcomes that are `needed`
        with every reward exclude a program, because it prints only the reward.
        """
        from conbo.spaces import closest

        if needed:
            rule = "a study that is run with --command must need nothing but rewards"
            raise SettingError(f"{rule}, but this one also needs {quoted(needed)}: give a function, or ask and tell.")
        if self.timeout is not None and not 0 < self.timeout < math.inf:
            raise SettingError(f"`0 < timeout < inf` must hold, but got timeout={self.timeout}.")
        known = {name: _examples(parameter) for name, parameter in (*space.states.items(), *space.actions.items())}
        known |= {SEED: [0]} if seeded else {}
        try:
            fields = [field for word in shlex.split(self.template) for _, *field in _FORMATTER.parse(word)]
        except ValueError as error:
            rule = "a command must have closed quotes and braces"
            raise SettingError(f"{rule}, but got {self.template!r}: {error}.") from error
        if not fields:
            raise SettingError("a command must name a program, but it is empty.")
        for name, style, conversion in fields:
            if name is None:
                continue
            if name not in known:
                raise SettingError(f"unknown parameter {{{name}}} in the command: {closest(name, known)}")
            for value in known[name]:
                _check_format(name, value, style, conversion)
        if seeded and not any(name == SEED for name, _, _ in fields):
            raise SettingError("a command must have {seed}, since the study has `common_random_numbers`, but has none.")
        program = shlex.split(self.template)[0]
        if "{" not in program and shutil.which(program) is None:
            raise SettingError(f"a command must begin with a program that can be run, but '{program}' is none.")


def _output_file() -> IO[str]:
    return tempfile.TemporaryFile("w+", errors="replace")


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _wait(process: "subprocess.Popen[bytes]", timeout: float | None) -> None:
    """Wait until the program ends; raise subprocess.TimeoutExpired after `timeout` seconds, None for no limit."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = None if deadline is None else min(LONGEST_WAIT, deadline - time.monotonic())
        try:
            process.wait(left)
            return
        except subprocess.TimeoutExpired:
            if deadline is not None and time.monotonic() >= deadline:
                raise


@contextmanager
def _ends_with_this_process(program: int) -> Iterator[None]:
    """In the body of a `with` statement, end the program if a signal ends this process.

    Worker processes end their programs themselves when the main process has ended.
    """
    ours = threading.current_thread() is threading.main_thread()
    changed = [number for number in ENDING_SIGNALS if ours and signal.getsignal(number) is signal.SIG_DFL]
    PROGRAMS.add(program)
    try:
        for number in changed:
            signal.signal(number, _end)
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)
        PROGRAMS.discard(program)


def _end(number: int, frame: object) -> None:
    """End all programs, and then this process by the same signal."""
    end_programs()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


_FORMATTER = string.Formatter()


def _filled(word: str, values: dict[str, Any]) -> Iterable[str]:
    for text, name, style, conversion in _FORMATTER.parse(word):
        yield text
        if name is not None:
            yield _formatted(values[name], style, conversion)


def _formatted(value: Any, style: str | None, conversion: str | None) -> str:
    return format(_FORMATTER.convert_field(value, conversion), style or "")


def _check_format(name: str, value: Any, style: str | None, conversion: str | None) -> None:
    try:
        _formatted(value, style, conversion)
    except (ValueError, OverflowError) as error:
        rule = f"the format of {{{name}}} in the command must fit all values of '{name}'"
        raise SettingError(f"{rule}, but does not fit {value!r}: {error}.") from error


def _examples(parameter: "Parameter") -> "Sequence[Value]":
    """Return example values of a parameter: all choices of a categorical one, the lowest value of a numeric one."""
    from conbo.spaces import Categorical

    return parameter.choices if isinstance(parameter, Categorical) else [parameter.low]


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
