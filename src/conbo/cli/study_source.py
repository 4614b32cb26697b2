"""Finds and opens the study that a command is for, from its arguments.

The source of a study is a study file, which ends in .toml, or a storage: an SQLite file or the URL of a database.
"""

import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import conbo
from conbo.errors import SettingError, StudyError
from conbo.notices import LOG

if TYPE_CHECKING:
    from conbo.cli.stored_study import StoredStudy
    from conbo.cli.study_file import StudyFile
    from conbo.spaces import Parameter, Value
    from conbo.study import Study

STUDY_FILE = "study.toml"
STUDY_ENDING = ".toml"
POLICY_ENDING = ".json"

Command = TypeVar("Command", bound=Callable[..., Any])


def study_arguments(metavar: str = "[STUDY]") -> Callable[[Command], Command]:
    """A decorator that adds positional arguments, the first of which may be the study, and the option `--name`."""

    def decorate(command: Command) -> Command:
        named = click.option("--name", help="Name of the study, if the storage has several.")(command)
        return click.argument("arguments", nargs=-1, metavar=metavar, type=click.Path())(named)

    return decorate


def leading_study(arguments: Sequence[str], *names: str) -> tuple[str, ...]:
    """Return the source of the study, followed by one argument of the command for each of `names`.

    The source is the first argument; if it is left out, it is study.toml. `names` are placeholders such as OBJECTIVE,
    which error messages show. Raises click.UsageError if there are too few or too many arguments.
    """
    if len(arguments) == len(names):
        return STUDY_FILE, *arguments
    if len(arguments) == len(names) + 1:
        return tuple(arguments)
    expected = " ".join(["[STUDY]", *names])
    raise click.UsageError(f"Expected {expected}, but got {' '.join(arguments) or 'nothing'}.")


def create_or_resume(source: str, name: str | None, device: str = "cpu") -> "Study":
    """Create or resume the study that a study file describes, or open an existing study of a storage."""
    if not is_study_file(source):
        return open_existing(source, name, device)
    study_file = _study_file(source)
    _name_distant_storage(source, study_file.storage)
    return study_file.study(name, device)


def open_existing(source: str, name: str | None, device: str = "cpu") -> "Study":
    """Open the existing study of a study file or of a storage.

    Raises StudyError or StorageError if the study does not exist, StudyError if it was begun with other settings than
    those of the study file, and SettingError if the study file does not exist, or if no name is given and it is not
    clear which study of the storage is meant.
    """
    return conbo.open_study(*location(source, name), device=device)


def stored_study(source: str, name: str | None, *, as_stored: bool = False) -> "StoredStudy":
    """Read settings and trials of an existing study, without its model; raise the same errors as `open_existing`.

    With `as_stored`, other settings in the study file are warned about instead.
    """
    from conbo.cli.stored_study import StoredStudy  # imports SQLAlchemy, which `conbo --help` must not

    return StoredStudy(*location(source, name, as_stored=as_stored))


def shell_word(text: str) -> str:
    """Quote a string, if necessary, so that the shell of this platform reads it as one word."""
    return subprocess.list2cmdline([text]) if sys.platform == "win32" else shlex.quote(text)


def location(source: str, name: str | None, *, as_stored: bool = False) -> tuple[str, str]:
    """Return the storage and the name of the study; the source is a study file or a storage.

    The name is the first of these that applies:

    - `name`, if it is given.
    - The name in the study file, if the source is a study file.
    - The name of the study in the storage, if there is exactly one.
    - "default".

    Raises StudyError if the storage of a study file has no study yet, or if the study was begun with other settings
    than those of the file; with `as_stored`, for commands that show what is stored, this is a warning. Raises
    SettingError if `name` is None and the source is a storage with several studies, none of which is called "default".
    """
    if is_study_file(source):
        study_file = _study_file(source)
        _name_distant_storage(source, study_file.storage)
        names, own = stored_names(study_file.storage), name or study_file.name
        if not names:
            word = shell_word(source)
            raise StudyError(
                f"{source} has not been run yet: `conbo run {word} simulator.py:reward` begins it, or `conbo ask "
                f"{word}` asks for the first point."
            )
        if own in names:
            _compare_settings(study_file, own, as_stored)
        return study_file.storage, own
    if name is not None:
        return source, name
    names = conbo.study_names(source)
    if len(names) > 1 and "default" not in names:
        raise SettingError(f"--name must say which study of '{source}' is meant: {', '.join(names)}.")
    return source, names[0] if len(names) == 1 else "default"


