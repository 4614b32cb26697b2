"""Announcements of long steps, as lines of the logger `conbo`, which is silent unless someone listens."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOG = logging.getLogger("conbo")


def in_words(seconds: float) -> str:
    """A rough duration in words: "20 seconds", "4 minutes"."""
    for unit, length in (("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}s"
    return f"{seconds:.0f} seconds" if seconds < 10 else f"{round(seconds, -1):.0f} seconds"


class _Lines(logging.Handler):
    """Passes records on as lines of text."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        kind = "" if record.levelno < logging.WARNING else f"{record.levelname.capitalize()}: "
        self._say(kind + record.getMessage())


@contextmanager
def listening(say: Callable[[str], None]) -> Iterator[None]:
    """Within this context, the log lines of conbo go to `say`, and no longer to earlier listeners."""
    handlers, level = LOG.handlers[:], LOG.level
    listener = _Lines(say)
    LOG.handlers[:] = [*(one for one in handlers if not isinstance(one, _Lines)), listener]
    LOG.setLevel(min(LOG.getEffectiveLevel(), logging.INFO))
    try:
        yield
    finally:
        LOG.handlers[:] = handlers
        LOG.setLevel(level)
