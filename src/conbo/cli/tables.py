"""Reads and writes files of tables, in the format given by the file's extension, and formats tables as text."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from conbo.errors import ConboError, PointError, SettingError, StudyError, shortened
from conbo.files import check_no_database, ending, write_whole
from conbo.outcome_constraints import DEFAULT_CONFIDENCE, read_constraints
from conbo.record_fields import Fields
from conbo.study.csv_text import LONGEST_ERROR, csv_rows
from conbo.study.spreadsheets import marked

Read = TypeVar("Read")

# from file endings to the libraries that can write such files, one of which must be installed
TABLES: dict[str, tuple[str, ...]] = {
    ".csv": (),
    ".json": (),
    ".parquet": ("polars", "pyarrow"),
    ".xlsx": ("openpyxl",),
}


READABLE = (".csv", ".json")


def read_rows(path: Path, *, all_columns: bool = False) -> dict[str, dict[str, Any]]:
    """Return the rows of a CSV file, or of a JSON file with a list of objects, as dicts from columns to values.

    The keys of the result are the places of the rows in the file, such as "line 3". Values of a CSV file are strings;
    missing cells are None, and surplus cells are a list under the key None. Raises StudyError if two columns of a CSV
    file have the same name; if `all_columns` are needed, also if two columns with values have none.
    """
    if ending(path) in (".parquet", ".xlsx"):
        raise SettingError(f"a table must be read from a .csv or .json file, but got '{path}'.")
    if ending(path) != ".json":
        columns, cells, lines = csv_rows(path)
        if twice := [name for name in columns if name and columns.count(name) > 1]:
            raise StudyError(f"'{path}' must have one column for '{twice[0]}', but has several.")
        if all_columns and columns.count("") > 1:
            raise StudyError(f"'{path}' must have at most one column without a name, but has {columns.count('')}.")
        return {f"line {line}": dict.fromkeys(columns) | row for line, row in zip(lines, cells, strict=True)}
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{path}: this is not JSON: {error}.") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SettingError(f"{path}: this must be a list of objects.")
    return {f"row {number}": row for number, row in enumerate(rows, 1)}


def from_rows(path: Path, rows: Mapping[str, dict[str, Any]], read: Callable[[dict[str, Any]], Read]) -> list[Read]:
    """Apply `read` to every row of a file, and return the results.

    `rows` are the rows by their place in the file, such as "line 3". If `read` raises a ConboError for some of them,
    raise StudyError, which lists the places and errors of all these rows.
    """
    results: list[Read] = []
    wrong: list[str] = []
    for place, row in rows.items():
        try:
            results.append(read(_whole(row)))
        except ConboError as error:
            wrong.append(f"\n  {place}: {shortened(str(error), LONGEST_ERROR)}")
    if wrong:
        raise StudyError(f"'{path}' must have no wrong row, but has {len(wrong)}:{''.join(wrong)}")
    return results


def _whole(row: dict[Any, Any]) -> dict[str, Any]:
    """Return the row; raise PointError if it has more cells than there are columns, as decimal commas can cause."""
    if any(beyond := row.get(None, [])):
        raise PointError(f"there must be a column for every value, but got {beyond} beyond the last.")
    return {name: cell for name, cell in row.items() if name is not None}


def check_table(path: Path, endings: Iterable[str] = TABLES) -> None:
    """Check that a table can be written to `path`.

    Raises SettingError if `path` has none of the `endings` or its folder does not exist, StorageError if it is a
    database, and ConboError if its format needs a missing library.

    Call it before a long computation whose result is to be written to `path`.
    """
    check_output("a table", path, endings)
    _library(path)


def check_output(what: str, path: Path, endings: Iterable[str]) -> None:
    """Raise SettingError unless `path` has one of the `endings` and its folder exists; the case does not matter.

    `what` says in the message what is to be written, such as "a table". Raises StorageError if `path` is a database.
    """
    if ending(path) not in endings:
        raise SettingError(f"{what} must be written as {', '.join(endings)}, but got '{path}'.")
    if not path.parent.is_dir():
        raise SettingError(f"{what} must be written to a folder that exists, but '{path.parent}' does not.")
    check_no_database(path)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], usual: Sequence[str] = ()) -> None:
    """Write the rows to a file, in the format given by its extension; `usual` are the columns if there are no rows."""
    library, columns = _library(path), _columns(rows) or usual
    if ending(path) == ".json":
        write_whole(path, json.dumps(list(rows), indent=1) + "\n")
    elif library is None:
        write_whole(path, as_csv(rows, usual))
    elif library.__name__ == "openpyxl":
        book = library.Workbook(write_only=True)
        sheet = book.create_sheet("trials")
        for row in ({name: name for name in columns}, *rows):
            sheet.append([_sheet_cell(library, sheet, row.get(name)) for name in columns])
        book.save(content := io.BytesIO())
        write_whole(path, content.getvalue())
    else:
        from conbo.dataframes import frame_of

        frame = frame_of({name: [row.get(name) for row in rows] for name in columns}, library.__name__)
        content = io.BytesIO()
        if library.__name__ == "polars":
            frame.write_parquet(content)
        else:
            import_module("pyarrow.parquet").write_table(frame, content)
        write_whole(path, content.getvalue())


def _library(path: Path) -> Any:
    """The library that writes files with the extension of `path`; None if no library is needed."""
    needed = TABLES[ending(path)]
    for name in needed:
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    if needed:
        raise ConboError(f"'{path}' needs {needed[0]}, which is not installed: pip install {needed[0]}")
    return None


def _sheet_cell(openpyxl: Any, sheet: Any, value: Any) -> Any:
    """Return a value for a sheet of openpyxl.

    A string becomes a cell with text, even if it looks like a formula, and so does a list or dict, as in a CSV file.
    Control characters that a sheet cannot have are removed.
    """
    if value is None or isinstance(value, int | float):
        return value
    cell = openpyxl.cell.WriteOnlyCell(sheet, openpyxl.cell.cell.ILLEGAL_CHARACTERS_RE.sub("", str(value)))
    cell.data_type = "s"
    return cell


def as_csv(rows: Sequence[Mapping[str, Any]], usual: Sequence[str]) -> str:
    """The rows as CSV, with the keys of all rows as column names, or the `usual` ones if there are no rows."""
    columns = _columns(rows) or usual
    lines = [_csv_line([row.get(name) for name in columns]) for row in rows]
    return "".join([_csv_line(columns), *lines])


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys of all rows, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _csv_line(cells: Sequence[object]) -> str:
    text = io.StringIO(newline="")
    # written with the default line ends \r\n, so that a carriage return in a cell is quoted
    csv.writer(text).writerow(map(marked, cells))
    return text.getvalue().removesuffix("\r\n") + "\n"


def as_columns(rows: Sequence[Sequence[object]]) -> str:
    """The rows as aligned columns of text."""
    texts = [[shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in texts)
    return "\n".join(line.rstrip() for line in lines)


def exact(value: object) -> str:
    """Return a value as one line of text, like `shown`, but with all digits of a float."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else shown(value)


