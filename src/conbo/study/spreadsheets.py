"""Escapes the cells of a CSV file that a spreadsheet would run as formulas.

A spreadsheet may run a string that begins with `=`, `+`, `-`, `@`, a tab or a carriage return. Such a string is written
with an apostrophe in front, which is removed when the file is read. A string that already has apostrophes in front of
such a character gets one more, so that reading restores every string exactly. Numbers are not changed.
"""

import re
from typing import TypeVar

Cell = TypeVar("Cell")

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_MARKED = re.compile(r"'+[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def marked(cell: Cell) -> Cell | str:
    """The cell as it is written to a file: a string that looks like a formula gets an apostrophe in front."""
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def unmarked(text: str) -> str:
    """The original string of a cell, without the apostrophe that `marked` added."""
    return text[1:] if _MARKED.match(text) else text
