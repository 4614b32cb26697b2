"""Reads JSON records from files and databases: every field is checked, and an error names the field."""

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from conbo.errors import ConboError, RecordError, StorageError, StudyError

LARGEST = 1.7976931348623157e308  # largest finite floating-point number
LARGEST_WHOLE = 2**63 - 1  # largest integer that databases hold
LONGEST_SHOWN = 80  # largest number of characters of a value in an error


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON string.

    Raises
    ------
    RecordError
        If the string is not JSON, or contains NaN, an infinite number, or an object with the same name twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise RecordError("a record must be text in UTF-8, but is not.") from error
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, RecordError) else RecordError(f"a record must be JSON: {error}.") from error


def checksum(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 hash of a record's content; it does not depend on the order of the names."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@contextmanager
def errors_about(what: str) -> Iterator[None]:
    """Turn conbo's errors within the `with` block into RecordErrors whose messages begin with the text `what`.

    StudyError and StorageError are raised unchanged, because their messages say what to do.
    """
    try:
        yield
    except (StudyError, StorageError):
        raise
    except ConboError as error:
        raise RecordError(f"{what}: {error}") from error


@dataclass(frozen=True)
class Fields:
    """A JSON object whose fields are checked as they are read."""

    record: Mapping[str, Any]
    where: str = ""  # path of the record in the file, for error messages; empty for the whole file

    @classmethod
    def of(cls, value: object, where: str = "") -> "Fields":
        """Return the fields of a JSON object; raise RecordError if `value` is something else.

        `where` is the dotted path of the object within the JSON document, for error messages.
        """
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise RecordError(f"{_quoted(where) or 'a record'} must be an object with names, but got {shown(value)}.")
        return cls(value, where)

    def only(self, required: Collection[str], optional: Collection[str] = ()) -> "Fields":
        """Return self; raise RecordError if a required field is missing or a field is neither required nor optional."""
        for name in required:
            self.value(name)
        for name in self.record:
            if name not in required and name not in optional:
                raise RecordError(f"{self.path(name)} must not be there: no such field is known.")
        return self

    def path(self, name: str) -> str:
        """Return the dotted path of a field within the JSON document, in backticks, for error messages."""
        return _quoted(f"{self.where}.{name}" if self.where else name)

    def has(self, name: str) -> bool:
        """Return whether a field exists and is not null."""
        return self.record.get(name) is not None

    def value(self, name: str) -> Any:
        """Return the value of a field, unchecked; raise RecordError if it is missing."""
        if name not in self.record:
            raise RecordError(f"{self.path(name)} must be there, but is missing.")
        return self.record[name]

    def fields(self, name: str) -> "Fields":
        """Return a field that is itself a JSON object; raise RecordError if it is something else."""
        return Fields.of(self.value(name), f"{self.where}.{name}" if self.where else name)

    def text(self, name: str, choices: Collection[str] | None = None) -> str:
        """Return a field that is a string; raise RecordError if it is something else.

        If `choices` are given, the string must be one of them.
        """
        value = self.value(name)
        rule = "a string" if choices is None else f"one of {', '.join(choices)}"
        return self._checked(name, value, isinstance(value, str) and (choices is None or value in choices), rule)

    def flag(self, name: str) -> bool:
        """Return a boolean field; raise RecordError if it is something else."""
        value = self.value(name)
        return self._checked(name, value, isinstance(value, bool), "true or false")

    def whole(self, name: str, least: int = 0, most: int = LARGEST_WHOLE) -> int:
        """Return a field that is an integer from `least` to `most`; raise RecordError if it is something else."""
        value = self.value(name)
        valid = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return self._checked(name, value, valid, f"a whole number from {least} to {most}")

    def wholes(self, name: str, count: int | None = None, least: int = 0, most: int = LARGEST_WHOLE) -> list[int]:
        """Return a field that is a list of integers from `least` to `most`; raise RecordError if it is something else.

        If `count` is given, the list must have this length.
        """
        values = self.items(name, count)
        return [Fields({name: value}, self.where).whole(name, least, most) for value in values]

    def number(self, name: str, least: float = -LARGEST, most: float = LARGEST) -> float:
        """Return a field that is a finite number from `least` to `most`; raise RecordError if it is something else."""
        value = self.value(name)
        return float(self._checked(name, value, _is_in(value, least, most), _range(least, most)))

    def numbers(
        self, name: str, count: int | None = None, least: float = -LARGEST, most: float = LARGEST
    ) -> list[float]:
        """Return a field that is a list of finite numbers from `least` to `most`.

        Raises RecordError if it is something else. If `count` is given, the list must have this length.
        """
        return _numbers(self.path(name), self.value(name), count, least, most)

    def rows(
        self, name: str, count: int | None, width: int | None, least: float = -LARGEST, most: float = LARGEST
    ) -> list[list[float]]:
        """Return a field that is a list of lists of finite numbers from `least` to `most`.

        `count` is the number of inner lists, and `width` the length of each; None allows any. Raises RecordError if the
        field is something else.
        """
        rows = self.items(name, count)
        return [_numbers(f"row {i} of {self.path(name)}", row, width, least, most) for i, row in enumerate(rows)]

    def items(self, name: str, count: int | None = None) -> list[Any]:
        """Return the list in a field without checking its items; raise RecordError if the field is not a list.

        If `count` is given, the list must have this length.
        """
        value = self.value(name)
        valid = isinstance(value, list) and count in (None, len(value))
        return self._checked(name, value, valid, "a list" if count is None else f"a list of {count}")

    def point(self, name: str) -> dict[str, Any]:
        """Return a field that maps names to strings, numbers or booleans; raise RecordError if it is something else."""
        fields = self.fields(name)
        for key, value in fields.record.items():
            valid = isinstance(value, str | bool) or _is_in(value, -LARGEST, LARGEST)
            fields._checked(key, value, valid, "a string, a finite number, true or false")
        return dict(fields.record)

    def _checked(self, name: str, value: Any, valid: bool, rule: str) -> Any:
        if not valid:
            raise RecordError(f"{self.path(name)} must be {rule}, but got {shown(value)}.")
        return value


def shown(value: object) -> str:
    """Return a value as text for an error message, cut off if it is long."""
    try:
        text = repr(value)
    except ValueError:
        text = "a whole number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _quoted(path: str) -> str:
    return f"`{path}`" if path else ""


def _is_in(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _range(least: float, most: float) -> str:
    if (least, most) == (-LARGEST, LARGEST):
        return "a finite number"
    return f"a number of at least {least:g}" if most == LARGEST else f"a number from {least:g} to {most:g}"


def _numbers(where: str, value: Any, count: int | None, least: float, most: float) -> list[float]:
    if not isinstance(value, list) or count not in (None, len(value)):
        rule = "a list of numbers" if count is None else f"a list of {count} numbers"
        raise RecordError(f"{where} must be {rule}, but got {shown(value)}.")
    for item in value:
        if not _is_in(item, least, most):
            raise RecordError(f"{where} must hold nothing but {_range(least, most)}, but got {shown(item)}.")
    return [float(item) for item in value]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise RecordError(f"`{twice}` must be there once, but is there twice.")
    return record


def _refuse(constant: str) -> Any:
    raise RecordError(f"a record must hold finite numbers, but got {constant}.")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)
