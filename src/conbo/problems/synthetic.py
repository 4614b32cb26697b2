"""Test problems in closed form, whose best action is known for every state; `closed_forms.py` has the formulas.

Branin-Hoo and Rosenbrock have one state parameter and one action parameter, Hartmann6 has no state, one problem has
many action parameters, and one has finitely many states and actions. Signs are such that rewards are to be maximized.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from conbo.errors import SettingError
from conbo.outcome_constraints import AtMost
from conbo.problems.closed_forms import (
    HARTMANN_NAMES,
    MOST_LOAD,
    branin_action,
    branin_grid_action,
    branin_reward,
    constrained_branin_action,
    falling_action,
    falling_reward,
    hartmann_action,
    hartmann_reward,
    has_too_much_load,
    load,
    rosenbrock_action,
    rosenbrock_reward,
)
from conbo.problems.problem import MeanReward, Problem
from conbo.spaces import Integer, Point, Real, Space, Value
from conbo.state_distributions import Triangular, Uniform

StateLaw: TypeAlias = Literal["uniform", "triangular"]
Distortion: TypeAlias = Literal["none", "exponential", "cube", "clip"]
Reward: TypeAlias = Callable[[Point, Point], float]
BestAction: TypeAlias = Callable[[Point], dict[str, Value]]

_STATE_LAWS: dict[str, Uniform | Triangular] = {"uniform": Uniform(), "triangular": Triangular()}
_DISTORTIONS = ("none", "exponential", "cube", "clip")


def branin(
    width: float = 1.0,
    state_distribution: StateLaw = "uniform",
    noise: float = 0.0,
    distortion: Distortion = "none",
) -> Problem:
    """Branin-Hoo with state s and action x in [0, 15].

    Parameters
    ----------
    width
        Fraction of the state's full range [-5, 10] that is used, around its center; with 0, there is no state and s is
        2.5.
    state_distribution
        "uniform" or "triangular".
    noise
        Standard deviation of one reward.
    distortion
        The monotone function that is applied to the rewards of evaluations: "none", "exponential", "cube" or "clip".
        With "clip", the worst third of the rewards are raised to the same value. Policies are still scored by the
        undistorted rewards.

    Returns
    -------
    Problem
        The problem, with its true expected rewards and best actions.

    Raises
    ------
    SettingError
        If a setting is unknown or out of range.

    Examples
    --------
    >>> conbo.problems.branin(noise=1.0).noise
    1.0
    """
    space = Space(states=_states(-5.0, 10.0, width), actions={"x": Real(0.0, 15.0)})
    told = _distorted(branin_reward, distortion, unit=60.0, worst_third=-61.5)
    return _problem("branin", space, state_distribution, branin_reward, branin_action, noise, told)


def branin_constrained(noise: float = 0.0) -> Problem:
    """Branin-Hoo with state s, action x in [0, 15], and a learned constraint on a load.

    The load is (x - 7 - 3 sin s)², and its mean must be at most 16, so x must be within 4 of 7 + 3 sin s. In 70 % of
    the states, this excludes the best action of Branin-Hoo.

    Parameters
    ----------
    noise
        Standard deviation of one reward. The standard deviation of one measured load is a tenth of this.

    Returns
    -------
    Problem
        The problem, with its true expected rewards and best actions.

    Raises
    ------
    SettingError
        If `noise` is negative or not finite.

    Examples
    --------
    >>> list(conbo.problems.branin_constrained().outcome_constraints)
    ['load']
    """
    plain = branin(noise=noise)
    return replace(
        plain,
        name="branin_constrained",
        evaluate=partial(_evaluate_with_load, noise),
        optimal_action=constrained_branin_action,
        optimal_reward=partial(_optimal_reward, branin_reward, constrained_branin_action),
        outcome_constraints={"load": AtMost(MOST_LOAD)},
        violates=has_too_much_load,
    )


def branin_grid(noise: float = 10.0) -> Problem:
    """Branin-Hoo at integers: 16 states s from -5 to 10, and 16 actions x from 0 to 15.

    Parameters
    ----------
    noise
        Standard deviation of one reward.

    Returns
    -------
    Problem
        The problem, with its true expected rewards and best actions.

    Raises
    ------
    SettingError
        If `noise` is negative or not finite.

    Examples
    --------
    >>> conbo.problems.branin_grid().optimal_action({"s": 3})
    {'x': 2}
    """
    return replace(
        branin(noise=noise),
        name="branin_grid",
        space=Space(states={"s": Integer(-5, 10)}, actions={"x": Integer(0, 15)}),
        optimal_action=branin_grid_action,
        optimal_reward=partial(_optimal_reward, branin_reward, branin_grid_action),
    )


def rosenbrock(
    width: float = 1.0,
    state_distribution: StateLaw = "uniform",
    noise: float = 0.0,
    distortion: Distortion = "none",
) -> Problem:
    """Rosenbrock with a state s in [-2, 2] and an action x in [-1, 5].

    Parameters
    ----------
    width
        Fraction of the state's full range [-2, 2] that is used, around its center; with 0, there is no state and s is
        0.
    state_distribution
        "uniform" or "triangular".
    noise
        Standard deviation of one reward.
    distortion
        The monotone function that is applied to the rewards of evaluations: "none", "exponential", "cube" or "clip".
        With "clip", the worst third of the rewards are raised to the same value. Policies are still scored by the
        undistorted rewards.

    Returns
    -------
    Problem
        The problem, with its true expected rewards and best actions.

    Raises
    ------
    SettingError
        If a setting is unknown or out of range.

    Examples
    --------
    >>> conbo.problems.rosenbrock().optimal_action({"s": 2.0})
    {'x': 4.0}
    """
    space = Space(states=_states(-2.0, 2.0, width), actions={"x": Real(-1.0, 5.0)})
    told = _distorted(rosenbrock_reward, distortion, unit=300.0, worst_third=-534.0)
    return _problem("rosenbrock", space, state_distribution, rosenbrock_reward, rosenbrock_action, noise, told)


def hartmann6(noise: float = 0.0) -> Problem:
    """Hartmann6 without a state, with actions x1 to x6 in [0, 1].

    Parameters
    ----------
    noise
        Standard deviation of one reward.

    Returns
    -------
    Problem
        The problem, with its true expected rewards and best actions.

    Raises
    ------
    SettingError
        If `noise` is negative or not finite.

    Examples
    --------
    >>> conbo.problems.hartmann6().space.action_names
    ('x1', 'x2', 'x3', 'x4', 'x5', 'x6')
    """
    import torch  # slow to import, as is BoTorch
    from botorch.test_functions.synthetic import Hartmann

    function = Hartmann(dim=6, negate=True, dtype=torch.float64)
    space = Space(actions=dict.fromkeys(HARTMANN_NAMES, Real(0.0, 1.0)))
    reward, best_action = partial(hartmann_reward, function), partial(hartmann_action, function)
    return _problem("hartmann6", space, "uniform", reward, best_action, noise)


def falling_importance(n_actions: int = 14, noise: float = 0.01) -> Problem:
    """Two state parameters and many action parameters of falling importance.

    All parameters of this test problem are in [0, 1]. The reward is minus a weighted sum of squared distances from the
    best action, which depends on the state. Each action parameter has three quarters of the weight of the previous one.

    Parameters
    ----------
    n_actions
        Number of action parameters, from 1 to 100.
    noise
        Standard deviation of one reward.

    Returns
    -------
    Problem
        The problem, with its true expected rewards and best actions.

    Raises
    ------
    SettingError
        If a setting is out of range.

    Examples
    --------
    >>> conbo.problems.falling_importance(n_actions=3).space.action_names
    ('x1', 'x2', 'x3')
    """
    if not 1 <= n_actions <= 100:
        raise SettingError(f"`1 <= n_actions <= 100` must hold, but got n_actions={n_actions}.")
    names = tuple(f"x{i}" for i in range(1, n_actions + 1))
    space = Space(states={"s1": Real(0.0, 1.0), "s2": Real(0.0, 1.0)}, actions=dict.fromkeys(names, Real(0.0, 1.0)))
    reward, best_action = partial(falling_reward, names), partial(falling_action, names)
    return _problem("falling_importance", space, "uniform", reward, best_action, noise)


# These are functions of the module and not closures, so that a problem can be pickled for another process.


def _problem(
    name: str,
    space: Space,
    state_distribution: str,
    reward: Reward,
    best_action: BestAction,
    noise: float,
    told: Reward | None = None,
) -> Problem:
    """Create a problem from a reward function.

    Evaluations return `told` plus noise; `told` is a distorted reward function, by default `reward` itself. Policies
    are scored by `reward`.
    """
    if state_distribution not in _STATE_LAWS:
        rule = f"`state_distribution` must be one of {', '.join(map(repr, _STATE_LAWS))}"
        raise SettingError(f"{rule}, but got {state_distribution!r}.")
    if not 0 <= noise < math.inf:
        raise SettingError(f"`0 <= noise < inf` must hold, but got noise={noise}.")
    return Problem(
        name,
        space,
        _STATE_LAWS[state_distribution],
        evaluate=partial(_evaluate, told or reward, noise),
        mean_reward=partial(_mean_reward, reward),
        optimal_action=best_action,
        optimal_reward=partial(_optimal_reward, reward, best_action),
        noise=noise,
    )


def _distorted(reward: Reward, distortion: str, unit: float, worst_third: float) -> Reward | None:
    """Return the reward function with a monotone distortion, or None if the distortion is "none".

    The distortions "exponential" and "cube" are applied to rewards that are divided by `unit`. "clip" raises rewards
    below `worst_third` to this value; a third of all rewards are below it.
    """
    if distortion not in _DISTORTIONS:
        rule = f"`distortion` must be one of {', '.join(map(repr, _DISTORTIONS))}"
        raise SettingError(f"{rule}, but got {distortion!r}.")
    return None if distortion == "none" else partial(_told, reward, distortion, unit, worst_third)


def _told(reward: Reward, distortion: str, unit: float, worst_third: float, state: Point, action: Point) -> float:
    value = reward(state, action)
    if distortion == "exponential":
        return -math.exp(-value / unit)
    return (value / unit) ** 3 if distortion == "cube" else max(value, worst_third)


def _states(low: float, high: float, width: float) -> dict[str, Real]:
    if not 0 <= width <= 1:
        raise SettingError(f"`0 <= width <= 1` must hold, but got width={width}.")
    center, half = (low + high) / 2, (high - low) / 2 * width
    return {"s": Real(center - half, center + half)} if width else {}


def _evaluate(
    reward: Reward,
    noise: float,
    state: Point,
    action: Point,
    generator: np.random.Generator,
) -> float:
    return reward(state, action) + noise * float(generator.standard_normal())


def _mean_reward(reward: Reward, state: Point, action: Point, replications: int, seed: int) -> MeanReward:
    return MeanReward(reward(state, action), standard_error=0.0)


def _optimal_reward(reward: Reward, best_action: BestAction, state: Point) -> float:
    return reward(state, best_action(state))


def _evaluate_with_load(noise: float, state: Point, action: Point, generator: np.random.Generator) -> dict[str, float]:
    reward = _evaluate(branin_reward, noise, state, action, generator)
    return {"reward": reward, "load": _evaluate(load, noise / 10, state, action, generator)}
