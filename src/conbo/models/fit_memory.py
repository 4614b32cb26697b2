"""A cache of fits, in memory and in a store that processes share (the shelf), so that no fit is made twice.

A fit is a pure function of the rewards and of the model's settings, which make up its key. So the cache saves time and
never changes a result.
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

MOST_REMEMBERED = 4  # number of fits in memory: a method may use two models, and each fit may start from an earlier one


class Shelf(Protocol):
    """A store of texts by key that other processes can reach."""

    def read_fit(self, key: str) -> str | None:
        """The text that is stored under this key, or None."""

    def write_fit(self, key: str, text: str) -> None:
        """Store a text under a key. If that fails, nothing is lost: the fit is made again later."""


class FitMemory:
    """The last fits of this process, shared through a shelf if there is one."""

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
        """The result for this key: from the cache if it is there, otherwise from `make`.

        For a key that is `shared` with other processes, `write` and `read` convert the result to plain values and back,
        which must give exactly the same result.
        """
        known: Result | None = self._known.pop(key, None)
        if known is None:
            known = self._taken(key, read) if shared else None
        if known is None:
            known = make()
            if shared and self._shelf is not None:
                self._shelf.write_fit(key, _sealed(json.dumps(write(known))))
        self._known[key] = known  # the most recently used key comes last
        for old in list(self._known)[:-MOST_REMEMBERED]:
            del self._known[old]
        return known

    def _taken(self, key: str, read: Callable[[Any], Result]) -> Result | None:
        """The result on the shelf; None if there is none or it is damaged."""
        text = None if self._shelf is None else self._shelf.read_fit(key)
        content = None if text is None else _opened(text)
        return None if content is None else read(json.loads(content))


def fit_key(settings: Sequence[object], *data: Tensor | None) -> str:
    """A key of the settings, the data, and the versions and platform that could change the rounding of a fit."""
    digest = sha256(repr((*_tools(), *settings)).encode())
    for tensor in data:
        digest.update(b"-" if tensor is None else repr(tensor.shape).encode() + tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


@cache  # looking up a version reads and parses a file, which takes milliseconds
def _tools() -> tuple[object, ...]:
    """The versions and the platform that could change the rounding of a fit."""
    return version("conbo"), torch.__version__, platform.machine(), platform.system(), compiled.AVAILABLE


def _sealed(content: str) -> str:
    return f"{sha256(content.encode()).hexdigest()} {content}"


def _opened(text: str) -> str | None:
    """The content of a text that begins with its checksum; None if the two do not match."""
    content = text.partition(" ")[2]
    return content if _sealed(content) == text else None
