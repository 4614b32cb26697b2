"""What is feasible, the nearest feasible points, and even ones: judged by arithmetic of the tests' own."""

import re
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from conbo.bound_states import InfeasibleStatesWarning, bind
from conbo.errors import PointError, SpaceError
from conbo.spaces import Categorical, Integer, Real, RedundantConstraintWarning, Space
from random_limits import broken, limited_space

pytestmark = pytest.mark.filterwarnings("ignore::conbo.spaces.RedundantConstraintWarning")

DOSES = Space(
    states={"weight": Real(40, 120)},
    actions={"dose": Real(0, 40), "rate": Real(0.1, 100, log=True)},
    constraints=["dose <= 0.2 * weight", "dose + rate <= 50"],
)


def uniform(space: Space, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((n, space.n_state_dims + space.n_action_dims))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_repaired_and_spread_points_keep_random_constraints(seed: int) -> None:
    space = limited_space(seed)
    feasible, points = space.feasible_set, uniform(space, 12, seed)
    assert feasible is not None
    possible = feasible.has_action(space.snap_states(points[:, : space.n_state_dims]))
    for found, kept in (feasible.repair(points), feasible.spread(points)):
        assert kept.tolist() == possible.tolist()
        np.testing.assert_array_equal(found, space.snap(found))
        states, actions = (
            space.decode_states(found[:, : space.n_state_dims]),
            space.decode_actions(found[:, space.n_state_dims :]),
        )
        for state, action in zip(np.array(states)[kept], np.array(actions)[kept], strict=True):
            assert not broken(space, state, action)
            assert space.is_feasible(state, action)


def test_a_feasible_point_stays_and_another_moves_to_the_limit() -> None:
    space = Space(actions={"a": Real(0, 10), "b": Real(0, 10)}, constraints=["a + b <= 8"])
    points = np.array([[0.1, 0.2], [0.6, 0.6]])
    projected = space.project(points)
    np.testing.assert_array_equal(projected[0], points[0])
    np.testing.assert_allclose(projected[1], [0.4, 0.4], atol=1e-9)


@pytest.mark.parametrize(
    ("constraint", "low", "is_coarse"),
    [
        ("x <= t", 1e-8, True),
        ("x <= 1e-3", 1e-8, True),
        ("x <= 1e7", 1e-8, False),  # exact where it matters
        ("x <= t", 10.0, False),
        ("x + y <= 1", 1e-8, False),  # rounding errors are those of y
        ("n <= 30", 1e-8, False),
    ],
)
def test_limits_on_too_wide_log_scales_are_warned_about(constraint: str, low: float, is_coarse: bool) -> None:
    wide = Real(low, 1e8, log=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Space({"t": wide}, {"x": wide, "y": Real(0, 1e8), "n": Integer(1, 10**6, log=True)}, constraints=[constraint])
    said = f"'{constraint}' cannot be checked where its parameters are small"
    assert any(said in str(one.message) for one in caught) == is_coarse


def test_integers_are_rounded_to_feasible_neighbors() -> None:
    names = [f"n{i}" for i in range(4)]
    space = Space(actions={name: Integer(0, 9) for name in names}, constraints=["n0 + n1 + n2 + n3 == 17", "n0 <= n1"])
    for action in space.decode_actions(space.project(uniform(space, 200))):
        assert sum(action.values()) == 17  # type: ignore[arg-type]
        assert action["n0"] <= action["n1"]  # type: ignore[operator]


def test_a_hard_integer_problem_is_solved_exactly() -> None:
    space = Space(
        actions={"a": Integer(0, 100), "b": Integer(0, 100), "x": Real(0, 1)},
        constraints=["31 * a + 37 * b == 1997", "x >= 0.01 * a"],
    )
    solutions = {(a, b) for a in range(101) for b in range(101) if 31 * a + 37 * b == 1997}
    found = space.decode_actions(space.project(uniform(space, 5)))
    assert {(action["a"], action["b"]) for action in found} <= solutions
    assert not any(broken(space, {}, action) for action in found)


def test_even_points_fill_a_simplex() -> None:
    names = [f"x{i}" for i in range(6)]
    space = Space(actions={name: Real(0, 1) for name in names}, constraints=[f"{' + '.join(names)} <= 1"])
    points = space.spread(uniform(space, 2000))
    # of a uniform distribution on the simplex, every coordinate has mean 1/7 and the sum has mean 6/7
    np.testing.assert_allclose(points.mean(0), 1 / 7, atol=0.03)
    assert points.sum(1).mean() == pytest.approx(6 / 7, abs=0.02)


def test_the_states_that_have_an_action_are_those_of_a_linear_program() -> None:
    space = Space(
        states={"s": Real(-5, 5), "t": Real(0, 3)},
        actions={"x": Real(0, 1), "y": Real(0, 2)},
        constraints=["x + y >= s", "2 * x - y <= t - 2 * s", "x <= 3 - t"],
    )
    states = uniform(space, 60)[:, :2]
    expected = []
    for state in space.decode_states(states):
        s, t = state["s"], state["t"]
        program = linprog([0, 0], [[-1, -1], [2, -1], [1, 0]], [-s, t - 2 * s, 3 - t], bounds=[(0, 1), (0, 2)])
        expected.append(program.status == 0)
    assert space.feasible_set is not None
    assert space.feasible_set.has_action(states).tolist() == expected
    assert 10 < sum(expected) < 50


def test_a_function_says_what_else_is_feasible() -> None:
    space = Space(
        states={"s": Real(0, 1)},
        actions={"x": Real(0, 1), "c": Categorical(["u", "v"])},
        feasible=lambda state, action: action["x"] ** 2 <= state["s"] or action["c"] == "v",
    )
    assert space.is_feasible({"s": 0.25}, {"x": 0.4, "c": "u"})
    assert not space.is_feasible({"s": 0.25}, {"x": 0.6, "c": "u"})
    for points in (space.project(uniform(space, 50)), space.spread(uniform(space, 50))):
        assert space.contains(points).all()


@pytest.mark.parametrize(
    "space",
    [
        Space(actions={k: Real(0, 9) for k in "ab"}, constraints=["a + b == 9"], feasible=lambda _, x: x["a"] <= 3),
        Space(
            {"s": Real(0, 1)}, {k: Real(0, 1) for k in "abc"}, ["a + b + c == 1"], lambda _, x: max(x.values()) >= 0.5
        ),
        Space(
            actions={k: Integer(0, 99) for k in "abc"},
            constraints=["a + b + c == 99"],
            feasible=lambda _, x: x["a"] < 20,
        ),
        Space(
            actions={k: Real(0, 1) for k in "abcde"},
            constraints=["a + b + c + d + e <= 0.5"],
            feasible=lambda _, x: x["a"] > 0.2,
        ),
    ],
    ids=["segment", "simplex", "integers", "corner"],
)
def test_a_function_is_combined_with_constraints_that_random_points_miss(space: Space) -> None:
    feasible = space.feasible_set
    assert feasible is not None
    for points, found in (feasible.spread(uniform(space, 40)), feasible.repair(uniform(space, 40))):
        assert found.all()
        states, actions = (
            space.decode_states(points[:, : space.n_state_dims]),
            space.decode_actions(points[:, space.n_state_dims :]),
        )
        assert all(space.is_feasible(*pair) for pair in zip(states, actions, strict=True))
        assert len(np.unique(points.round(6), axis=0)) > 20


def test_a_cut_ends_at_the_border_of_a_function() -> None:
    space = Space(actions={"x": Real(0, 1), "y": Real(0, 1)}, feasible=lambda _, a: a["x"] + a["y"] ** 2 <= 0.7)
    assert space.feasible_set is not None
    end = space.feasible_set.cut(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]]))
    assert end[0, 0] == pytest.approx(0.7, abs=1e-3)
    assert space.contains(end).all()