def shown(value: object) -> str:
    """Return a value as one line of text; a float has six significant digits.

    Control characters are escaped, so that a string that somebody else has stored cannot control the terminal.
    """
    if isinstance(value, float):
        return f"{value:.6g}"
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(value))


def parameter_rows(space: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a row (role, description) for every state and action; the description has its name, type and range.

    `space` is the result of `Space.to_dict`.
    """
    return [
        (role, f"{name}: {_in_words(parameter)}")
        for role in ("state", "action")
        for name, parameter in parameter_fields(space, role).items()
    ]


def limit_rows(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a row (role, description) for every limit on actions and on outcomes, and for the cost of evaluations.

    `settings` is the record of a study's settings, as it is stored.
    """
    stored = Fields.of(settings)
    space = stored.fields("space")
    known = space.items("constraints") if space.has("constraints") else []
    rows = [("limit", str(constraint)) for constraint in known]
    if space.has("feasible"):
        rows.append(("limit", space.text("feasible")))
    if stored.has("outcome_constraints"):
        confidence = stored.number("confidence") if stored.has("confidence") else DEFAULT_CONFIDENCE
        learned = read_constraints(stored, "outcome_constraints")
        sure = f"learned, with a probability of at least {confidence:g}"
        rows += [("limit", f"{name} {limit}, {sure}") for name, limit in learned.items()]
    return rows + ([("cost", stored.text("cost"))] if stored.has("cost") else [])


def parameter_fields(space: Mapping[str, Any], role: str) -> dict[str, Fields]:
    """Return the records of all parameters with this role, "state" or "action", by name.

    `space` is the result of `Space.to_dict`.
    """
    records = Fields.of(space, "space").items(f"{role}s")
    known = (Fields.of(record, f"space.{role}s[{i}]") for i, record in enumerate(records))
    return {parameter.text("name"): parameter for parameter in known}


def _in_words(parameter: Fields) -> str:
    kind = parameter.text("type", ("real", "integer", "categorical"))
    if kind == "categorical":
        return "one of " + ", ".join(map(str, parameter.items("choices")))
    low, high = (parameter.number(name) for name in ("low", "high"))
    bounds = f"{exact(low)} to {exact(high)}" if kind == "real" else f"{low:.0f} to {high:.0f}"
    return f"{kind} from {bounds}{', on a log scale' if parameter.has('log') and parameter.flag('log') else ''}"


def number_text(text: object) -> str:
    """Return an object as a string; raise ValueError if it contains an underscore.

    Otherwise, `int` and `float` would accept strings such as "1_000".
    """
    if "_" in str(text):
        raise ValueError(text)
    return str(text)
