"""States and actions, named: outside, a point is a dict of values; inside, a row of numbers in [0, 1]."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from conbo.constraints import parse_constraints
from conbo.errors import PointError, SpaceError, StudyError, closest, quoted, shortened
from conbo.feasible_set import FeasibleSet
from conbo.html_pieces import table
from conbo.linear_limits import Flags, linear_limits
from conbo.parameter_records import parameter_records, read_parameters
from conbo.parameters import Array, Categorical, Integer, Parameter, Real, Scale, Value, is_number
from conbo.record_fields import Fields
from conbo.space_limits import (
    FUNCTION,
    Feasible,
    RedundantConstraintWarning,
    SplitFeasible,
    check_constraint,
    check_limits,
    function_name,
)

__all__ = [
    "FUNCTION",
    "MAX_NAME",
    "Array",
    "Categorical",
    "Feasible",
    "Integer",
    "Parameter",
    "Point",
    "Real",
    "RedundantConstraintWarning",
    "Scale",
    "Space",
    "Value",
    "closest",
    "function_name",
    "is_number",
]

Point: TypeAlias = Mapping[str, Value]

RESERVED_NAMES = ("number", "reward", "status")  # columns of every table of trials
MAX_NAME = 200  # characters of the name of a parameter or a study


@dataclass(frozen=True, eq=False)
class Space:
    """Named states, which the environment dictates, and named actions, which we choose.

    Without states, learning the best action is ordinary global optimisation.

    Parameters
    ----------
    states
        Real, Integer or Categorical parameters by name.
    actions
        The same for what is ours to choose.
    constraints
        Limits of the actions, also given the state: texts that are linear in the user's units, such as
        ``"dose <= 0.2 * weight"``, with ``<=``, ``>=`` or ``==`` and names in quotes where they are no identifiers.
    feasible
        Everything else: ``feasible(state, action)`` says whether the action is allowed. It is asked often, so it
        should be quick. It is stored by its name, and must be given again when a study is opened.

    Raises
    ------
    SpaceError
        If a parameter or a constraint is not valid, or no point keeps all constraints.

    Examples
    --------
    >>> import conbo
    >>> space = conbo.Space(
    ...     states={"weight": conbo.Real(40, 120)},
    ...     actions={"dose": conbo.Real(0, 20)},
    ...     constraints=["dose <= 0.2 * weight"],
    ... )
    >>> space.is_feasible({"weight": 50}, {"dose": 11})
    False
    """

    states: Mapping[str, Parameter] = field(default_factory=dict)
    actions: Mapping[str, Parameter] = field(default_factory=dict)
    constraints: Sequence[str] = ()
    feasible: Feasible | None = None

    def __post_init__(self) -> None:
        for role in ("states", "actions"):
            parameters = getattr(self, role)
            _check_parameters(role, parameters)
            object.__setattr__(self, role, MappingProxyType(dict(parameters)))
        if not self.actions:
            raise SpaceError("`actions` must name at least one parameter, but got none.")
        if both := [name for name in self.states if name in self.actions]:
            raise SpaceError(f"a name must be a state or an action, but {quoted(both)} would be both.")
        if self.feasible is not None and not callable(self.feasible):
            raise SpaceError(f"`feasible` must be a function of state and action, but got {self.feasible!r}.")
        parsed = parse_constraints(self.constraints)
        for constraint in parsed:
            check_constraint(constraint, self.states, self.actions)
        object.__setattr__(self, "constraints", tuple(constraint.text for constraint in parsed))
        if self.feasible_set is not None:
            check_limits(self.feasible_set)

    # The order of the parameters is the order of the columns, so it is part of the identity.
    def _key(self) -> tuple[object, ...]:
        return tuple(self.states.items()), tuple(self.actions.items()), self.constraints, self.feasible

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Space) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[type[Space], tuple[Any, ...]]:
        # a mapping proxy cannot be pickled
        return Space, (dict(self.states), dict(self.actions), self.constraints, self.feasible)

    @cached_property
    def feasible_set(self) -> FeasibleSet | None:
        """The feasible points of the unit cube; None where all are."""
        if not self.constraints and self.feasible is None:
            return None
        columns = [*self.states.items(), *self.actions.items()]
        limits = linear_limits(columns, parse_constraints(self.constraints))
        parameters = tuple(parameter for _, parameter in columns)
        allowed = None if self.feasible is None else self._allowed
        return FeasibleSet(parameters, self.n_state_dims, limits, allowed, self.snap)

    def __repr__(self) -> str:
        known = {each.name: getattr(self, each.name) for each in fields(self)}
        values = {name: value for name, value in known.items() if value or name in ("states", "actions")}
        shown = (f"{name}={dict(v) if isinstance(v, Mapping) else v!r}" for name, v in values.items())
        return f"Space({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """A table, in a notebook."""
        roles = (("state", self.states), ("action", self.actions))
        rows = [(role, name, repr(each)) for role, parameters in roles for name, each in parameters.items()]
        rows += [("constraint", "", constraint) for constraint in self.constraints]
        return table(("", "name", "values"), rows)

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

    def is_feasible(self, state: Point, action: Point) -> bool:
        """Whether this action keeps all constraints in this state; raises PointError if one of them is not valid."""
        if self.feasible_set is None:
            return True
        points = self.encode_states([self.validate_state(state)]), self.encode_actions([self.validate_action(action)])
        return bool(self.feasible_set.contains(np.concatenate(points, axis=1))[0])

    def contains(self, points: Array) -> Flags:
        """Which points (..., d) of the unit cube, states first, are feasible."""
        if self.feasible_set is None:
            return np.ones(points.shape[:-1], dtype=bool)
        return self.feasible_set.contains(points)

    def project(self, points: Array) -> Array:
        """Valid points (..., d) near these with the nearest feasible actions, as far as their states have any."""
        if self.feasible_set is None:
            return self.snap(points)
        rows = np.asarray(points, dtype=np.float64).reshape(-1, points.shape[-1])
        return self.feasible_set.repair(rows)[0].reshape(points.shape)

    def spread(self, points: Array) -> Array:
        """Valid points (n, d) with the same states whose actions are as even on the feasible set as these on the cube.

        Raises PointError, which names the state, where one has no feasible action.
        """
        if self.feasible_set is None:
            return self.snap(points)
        spread, feasible = self.feasible_set.spread(np.asarray(points, dtype=np.float64))
        for point in spread[~feasible][:1]:
            raise self.no_action(self.decode_states(point[None, : self.n_state_dims])[0])
        return spread

    def check_feasible(self, states: Array) -> None:
        """Raise PointError, which names the state, where one of states (n, d_s) has no feasible action."""
        if self.feasible_set is not None and not (possible := self.feasible_set.has_action(states)).all():
            raise self.no_action(self.decode_states(states[~possible])[0])

    def no_action(self, state: Point) -> PointError:
        """The error for a state without any feasible action."""
        rules = [*self.constraints, *(["`feasible(state, action)`"] if self.feasible is not None else [])]
        return PointError(
            f"a state must have a feasible action, but {dict(state)!r} has none under {', '.join(rules)}."
        )

    def _allowed(self, points: Array) -> Flags:
        """What the user's function says of valid points (n, d)."""
        assert self.feasible is not None
        states, actions = (
            self.decode_states(points[:, : self.n_state_dims]),
            self.decode_actions(points[:, self.n_state_dims :]),
        )
        allowed = np.empty(len(points), dtype=bool)
        for i, (state, action) in enumerate(zip(states, actions, strict=True)):
            try:
                allowed[i] = bool(self.feasible(state, action))
            except Exception as error:
                where = f"state {state!r} and action {action!r}"
                rule = "`feasible` must return True or False"
                raise SpaceError(f"{rule}, but raised {type(error).__name__} for {where}: {error}") from error
        return allowed

    def validate_state(self, state: object) -> dict[str, Value]:
        """The state with plain values, in the order of the columns; raises PointError if it is not valid."""
        return _validate("state", self.states, state)

    def validate_action(self, action: object) -> dict[str, Value]:
        """The action with plain values, in the order of the columns; raises PointError if it is not valid."""
        return _validate("action", self.actions, action)

    def with_states_as_actions(self) -> Space:
        """The same columns in the same order, all of them ours to choose."""
        feasible = None if self.feasible is None else SplitFeasible(self.feasible, self.state_names)
        return self._like({}, {**self.states, **self.actions}, feasible)

    def _like(
        self, states: Mapping[str, Parameter], actions: Mapping[str, Parameter], feasible: Feasible | None
    ) -> Space:
        """A space of the same constraints, about which nothing is to be said again."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RedundantConstraintWarning)
            return Space(states, actions, self.constraints, feasible)

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
        return self._like(states, actions, self.feasible)

    def to_dict(self) -> dict[str, Any]:
        """A plain record that JSON can hold; of the function `feasible` it has the name."""
        record: dict[str, Any] = {"states": parameter_records(self.states), "actions": parameter_records(self.actions)}
        if self.constraints:
            record["constraints"] = list(self.constraints)
        if self.feasible is not None:
            record["feasible"] = function_name(self.feasible)
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], feasible: Feasible | None = None) -> Space:
        """The space of a record that `to_dict` wrote; raises RecordError or SpaceError if it is another one.

        `feasible` is the function that the record names, which it cannot hold; raises StudyError where it is missing.
        """
        fields = Fields.of(record, "space").only(("states", "actions"), optional=("constraints", "feasible"))
        states, actions = read_parameters(fields, "states"), read_parameters(fields, "actions")
        constraints = fields.items("constraints") if fields.has("constraints") else ()
        if fields.has("feasible"):
            name = fields.text("feasible")
            if feasible is None or function_name(feasible) != name:
                raise StudyError(f"what is feasible is said by the {name}: open it with Space(..., feasible=...).")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RedundantConstraintWarning)
            return cls(states, actions, constraints, feasible if fields.has("feasible") else None)


def _check_parameters(role: str, parameters: object) -> None:
    if not isinstance(parameters, Mapping):
        raise SpaceError(f"`{role}` must be a mapping from names to parameters, but got {parameters!r}.")
    for name, parameter in parameters.items():
        if not isinstance(name, str) or not name:
            raise SpaceError(f"the names of `{role}` must be non-empty strings, but got {name!r}.")
        if len(name) > MAX_NAME:
            rule = f"the names of `{role}` must have at most {MAX_NAME} characters"
            raise SpaceError(f"{rule}, but got {len(name)}: {shortened(repr(name))}.")
        if name in RESERVED_NAMES:
            raise SpaceError(f"a parameter must not be named like a column of the trials, but got '{name}'.")
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
        raise PointError(f"{role} must give every parameter a value, but {quoted(missing)} is missing.")
    return {name: parameter.validate(name, point[name]) for name, parameter in parameters.items()}
