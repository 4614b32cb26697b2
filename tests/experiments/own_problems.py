"""Problems of a user's own, as `conbo bench tests/experiments/own_problems.py:name` reads them."""

import math
from pathlib import Path

from conbo.problems import Problem
from conbo.spaces import Real, Space

SPACE = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)})
BROKEN_UNTIL = Path("repaired")  # in the current folder


def _reward(state, action, generator):
    return -((action["x"] - state["s"]) ** 2) + 0.1 * generator.standard_normal()


def _reward_once_repaired(state, action, generator):
    if action["x"] > 0.5 and not BROKEN_UNTIL.exists():
        raise ArithmeticError("the simulator broke")
    return _reward(state, action, generator)


noisy = Problem("noisy", SPACE, None, evaluate=_reward)
fragile = Problem("fragile", SPACE, None, evaluate=_reward_once_repaired)
not_a_problem = math.pi
built_in = max


def with_optimum():
    return Problem("known", SPACE, None, evaluate=_reward, optimal_reward=lambda state: 0.0)


def objective(state, action):
    return action["x"] - state["s"]
