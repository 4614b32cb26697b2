"""The user's own decision rules, with which a policy is compared: functions, single actions, policies or tables."""

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
    """A decision rule: it chooses an action for every state."""

    def many(self, states: Sequence[Point]) -> Actions:
        """Return one action for each state, in the same order."""


class FunctionRule:
    """A decision rule that is a function from the state to the action, both as dicts."""

    def __init__(self, space: Space, function: Callable[[dict[str, Value]], Point]) -> None:
        self._space, self._function = space, function

    def many(self, states: Sequence[Point]) -> Actions:
        """Return one action for each state, in the same order."""
        return [self._action(state) for state in states]

    def _action(self, state: Point) -> dict[str, Value]:
        try:
            action = self._function(dict(state))
        except Exception as error:
            raise SettingError(f"{_must_return(state)}, but raised {type(error).__name__}: {error}") from error
        return _valid_action(self._space, action, state)


class PolicyRule:
    """A decision rule that is a policy, possibly of another study, so its actions may be outside of this space."""

    def __init__(self, space: Space, policy: Policy) -> None:
        self._space, self._policy = space, policy

    def many(self, states: Sequence[Point]) -> Actions:
        """Return one action for each state, in the same order."""
        try:
            actions = self._policy.many(states)
        except PointError as error:
            raise PointError(f"the rule must have an action for every state of the space: {error}") from error
        return [_valid_action(self._space, action, state) for action, state in zip(actions, states, strict=True)]


class TableRule:
    """A decision rule that is a table of states and actions; a state gets the action of the nearest state in the table.

    The nearest state must have the same categories. Distances between numbers are relative to the range of the
    parameter, on a log scale if the parameter has one. Rows of `Study.best_observed` without an action are left out.
    """

    def __init__(self, space: Space, rows: Sequence[Mapping[str, Any]]) -> None:
        self._space = space
        names = [*space.state_names, *space.action_names]
        numbered = [(number, _flat(row)) for number, row in enumerate(rows, start=1) if not _has_no_action(row)]
        for number, row in numbered:
            if missing := [name for name in names if name not in row]:
                raise SettingError(f"row {number} of the rule's table must have a value for '{missing[0]}'.")
        rows = [row for _, row in numbered]
        if not rows:
            raise SettingError("the rule's table must have a row with an action, but has none.")
        self._actions = [space.validate_action({name: row[name] for name in space.action_names}) for row in rows]
        known = [space.validate_state({name: row[name] for name in space.state_names}) for row in rows]
        self._states = space.encode_states(known)
        self._is_category = np.array([isinstance(p, Categorical) for p in space.states.values()], dtype=bool)

    def many(self, states: Sequence[Point]) -> Actions:
        """Return one action for each state, in the same order."""
        encoded = self._space.encode_states([self._space.validate_state(state) for state in states])
        return [dict(self._actions[self._nearest(row, state)]) for row, state in zip(encoded, states, strict=True)]

    def _nearest(self, row: Array, state: Point) -> int:
        apart = np.abs(self._states - row)
        distance = (apart[:, ~self._is_category] ** 2).sum(axis=1)
        distance[(apart[:, self._is_category] > 1e-9).any(axis=1)] = np.inf
        nearest = int(distance.argmin())
        if np.isinf(distance[nearest]):
            raise PointError(
                f"the rule's table must have a row with the categories of every state, but has none for {state}."
            )
        return nearest


def _must_return(state: Point) -> str:
    return f"the rule must return an action of the space for {dict(state)}"


def _valid_action(space: Space, action: Any, state: Point) -> dict[str, Value]:
    """Return an action of a rule with plain values; raise PointError if it does not belong to the space."""
    try:
        return space.validate_action(action)
    except PointError as error:
        raise PointError(f"{_must_return(state)}: {error}") from error


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge the two dicts of a row {"state": {...}, "action": {...}} into one dict from names to values.

    `Study.best_observed` returns rows of this form. Other rows are returned unchanged.
    """
    state, action = row.get("state"), row.get("action")
    return {**state, **action} if isinstance(state, Mapping) and isinstance(action, Mapping) else row


def _has_no_action(row: Mapping[str, Any]) -> bool:
    """Return whether this is a row of `Study.best_observed` for a state without a best trial."""
    return isinstance(row.get("state"), Mapping) and "action" in row and row["action"] is None


class SameAction:
    """A decision rule with one action for all states.

    The action (d_x,) is in the unit cube. Where it violates a known limit, a feasible action nearby is taken, if one is
    found.
    """

    def __init__(self, belief: Belief, action: Tensor) -> None:
        self._belief, self._action = belief, action

    def many(self, states: Sequence[Point]) -> Actions:
        """Return one action for each state, in the same order."""
        encoded = torch.from_numpy(self._belief.space.encode_states(states))
        actions = self._belief.feasible_actions(encoded, self._action.expand(len(states), -1))
        return self._belief.space.decode_actions(actions.numpy())


def rule_of(given: Any, space: Space) -> Rule:
    """Turn what the user gave (a policy, a function, a single action or a table) into a decision rule."""
    if isinstance(given, Policy):
        return PolicyRule(space, given)
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
