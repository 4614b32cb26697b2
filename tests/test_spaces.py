import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from conbo.errors import PointError, SpaceError
from conbo.spaces import Categorical, Integer, Real, Space, Value

MIXED = Space(
    states={"demand": Real(0.5, 1.5), "day": Categorical(["weekday", "weekend"])},
    actions={
        "stock": Integer(0, 20),
        "rate": Real(1e-4, 1e-2, log=True),
        "express": Categorical([False, True]),
    },
)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Space(states={"s": Real(0, 1)}),
            r"`actions` must name at least one parameter, but got none\.",
        ),
        (
            lambda: Space(actions=[Real(0, 1)]),
            r"`actions` must be a mapping from names to parameters, but got",
        ),
        (
            lambda: Space(actions={"": Real(0, 1)}),
            r"names of `actions` must be non-empty strings, but got ''\.",
        ),
        (
            lambda: Space(actions={1: Real(0, 1)}),
            r"names of `actions` must be non-empty strings, but got 1\.",
        ),
        (
            lambda: Space(actions={"x" * 201: Real(0, 1)}),
            r"names of `actions` must have at most 200 characters, but got 201: 'xx",
        ),
        (
            lambda: Space(actions={"a\ud800": Real(0, 1)}),
            r"names of `actions` must be text that can be encoded in UTF-8, without NUL .*, but got 'a\\ud800'\.",
        ),
        (
            lambda: Space(actions={"a\0": Real(0, 1)}),
            r"names of `actions` must be text that can be encoded in UTF-8, without NUL .*, but got 'a\\x00'\.",
        ),
        (
            lambda: Space(actions={"x": (0, 1)}),
            r"'x' must be Real, Integer or Categorical, but got \(0, 1\)\.",
        ),
        (
            lambda: Space(states={"x": Real(0, 1)}, actions={"x": Real(0, 1)}),
            r"a name must be a state or an action, but 'x' would be both\.",
        ),
    ],
)
def test_bad_spaces_are_refused(make, message) -> None:
    with pytest.raises(SpaceError, match=message):
        make()


def test_a_space_knows_its_columns() -> None:
    assert MIXED.state_names == ("demand", "day")
    assert MIXED.action_names == ("stock", "rate", "express")
    assert (MIXED.n_state_dims, MIXED.n_action_dims) == (2, 3)
    assert MIXED.state_categories == (0, 2)
    assert MIXED.action_categories == (0, 0, 2)


def test_points_survive_the_round_trip() -> None:
    states = [{"demand": 0.5, "day": "weekend"}, {"demand": 1.25, "day": "weekday"}]
    np.testing.assert_allclose(MIXED.encode_states(states), [[0.0, 0.75], [0.75, 0.25]])
    assert MIXED.decode_states(MIXED.encode_states(states)) == states
    actions = [{"stock": 20, "rate": 1e-2, "express": True}]
    assert MIXED.decode_actions(MIXED.encode_actions(actions)) == actions
    assert MIXED.encode_states([]).shape == (0, 2)


def test_snapping_moves_every_column_to_a_valid_value() -> None:
    points = np.random.default_rng(0).uniform(-0.2, 1.2, (3, 4, 5))
    snapped = MIXED.snap(points)
    np.testing.assert_array_equal(snapped[..., :2], MIXED.snap_states(points[..., :2]))
    np.testing.assert_array_equal(snapped[..., 2:], MIXED.snap_actions(points[..., 2:]))
    np.testing.assert_array_equal(MIXED.snap(snapped), snapped)
    rows = snapped.reshape(-1, 5)
    np.testing.assert_allclose(MIXED.encode_actions(MIXED.decode_actions(rows[:, 2:])), rows[:, 2:], atol=1e-12)


