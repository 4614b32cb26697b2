"""A cache of fits, in memory and in a store that several processes share, so that known fits are not computed again.

A fit is a pure function of the data and the model's settings, except for rounding, which depends on software versions
and the platform.  Its key is a hash of all of these.  The cache therefore saves time and never changes a result.
"""

import json
import platform
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from conbo.models import compiled

Result = TypeVar("Result")

# Number of fits kept in memory: two models, each with up to three fits (see `OutcomeProcess`).
MOST_REMEMBERED = 6


class Shelf(Protocol):
    """A key-value store of strings that several processes share, such as the study's database."""

    def read_fit(self, key: str) -> str | None:
        """Return the string that is stored under this key, or None if there is none."""

    def write_fit(self, key: str, text: str) -> None:
        """Store a string under a key; an implementation may ignore failures, because fits can be computed again."""


class FitMemory:
    """A cache of the most recently used fits in memory, with an optional store of fits that several processes share."""

    def __init__(self, shelf: Shelf | None = None) -> None:
        self._shelf = shelf
        self._known: dict[str, Any] = {}

    def recall(
        self,
        key: str,
        make: Callable[[], Result],
        write: Callable[[Result], Any],
        read: Callable[[Any], Result],
        shared: bool,
    ) -> Result:
        """Return the result for this key: from the cache or the shared store if it is there, otherwise from `make`.

        The shared store is used only if `shared` is true. `write` and `read` convert the result to plain values and
        back, which must give exactly the same result.
        """
        known: Result | None = self._known.pop(key, None)
        if known is None:
            known = self._read_shared(key, read) if shared else None
        if known is None:
            known = make()
            if shared and self._shelf is not None:
                self._shelf.write_fit(key, _with_checksum(json.dumps(write(known))))
        self._known[key] = known  # the most recently used key comes last
        for old in list(self._known)[:-MOST_REMEMBERED]:
            del self._known[old]
        return known

    def _read_shared(self, key: str, read: Callable[[Any], Result]) -> Result | None:
        """Return the result from the shared store; None if it is not there or its checksum does not match."""
        text = None if self._shelf is None else self._shelf.read_fit(key)
        content = None if text is None else _checked_content(text)
        return None if content is None else read(json.loads(content))


def fit_key(settings: Sequence[object], *data: Tensor | None) -> str:
    """Return a hash of the settings, the data, and the versions and platform on which the rounding of a fit depends."""
    digest = sha256(repr((*_rounding_environment(), *settings)).encode())
    for tensor in data:
        digest.update(b"-" if tensor is None else repr(tensor.shape).encode() + tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


@cache  # looking up a version reads and parses a file, which takes milliseconds
def _rounding_environment() -> tuple[object, ...]:
    """Return the versions and the platform that could change the rounding of a fit."""
    return version("conbo"), torch.__version__, platform.machine(), platform.system(), compiled.AVAILABLE


def _with_checksum(content: str) -> str:
    return f"{sha256(content.encode()).hexdigest()} {content}"


def _checked_content(text: str) -> str | None:
    """Return the part of a string after its leading checksum; None if the checksum does not match that part."""
    content = text.partition(" ")[2]
    return content if _with_checksum(content) == text else None
