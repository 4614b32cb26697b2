"""Rewards and best actions of the synthetic test problems, as formulas of state and action."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from conbo.spaces import Point, Value

if TYPE_CHECKING:
    from botorch.test_functions.synthetic import Hartmann

MOST_LOAD = 16.0  # limit on the load of the constrained Branin-Hoo
HARTMANN_NAMES = tuple(f"x{i}" for i in range(1, 7))


def branin_valley(state: Point) -> tuple[float, float]:
    """Return two numbers: the state s of Branin-Hoo, and the action x that would be best without bounds on x.

    If the problem has no state, s is 2.5. In a fixed state, the reward is a parabola in x. The second number
    is the x of its peak, which may be outside the bounds [0, 15].
    """
    s = float(state.get("s", 2.5))
    return s, 5.1 / (4 * math.pi**2) * s**2 - 5 / math.pi * s + 6


def branin_reward(state: Point, action: Point) -> float:
    """Return the reward of Branin-Hoo."""
    s, valley = branin_valley(state)
    return -((float(action["x"]) - valley) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(s) + 10)


def branin_action(state: Point) -> dict[str, Value]:
    """Return the best action of Branin-Hoo."""
    _, valley = branin_valley(state)
    return {"x": min(max(valley, 0.0), 15.0)}


def branin_grid_action(state: Point) -> dict[str, Value]:
    """Return the best integer action of Branin-Hoo."""
    # given the state, the reward is a parabola, so the best integer is the one nearest to its peak
    return {"x": round(float(branin_action(state)["x"]))}


def load(state: Point, action: Point) -> float:
    """Return the load (x - 7 - 3 sin s)², which must not exceed a limit in the constrained Branin-Hoo."""
    return (float(action["x"]) - middle_of_loads(state)) ** 2


def middle_of_loads(state: Point) -> float:
    """Return the action x whose load (x - 7 - 3 sin s)² is zero in a state s."""
    return 7 + 3 * math.sin(float(state["s"]))


def constrained_branin_action(state: Point) -> dict[str, Value]:
    """Return the best action of the constrained Branin-Hoo, in which an action's load must not exceed a limit."""
    # given the state, the reward is a parabola, so the best action is the allowed one that is nearest to its peak
    middle, reach = middle_of_loads(state), math.sqrt(MOST_LOAD)
    best = float(branin_action(state)["x"])
    return {"x": min(max(best, middle - reach, 0.0), middle + reach, 15.0)}


def has_too_much_load(state: Point, action: Point) -> bool:
    """Return whether the load of an action exceeds the limit of the constrained Branin-Hoo."""
    return load(state, action) > MOST_LOAD


def rosenbrock_reward(state: Point, action: Point) -> float:
    """Return the reward of Rosenbrock."""
    s = float(state.get("s", 0.0))
    return -(100 * (float(action["x"]) - s**2) ** 2 + (1 - s) ** 2)


def rosenbrock_action(state: Point) -> dict[str, Value]:
    """Return the best action of Rosenbrock."""
    return {"x": float(state.get("s", 0.0)) ** 2}


def falling_action(names: tuple[str, ...], state: Point) -> dict[str, Value]:
    """Return the best action of the problem whose action parameters, `names`, have falling importance."""
    first, second = float(state["s1"]), float(state["s2"])
    return {name: 0.3 + 0.4 * (second if i % 2 else first) + 0.1 * math.sin(5 * i) for i, name in enumerate(names)}


def falling_reward(names: tuple[str, ...], state: Point, action: Point) -> float:
    """Return the reward of the problem whose action parameters, `names`, have falling importance."""
    best = falling_action(names, state)
    return -sum(0.75**i * (float(action[name]) - float(best[name])) ** 2 for i, name in enumerate(names))


def hartmann_reward(function: Hartmann, state: Point, action: Point) -> float:
    """Return the reward of Hartmann6, which has no states."""
    import torch

    point = torch.tensor([float(action[name]) for name in HARTMANN_NAMES], dtype=torch.float64)
    return float(function(point, noise=False))


def hartmann_action(function: Hartmann, state: Point) -> dict[str, Value]:
    """Return the best action of Hartmann6, which has no states."""
    return dict(zip(HARTMANN_NAMES, function.optimizers[0].tolist(), strict=True))