def test_a_space_without_states() -> None:
    space = Space(actions={"x": Real(0, 1)})
    assert space.encode_states([{}, {}]).shape == (2, 0)
    assert space.decode_states(np.empty((2, 0))) == [{}, {}]
    assert space.validate_state({}) == {}
    with pytest.raises(PointError, match=r"unknown state parameter 's': there are none\."):
        space.validate_state({"s": 1})


def test_valid_points_come_back_plain_and_in_order() -> None:
    state = MIXED.validate_state({"day": "weekend", "demand": 1})
    assert list(state.items()) == [("demand", 1.0), ("day", "weekend")]
    assert MIXED.validate_action({"stock": 3, "rate": 1e-3, "express": False})["stock"] == 3


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"demnd": 1, "day": "weekend"}, r"unknown state parameter 'demnd': did you mean 'demand'\?"),
        ({"zzz": 1}, r"unknown state parameter 'zzz': known are 'demand', 'day'\."),
        ({}, r"state must give every parameter a value, but 'demand', 'day' is missing\."),
        ([1, 2], r"state must be a mapping from names to values, but got \[1, 2\]\."),
        ({"demand": 3, "day": "weekend"}, r"`0\.5 <= demand <= 1\.5` must hold, but got demand=3\."),
    ],
)
def test_bad_points_are_refused(state: object, message: str) -> None:
    with pytest.raises(PointError, match=message):
        MIXED.validate_state(state)


def test_states_can_become_actions() -> None:
    space = MIXED.with_states_as_actions()
    assert space.action_names == ("demand", "day", "stock", "rate", "express")
    assert space.n_state_dims == 0


def test_a_categorical_parameter_can_be_given_more_choices() -> None:
    wider = MIXED.with_choices("day", ["holiday", 3]).with_choices("express", ["maybe"])

    assert wider.states["day"] == Categorical(["weekday", "weekend", "holiday", 3])
    assert wider.actions["express"] == Categorical([False, True, "maybe"])
    assert (wider.state_names, wider.action_names) == (MIXED.state_names, MIXED.action_names)
    assert wider.states["demand"] == MIXED.states["demand"]
    assert MIXED.state_categories == (0, 2)
    state = {"demand": 1.0, "day": "weekend"}
    assert wider.decode_states(wider.encode_states([state])) == [state]


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("dy", ["x"], r"unknown parameter 'dy': did you mean 'day'\?"),
        ("demand", ["x"], r"'demand' must be categorical to be given more choices, but it is Real\("),
        ("day", ["holiday", "weekend"], r"a new choice must not be one of 'day' already, but got 'weekend'\."),
        ("express", [1], r"a new choice must not be one of 'express' already, but got 1\."),
        ("day", ["a", "a"], r"`choices` must differ from each other, but got 'a' == 'a'"),
        ("day", [], r"`choices` must not be empty, but got none\."),
        ("day", "abc", r"`choices` must be a sequence of values, but got 'abc'\."),
        ("day", [None], r"a choice must be a string, a finite number or a boolean, but got None\."),
    ],
)
def test_bad_new_choices_are_refused(name: str, choices: list[Value], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        MIXED.with_choices(name, choices)


def test_a_space_is_a_value() -> None:
    record = json.loads(json.dumps(MIXED.to_dict(), sort_keys=True))
    assert Space.from_dict(record) == MIXED
    assert hash(Space.from_dict(record)) == hash(MIXED)
    assert pickle.loads(pickle.dumps(MIXED)) == copy.deepcopy(MIXED) == MIXED
    assert MIXED != "space"
    reordered = Space(states=dict(reversed(MIXED.states.items())), actions=MIXED.actions)
    assert reordered != MIXED


def test_a_space_cannot_be_changed() -> None:
    states = {"s": Real(0, 1)}
    space = Space(states=states, actions={"x": Real(0, 1)})
    states["t"] = Real(0, 1)
    assert space.state_names == ("s",)
    with pytest.raises(TypeError):
        space.states["t"] = Real(0, 1)


def test_spaces_do_not_import_torch() -> None:
    code = "import sys, conbo.spaces; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
