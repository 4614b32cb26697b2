"""Formats numbers with the digits that tell close values apart, such as values of a parameter with a narrow range."""

import math
from collections.abc import Iterable

from conbo.parameters import LARGEST_FLOAT, Parameter, Real
from conbo.rounding import SMALLEST_PLAIN, number
from conbo.values import Value

RESOLUTION = 1e-4  # fraction of a range by which two values must differ to be shown as different numbers
SMALLEST_STEP = 5e-324  # the smallest positive float
MOST_DIGITS = 17  # number of significant digits that determine a float


def value_text(parameter: Parameter, value: Value, digits: int = 4) -> str:
    """Return a value of a parameter as text.

    A real number has at least `digits` significant digits, and more if the range is narrow beside its values, so that
    values that differ by 1e-4 of the range are different texts. Integers and choices are written in full.
    """
    if not isinstance(parameter, Real):
        return str(value)
    return number_in_steps(float(value), step_between((parameter.low, parameter.high)), digits)


def step_between(values: Iterable[float]) -> float:
    """The least difference of two numbers that are shown as different numbers: 1e-4 of the range of the values."""
    known = list(values)
    return RESOLUTION * min(max(known) - min(known), LARGEST_FLOAT) if known else 0.0


def number_in_steps(value: float, step: float, digits: int = 4) -> str:
    """Return a number as text with at least `digits` significant digits; numbers that differ by `step` differ as texts.

    Very small and very large numbers are written with an exponent, unless all digits before the decimal point are
    needed.
    """
    if not value:
        return "0"
    needed = math.floor(math.log10(abs(value))) - math.floor(math.log10(max(step, SMALLEST_STEP))) + 1
    digits = min(max(digits, needed), MOST_DIGITS)
    return number(value, digits) if SMALLEST_PLAIN <= abs(value) < 1e6 else f"{value:.{digits}g}"
