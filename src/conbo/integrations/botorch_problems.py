"""Makes problems of conbo from test functions of BoTorch: some inputs become states, the others actions."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from botorch.test_functions.base import BaseTestProblem
from scipy.optimize import minimize

from conbo.errors import SettingError
from conbo.problems import MeanReward, Problem
from conbo.quasi_random import sobol_points
from conbo.spaces import Array, Point, Real, Space, Value
from conbo.state_distributions import RecipeLike

SCREENED, CLIMBED = 2048, 8  # numbers of actions screened in each state, and of local searches from the best of them


def problem_of(function: BaseTestProblem, state_dims: Sequence[int], state_distribution: RecipeLike = None) -> Problem:
    """Make a problem, whose rewards are maximized, from a test function of BoTorch.

    Parameters
    ----------
    function
        A test function with one outcome and continuous inputs. A function that BoTorch minimizes is negated.
    state_dims
        Indices of the inputs that are states. Input i is named ``x{i}``, whether it is a state or an action.
    state_distribution
        As in `conbo.Study`.

    Returns
    -------
    Problem
        The problem, with the function's own noise. The best action of a state is found by local searches from the few
        best of many Sobol actions.

    Raises
    ------
    SettingError
        If the function has several outcomes or discrete inputs, or `state_dims` names all inputs or an unknown one.

    Examples
    --------
    >>> from botorch.test_functions import Branin
    >>> from conbo.integrations.botorch import problem_of
    >>> problem_of(Branin(), state_dims=[0]).space.action_names
    ('x1',)
    """
    own = sorted({int(column) for column in state_dims})
    if not set(own) <= set(range(function.dim)) or len(own) == function.dim:
        rule = f"`state_dims` must name some of the inputs 0 to {function.dim - 1}"
        raise SettingError(f"{rule}, but got {list(state_dims)}.")
    if function.discrete_inds or function.categorical_inds or getattr(function, "num_objectives", 1) != 1:
        raise SettingError(f"`function` must have one outcome and continuous inputs, but got {function!r}.")
    parameters = {f"x{i}": Real(low, high) for i, (low, high) in enumerate(zip(*_bounds(function), strict=True))}
    states = {name: parameters[name] for name in (f"x{i}" for i in own)}
    actions = {name: parameter for name, parameter in parameters.items() if name not in states}
    noise = 0.0 if function.noise_std is None else float(function.noise_std)  # type: ignore[arg-type]
    reward, best = partial(_reward, function), partial(_best_action, function)
    return Problem(
        type(function).__name__,
        Space(states, actions),
        state_distribution,
        evaluate=partial(_evaluate, reward, noise),
        mean_reward=lambda state, action, replications, seed: MeanReward(reward(state, action), 0.0),
        optimal_action=best,
        optimal_reward=lambda state: reward(state, best(state)),
        noise=noise,
    )


def _bounds(function: BaseTestProblem) -> Array:
    """Lower and upper bounds (2, dim) on the `dim` inputs."""
    return np.array(function._bounds, dtype=np.float64).T


def _values(function: BaseTestProblem, rows: Array) -> Array:
    """Rewards (n,) of inputs (n, dim), without noise."""
    sign = 1.0 if function.negate == function._is_minimization_by_default else -1.0
    with torch.no_grad():
        return sign * function(torch.as_tensor(rows, dtype=torch.float64), noise=False).double().numpy()


def _reward(function: BaseTestProblem, state: Point, action: Point) -> float:
    point = {**state, **action}
    return float(_values(function, np.array([[float(point[f"x{i}"]) for i in range(function.dim)]]))[0])


def _evaluate(reward: Any, noise: float, state: Point, action: Point, generator: np.random.Generator) -> float:
    return float(reward(state, action)) + noise * float(generator.standard_normal())


def _best_action(function: BaseTestProblem, state: Point) -> dict[str, Value]:
    """The best action for a state, found by local searches from the few best of many Sobol actions."""
    free = [i for i in range(function.dim) if f"x{i}" not in state]
    low, high = (bound[free] for bound in _bounds(function))
    fixed = np.array([float(state.get(f"x{i}", math.nan)) for i in range(function.dim)])

    def loss(actions: Array) -> Array:
        rows = np.tile(fixed, (len(actions), 1))
        rows[:, free] = actions
        return -_values(function, rows)

    tried = low + sobol_points(SCREENED, len(free), seed=0) * (high - low)
    losses = loss(tried)
    bounds = list(zip(low, high, strict=True))
    ends = [
        minimize(lambda x: float(loss(x[None])[0]), start, bounds=bounds, method="L-BFGS-B")
        for start in tried[losses.argsort()[:CLIMBED]]
    ]
    best = min(ends, key=lambda end: float(end.fun))
    return {f"x{i}": float(value) for i, value in zip(free, np.clip(best.x, low, high), strict=True)}
