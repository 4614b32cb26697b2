"""Constraints as text: what is read, and what is refused with the reason."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conbo.constraint_text import LONGEST, parse_constraint, parse_constraints
from conbo.errors import SpaceError


@pytest.mark.parametrize(
    ("text", "coefficients", "bound", "equality"),
    [
        ("a + b <= 100", {"a": 1, "b": 1}, 100, False),
        ("dose <= 0.2 * weight", {"dose": 1, "weight": -0.2}, 0, False),
        ("2*a >= b - 3", {"b": 1, "a": -2}, 3, False),
        ("a == 1", {"a": 1}, 1, True),
        ("-a - -2 * 3 * b <= .5e1", {"a": -1, "b": 6}, 5, False),
        ("a * 2 + a <= 1 + 1", {"a": 3}, 2, False),
        ("'the dose' + \"b c\" <= 1", {"the dose": 1, "b c": 1}, 1, False),
        ("größe <= 3", {"größe": 1}, 3, False),
        ("a <= b", {"a": 1, "b": -1}, 0, False),
    ],
)
def test_linear_forms(text: str, coefficients: dict[str, float], bound: float, equality: bool) -> None:
    constraint = parse_constraint(text)
    assert dict(constraint.coefficients) == coefficients
    assert (constraint.bound, constraint.equality, constraint.text) == (bound, equality, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must not be empty"),
        ("  ", "must not be empty"),
        ("a + b", "one of <=, >= and =="),
        ("0 <= a <= 1", "one of <=, >= and =="),
        ("a < 1", "but got '< 1'"),
        ("a * b <= 1", "must not multiply parameters, but got 'a' times 'b'"),
        ("a / 2 <= 1", "but got '/ 2 <= 1'"),
        ("(a) <= 1", "made of numbers"),
        ("a ** 2 <= 1", "must come before '\\*'"),
        ("2 a <= 1", "must be a sign before 'a'"),
        ("a <=", "must come before the end"),
        ("<= 1", "must come before the end"),
        ("a - a <= 1", "at least one parameter"),
        ("1 <= 2", "at least one parameter"),
        ("a <= 1e999", "must be finite"),
        ("'' <= 1", "in quotes must not be empty"),
        ("__import__('os') <= 1", "must be a sign before|made of numbers"),
        ("a <= 1" + " " * LONGEST + "+ 1", "at most"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SpaceError, match=reason):
        parse_constraint(text)


def test_constraints_must_be_strings() -> None:
    with pytest.raises(SpaceError, match="a sequence of strings, but got 'a <= 1'"):
        parse_constraints("a <= 1")
    with pytest.raises(SpaceError, match="must be a string, but got 3"):
        parse_constraints([3])  # type: ignore[list-item]


@settings(max_examples=50)
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(SpaceError):
        assert parse_constraint(text).names
