"""What a space checks of its constraints, and the function `feasible` by its name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from conbo.constraints import LinearConstraint
from conbo.errors import SpaceError, closest, shortened
from conbo.feasible_set import FeasibleSet
from conbo.parameters import Categorical, Parameter, Value

Feasible: TypeAlias = Callable[[dict[str, Value], dict[str, Value]], bool]  # of state and action

FUNCTION = "function "  # begins what is stored of a function: its name


class RedundantConstraintWarning(UserWarning):
    """A constraint that changes nothing."""


@dataclass(frozen=True)
class SplitFeasible:
    """The function `feasible` of a space whose states have become actions."""

    function: Feasible
    state_names: tuple[str, ...]

    def __call__(self, _: dict[str, Value], action: dict[str, Value]) -> bool:
        """Whether this point, all of whose columns are actions now, is feasible."""
        state = {name: action[name] for name in self.state_names}
        return self.function(state, {name: value for name, value in action.items() if name not in state})


def function_name(function: Callable[..., Any]) -> str:
    """What is stored of a function: its name, and that it is one."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{FUNCTION}{getattr(function, '__module__', None)}.{name}"


def check_constraint(
    constraint: LinearConstraint, states: Mapping[str, Parameter], actions: Mapping[str, Parameter]
) -> None:
    """Raise SpaceError unless the constraint limits an action, and nothing but numbers."""
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
    """Raise SpaceError, which names what clashes, if no point keeps all limits; warn of what changes nothing."""
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
