"""Checks that the states, actions and seeds in a file of results are those that were asked for.

Files pass through spreadsheets and scripts, which may round numbers. The asked value is therefore rounded to the digits
in the file before both are compared; but these digits must be enough to tell where in the parameter's range it is.
"""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from conbo.errors import PointError
from conbo.record_fields import Fields
from conbo.study.csv_text import is_blank
from conbo.trials import Trial

# differences between a number in a file and the asked one, as fractions of the parameter's range
MOST_ROUNDED = 0.01  # largest difference that rounding may cause
NEGLIGIBLE = 1e-6  # largest difference that is ignored even if it is not due to rounding, such as single precision
SPREADSHEET_DIGITS = 15  # number of significant digits that spreadsheets keep
SPREADSHEET = 1e-14  # largest relative difference due to these digits

_SEED = Fields.of({"type": "integer"})  # stands for the record of a parameter


def check_asked(trial: Trial, row: Mapping[str, Any], parameters: Mapping[str, Fields]) -> None:
    """Raise PointError if a row of a file has another state, action or seed than its trial.

    Columns may be missing or empty. `parameters` maps names to the records of parameters in `Space.to_dict`.
    """
    for name, value in trial.point.items():
        cell = row.get(name)
        if not is_blank(cell) and not _agrees(parameters.get(name, _SEED), value, cell):
            asked = f"the value {value!r}, which was asked for in trial {trial.number}"
            raise PointError(f"column '{name}' must have {asked}, or be left out, but has {cell!r}.")


def _agrees(parameter: Fields, value: Any, cell: Any) -> bool:
    text = str(cell)
    if text == str(value):
        return True
    if isinstance(value, str):
        return False
    if isinstance(value, bool):
        return text.lower() == str(value).lower()  # spreadsheets write TRUE
    try:
        number = math.nan if "_" in text else float(text)
    except ValueError:
        return False
    if parameter.text("type") != "real":
        if text.isdecimal() and len(text.rstrip("0")) > SPREADSHEET_DIGITS:
            return int(text) == value  # with all its digits
        return math.isclose(number, value, rel_tol=SPREADSHEET)
    apart = _distance(parameter, value, number)
    return apart <= NEGLIGIBLE or (apart <= MOST_ROUNDED and _rounds_to(value, text))


def _distance(parameter: Fields, value: float, other: float) -> float:
    """The distance of two numbers as a fraction of the parameter's range, on its linear or log scale."""
    low, high = parameter.number("low"), parameter.number("high")
    if not (parameter.has("log") and parameter.flag("log")):
        return abs(other - value) / (high - low)
    ratio = other / value  # may underflow to zero
    return abs(math.log(ratio)) / math.log(high / low) if ratio > 0 else math.inf


def _rounds_to(value: float, text: str) -> bool:
    """Whether a number, rounded to the last digit of the text, is the number in the text.

    Zeros at the end of a decimal fraction do not count, because Python writes the whole number 43 as 43.0.
    """
    written = Decimal(text)
    last = max(_exponent(written), min(0, _exponent(written.normalize())))
    return abs(written - Decimal(value)) <= Decimal(10) ** last / 2


def _exponent(number: Decimal) -> int:
    """The exponent of ten of the last decimal place of a finite number: -2 for 1.25, and 0 for 43."""
    return int(number.as_tuple().exponent)