def test_a_function_that_raises_is_named_with_its_point() -> None:
    space = Space(actions={"x": Real(0, 1)}, feasible=lambda _, action: action["y"] > 0)
    with pytest.raises(SpaceError, match=r"`feasible` must return True or False, but raised KeyError for .*'x': 0.5"):
        space.is_feasible({}, {"x": 0.5})


@pytest.mark.parametrize(("answer", "is_feasible"), [(np.True_, True), (np.array(False), False), (1, True)])
def test_answers_of_a_function(answer: Any, is_feasible: bool) -> None:
    space = Space(actions={"x": Real(0, 1)}, feasible=lambda *_: answer)
    assert space.is_feasible({}, {"x": 0.5}) == is_feasible


@pytest.mark.parametrize("answer", [None, np.nan, "x", 2], ids=repr)
def test_a_function_that_does_not_answer_is_named_with_its_point(answer: Any) -> None:
    space = Space(actions={"x": Real(0, 1)}, feasible=lambda *_: answer)
    told = f"`feasible` must return True or False, but returned {answer!r} for state {{}} and action {{'x': 0.5}}."
    with pytest.raises(SpaceError, match=re.escape(told)):
        space.is_feasible({}, {"x": 0.5})


@pytest.mark.parametrize(
    ("constraints", "reason"),
    [
        (["y <= 1"], r"unknown parameter 'y' in the constraint 'y <= 1': known are 's', 'x', 'z', 'c'"),
        (["s <= 1"], "must limit an action"),
        (["x + c <= 1"], "'c' is categorical"),
        (["x >= 2"], "no point keeps 'x >= 2'"),
        (["x >= 0.7", "x + z <= 1", "z >= 0.6", "s + x <= 9"], "all of 'x >= 0.7', 'x \\+ z <= 1', 'z >= 0.6'"),
    ],
)
def test_constraints_that_cannot_be(constraints: list[str], reason: str) -> None:
    with pytest.raises(SpaceError, match=reason):
        Space({"s": Real(0, 1)}, {"x": Real(0, 1), "z": Real(0, 1), "c": Categorical(["ab"])}, constraints)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("constraints", [["x <= 1.5"], ["x + z <= 1", "2 * x + 2 * z <= 3"], ["x <= 0.5", "x <= 0.5"]])
