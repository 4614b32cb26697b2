"""What can go wrong, by kind. Every message names the rule, the parameter and the value."""

import difflib
from collections.abc import Iterable

MAX_SHOWN = 200  # characters of a value in a message


def shortened(text: str, most: int = MAX_SHOWN) -> str:
    """The text, without its middle if it has more than so many characters; it says how many are missing."""
    if len(text) <= most:
        return text
    head, tail = most - most // 3, most // 3
    return f"{text[:head]} [… {len(text) - head - tail} characters cut …] {text[len(text) - tail :]}"


def closest(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the known name that is most like this one, or all known names."""
    names = list(known)
    if match := difflib.get_close_matches(name, names, n=1):
        return f"did you mean '{match[0]}'?"
    return f"known are {quoted(names)}." if names else "there are none."


def quoted(names: Iterable[str]) -> str:
    """Names in a message."""
    return ", ".join(f"'{name}'" for name in names)


class ConboError(Exception):
    """Anything that conbo raises on purpose."""


class SpaceError(ConboError, ValueError):
    """A space, a parameter or a state distribution that cannot be."""


class PointError(ConboError, ValueError):
    """A state or an action that does not belong to the space."""


class RewardError(ConboError, ValueError):
    """A reward that is not one finite number, or is too large to reckon with."""


class TrialError(ConboError, LookupError):
    """A trial that is unknown, or that was told something else before."""


class SettingError(ConboError, ValueError):
    """A setting outside its range, or an unknown name."""


class StudyError(ConboError, ValueError):
    """A stored study that is unknown or was begun with other settings, or a call that does not suit its state."""


class StorageError(ConboError, OSError):
    """A database that cannot be reached, read or written."""


class RecordError(ConboError, ValueError):
    """A file or a stored record that is damaged, or that a later conbo wrote."""


class AccessError(ConboError, PermissionError):
    """A request that a service refuses: without a valid token, with too little right, or one of too many."""
