"""Tables as files, CSV or JSON by their names, and on the terminal."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conbo.errors import SettingError
from conbo.study.csv_rows import csv_rows
from conbo.study.spreadsheets import marked


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file (all texts) or of a JSON file with a list of objects."""
    if path.suffix.lower() != ".json":
        columns, cells = csv_rows(path)
        return [dict.fromkeys(columns) | row for row in cells]
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{path}: this is not JSON: {error}.") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SettingError(f"{path}: this must be a list of objects.")
    return rows


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV or a JSON file."""
    is_json = path.suffix.lower() == ".json"
    text = json.dumps(list(rows), indent=1) + "\n" if is_json else as_csv(rows)
    path.write_text(text, encoding="utf-8", newline="")


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows with a line of headings, which are those of the first."""
    if not rows:
        return ""
    lines = [_csv_line([row.get(name) for name in rows[0]]) for row in rows]
    return "".join([_csv_line(list(rows[0])), *lines])


def _csv_line(cells: Sequence[object]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(map(marked, cells))  # with its own line ends, or it would not quote a carriage return
    return text.getvalue().removesuffix("\r\n") + "\n"


def as_columns(rows: Sequence[Sequence[object]]) -> str:
    """The rows with their cells below each other."""
    texts = [[shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in texts)
    return "\n".join(line.rstrip() for line in lines)


def shown(value: object) -> str:
    """A value for people: six digits are enough for them."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
