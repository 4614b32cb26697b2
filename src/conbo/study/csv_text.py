"""Reads CSV files as rows of strings; refuses files that are not UTF-8, or that have implausibly long cells."""

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from conbo.errors import StudyError
from conbo.study.spreadsheets import unmarked

LONGEST_CELL = 100_000  # largest number of characters in a cell
LONGEST_ERROR = 500  # largest number of characters of what is said about a row


def csv_rows(path: str | Path) -> tuple[list[str], list[dict[Any, str | list[str]]], list[int]]:
    """The column names of a CSV file, its rows as dicts by column name, and the line number at which each row begins.

    Columns with neither a name nor a value, as from commas at the ends of all lines, are left out. If a row has more
    cells than there are columns, the surplus cells are a list under the key None. Raises StudyError if the file is
    empty or not UTF-8, or if its cells are not separated by commas. StudyError is also raised if a cell is longer than
    `LONGEST_CELL` characters; the message then names the line and the column.
    """
    lines: list[str] = []  # lines of the row that is being read

    def recorded(file: Iterable[str]) -> Iterator[str]:
        for line in file:
            lines.append(line)
            yield line

    columns: list[str] = []
    rows: list[list[str]] = []
    begins: list[int] = []  # the first line of each row
    line = 1  # line on which the row that is being read begins
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(recorded(file))
            for cells in reader:
                _check_lengths(path, cells, columns, line)
                lines.clear()
                first, line = line, reader.line_num + 1
                plain = [unmarked(cell) for cell in cells]
                if not columns:
                    columns = plain
                elif plain:
                    rows.append(plain)
                    begins.append(first)
    except UnicodeDecodeError as error:
        raise StudyError(f"'{path}' must be a CSV file in UTF-8: {error}.") from error
    except csv.Error as error:  # usually a cell that is longer than the csv module accepts
        _check_lengths(path, _cells("".join(lines)), columns, line)
        raise StudyError(f"'{path}' must be a CSV file, but line {line} is not: {error}.") from error
    if any("\0" in name for name in columns):
        raise StudyError(f"'{path}' must be a CSV file in UTF-8, but has NUL bytes in its first line: is it UTF-16?")
    columns, rows = _without_blank_columns(columns, rows)
    if not columns:
        raise StudyError(f"'{path}' must be a CSV file with a line of column names, but it is empty.")
    for name, separator in (("semicolons", ";"), ("tabs", "\t")):
        if len(columns) == 1 and separator in columns[0]:
            raise StudyError(f"'{path}' must be a CSV file with commas, but its first line has {name} instead.")
    return columns, [_row(columns, cells) for cells in rows], begins


def is_blank(cell: object) -> bool:
    """Whether a cell holds nothing: it is None, or a text without visible characters."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _without_blank_columns(columns: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    unnamed = [i for i, name in enumerate(columns) if is_blank(name)]
    blank = {i for i in unnamed if all(is_blank(cells[i]) for cells in rows if len(cells) > i)}
    if not blank:
        return columns, rows
    columns, *rows = [[cell for i, cell in enumerate(cells) if i not in blank] for cells in (columns, *rows)]
    return columns, rows


def _row(columns: list[str], cells: list[str]) -> dict[Any, str | list[str]]:
    """A row's cells as a dict by column name; surplus cells beyond the last column are a list under the key None."""
    row: dict[Any, str | list[str]] = dict(zip(columns, cells, strict=False))
    return row if len(cells) <= len(columns) else row | {None: cells[len(columns) :]}


def _check_lengths(path: str | Path, cells: list[str], columns: list[str], line: int) -> None:
    for i, cell in enumerate(cells):
        if len(cell) > LONGEST_CELL:
            where = f"line {line}, column '{columns[i]}'" if i < len(columns) else f"column {i + 1} of the first line"
            raise StudyError(
                f"a cell of '{path}' must have at most {LONGEST_CELL} characters, but {where} has more: "
                "is a quotation mark missing?"
            )


def _cells(text: str) -> list[str]:
    """Split the text of a row into cells, without the csv module, which refuses very long cells."""
    cells, quoted = [""], False
    for part in re.split('([",])', text):
        quoted ^= part == '"'
        if part == "," and not quoted:
            cells.append("")
        else:
            cells[-1] += part
    return cells
