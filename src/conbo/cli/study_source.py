"""Finds and opens the study that a command is for, from its arguments.

The source of a study is a study file, which ends in .toml, or a storage: an SQLite file or the URL of a database.
"""

import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import conbo
from conbo.errors import SettingError, StudyError
from conbo.files import ending
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


@dataclass(frozen=True)
class Source:
    """The study that a command is for: what its arguments say, and the content of a study file among them."""

    text: str  # the study file or the storage, as it was given
    name: str | None  # the name of the study, if it was given
    file: "StudyFile | None"  # None if the source is a storage

    @property
    def needed(self) -> list[str]:
        """The names of the outcomes that must be told with every reward."""
        return self.stored().needed if self.file is None else self.file.needed

    def create_or_resume(self, device: str = "cpu") -> "Study":
        """Create or resume the study of a study file, or open an existing study of a storage."""
        return self.open_existing(device) if self.file is None else self.file.study(self.name, device)

    def open_existing(self, device: str = "cpu") -> "Study":
        """Open the existing study; raise the errors of `location`, and StudyError if its model cannot be built."""
        return conbo.open_study(*self.location(), device=device)

    def stored(self, *, as_stored: bool = False) -> "StoredStudy":
        """Read settings and trials of the existing study, without its model; raise the errors of `location`.

        With `as_stored`, other settings in the study file are warned about instead.
        """
        from conbo.cli.stored_study import StoredStudy  # imports SQLAlchemy, which `conbo --help` must not

        study = StoredStudy(*self._find())
        self._compare(study.name, study.settings, as_stored)
        return study

    def location(self, *, as_stored: bool = False) -> tuple[str, str]:
        """Return the storage and the name of the existing study.

        The name is the first of these that applies:

        - The given one.
        - The name in the study file, if the source is a study file.
        - The name of the study in the storage, if there is exactly one.
        - "default".

        Raises StudyError or StorageError if the study does not exist, and SettingError if the source is a storage with
        several studies, no name is given, and none of the studies is called "default". Raises StudyError if the study
        was begun with other settings than those of the study file; with `as_stored`, this is a warning.
        """
        from conbo.study.stored import open_stored

        storage, name = self._find()
        if self.file is not None:
            self._compare(name, open_stored(storage, name)[1], as_stored)
        return storage, name

    @property
    def is_begun(self) -> bool:
        """Whether the study of a study file exists."""
        from conbo.study.stored import names_in

        return self.file is not None and (self.name or self.file.name) in names_in(self.file.storage)

    @property
    def unfolded_log(self) -> str | None:
        """Name of an SQLite file's write-ahead log if the log may hold changes that the file lacks, else None.

        It is None, too, if the study is not stored in an SQLite file.
        """
        from conbo.study.database import Database
        from conbo.study.sqlite_file import log_size

        path = Database(self.text if self.file is None else self.file.storage).path
        return f"{Path(path).name}-wal" if path is not None and log_size(path) else None

    def _find(self) -> tuple[str, str]:
        """Return the storage and the name of the study, which may not exist under this name."""
        if self.file is not None:
            from conbo.study.stored import names_in

            if not names_in(self.file.storage):
                word = shell_word(self.text)
                run, ask = f"`conbo run {word} simulator.py:reward`", f"`conbo ask {word}`"
                raise StudyError(f"{self.text} has not been run yet: {run} begins it, {ask} asks for the first point.")
            return self.file.storage, self.name or self.file.name
        if self.name is not None:
            return self.text, self.name
        names = conbo.study_names(self.text)
        if len(names) > 1 and "default" not in names:
            raise SettingError(f"--name must say which study of '{self.text}' is meant: {', '.join(names)}.")
        return self.text, names[0] if len(names) == 1 else "default"

    def _compare(self, name: str, stored: Mapping[str, Any], as_stored: bool) -> None:
        """Raise StudyError if the study file has other settings; with `as_stored`, print a warning instead."""
        if self.file is None or not (lines := self.file.changed_settings(stored)):
            return
        changed = f"{self.text} has other settings than the study {name!r} was begun with (stored → given):"
        if as_stored:
            LOG.warning("This is the study as it is stored. %s", "\n  ".join([changed, *lines]))
            return
        storage = "URL" if "://" in self.file.storage else shell_word(self.file.storage)  # a URL may have a password
        named = "" if name == "default" else f" --name {shell_word(name)}"
        raise StudyError(
            "\n  ".join([changed, *lines])
            + "\nChange them back, or choose another name for a new study. To use the study as it is stored, give its "
            f"storage instead of {self.text}, as in `conbo status {storage}{named}`."
        )


def study_source(text: str, name: str | None) -> Source:
    """Read the study file, if the source of a study is one, and return what commands do with the study.

    Raises SettingError if the study file does not exist or is invalid.
    """
    if not is_study_file(text):
        return Source(text, name, None)
    from conbo.bound_states import InfeasibleStatesWarning
    from conbo.cli.study_file import read_study_file  # not needed if the source is a storage

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleStatesWarning)  # given by what creates or opens the study
        file = read_study_file(existing_file(text))
    _name_distant_storage(text, file.storage)
    return Source(text, name, file)


def shell_word(text: str) -> str:
    """Quote a string, if necessary, so that the shell of this platform reads it as one word."""
    return subprocess.list2cmdline([text]) if sys.platform == "win32" else shlex.quote(text)


def is_study_file(source: str) -> bool:
    """Whether an argument names a study file, by its ending; the case does not matter."""
    return ending(Path(source)) == STUDY_ENDING


def is_policy_file(source: str) -> bool:
    """Whether an argument names the file of a saved policy, by its ending."""
    return ending(Path(source)) == POLICY_ENDING


def existing_file(source: str) -> Path:
    """The path of a study file; raises SettingError if the file does not exist."""
    if not Path(source).is_file():
        raise SettingError(f"a study file must exist, but '{source}' does not: `conbo init` writes one.")
    return Path(source)


def _name_distant_storage(source: str, storage: str) -> None:
    """Print where a study file stores its study, if that is outside of the file's folder.

    A study file may come from somebody else, and the user should know which database it writes to.
    """
    if "://" not in storage and Path(storage).resolve().is_relative_to(Path(source).resolve().parent):
        return
    from conbo.study.database import Database

    click.echo(f"{source} keeps the study in {Database(storage).name}.", err=True)


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
