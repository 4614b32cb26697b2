"""Branin and Rosenbrock as ordinary optimization problems without states: the state becomes a second action."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from conbo.problems import branin, rosenbrock
from conbo.problems.problem import MeanReward, Problem
from conbo.spaces import Point, Value

BRANIN_BEST = {"s": np.pi, "x": 2.275}
ROSENBROCK_BEST = {"s": 1.0, "x": 1.0}


def branin_global(noise: float = 0.0) -> Problem:
    """Branin with both of its parameters as actions; three points are optimal, all with reward -0.397887."""
    return _without_states(branin(noise=noise), BRANIN_BEST)


def rosenbrock_global(noise: float = 0.0) -> Problem:
    """Rosenbrock with both of its parameters as actions; (1, 1) is optimal, with reward 0."""
    return _without_states(rosenbrock(noise=noise), ROSENBROCK_BEST)


def _without_states(problem: Problem, best: Point) -> Problem:
    return replace(
        problem,
        name=f"{problem.name}_global",
        space=problem.space.with_states_as_actions(),
        evaluate=partial(_evaluate, problem),
        mean_reward=partial(_mean_reward, problem),
        optimal_action=partial(_best, best),
        optimal_reward=partial(_best_reward, problem, best),
    )


def _evaluate(
    problem: Problem, state: Point, action: Point, generator: np.random.Generator
) -> float | Mapping[str, float]:
    return problem.evaluate(*_split(problem, action), generator)


def _mean_reward(problem: Problem, state: Point, action: Point, replications: int, seed: int) -> MeanReward:
    assert problem.mean_reward is not None
    return problem.mean_reward(*_split(problem, action), replications, seed)


def _best(best: Point, state: Point) -> dict[str, Value]:
    return dict(best)


def _best_reward(problem: Problem, best: Point, state: Point) -> float:
    return _mean_reward(problem, {}, best, 1, 0).mean


def _split(problem: Problem, point: Point) -> tuple[dict[str, Value], dict[str, Value]]:
    """Split `point`, an action of the problem without states, into state and action of the original `problem`."""
    states, actions = problem.space.states, problem.space.actions
    return {name: point[name] for name in states}, {name: point[name] for name in actions}
