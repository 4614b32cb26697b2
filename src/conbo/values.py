"""The type of a parameter's value, and a check for numbers.

This module does not import NumPy, so that commands that only record rewards start quickly.
"""

import math
import numbers
from typing import TypeAlias, TypeGuard

Value: TypeAlias = str | int | float | bool

MAX_NAME = 200  # largest number of characters in the name of a parameter, an outcome or a study


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number of any type, but not a boolean."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_finite_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number that a float can hold, but not a boolean."""
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:  # a whole number beyond the largest float
        return False
