"""Checks whether the name of a study or an outcome is valid, and whether UTF-8 can encode a string.

This module does not import NumPy or a database, so that a client of the service can use it.
"""

import unicodedata
from collections.abc import Collection

from conbo.errors import SettingError, shortened
from conbo.values import MAX_NAME

MAX_MEASURED = 100  # largest number of outcomes of a trial besides the reward


def is_encodable(text: str) -> bool:
    """Return whether a string can be stored as UTF-8; a string with a lone surrogate, for example, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_study_name(name: object) -> None:
    """Raise SettingError unless `name` is valid as the name of a study.

    It must be a non-empty string, not too long, that UTF-8 can encode and that has no NUL character. The names "." and
    ".." are not allowed.
    """
    if not isinstance(name, str) or not name or "\0" in name:
        raise SettingError(f"`name` must be a non-empty string, but got {name!r}.")
    if name in (".", ".."):
        raise SettingError(f"`name` must not be '.' or '..', which no web address can hold, but got {name!r}.")
    if not is_encodable(name):
        raise SettingError(f"`name` must be text that can be encoded in UTF-8, but got {name!r}.")
    if len(name) > MAX_NAME:
        rule = f"`name` must have at most {MAX_NAME} characters"
        raise SettingError(f"{rule}, but got {len(name)}: {shortened(repr(name))}.")


def wrong_outcomes(names: Collection[object]) -> str | None:
    """Check the names of a trial's outcomes besides the reward; return an error message, or None if all are valid.

    There may be at most 100 names. Each must be a non-empty string, not too long, without control characters, and
    neither "reward" nor "noise".
    """
    if len(names) > MAX_MEASURED:
        return f"there must be at most {MAX_MEASURED} outcomes beside the reward, but got {len(names)}."
    for name in names:
        if not isinstance(name, str) or not name:
            return f"the name of an outcome must be a non-empty string, but got {shortened(repr(name))}."
        if name in ("reward", "noise"):
            return f"an outcome beside the reward must not be named 'reward' or 'noise', but got {name!r}."
        if len(name) > MAX_NAME:
            rule = f"the name of an outcome must have at most {MAX_NAME} characters"
            return f"{rule}, but got {len(name)}: {shortened(repr(name))}."
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
            return f"the name of an outcome must have no control characters, but got {name!r}."
    return None
