"""Reads a cell of a CSV file or a table as a number, as a choice of a categorical parameter, or as a seed."""

from collections.abc import Sequence
from typing import Any

from conbo.common_random_numbers import is_seed
from conbo.errors import PointError
from conbo.spaces import Categorical, Parameter, Value, is_number


def seed_in(cell: Any) -> int:
    """Convert a cell such as 7, "7" or 7.0 to an integer seed; raise PointError if the cell does not hold a seed."""
    value = int(cell) if isinstance(cell, str) and cell.strip().isdecimal() else number_in(cell)
    seed = int(value) if is_number(value) and float(value).is_integer() else -1
    if not is_seed(seed):
        raise PointError(f"a seed must be a whole number from 0 to 2**63 - 1, but got {cell!r}.")
    return seed


def value_in(parameter: Parameter, cell: Any) -> Any:
    """Convert the text in a cell to a value of the parameter: a number, or one of its choices.

    Any other cell is returned unchanged, and the space checks it later. Raises PointError if the text matches two
    choices, such as 1 and "1".
    """
    if not isinstance(parameter, Categorical):
        return number_in(cell)
    exact = [choice for choice in parameter.choices if str(choice) == cell]
    return meant_choice(cell, exact or [choice for choice in parameter.choices if _reads_as(cell, choice)])


def _reads_as(cell: Any, choice: Value) -> bool:
    """Whether a spreadsheet may write this cell for the choice: TRUE for True, or 1 for 1.0."""
    if isinstance(choice, bool):
        return str(cell).lower() == str(choice).lower()
    return not isinstance(choice, str) and isinstance(cell, str) and number_in(cell) == choice


def meant_choice(text: Any, meant: Sequence[Value]) -> Any:
    """Return the only choice in `meant`, or `text` itself if `meant` is empty.

    `meant` holds all choices of a parameter that match `text`. Raises PointError if there are several, such as 1
    and "1".
    """
    if len(meant) > 1:
        raise PointError(f"a string must stand for one choice, but {text!r} stands for {meant[0]!r} and {meant[1]!r}.")
    return meant[0] if meant else text


def number_in(cell: Any) -> Any:
    """Convert a string such as "2.5" to a number; return any other cell unchanged."""
    if not isinstance(cell, str):
        return cell
    try:
        return cell if "_" in cell else float(cell)  # Python would read 1_000 as a number, but other programs do not
    except ValueError:
        return cell
