"""Checks the costs of evaluations, which come from the user's function or are passed to `tell` with the rewards.

A cost that is passed with a reward is stored as an outcome of the trial, named 'cost'. `cost_learner.py` learns the
costs of other points from these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from conbo.errors import RewardError, SettingError, shortened
from conbo.values import Value, is_number

COST = "cost"  # the name of the outcome that holds the cost
LEARNED: Literal["learned"] = "learned"

KnownCost: TypeAlias = Callable[[dict[str, Value], dict[str, Value]], float]  # from state and action to the cost
Cost: TypeAlias = KnownCost | Literal["learned"] | None


def check_cost(cost: object) -> None:
    """Raise SettingError unless a value is valid for the setting `cost` of a study."""
    if cost is not None and cost != LEARNED and not callable(cost):
        rule = "`cost` must be a function of state and action, or 'learned'"
        raise SettingError(f"{rule}, but got {shortened(repr(cost))}.")


def known_cost(function: KnownCost, state: dict[str, Value], action: dict[str, Value]) -> float:
    """Return the cost of a point according to the user's function.

    Raises SettingError if the function fails, or if its result is not a positive, finite number.
    """
    where = f"state {state!r} and action {action!r}"
    try:
        value = function(dict(state), dict(action))
    except Exception as error:
        raise SettingError(f"`cost` must return a number, but raised {type(error).__name__} for {where}.") from error
    if not is_number(value) or not 0 < value < math.inf:
        raise SettingError(f"`0 < cost < inf` must hold, but got {value!r} for {where}.")
    return float(value)


def check_told(cost: Cost, measured: Mapping[str, float]) -> None:
    """Raise RewardError if a study learns costs, but a trial's measured outcomes do not include a positive cost."""
    if cost != LEARNED:
        return
    if COST not in measured:
        raise RewardError("a `cost` must be told with every reward where the study learns it, but got none.")
    if not measured[COST] > 0:
        raise RewardError(f"`cost > 0` must hold, but got cost={measured[COST]:g}.")


def with_cost(measured: Mapping[str, float] | None, cost: float | None) -> dict[str, float]:
    """Return the measured outcomes, with the cost added to them if it is not None.

    Raises RewardError if the outcomes are not a mapping, or if a cost is given and they already include one.
    """
    outcomes = {} if measured is None else dict(as_mapping(measured))
    if cost is None:
        return outcomes
    if COST in outcomes:
        raise RewardError("a cost must be given once, but got both `cost` and an outcome of that name.")
    return {**outcomes, COST: cost}


def as_mapping(measured: object) -> Mapping[Any, Any]:
    """Return the given outcomes unchanged; raise RewardError unless they are a mapping."""
    if not isinstance(measured, Mapping):
        raise RewardError(f"outcomes must be a mapping from names to numbers, but got {shortened(repr(measured))}.")
    return measured
