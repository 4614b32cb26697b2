"""Random spaces with linear constraints that leave room, and a check of what is feasible that shares no code."""

import random
import re
from collections.abc import Mapping

from conbo.parameters import Categorical, Integer, Parameter, Real, Value
from conbo.spaces import Space

ROUNDING = 1e-7  # of an equality, relative to its terms


def limited_space(seed: int) -> Space:
    """A space of up to two states and four actions of all kinds, with one to three constraints."""
    dice = random.Random(seed)
    states = {f"s{i}": _parameter(dice) for i in range(dice.randint(0, 2))}
    actions = {f"x{i}": _parameter(dice) for i in range(dice.randint(1, 4))}
    numbers = [name for name, p in actions.items() if not isinstance(p, Categorical)]
    if not numbers:
        actions["x"] = Real(0, 1)
        numbers = ["x"]
    inside = {name: _value(dice, p) for name, p in {**states, **actions}.items() if not isinstance(p, Categorical)}
    constraints = []
    for _ in range(dice.randint(1, 3)):
        names = {dice.choice(numbers), *(name for name in inside if dice.random() < 0.5)}
        terms = [(round(dice.uniform(-2, 2), 2) or 1.0, name) for name in sorted(names)]
        total = sum(c * inside[name] for c, name in terms)
        size = sum(abs(c) * _width({**states, **actions}[name]) for c, name in terms)
        left = " + ".join(f"{c} * {name}" for c, name in terms).replace("+ -", "- ")
        if dice.random() < 0.15 and any(isinstance(actions.get(name), Real) for name in names):
            constraints.append(f"{left} == {total!r}")
        elif dice.random() < 0.5:
            constraints.append(f"{left} <= {total + size * dice.uniform(0.0, 0.3)!r}")
        else:
            constraints.append(f"{left} >= {total - size * dice.uniform(0.0, 0.3)!r}")
    return Space(states, actions, constraints)


def broken(space: Space, state: Mapping[str, Value], action: Mapping[str, Value]) -> list[str]:
    """The constraints that a point breaks, by Python's own arithmetic."""
    values = {**state, **action}
    found = []
    for text in space.constraints:
        left, relation, right = re.split("(<=|>=|==)", text)
        a, b = (eval(side, {}, values) for side in (left, right))
        size = sum(abs(float(number)) for number in re.findall(r"\d+\.?\d*(?:e-?\d+)?", text)) * 100
        kept = {"<=": a <= b, ">=": a >= b, "==": abs(a - b) <= ROUNDING * size}[relation]
        if not kept and abs(a - b) > 1e-11 * size:
            found.append(f"{text}: {a!r} against {b!r} in {values}")
    return found


def _parameter(dice: random.Random) -> Parameter:
    kind = dice.randint(0, 9)
    if kind < 4:
        return Real(round(dice.uniform(-5, 0), 1), round(dice.uniform(1, 9), 1))
    if kind < 6:
        return Real(0.1, 10.0 ** dice.randint(1, 3), log=True)
    if kind < 8:
        return Integer(dice.randint(-3, 0), dice.randint(3, 40))
    return Integer(1, 100, log=True) if kind == 8 else Categorical(["u", "v", "w"])


def _value(dice: random.Random, parameter: Parameter) -> float:
    if isinstance(parameter, Categorical):
        raise TypeError("a category has no value")
    value = dice.uniform(parameter.low, parameter.high)
    return float(round(value)) if isinstance(parameter, Integer) else value


def _width(parameter: Parameter) -> float:
    return 0.0 if isinstance(parameter, Categorical) else float(parameter.high - parameter.low)
