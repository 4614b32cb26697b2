"""Reads study.toml, the file in which a user describes a study."""

import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import conbo
from conbo.cost_rules import COST, LEARNED
from conbo.errors import ConboError, SettingError
from conbo.names import check_study_name

if TYPE_CHECKING:
    from conbo.outcome_constraints import OutcomeConstraint
    from conbo.spaces import Parameter, Space
    from conbo.state_distributions import MarginalRecipe
    from conbo.study import Study

TEMPLATE = Path(__file__).with_name("study_template.toml")

_TEXTS = ("name", "storage", "direction", "method", "cost", "failures")
_SIMPLE = (  # settings that are plain values
    *("direction", "method", "seed", "cost", "reward_range"),
    *("common_random_numbers", "seeds", "confidence", "failures"),
)
_TABLES = ("states", "actions", "distribution", "outcome_constraints")


@dataclass(frozen=True)
class StudyFile:
    """The content of a study file; the fields have the names of the settings of `conbo.Study`."""

    space: "Space"
    storage: str
    state_distribution: Mapping[str, "MarginalRecipe"] | None = None
    name: str = "default"
    direction: str = "maximize"
    method: str = "conbo"
    seed: int | None = None
    cost: str | None = None
    reward_range: list[float] | None = None
    common_random_numbers: bool | None = None
    seeds: list[int] | None = None
    outcome_constraints: Mapping[str, "OutcomeConstraint"] | None = None
    confidence: float | None = None
    failures: str | None = None

    @property
    def has_seeds(self) -> bool:
        """Whether trials of the study have simulator seeds."""
        return bool(self.common_random_numbers) or self.seeds is not None

    @property
    def needed(self) -> list[str]:
        """The names of the outcomes that must be told with every reward."""
        return [*([COST] if self.cost == LEARNED else []), *(self.outcome_constraints or {})]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings in the file as keyword arguments of `conbo.Study`, without space, name and storage."""
        given = {key: getattr(self, key) for key in ("state_distribution", "outcome_constraints", *_SIMPLE)}
        return {key: value for key, value in given.items() if value is not None}

    @cached_property
    def record(self) -> dict[str, Any]:
        """The settings as a study stores them; they are all checked when this is first read, without torch."""
        from conbo.study.description import Settings, storable

        return storable(Settings.of(conbo.Optimizer(self.space, **self.settings), self.method))

    def changed_settings(self, stored: Mapping[str, Any]) -> list[str]:
        """List the settings of a stored study that this file changes, as lines such as `seed: 1 → 2`."""
        from conbo.study.stored import MAY_BE_LEFT_OUT, changed_settings

        return changed_settings(stored, self.record, [key for key in MAY_BE_LEFT_OUT if key not in self.settings])

    def study(self, name: str | None = None, device: str = "cpu") -> "Study":
        """Create or resume the study; `name` replaces the name in the file."""
        return conbo.Study(self.space, name=name or self.name, storage=self.storage, device=device, **self.settings)


def read_study_file(path: Path) -> StudyFile:
    """Read a study file; if it is invalid, raise SettingError, which names the file, the key and the value."""
    with _errors_name(path):
        found = _study_file(path, _read(path))
        check_study_name(found.name)
        _ = found.record  # checks all other settings
        return found


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    try:
        yield
    except ConboError as error:
        raise SettingError(f"{path}: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    """Parse a study file, and check its top-level keys and the types of some values.

    Raises SettingError if the file cannot be read or parsed, if a top-level key is unknown, or if `constraints`, `seed`
    or a setting that must be a string has the wrong type. All other values are checked later.
    """
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors write a byte-order mark
    except UnicodeDecodeError as error:
        raise SettingError("this is not a text file in UTF-8.") from error
    except (ValueError, RecursionError) as error:  # wrong syntax, thousands of digits, or thousands of brackets
        raise SettingError(f"this is not TOML: {error}.") from error
    except OSError as error:
        raise SettingError(f"this cannot be read: {error}.") from error
    _check_keys("", record, ("name", "storage", "constraints", *_SIMPLE, *_TABLES))
    for key in _TEXTS:
        if not isinstance(record.get(key, ""), str) or "\0" in record.get(key, ""):
            raise SettingError(f"`{key}` must be a string, but got {record[key]!r}.")
    if record.get("storage") == "":
        raise SettingError("`storage` must be the path of a file or a database URL, but is empty.")
    constraints = record.get("constraints", [])
    if not isinstance(constraints, list) or not all(isinstance(text, str) for text in constraints):
        raise SettingError(f"`constraints` must be a list of strings, but got {constraints!r}.")
    if not isinstance(record.get("seed", 0), int) or isinstance(record.get("seed"), bool):
        raise SettingError(f"`seed` must be an integer, but got {record['seed']!r}.")
    return record


def _storage(path: Path, record: dict[str, Any]) -> str:
    """Return the storage that a study file names; by default an SQLite file, such as study.db for study.toml.

    A URL is returned unchanged, and a path is taken relative to the folder of the study file.
    """
    storage: str = record.get("storage", f"{path.stem}.db")
    return storage if "://" in storage else str(path.parent / storage)


def _study_file(path: Path, record: dict[str, Any]) -> StudyFile:
    states, actions = (
        {name: _parameter(f"{role}.{name}", entry) for name, entry in _table(role, record.get(role, {})).items()}
        for role in ("states", "actions")
    )
    recipes = _table("distribution", record.get("distribution", {}))
    _check_keys("distribution.", recipes, states)
    distribution = {name: _recipe(f"distribution.{name}", entry, states[name]) for name, entry in recipes.items()}
    limits = _table("outcome_constraints", record.get("outcome_constraints", {}))
    outcomes = {name: _outcome_constraint(f"outcome_constraints.{name}", entry) for name, entry in limits.items()}
    settings = {key: record[key] for key in ("name", *_SIMPLE) if key in record}
    space = conbo.Space(states=states, actions=actions, constraints=record.get("constraints", ()))
    found = StudyFile(space, _storage(path, record), distribution or None, **settings)
    return replace(found, outcome_constraints=outcomes) if outcomes else found


def _outcome_constraint(where: str, entry: object) -> "OutcomeConstraint":
    kinds: dict[str, Callable[[float], OutcomeConstraint]] = {"at_most": conbo.AtMost, "at_least": conbo.AtLeast}
    table = _table(where, entry)
    _check_keys(f"{where}.", table, kinds)
    if len(table) != 1:
        raise SettingError(f"`{where}` must have either `at_most` or `at_least`, but got {entry!r}.")
    ((kind, bound),) = table.items()
    try:
        return kinds[kind](bound)
    except ConboError as error:
        raise SettingError(f"in `{where}`: {error}") from error


def _parameter(where: str, entry: object) -> "Parameter":
    def categorical(choices: object) -> "Parameter":
        # Python would use the keys of a table as choices, but here a table is a mistake
        if not isinstance(choices, list):
            raise SettingError(f"`{where}.choices` must be a sequence of values, but got {choices!r}.")
        return conbo.Categorical(choices)

    kinds: dict[str, Callable[..., Any]]
    kinds = {"real": conbo.Real, "integer": conbo.Integer, "categorical": categorical}
    return _built(where, entry, kinds)


def _recipe(where: str, entry: object, parameter: "Parameter") -> "MarginalRecipe":
    def weights(weights: dict[str, float]) -> "MarginalRecipe":
        from conbo.study.cells import value_in

        table = _table(f"{where}.weights", weights)
        values = {value_in(parameter, key): weight for key, weight in table.items()}
        if len(values) < len(table):
            raise SettingError(f"`{where}.weights` must name every value once, but got {table!r}.")
        return conbo.Weights(values)

    kinds: dict[str, Callable[..., Any]]
    kinds = {"uniform": conbo.Uniform, "triangular": conbo.Triangular, "normal": conbo.Normal, "weights": weights}
    return _built(where, entry, kinds)


def _built(where: str, entry: object, kinds: Mapping[str, Callable[..., Any]]) -> Any:
    """Build the object that a table of a study file describes.

    The table's `type` selects one of the functions in `kinds`, which is called with the table's other keys as keyword
    arguments. `where` is the name of the table in the file, such as "states.demand", for error messages.
    """
    settings = dict(_table(where, entry))
    kind = settings.pop("type", None)
    if not isinstance(kind, str) or kind not in kinds:
        raise SettingError(f"`{where}.type` must be one of {', '.join(kinds)}, but got {kind!r}.")
    wanted = inspect.signature(kinds[kind]).parameters
    _check_keys(f"{where}.", settings, wanted)
    if missing := [key for key, p in wanted.items() if p.default is p.empty and key not in settings]:
        raise SettingError(f"`{where}` must have `{missing[0]}`, but got {entry!r}.")
    try:
        return kinds[kind](**settings)
    except ConboError as error:
        raise SettingError(f"in `{where}`: {error}") from error


def _table(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingError(f"`{where}` must be a table, but got {value!r}.")
    return value


def _check_keys(where: str, table: Mapping[str, object], known: Mapping[str, object] | tuple[str, ...]) -> None:
    from conbo.spaces import closest

    for key in table:
        if key not in known:
            raise SettingError(f"unknown key `{where}{key}`: {closest(key, known)}")
