"""The exceptions that conbo raises. Messages state the violated rule, the parameter and its value."""

from collections.abc import Iterable

MAX_SHOWN = 200  # largest number of characters of a value in a message


def shortened(text: str, most: int = MAX_SHOWN) -> str:
    """Shorten a string of more than `most` characters: its middle is replaced by a note that says how many were cut."""
    if len(text) <= most:
        return text
    head, tail = most - most // 3, most // 3
    return f"{text[:head]} [… {len(text) - head - tail} characters cut …] {text[len(text) - tail :]}"


def closest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: it suggests a known name similar to `name`, or else lists all known names."""
    import difflib  # only errors need it

    names = list(known)
    if match := difflib.get_close_matches(name, names, n=1):
        return f"did you mean '{match[0]}'?"
    return f"known are {quoted(names)}." if names else "there are none."


def quoted(names: Iterable[str]) -> str:
    """Return the names in quotes, separated by commas."""
    return ", ".join(f"'{name}'" for name in names)


class ConboError(Exception):
    """Base class of all errors that conbo raises on purpose.

    Examples
    --------
    >>> try:
    ...     conbo.Real(1, 0)
    ... except conbo.errors.ConboError as error:
    ...     print(error)
    `low < high` must hold, but got low=1.0, high=0.0.
    """


class SpaceError(ConboError, ValueError):
    """A space, a parameter or a state distribution is not valid."""


class PointError(ConboError, ValueError):
    """A state or an action does not belong to the space, or is not feasible."""


class RewardError(ConboError, ValueError):
    """A reward is not one finite number, or is beyond ±1e300; or its noise, cost or outcomes are not valid."""


class TrialError(ConboError, LookupError):
    """A trial is unknown, already has a different result, is not leased to the caller, or its seed is not allowed."""


class SettingError(ConboError, ValueError):
    """A setting is out of its range, or a name is unknown."""


class StudyError(ConboError, ValueError):
    """A stored study is unknown, has settings that differ from the given ones, or does not permit the call now."""


class StorageError(ConboError, OSError):
    """A database cannot be reached, read or written."""


class RecordError(ConboError, ValueError):
    """A file or a stored record is damaged, or a later version of conbo wrote it."""


class AccessError(ConboError, PermissionError):
    """A service refuses a request: the token does not permit it, or there are too many requests."""
