"""Checks a space's `constraints`, and calls the user's function `feasible`, which says whether an action is allowed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from conbo.constraint_text import LinearConstraint
from conbo.errors import SpaceError, closest, shortened
from conbo.feasible_set import FeasibleSet
from conbo.linear_limits import Flags
from conbo.parameters import Categorical, Parameter
from conbo.values import Value

# called with a state and an action; returns whether the action is allowed in this state
Feasible: TypeAlias = Callable[[dict[str, Value], dict[str, Value]], bool]

FUNCTION = "function "  # prefix of the text that is stored in place of a function


class RedundantConstraintWarning(UserWarning):
    """Warns that a constraint has no effect, because the ranges of parameters or another constraint imply it."""


@dataclass(frozen=True)
class SplitFeasible:
    """The user's function `feasible` for methods that treat states as actions.

    A call splits the values of all parameters into the user's state and action, and passes both to `feasible`.
    """

    function: Feasible  # the user's function
    state_names: tuple[str, ...]  # names of the user's states

    def __call__(self, _: dict[str, Value], action: dict[str, Value]) -> bool:
        """Return whether the user's function allows these values.

        All parameters are actions here, so `action` holds the user's states and actions, and the first argument, the
        state, is empty and ignored.
        """
        state = {name: action[name] for name in self.state_names}
        return self.function(state, {name: value for name, value in action.items() if name not in state})


def function_name(function: Callable[..., Any]) -> str:
    """Return the text that is stored in place of a function: the word "function", its module and its name."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{FUNCTION}{getattr(function, '__module__', None)}.{name}"


def allowed(feasible: Feasible, states: Sequence[dict[str, Value]], actions: Sequence[dict[str, Value]]) -> Flags:
    """Call the user's function `feasible` for n states, each with its own action; return the results (n,).

    Raises SpaceError if the function raises an exception, or returns what is neither True nor False.
    """
    flags, rule = np.empty(len(states), dtype=bool), "`feasible` must return True or False"
    for i, (state, action) in enumerate(zip(states, actions, strict=True)):
        try:
            answer = feasible(state, action)
            is_flag, flags[i] = bool(answer in (True, False)), bool(answer)
        except Exception as error:
            where = f"state {state!r} and action {action!r}"
            raise SpaceError(f"{rule}, but raised {type(error).__name__} for {where}: {error}") from error
        if not is_flag:
            where = f"state {state!r} and action {action!r}"
            raise SpaceError(f"{rule}, but returned {shortened(repr(answer))} for {where}.")
    return flags


def check_constraint(
    constraint: LinearConstraint, states: Mapping[str, Parameter], actions: Mapping[str, Parameter]
) -> None:
    """Raise SpaceError unless a linear constraint limits an action and uses only numeric parameters."""
    known = {**states, **actions}
    where = f"in the constraint {shortened(repr(constraint.text))}"
    for name in constraint.names:
        if name not in known:
            raise SpaceError(f"unknown parameter '{name}' {where}: {closest(name, known)}")
        if isinstance(known[name], Categorical):
            raise SpaceError(f"a constraint must limit numbers, but '{name}' is categorical {where}: use `feasible`.")
    if not any(name in actions for name in constraint.names):
        rule = "a constraint must limit an action"
        raise SpaceError(f"{rule}, but there is none {where}: what states occur is said by `state_distribution`.")


def check_limits(feasible: FeasibleSet) -> None:
    """Raise SpaceError if no point satisfies all linear constraints; warn about redundant and coarse constraints."""
    if feasible.limits is None:
        return
    texts = [repr(constraint.text) for constraint in feasible.limits.constraints]
    if clash := feasible.clashing():
        what = "no point keeps" if len(clash) == 1 else "no point keeps all of"
        raise SpaceError(
            f"constraints must not contradict each other or the ranges, but {what} "
            f"{', '.join(texts[number] for number in clash)}."
        )
    for number in feasible.limits.redundant():
        warnings.warn(
            f"the constraint {texts[number]} changes nothing: the ranges, or another constraint, say as much.",
            RedundantConstraintWarning,
            stacklevel=5,
        )
    for number in feasible.limits.coarse():
        warnings.warn(
            f"the constraint {texts[number]} cannot be checked where its parameters are small, because their log "
            "scales are too wide: narrow the ranges.",
            stacklevel=5,
        )