def stored_names(storage: str) -> list[str]:
    """The names of the studies in a storage; empty if the storage does not exist."""
    from conbo.study.database import Database

    return conbo.study_names(storage) if Database(storage).exists() else []


def unfolded_log(source: str) -> str | None:
    """Return the name of an SQLite file's write-ahead log if the log may hold changes that the file lacks, else None.

    The source is this SQLite file, or a study file that stores its study there. For any other storage, return None.
    """
    from conbo.study.sqlite_file import log_size

    path = _database_file(source)
    return f"{Path(path).name}-wal" if path is not None and log_size(path) else None


def _database_file(source: str) -> str | None:
    """Return the path of the SQLite file that holds the study; None if it is stored elsewhere, as on a server."""
    from conbo.study.database import Database

    return Database(_study_file(source).storage if is_study_file(source) else source).path


def is_study_file(source: str) -> bool:
    """Whether an argument names a study file, by its ending; the case does not matter."""
    return Path(source).suffix.lower() == STUDY_ENDING


def is_policy_file(source: str) -> bool:
    """Whether an argument names the file of a saved policy, by its ending."""
    return Path(source).suffix.lower() == POLICY_ENDING


def _compare_settings(study_file: "StudyFile", name: str, as_stored: bool) -> None:
    """Raise StudyError if the stored study was begun with other settings; with `as_stored`, print a warning instead."""
    try:
        study_file.study(name)
    except StudyError as error:
        if not as_stored:
            raise
        LOG.warning("What follows is as stored, whatever the study file says: %s", error)


def _name_distant_storage(source: str, storage: str) -> None:
    """Print where a study file stores its study, if that is outside of the file's folder.

    A study file may come from somebody else, and the user should know which database it writes to.
    """
    if "://" not in storage and Path(storage).resolve().is_relative_to(Path(source).resolve().parent):
        return
    from conbo.study.database import Database

    click.echo(f"{source} keeps the study in {Database(storage).name}.", err=True)


def _study_file(source: str) -> "StudyFile":
    from conbo.cli.study_file import read_study_file  # not needed if the source is a storage

    return read_study_file(existing_file(source))


def existing_file(source: str) -> Path:
    """The path of a study file; raises SettingError if the file does not exist."""
    if not Path(source).is_file():
        raise SettingError(f"a study file must exist, but '{source}' does not: `conbo init` writes one.")
    return Path(source)


def parse_pairs(kind: str, parameters: "Mapping[str, Parameter]", pairs: Sequence[str]) -> "dict[str, Value]":
    """Convert strings such as `demand=1.2` to a dict from names to values; the space checks both later.

    `kind` says in error messages what the strings describe: "A state" or "An action".
    """
    from conbo.study.cells import value_in  # imports NumPy

    values: dict[str, Value] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise click.UsageError(f"{kind} must be given as NAME=VALUE, but got '{pair}'.")
        if name in values:
            raise click.UsageError(f"{kind} must have every name once, but got '{name}' twice.")
        values[name] = value_in(parameters[name], text) if name in parameters else text
    return values


def parse_row(parameters: "Mapping[str, Parameter]", row: Mapping[str, Any]) -> "dict[str, Value]":
    """Return the values of those columns of a row that are parameters; strings, as in CSV files, are converted."""
    from conbo.study.cells import value_in

    return {name: value_in(parameter, row[name]) for name, parameter in parameters.items() if name in row}
