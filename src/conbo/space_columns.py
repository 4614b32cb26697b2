"""Checks the parameters of a space, and converts states or actions from dicts to points of the unit cube and back."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from conbo.errors import PointError, SpaceError, closest, quoted, shortened
from conbo.names import is_encodable
from conbo.parameters import Array, Categorical, Integer, Parameter, Real
from conbo.values import MAX_NAME, Value, is_number

Point: TypeAlias = Mapping[str, Value]

RESERVED_NAMES = ("number", "reward", "status")  # not allowed, because every table of trials has these columns


def check_parameters(role: str, parameters: object) -> None:
    """Raise SpaceError unless `parameters` maps names to parameters; `role` is "states" or "actions".

    A name must be a non-empty string, not too long, and must not be the name of a column in the table of trials.
    """
    if not isinstance(parameters, Mapping):
        raise SpaceError(f"`{role}` must be a mapping from names to parameters, but got {parameters!r}.")
    for name, parameter in parameters.items():
        if not isinstance(name, str) or not name:
            raise SpaceError(f"the names of `{role}` must be non-empty strings, but got {name!r}.")
        if len(name) > MAX_NAME:
            rule = f"the names of `{role}` must have at most {MAX_NAME} characters"
            raise SpaceError(f"{rule}, but got {len(name)}: {shortened(repr(name))}.")
        if not is_encodable(name) or "\0" in name:  # no CSV file could be read that has such a column
            rule = f"the names of `{role}` must be text that can be encoded in UTF-8, without NUL characters"
            raise SpaceError(f"{rule}, but got {name!r}.")
        if name in RESERVED_NAMES:
            raise SpaceError(f"a parameter must not be named like a column of the trials, but got '{name}'.")
        if not isinstance(parameter, Real | Integer | Categorical):
            raise SpaceError(f"'{name}' must be Real, Integer or Categorical, but got {parameter!r}.")


def column_categories(parameters: Mapping[str, Parameter]) -> tuple[int, ...]:
    """Return the number of choices of each parameter, 0 for numeric parameters."""
    return tuple(p.n_levels if isinstance(p, Categorical) else 0 for p in parameters.values())


def encode(parameters: Mapping[str, Parameter], points: Sequence[Point]) -> Array:
    """Convert n valid states or actions, which are dicts, to points (n, parameters) of the unit cube."""
    array = np.empty((len(points), len(parameters)))
    for column, (name, parameter) in enumerate(parameters.items()):
        array[:, column] = parameter.encode([point[name] for point in points])
    return array


def decode(parameters: Mapping[str, Parameter], array: ArrayLike) -> list[dict[str, Value]]:
    """Convert points (n, parameters) of the unit cube to states or actions, which are dicts from names to values."""
    rows = np.asarray(array, dtype=np.float64)
    columns = [parameter.decode(rows[:, column]) for column, parameter in enumerate(parameters.values())]
    if not columns:
        return [{} for _ in rows]
    names = tuple(parameters)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def into_range(parameters: Mapping[str, Parameter], state: Point) -> Point:
    """Return a state with its numbers moved into their ranges; other invalid values stay, and are reported later."""
    if not isinstance(state, Mapping):
        return state
    inside = dict(state)
    for name, parameter in parameters.items():
        value = inside.get(name)
        if not isinstance(parameter, Categorical) and is_number(value):
            inside[name] = min(max(value, parameter.low), parameter.high)
    return inside


def snap(parameters: Sequence[Parameter], array: ArrayLike) -> Array:
    """Round points (..., parameters) of the unit cube to the nearest ones that encode valid values."""
    points = np.array(array, dtype=np.float64)  # a copy, which is changed below
    for column, parameter in enumerate(parameters):
        points[..., column] = parameter.snap(points[..., column])
    return points


def validate(role: str, parameters: Mapping[str, Parameter], point: object) -> dict[str, Value]:
    """Return a state or an action with plain Python values, in the order of the parameters; `role` says which it is.

    Raises PointError if a name is unknown or missing, or a value is not valid.
    """
    if not isinstance(point, Mapping):
        raise PointError(f"{role} must be a mapping from names to values, but got {point!r}.")
    for name in point:
        if name not in parameters:
            raise PointError(f"unknown {role} parameter {name!r}: {closest(str(name), parameters)}")
    if missing := [name for name in parameters if name not in point]:
        raise PointError(f"{role} must give every parameter a value, but {quoted(missing)} is missing.")
    return {name: parameter.validate(name, point[name]) for name, parameter in parameters.items()}


def with_more_choices(name: str, choices: Iterable[Value], parameters: Mapping[str, Parameter]) -> Categorical:
    """Return the categorical parameter `name` with `choices` added after its current choices.

    Raises SpaceError if the parameter is unknown or not categorical, or already has one of the choices.
    """
    parameter = parameters.get(name)
    if parameter is None:
        raise SpaceError(f"unknown parameter {name!r}: {closest(str(name), parameters)}")
    if not isinstance(parameter, Categorical):
        raise SpaceError(f"'{name}' must be categorical to be given more choices, but it is {parameter!r}.")
    new = Categorical(choices).choices
    if known := [choice for choice in new if choice in parameter.choices]:
        raise SpaceError(f"a new choice must not be one of '{name}' already, but got {known[0]!r}.")
    return Categorical((*parameter.choices, *new))
