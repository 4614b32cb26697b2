"""Numbers as texts that tell close values apart."""

import pytest

from conbo.spaces import Categorical, Integer, Parameter, Real, Value
from conbo.value_text import number_in_steps, step_between, value_text


@pytest.mark.parametrize(
    ("parameter", "value", "text"),
    [
        (Real(0, 150), 43.2781623, "43.28"),
        (Real(0, 1e5), 43.2781623, "43.28"),
        (Real(40, 50), 43.2781623, "43.278"),
        (Real(1000.0001, 1000.0009), 1000.000371197021, "1000.0003712"),
        (Real(-1000.0009, -1000.0001), -1000.000371197021, "-1000.0003712"),
        (Real(1000.0001, 1000.0009, log=True), 1000.000371197021, "1000.0003712"),
        (Real(12345600, 12345699), 12345612.3456, "12345612.346"),
        (Real(0, 1e8), 12345612.3456, "1.235e+07"),
        (Real(1e-5, 1, log=True), 1.23456e-5, "1.235e-05"),
        (Real(0, 5e-324), 5e-324, "4.941e-324"),
        (Real(-1, 1), 0.0, "0"),
        (Integer(12345600, 12345699), 12345651, "12345651"),
        (Categorical([1000.0001, 1000.0002]), 1000.0002, "1000.0002"),
        (Categorical(["a", True]), True, "True"),
    ],
)
def test_a_value_has_the_digits_that_its_range_needs(parameter: Parameter, value: Value, text: str) -> None:
    assert value_text(parameter, value) == text


def test_more_digits_can_be_asked_for() -> None:
    assert value_text(Real(0, 150), 43.2781623, digits=6) == "43.2782"


def test_ticks_are_different_numbers() -> None:
    assert [number_in_steps(x, 5.0, 3) for x in (1234560.0, 1234565.0)] == ["1234560", "1234565"]
    assert [number_in_steps(x, 1e-5, 3) for x in (1000.00001, 1000.00002)] == ["1000.00001", "1000.00002"]


def test_the_range_of_numbers_may_be_beyond_the_largest_float() -> None:
    ends = [-1.7e308, 1.7e308]
    assert [number_in_steps(end, step_between(ends)) for end in ends] == ["-1.7e+308", "1.7e+308"]
