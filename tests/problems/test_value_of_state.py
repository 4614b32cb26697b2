"""What it is worth to know the state, by the truth."""

import numpy as np
import pytest

from conbo.problems import branin, hartmann6
from conbo.problems.value_of_state import value_of_state


def test_branins_value_of_the_state_is_that_of_a_grid() -> None:
    problem = branin()
    found = value_of_state(problem)
    assert found is not None
    assert problem.mean_reward is not None
    assert problem.optimal_reward is not None
    states = [{"s": s} for s in np.linspace(-5, 10, 302)[1::2].tolist()]
    best = np.mean([problem.optimal_reward(state) for state in states])
    single = max(
        np.mean([problem.mean_reward(state, {"x": x}, 1, 0).mean for state in states])
        for x in np.linspace(0, 15, 61).tolist()
    )
    assert found.policy == pytest.approx(best, rel=0.01)
    assert found.single == pytest.approx(single, rel=0.01)
    assert found.difference == found.policy - found.single


def test_without_states_there_is_none() -> None:
    assert value_of_state(hartmann6()) is None
