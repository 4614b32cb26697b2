"""States and actions, named: outside, a point is a dict of values; inside, a row of numbers in [0, 1]."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from conbo.errors import PointError, RecordError, SpaceError, shortened
from conbo.parameters import (
    LARGEST_INTEGER,
    Array,
    Categorical,
    Integer,
    Parameter,
    Real,
    Scale,
    Value,
    is_number,
)
from conbo.record_fields import Fields

__all__ = [
    "MAX_NAME",
    "Array",
    "Categorical",
    "Integer",
    "Parameter",
    "Point",
    "Real",
    "Scale",
    "Space",
    "Value",
    "closest",
    "is_number",
]

Point: TypeAlias = Mapping[str, Value]

MAX_NAME = 200  # characters of the name of a parameter or a study

_PARAMETERS: dict[str, type[Real] | type[Integer] | type[Categorical]] = {
    "real": Real,
    "integer": Integer,
    "categorical": Categorical,
}


@dataclass(frozen=True, eq=False)
class Space:
    """Named states, which the environment dictates, and named actions, which we choose.

    Without states, learning the best action is ordinary global optimisation.
    """

    states: Mapping[str, Parameter] = field(default_factory=dict)
    actions: Mapping[str, Parameter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for role in ("states", "actions"):
            parameters = getattr(self, role)
            _check_parameters(role, parameters)
            object.__setattr__(self, role, MappingProxyType(dict(parameters)))
        if not self.actions:
            raise SpaceError("`actions` must name at least one parameter, but got none.")
        if both := [name for name in self.states if name in self.actions]:
            raise SpaceError(f"a name must be a state or an action, but {_quoted(both)} would be both.")

    # The order of the parameters is the order of the columns, so it is part of the identity.
    def _key(self) -> tuple[tuple[tuple[str, Parameter], ...], ...]:
        return tuple(self.states.items()), tuple(self.actions.items())

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Space) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[type[Space], tuple[dict[str, Parameter], dict[str, Parameter]]]:
        return Space, (dict(self.states), dict(self.actions))  # a mapping proxy cannot be pickled

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of the state columns."""
        return tuple(self.states)

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the action columns."""
        return tuple(self.actions)

    @property
    def n_state_dims(self) -> int:
        """How many state columns there are."""
        return len(self.states)

    @property
    def n_action_dims(self) -> int:
        """How many action columns there are."""
        return len(self.actions)

    @property
    def state_categories(self) -> tuple[int, ...]:
        """The number of categories of every state column, 0 for a number."""
        return _categories(self.states)

    @property
    def action_categories(self) -> tuple[int, ...]:
        """The number of categories of every action column, 0 for a number."""
        return _categories(self.actions)

    @property
    def has_integer_actions(self) -> bool:
        """Whether some action is an integer, so that maxima found between integers must be snapped."""
        return any(p.n_levels and not isinstance(p, Categorical) for p in self.actions.values())

    def encode_states(self, states: Sequence[Point]) -> Array:
        """From valid states to the rows of an (n, n_state_dims) array."""
        return _encode(self.states, states)

    def encode_actions(self, actions: Sequence[Point]) -> Array:
        """From valid actions to the rows of an (n, n_action_dims) array."""
        return _encode(self.actions, actions)

    def decode_states(self, array: ArrayLike) -> list[dict[str, Value]]:
        """From the rows of an (n, n_state_dims) array to states."""
        return _decode(self.states, array)

    def decode_actions(self, array: ArrayLike) -> list[dict[str, Value]]:
        """From the rows of an (n, n_action_dims) array to actions."""
        return _decode(self.actions, array)

    def snap_states(self, array: ArrayLike) -> Array:
        """The nearest valid encoded states, for an array (..., n_state_dims)."""
        return _snap(tuple(self.states.values()), array)

    def snap_actions(self, array: ArrayLike) -> Array:
        """The nearest valid encoded actions, for an array (..., n_action_dims)."""
        return _snap(tuple(self.actions.values()), array)

    def snap(self, array: ArrayLike) -> Array:
        """The nearest valid encoded points, for an array (..., n_state_dims + n_action_dims)."""
        return _snap((*self.states.values(), *self.actions.values()), array)

    def validate_state(self, state: object) -> dict[str, Value]:
        """The state with plain values, in the order of the columns; raises PointError if it is not valid."""
        return _validate("state", self.states, state)

    def validate_action(self, action: object) -> dict[str, Value]:
        """The action with plain values, in the order of the columns; raises PointError if it is not valid."""
        return _validate("action", self.actions, action)

    def with_states_as_actions(self) -> Space:
        """The same columns in the same order, all of them ours to choose."""
        return Space(actions={**self.states, **self.actions})

    def with_choices(self, name: str, choices: Iterable[Value]) -> Space:
        """The same space with more choices for a categorical parameter, after those that it has."""
        parameter = {**self.states, **self.actions}.get(name)
        if parameter is None:
            raise SpaceError(f"unknown parameter {name!r}: {closest(str(name), (*self.states, *self.actions))}")
        if not isinstance(parameter, Categorical):
            raise SpaceError(f"'{name}' must be categorical to be given more choices, but it is {parameter!r}.")
        new = Categorical(choices).choices
        if known := [choice for choice in new if choice in parameter.choices]:
            raise SpaceError(f"a new choice must not be one of '{name}' already, but got {known[0]!r}.")
        wider = {name: Categorical((*parameter.choices, *new))}
        states, actions = ({**known, **wider} if name in known else known for known in (self.states, self.actions))
        return Space(states, actions)

    def to_dict(self) -> dict[str, Any]:
        """A plain record that JSON can hold."""
        return {"states": _to_records(self.states), "actions": _to_records(self.actions)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Space:
        """The space of a record that `to_dict` wrote; raises RecordError or SpaceError if it is another one."""
        fields = Fields.of(record, "space").only(("states", "actions"))
        return cls(states=_from_records(fields, "states"), actions=_from_records(fields, "actions"))


def closest(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the known name that is most like this one, or all known names."""
    names = list(known)
    if match := difflib.get_close_matches(name, names, n=1):
        return f"did you mean '{match[0]}'?"
    return f"known are {_quoted(names)}." if names else "there are none."


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _check_parameters(role: str, parameters: object) -> None:
    if not isinstance(parameters, Mapping):
        raise SpaceError(f"`{role}` must be a mapping from names to parameters, but got {parameters!r}.")
    for name, parameter in parameters.items():
        if not isinstance(name, str) or not name:
            raise SpaceError(f"the names of `{role}` must be non-empty strings, but got {name!r}.")
        if len(name) > MAX_NAME:
            rule = f"the names of `{role}` must have at most {MAX_NAME} characters"
            raise SpaceError(f"{rule}, but got {len(name)}: {shortened(repr(name))}.")
        if not isinstance(parameter, Real | Integer | Categorical):
            raise SpaceError(f"'{name}' must be Real, Integer or Categorical, but got {parameter!r}.")


