"""The user's own rules to compare with, such as what is done today: functions, actions, policies or tables."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.dataframes import rows_of
from conbo.errors import PointError, SettingError
from conbo.policies.policy import Policy
from conbo.spaces import Array, Categorical, Point, Space, Value

Actions: TypeAlias = list[dict[str, Value]]


class Rule(Protocol):
    """A rule that gives an action for every state."""

    def many(self, states: Sequence[Point]) -> Actions:
        """The actions for a table of states."""


class FunctionRule:
    """A rule given as a function from the state to the action, both by name."""

    def __init__(self, space: Space, function: Callable[[dict[str, Value]], Point]) -> None:
        self._space, self._function = space, function

    def many(self, states: Sequence[Point]) -> Actions:
        """The actions for a table of states."""
        return [self._action(dict(state)) for state in states]

    def _action(self, state: dict[str, Value]) -> dict[str, Value]:
        rule = f"the rule must return an action of the space for {state}"
        try:
            action = self._function(state)
        except Exception as error:
            raise SettingError(f"{rule}, but raised {type(error).__name__}: {error}") from error
        try:
            return self._space.validate_action(action)
        except PointError as error:
            raise PointError(f"{rule}: {error}") from error


class TableRule:
    """A rule given as a table: the action of the nearest state in it. Categories must agree.

    Numbers are compared in units of their ranges, on a log scale if the parameter has one.
    """

    def __init__(self, space: Space, rows: Sequence[Mapping[str, Any]]) -> None:
        self._space = space
        names = [*space.state_names, *space.action_names]
        rows = [_flat(row) for row in rows]
        for number, row in enumerate(rows, start=1):
            if missing := [name for name in names if name not in row]:
                raise SettingError(f"row {number} of the rule's table must have a value for '{missing[0]}'.")
        if not rows:
            raise SettingError("the rule's table must have a row, but is empty.")
        self._actions = [space.validate_action({name: row[name] for name in space.action_names}) for row in rows]
        known = [space.validate_state({name: row[name] for name in space.state_names}) for row in rows]
        self._states = space.encode_states(known)
        self._is_category = np.array([isinstance(p, Categorical) for p in space.states.values()], dtype=bool)

    def many(self, states: Sequence[Point]) -> Actions:
        """The actions for a table of states."""
        encoded = self._space.encode_states([self._space.validate_state(state) for state in states])
        return [dict(self._actions[self._nearest(row, state)]) for row, state in zip(encoded, states, strict=True)]

    def _nearest(self, row: Array, state: Point) -> int:
        apart = np.abs(self._states - row)
        distance = (apart[:, ~self._is_category] ** 2).sum(axis=1)
        distance[(apart[:, self._is_category] > 1e-9).any(axis=1)] = np.inf
        nearest = int(distance.argmin())
        if np.isinf(distance[nearest]):
            raise PointError(
                f"the rule's table must have a row with the categories of every state, but not of {state}."
            )
        return nearest


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of `best_observed` as a row of a table; other rows stay as they are."""
    state, action = row.get("state"), row.get("action")
    return {**state, **action} if isinstance(state, Mapping) and isinstance(action, Mapping) else row


class SameAction:
    """One action (d_x,) of the unit cube for all states, or the nearest feasible action in states that forbid it."""

    def __init__(self, belief: Belief, action: Tensor) -> None:
        self._belief, self._action = belief, action

    def many(self, states: Sequence[Point]) -> Actions:
        """The actions for a table of states."""
        encoded = torch.from_numpy(self._belief.space.encode_states(states))
        actions = self._belief.feasible_actions(encoded, self._action.expand(len(states), -1))
        return self._belief.space.decode_actions(actions.numpy())


def rule_of(given: Any, space: Space) -> Rule:
    """Make a rule from what the user gave: a function, an action, a policy or a table."""
    if isinstance(given, Policy):
        return given
    if isinstance(given, Mapping):
        action = space.validate_action(given)
        return FunctionRule(space, lambda _: action)
    if callable(given):
        return FunctionRule(space, given)
    if isinstance(given, str | bytes):
        raise SettingError(f"a rule must be a policy, a function, an action or a table, but got {given!r}.")
    if isinstance(given, Sequence) and all(isinstance(row, Mapping) for row in given):
        return TableRule(space, given)
    return TableRule(space, rows_of(given)[1])
