"""The space of a problem: states and actions, which are dicts for users and points of the unit cube for models."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from conbo import space_columns as columns
from conbo.constraint_text import parse_constraints
from conbo.errors import PointError, SpaceError, StudyError, closest, quoted
from conbo.feasible_set import FeasibleSet
from conbo.linear_limits import Flags, linear_limits
from conbo.parameter_records import parameter_records, read_parameters
from conbo.parameters import Array, Categorical, Integer, Parameter, Real, Scale
from conbo.record_fields import Fields
from conbo.space_columns import Point
from conbo.space_limits import (
    FUNCTION,
    Feasible,
    RedundantConstraintWarning,
    SplitFeasible,
    allowed,
    check_constraint,
    check_limits,
    function_name,
)
from conbo.values import Value, is_number

__all__ = [
    "FUNCTION",
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


@dataclass(frozen=True, eq=False)
class Space:
    """The parameters of a problem: states, which the environment sets, and actions, which we choose.

    Without states, learning the best action is ordinary global optimization.

    Parameters
    ----------
    states
        Parameters that the environment sets, by name: Real, Integer or Categorical. By default there are none.
    actions
        Parameters that we choose, by name; at least one.
    constraints
        Limits on the actions, as strings such as ``"dose <= 0.2 * weight"``, with ``<=``, ``>=`` or ``==``. Both sides
        must be linear in the parameters (in the user's units), which may include those of the state. Put a name in
        quotes if it is not an identifier.
    feasible
        A function for all other limits: ``feasible(state, action)`` returns whether the action is allowed. It is
        called often, so it should be fast. A study stores only its name; pass the function again to open the study.

    Raises
    ------
    SpaceError
        If a parameter or a constraint is not valid, or no point satisfies all constraints.

    Examples
    --------
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
            columns.check_parameters(role, parameters)
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

    # Spaces that differ in the order of their parameters are not equal, because it is the order of the columns.
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
        """The set of feasible points in the unit cube; None if all points are feasible."""
        if not self.constraints and self.feasible is None:
            return None
        named = [*self.states.items(), *self.actions.items()]
        limits = linear_limits(named, parse_constraints(self.constraints))
        parameters = tuple(parameter for _, parameter in named)
        allowed = None if self.feasible is None else self._allowed
        return FeasibleSet(parameters, self.n_state_dims, limits, allowed, self.snap)

    def __repr__(self) -> str:
        known = {each.name: getattr(self, each.name) for each in fields(self)}
        values = {name: value for name, value in known.items() if value or name in ("states", "actions")}
        shown = (f"{name}={dict(v) if isinstance(v, Mapping) else v!r}" for name, v in values.items())
        return f"Space({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """Return the space as an HTML table, for notebooks."""
        from conbo.html_pieces import table

        roles = (("state", self.states), ("action", self.actions))
        rows = [(role, name, repr(each)) for role, parameters in roles for name, each in parameters.items()]
        rows += [("constraint", "", constraint) for constraint in self.constraints]
        return table(("", "name", "values"), rows)

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the state parameters."""
        return tuple(self.states)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the action parameters."""
        return tuple(self.actions)

    @property
    def n_state_dims(self) -> int:
        """Number of state parameters, which is the number d_s of columns of a state in the unit cube."""
        return len(self.states)

    @property
    def n_action_dims(self) -> int:
        """Number of action parameters, which is the number d_x of columns of an action in the unit cube."""
        return len(self.actions)

    @property
    def state_categories(self) -> tuple[int, ...]:
        """Number of choices of every state parameter, 0 for numeric parameters."""
        return columns.column_categories(self.states)

    @property
    def action_categories(self) -> tuple[int, ...]:
        """Number of choices of every action parameter, 0 for numeric parameters."""
        return columns.column_categories(self.actions)

    @property
    def has_integer_actions(self) -> bool:
        """Whether some action parameter is an integer."""
        return any(p.n_levels and not isinstance(p, Categorical) for p in self.actions.values())

    def encode_states(self, states: Sequence[Point]) -> Array:
        """Convert n valid states, which are dicts from names to values, to points (n, d_s) of the unit cube."""
        return columns.encode(self.states, states)

    def encode_actions(self, actions: Sequence[Point]) -> Array:
        """Convert n valid actions, which are dicts from names to values, to points (n, d_x) of the unit cube."""
        return columns.encode(self.actions, actions)

    def decode_states(self, array: ArrayLike) -> list[dict[str, Value]]:
        """Convert n points (n, d_s) of the unit cube to states, which are dicts from names to values."""
        return columns.decode(self.states, array)

    def decode_actions(self, array: ArrayLike) -> list[dict[str, Value]]:
        """Convert n points (n, d_x) of the unit cube to actions, which are dicts from names to values."""
        return columns.decode(self.actions, array)

    def snap_states(self, array: ArrayLike) -> Array:
        """Round points (..., d_s) of the unit cube to the nearest ones that encode valid states."""
        return columns.snap(tuple(self.states.values()), array)

    def snap_actions(self, array: ArrayLike) -> Array:
        """Round points (..., d_x) of the unit cube to the nearest ones that encode valid actions."""
        return columns.snap(tuple(self.actions.values()), array)

    def snap(self, array: ArrayLike) -> Array:
        """Round points (..., d) of the unit cube to the nearest ones that encode valid values.

        The first columns of a point are those of the state.
        """
        return columns.snap((*self.states.values(), *self.actions.values()), array)

    def is_feasible(self, state: Point, action: Point) -> bool:
        """Return whether an action satisfies all constraints in a state.

        Parameters
        ----------
        state, action
            The state and the action, as dicts from names to values.

        Returns
        -------
        bool
            Whether the action is allowed in the state; always True in a space without limits.

        Raises
        ------
        PointError
            If the state or the action does not belong to the space; not checked in a space without limits.
        """
        if self.feasible_set is None:
            return True
        points = self.encode_states([self.validate_state(state)]), self.encode_actions([self.validate_action(action)])
        return bool(self.feasible_set.contains(np.concatenate(points, axis=1))[0])

    def contains(self, points: Array) -> Flags:
        """Return whether each point (..., d) is feasible.

        Points are in the unit cube, and their first columns are those of the state.
        """
        if self.feasible_set is None:
            return np.ones(points.shape[:-1], dtype=bool)
        return self.feasible_set.contains(points)

    def project(self, points: Array) -> Array:
        """Round points (..., d) of the unit cube to valid values, and move infeasible actions to feasible ones nearby.

        A point remains infeasible if no feasible action is found for its state.
        """
        if self.feasible_set is None:
            return self.snap(points)
        rows = np.asarray(points, dtype=np.float64).reshape(-1, points.shape[-1])
        return self.feasible_set.repair(rows)[0].reshape(points.shape)

    def spread(self, points: Array) -> Array:
        """Round points (n, d) of the unit cube to valid values, and replace infeasible actions by feasible ones.

        Evenly spread actions remain roughly evenly spread. If no feasible action is found for a state, PointError is
        raised, and its message names the state.
        """
        if self.feasible_set is None:
            return self.snap(points)
        spread, feasible = self.feasible_set.spread(np.asarray(points, dtype=np.float64))
        for point in spread[~feasible][:1]:
            raise self.no_action(self.decode_states(point[None, : self.n_state_dims])[0])
        return spread

    def check_feasible(self, states: Array) -> None:
        """Raise PointError if one of the states (n, d_s) has no feasible action; the message names the state."""
        if self.feasible_set is not None and not (possible := self.feasible_set.has_action(states)).all():
            raise self.no_action(self.decode_states(states[~possible])[0])

    def no_action(self, state: Point) -> PointError:
        """Return the error for a state without any feasible action."""
        rules = [*self.constraints, *(["`feasible(state, action)`"] if self.feasible is not None else [])]
        return PointError(
            f"a state must have a feasible action, but {dict(state)!r} has none under {', '.join(rules)}."
        )

    def _allowed(self, points: Array) -> Flags:
        """Return the results (n,) of the user's function `feasible` at valid points (n, d)."""
        assert self.feasible is not None
        d_s = self.n_state_dims
        return allowed(self.feasible, self.decode_states(points[:, :d_s]), self.decode_actions(points[:, d_s:]))

    def validate_state(self, state: object) -> dict[str, Value]:
        """Check a state, and convert its values to plain Python objects.

        Parameters
        ----------
        state
            A mapping from the names of all state parameters to values.

        Returns
        -------
        dict
            The same values as plain Python objects, in the order of the space.

        Raises
        ------
        PointError
            If a name is unknown or missing, or a value is out of range.

        Examples
        --------
        >>> space.validate_state({"demand": 60})
        {'demand': 60.0}
        """
        return columns.validate("state", self.states, state)

    def validate_action(self, action: object) -> dict[str, Value]:
        """Check the names and values of an action, and convert the values to plain Python objects.

        Constraints are not checked.

        Parameters
        ----------
        action
            A mapping from the names of all action parameters to values.

        Returns
        -------
        dict
            The same values as plain Python objects, in the order of the space.

        Raises
        ------
        PointError
            If a name is unknown or missing, or a value is out of range.
        """
        return columns.validate("action", self.actions, action)

    def with_states_as_actions(self) -> Space:
        """Return a space without states, in which all states and actions of this space are actions."""
        feasible = None if self.feasible is None else SplitFeasible(self.feasible, self.state_names)
        return self._like({}, {**self.states, **self.actions}, feasible)

    def _like(
        self, states: Mapping[str, Parameter], actions: Mapping[str, Parameter], feasible: Feasible | None
    ) -> Space:
        """Create a space with other parameters but the same constraints, without repeating warnings about them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RedundantConstraintWarning)
            return Space(states, actions, self.constraints, feasible)

    def with_choices(self, name: str, choices: Iterable[Value]) -> Space:
        """Return the space with more choices of the categorical parameter `name`, added after its current choices."""
        wider = {name: columns.with_more_choices(name, choices, {**self.states, **self.actions})}
        states, actions = ({**known, **wider} if name in known else known for known in (self.states, self.actions))
        return self._like(states, actions, self.feasible)

    def to_dict(self) -> dict[str, Any]:
        """Return the space as plain values that JSON can hold.

        Returns
        -------
        dict
            A record that `from_dict` reads. A function `feasible` is stored only by its name.

        Examples
        --------
        >>> conbo.Space.from_dict(space.to_dict()) == space
        True
        """
        record: dict[str, Any] = {"states": parameter_records(self.states), "actions": parameter_records(self.actions)}
        if self.constraints:
            record["constraints"] = list(self.constraints)
        if self.feasible is not None:
            record["feasible"] = function_name(self.feasible)
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], feasible: Feasible | None = None) -> Space:
        """Create the space from the record that `to_dict` returned.

        Parameters
        ----------
        record
            The record.
        feasible
            The function `feasible`, if the record names one.

        Returns
        -------
        Space
            The space.

        Raises
        ------
        RecordError
            If the record is damaged.
        SpaceError
            If its parameters or constraints are not valid.
        StudyError
            If the record names a function and `feasible` is missing or has another name.
        """
        fields = Fields.of(record, "space").only(("states", "actions"), optional=("constraints", "feasible"))
        states, actions = read_parameters(fields, "states"), read_parameters(fields, "actions")
        constraints = fields.items("constraints") if fields.has("constraints") else ()
        if fields.has("feasible"):
            name, given = fields.text("feasible"), None if feasible is None else function_name(feasible)
            if given != name:
                raise StudyError(f"`feasible` must be the {name}, but got {given}.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RedundantConstraintWarning)
            return cls(states, actions, constraints, feasible if fields.has("feasible") else None)