def _categories(parameters: Mapping[str, Parameter]) -> tuple[int, ...]:
    return tuple(p.n_levels if isinstance(p, Categorical) else 0 for p in parameters.values())


def _encode(parameters: Mapping[str, Parameter], points: Sequence[Point]) -> Array:
    array = np.empty((len(points), len(parameters)))
    for column, (name, parameter) in enumerate(parameters.items()):
        array[:, column] = parameter.encode([point[name] for point in points])
    return array


def _decode(parameters: Mapping[str, Parameter], array: ArrayLike) -> list[dict[str, Value]]:
    rows = np.asarray(array, dtype=np.float64)
    columns = [parameter.decode(rows[:, column]) for column, parameter in enumerate(parameters.values())]
    return [{name: values[i] for name, values in zip(parameters, columns, strict=True)} for i in range(len(rows))]


def _snap(parameters: Sequence[Parameter], array: ArrayLike) -> Array:
    points = np.array(array, dtype=np.float64)  # a copy
    for column, parameter in enumerate(parameters):
        points[..., column] = parameter.snap(points[..., column])
    return points


def _validate(role: str, parameters: Mapping[str, Parameter], point: object) -> dict[str, Value]:
    if not isinstance(point, Mapping):
        raise PointError(f"{role} must be a mapping from names to values, but got {point!r}.")
    for name in point:
        if name not in parameters:
            raise PointError(f"unknown {role} parameter {name!r}: {closest(str(name), parameters)}")
    if missing := [name for name in parameters if name not in point]:
        raise PointError(f"{role} must give every parameter a value, but {_quoted(missing)} is missing.")
    return {name: parameter.validate(name, point[name]) for name, parameter in parameters.items()}


def _to_records(parameters: Mapping[str, Parameter]) -> list[dict[str, Any]]:
    # a list, since JSON stores are free to reorder the keys of an object
    kinds = {parameter_type: kind for kind, parameter_type in _PARAMETERS.items()}
    return [{"name": name, "type": kinds[type(p)], **_settings(p)} for name, p in parameters.items()]


def _settings(parameter: Parameter) -> dict[str, Any]:
    if isinstance(parameter, Categorical):
        return {"choices": list(parameter.choices)}
    return {"low": parameter.low, "high": parameter.high, "log": parameter.log}


def _from_records(fields: Fields, role: str) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    for i, record in enumerate(fields.items(role)):
        settings = Fields.of(record, f"space.{role}[{i}]")
        name = settings.text("name")
        if name in parameters:
            raise RecordError(f"{settings.path('name')} must not be that of another parameter, but got {name!r}.")
        parameters[name] = _parameter(settings)
    return parameters


def _parameter(settings: Fields) -> Parameter:
    kind = settings.text("type", _PARAMETERS)
    if kind == "categorical":
        return Categorical(settings.only(("name", "type", "choices")).items("choices"))
    settings.only(("name", "type", "low", "high"), optional=("log",))
    log = settings.flag("log") if "log" in settings.record else False
    if kind == "real":
        return Real(settings.number("low"), settings.number("high"), log)
    low, high = (settings.whole(name, -LARGEST_INTEGER, LARGEST_INTEGER) for name in ("low", "high"))
    return Integer(low, high, log)
