"""With a known cost, the initial design spends equally in regions of equal probability."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import conbo
from conbo.design_by_cost import design_points_by_cost
from conbo.errors import SettingError
from conbo.spaces import Point, Space

SPACE = conbo.Space({"s": conbo.Real(0, 1)}, {"x": conbo.Real(0, 1)})


def design(cost: Callable[[Point, Point], float], first: int, n: int, space: Space = SPACE, **more: Any) -> np.ndarray:
    states = conbo.Optimizer(space, seed=0).states
    return design_points_by_cost(space, states, cost, 3, first, n, **more)


def step(state: Point, action: Point) -> float:
    return 1.0 if action["x"] < 0.5 else 4.0


def test_halves_of_the_space_get_points_of_equal_total_cost() -> None:
    points = design(step, 0, 400)
    dear = points[:, 1] >= 0.5
    assert 4 * dear.sum() == pytest.approx((~dear).sum(), rel=0.05)
    # and are spread evenly within each half
    for half in (points[dear], points[~dear]):
        assert half[:, 0].mean() == pytest.approx(0.5, abs=0.03)
        assert half[:, 0].std() == pytest.approx(12**-0.5, abs=0.03)


def test_states_follow_their_distribution() -> None:
    triangular = {"s": conbo.Triangular(0.0)}
    states = conbo.Optimizer(SPACE, seed=0, state_distribution=triangular).states
    points = design_points_by_cost(SPACE, states, step, 3, 0, 400)
    assert points[:, 0].mean() == pytest.approx(1 / 3, abs=0.03)


def test_points_do_not_depend_on_how_many_are_asked_for_at_once() -> None:
    apart = [design(step, first, n) for first, n in ((0, 7), (7, 1), (8, 92))]
    assert np.array_equal(np.concatenate(apart), design(step, 0, 100))


def test_an_almost_free_corner_does_not_attract_all_points() -> None:
    points = design(lambda state, action: 1e-9 if action["x"] < 0.05 else 1.0, 0, 40)
    assert 1 <= (points[:, 1] < 0.05).sum() <= 4


def test_expensive_states_are_not_left_out() -> None:
    """The policy must be good in them, too."""
    points = design(lambda state, action: 1e-6 if state["s"] < 0.3 else 1.0, 0, 400)
    dear = (points[:, 0] >= 0.3).sum()
    assert dear / (400 - dear) == pytest.approx(0.25 * 0.7 / 0.3, rel=0.1)


def test_every_candidate_s_cost_is_asked_for_once() -> None:
    asked = []

    def counted(state: Point, action: Point) -> float:
        asked.append((state["s"], action["x"]))
        return step(state, action)

    design(counted, 0, 200)
    assert len(asked) == len(set(asked)) == 512


def test_a_given_state_and_limited_actions_are_respected() -> None:
    space = conbo.Space({"s": conbo.Real(0, 1)}, {"x": conbo.Real(0, 1), "n": conbo.Integer(0, 4)}, ["x <= 0.5 * s"])
    points = design(lambda state, action: 1 + action["n"], 0, 12, space, state={"s": 0.6})
    assert (points[:, 0] == 0.6).all()
    assert (points[:, 1] <= 0.3 + 1e-9).all()
    assert all(action["n"] in range(5) for action in space.decode_actions(points[:, 1:]))


def test_a_study_with_a_cost_function_begins_with_cheaper_points() -> None:
    def paid(study: conbo.Study) -> float:
        return sum(step(trial.state, trial.action) for trial in study.ask(20))

    assert paid(conbo.Study(SPACE, initial=20, cost=step)) < 0.85 * paid(conbo.Study(SPACE, initial=20))


def test_a_wrong_cost_is_refused() -> None:
    study = conbo.Study(SPACE, cost=lambda state, action: -1.0)
    with pytest.raises(SettingError, match=r"`0 < cost < inf` must hold, but got -1\.0"):
        study.ask()
    assert len(study.trials) == 0
