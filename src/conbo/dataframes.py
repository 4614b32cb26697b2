"""Reads and creates dataframes of any library that narwhals supports, such as pandas, Polars and PyArrow.

These libraries are imported only when they are used, because conbo requires none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from conbo.errors import ConboError, SettingError
from conbo.values import is_number

if TYPE_CHECKING:
    import narwhals

LARGEST_WHOLE = 2**63 - 1  # largest integer in a column of integers


def rows_of(frame: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the column names of a dataframe, and its rows as dicts of plain values, with None for missing ones.

    Raises SettingError if `frame` is not a dataframe, or two of its columns have the same name.
    """
    columns = {str(series.name): _plain(series) for series in _read(frame).iter_columns()}
    return list(columns), [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def frame_of(columns: Mapping[str, Sequence[Any]], backend: str) -> Any:
    """Create a dataframe with the given columns; `backend` names the library, such as "pandas"."""
    with _installed(backend):
        import narwhals

        try:
            fitting = {name: _fitting(values, backend) for name, values in columns.items()}
            return narwhals.from_dict(fitting, backend=backend).to_native()  # type: ignore[arg-type]
        except ValueError as error:
            raise SettingError(
                f"`backend` must be a library of dataframes like 'pandas', but got {backend!r}."
            ) from error


def with_columns(frame: Any, columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return a dataframe with columns added; existing columns of the same names are replaced."""
    read = _read(frame)
    with _installed("narwhals"):
        import narwhals

        backend = narwhals.get_native_namespace(read).__name__
        new = [
            narwhals.new_series(name, _fitting(values, backend), backend=backend) for name, values in columns.items()
        ]
    return read.with_columns(*new).to_native()


def _read(frame: Any) -> narwhals.DataFrame[Any]:
    with _installed("narwhals"):
        import narwhals

        try:
            read = narwhals.from_native(frame, eager_only=True)
            names = list(map(str, read.columns))
        except TypeError as error:
            raise SettingError(f"this must be a dataframe, but got {type(frame).__name__}.") from error
        except narwhals.exceptions.DuplicateError as error:
            raise SettingError(f"the columns of a dataframe must have different names: {error}.") from error
        if twice := [name for i, name in enumerate(names) if name in names[:i]]:  # such as 1 and "1"
            raise SettingError(f"the columns of a dataframe must have different names, but got '{twice[0]}' twice.")
        return read


def _plain(series: Any) -> list[Any]:
    """Return the values of a column as plain Python values, with None for missing values and NaN.

    Values that are not scalars, such as arrays, are returned unchanged.
    """
    values = [value.item() if getattr(value, "shape", None) == () else value for value in series.to_list()]
    missing = series.is_null().to_list()
    return [None if gone or _is_nan(value) else value for gone, value in zip(missing, values, strict=True)]


def _is_nan(value: Any) -> bool:
    return is_number(value) and value != value


def _fitting(values: Sequence[Any], backend: str) -> list[Any]:
    """Return the values of a column, converted if the library `backend` cannot hold them as they are.

    All libraries except pandas need values of one type, and integers of at most 64 bits. Integers among floats become
    floats if these are equal to them. All other values become strings.
    """
    kinds = {type(value) for value in values if value is not None}
    large = any(isinstance(value, int) and abs(value) > LARGEST_WHOLE for value in values)
    if backend == "pandas" or (len(kinds) < 2 and not large):
        return list(values)
    are_floats = kinds == {int, float} and not large and all(value is None or float(value) == value for value in values)
    return [None if value is None else float(value) if are_floats else str(value) for value in values]


@contextmanager
def _installed(library: str) -> Iterator[None]:
    """Turn a failed import in the body of a `with` statement into a ConboError that says how to install the library."""
    try:
        yield
    except ModuleNotFoundError as error:
        needed = f"dataframes need {error.name or library}, which is not installed: pip install 'conbo[pandas]'"
        raise ConboError(needed) from error
