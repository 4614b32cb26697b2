"""Ctrl-C during a run: the first one ends it gently, a second one interrupts."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SuggestionInterrupted(KeyboardInterrupt):
    """Raised by Ctrl-C during the search for the next point, which is then no longer needed."""


@contextmanager
def first_interrupt_waits(
    active: bool, note: Callable[[str], None], suggesting: Callable[[], bool]
) -> Iterator[threading.Event]:
    """A context that yields an event; the first Ctrl-C sets it and ends the search for a point, a second interrupts."""
    interrupted = threading.Event()
    ours = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not active or not ours or before is not signal.default_int_handler:
        yield interrupted
        return

    def remember(number: int, frame: object) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)
        note("Interrupted: waiting for the running evaluations; Ctrl-C again cancels them.")
        if suggesting():
            raise SuggestionInterrupted

    signal.signal(signal.SIGINT, remember)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
