"""Reads the cells of tables as numbers, as choices of categorical parameters, or as seeds.

Most cells are text, which may also come from a command line or a study file. Those of a dataframe may be anything.
"""

from contextlib import suppress
from numbers import Integral
from typing import Any

from conbo.common_random_numbers import is_seed
from conbo.errors import PointError, shortened
from conbo.spaces import Categorical, Parameter, Value
from conbo.values import is_finite_number

ROUNDED = 2**53  # whole numbers from here on may have been rounded, if they were a float


def seed_in(cell: Any) -> int:
    """Convert a cell such as 7, "7" or 7.0 to an integer seed; raise PointError if the cell does not hold a seed."""
    value = number_in(cell)
    seed = int(value) if is_finite_number(value) and value == int(value) else -1
    if not is_seed(seed):
        raise PointError(f"a seed must be a whole number from 0 to 2**63 - 1, but got {shortened(repr(cell))}.")
    if seed >= ROUNDED and not isinstance(value, Integral):
        raise PointError(f"a seed must have all its digits if it is 2**53 or more, but got {cell!r}.")
    return seed


def value_in(parameter: Parameter, cell: Any) -> Any:
    """Convert the text in a cell to a value of the parameter: a number, or one of its choices.

    Any other cell is returned unchanged, and the space checks it later. Raises PointError if the text matches two
    choices, such as 1 and "1".
    """
    if not isinstance(parameter, Categorical) or not isinstance(cell, str):
        return number_in(cell)
    exact = [choice for choice in parameter.choices if str(choice) == cell]
    meant = exact or [choice for choice in parameter.choices if _reads_as(cell, choice)]
    if len(meant) > 1:
        raise PointError(f"a string must stand for one choice, but {cell!r} stands for {meant[0]!r} and {meant[1]!r}.")
    return meant[0] if meant else cell


def _reads_as(text: str, choice: Value) -> bool:
    """Whether the text is another spelling of the choice: true or TRUE for True, or 1 for 1.0."""
    if isinstance(choice, bool):
        return text.lower() == str(choice).lower()
    return not isinstance(choice, str) and number_in(text) == choice


def number_in(cell: Any) -> Any:
    """Convert a string such as "2.5" or "3" to a float or an int; return any other cell unchanged."""
    if not isinstance(cell, str) or "_" in cell:  # Python would read 1_000 as a number, but other programs do not
        return cell
    for number in (int, float):
        with suppress(ValueError):
            return number(cell)
    return cell
