"""The logger `conbo` for messages about slow steps, and a context manager that passes them to a function."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOG = logging.getLogger("conbo")


def in_words(seconds: float) -> str:
    """Return a duration in words, such as "20 seconds" or "4 minutes"; the shortest is "1 second"."""
    if seconds < 1.5:
        return "1 second"
    for unit, length in (("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}s"
    return f"{seconds:.0f} seconds" if seconds < 10 else f"{round(seconds, -1):.0f} seconds"


class _Lines(logging.Handler):
    """A logging handler that passes each record, as a line of text, to a function."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        kind = "" if record.levelno < logging.WARNING else f"{record.levelname.capitalize()}: "
        self._say(kind + self.format(record))  # with the traceback, if the record has one


@contextmanager
def listening(say: Callable[[str], None]) -> Iterator[None]:
    """Pass conbo's log messages to the function `say` within the `with` block.

    If such blocks are nested, only the innermost `say` gets the messages.
    """
    handlers, level = LOG.handlers[:], LOG.level
    listener = _Lines(say)
    LOG.handlers[:] = [*(one for one in handlers if not isinstance(one, _Lines)), listener]
    LOG.setLevel(min(LOG.getEffectiveLevel(), logging.INFO))
    try:
        yield
    finally:
        LOG.handlers[:] = handlers
        LOG.setLevel(level)
