"""The search for the best action of a function that is known by its values alone."""

import numpy as np
import pytest

from conbo.compass_search import compass_search
from conbo.spaces import Array, Categorical, Integer, Real, Space


def test_it_follows_numbers_integers_and_choices_to_the_maximum() -> None:
    space = Space(
        actions={
            "x": Real(0, 1),
            "y": Real(1e-3, 1, log=True),
            "count": Integer(1, 40, log=True),
            "mode": Categorical(["fast", "slow", "off"]),
        }
    )

    def reward(actions: Array) -> Array:
        rows = space.decode_actions(actions)
        together = [float(row["x"]) + np.log10(float(row["y"])) for row in rows]  # a ridge across two parameters
        apart = [float(row["x"]) - np.log10(float(row["y"])) for row in rows]
        modes = [0.3 * (row["mode"] == "slow") for row in rows]
        counts = [abs(int(row["count"]) - 23) / 10 for row in rows]
        return np.array(modes) - np.square(np.array(together) + 1.3) - np.square(np.array(apart) - 1.9) - counts

    best, value = compass_search(space, reward, space.snap_actions(np.array([[0.9, 0.9, 0.1, 0.9]]))[0])
    (found,) = space.decode_actions(best[None])
    assert found["x"] == pytest.approx(0.3, abs=0.01)
    assert np.log10(float(found["y"])) == pytest.approx(-1.6, abs=0.02)
    assert (found["count"], found["mode"]) == (23, "slow")
    assert value == pytest.approx(0.3, abs=1e-3)


def test_a_choice_without_alternatives_is_the_best() -> None:
    space = Space(actions={"mode": Categorical(["only"])})
    best, value = compass_search(space, lambda actions: np.ones(len(actions)), np.array([0.5]))
    assert (best.tolist(), value) == ([0.5], 1.0)