def test_a_redundant_constraint_is_a_warning(constraints: list[str]) -> None:
    with pytest.warns(RedundantConstraintWarning, match=re.escape(f"{constraints[-1]!r} changes nothing")):
        Space(actions={"x": Real(0, 1), "z": Real(0, 1)}, constraints=constraints)


def test_states_without_an_action_are_left_out() -> None:
    space = Space({"s": Integer(1, 10)}, {"x": Real(0, 1)}, ["x >= 0.3 * s - 1.1"])
    with pytest.warns(InfeasibleStatesWarning, match="3 of 10 states have no feasible action"):
        states = bind(None, space)
    listed = states.listed()
    assert listed is not None
    assert [state["s"] for state in space.decode_states(listed[0])] == list(range(1, 8))
    np.testing.assert_allclose(listed[1], 1 / 7)
    with pytest.raises(PointError, match=r"\{'s': 9\} has none under x >= 0.3 \* s - 1.1"):
        space.check_feasible(space.encode_states([{"s": 9}]))


def test_continuous_states_without_an_action_are_left_out() -> None:
    space = Space({"s": Real(0, 1)}, {"x": Real(0, 1)}, ["x >= 4 * s - 1"])
    with pytest.warns(InfeasibleStatesWarning, match="quasi-random states have no feasible action"):
        states = bind(None, space)
    drawn = states.transform(np.linspace(0.001, 0.999, 50)[:, None])
    np.testing.assert_allclose(drawn[:, 0], np.linspace(0.0005, 0.4995, 50), atol=1e-3)
    import torch

    density = states.density(torch.tensor([[0.25], [0.75]], dtype=torch.float64))
    np.testing.assert_allclose(density, [2.0, 0.0], atol=0.01)
    assert float(states.sample(100, torch.Generator().manual_seed(0)).amax()) <= 0.5


def test_records_hold_constraints_and_the_name_of_the_function() -> None:
    assert Space.from_dict(DOSES.to_dict()) == DOSES
    assert "constraints" not in Space(actions={"x": Real(0, 1)}).to_dict()
    wider = Space(actions={"x": Real(0, 1), "c": Categorical(["u"])}, constraints=["x <= 0.5"])
    assert wider.with_choices("c", ["v"]).constraints == ("x <= 0.5",)
    assert DOSES.with_states_as_actions().constraints == DOSES.constraints
    assert Space(DOSES.states, DOSES.actions) != DOSES


def counted(asked: list[int]) -> Space:
    """A space whose function allows a tenth of the actions in half of the states, and none in the others."""

    def feasible(state: Any, action: Any) -> bool:
        asked[0] += 1
        return bool(state["s"] > 0.5 and action["x"] * action["y"] > 0.62)

    return Space({"s": Real(0, 1)}, {"x": Real(0, 1), "y": Real(0, 1)}, feasible=feasible)


def test_impossible_states_do_not_keep_a_function_busy() -> None:
    asked = [0]
    space = counted(asked)
    with pytest.warns(InfeasibleStatesWarning, match="4096 of 8192 quasi-random states"):
        bind(None, space)
    assert asked[0] < 800_000  # a whole search takes 1,024 calls in each of 4,096 impossible states
    with pytest.warns(InfeasibleStatesWarning, match="4096 of 8192"):
        bind(None, space)
    assert asked[0] < 800_000


def test_a_result_that_is_remembered_cannot_be_changed_by_a_caller() -> None:
    feasible = counted([0]).feasible_set
    assert feasible is not None
    states = np.array([[0.2], [0.7]])
    feasible.has_action(states)[:] = False
    assert feasible.has_action(states).tolist() == [False, True]
