"""Ctrl-C during a run: the first one lets running evaluations finish, a second one interrupts them."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SuggestionInterrupted(KeyboardInterrupt):
    """Raised if Ctrl-C is pressed during the search for the next point; it ends the search, so that the run can end."""


@contextmanager
def first_interrupt_waits(
    active: bool, interrupted: threading.Event, note: Callable[[str], None], suggesting: Callable[[], bool]
) -> Iterator[None]:
    """Context in which the first Ctrl-C only asks a run to end, and a second one raises KeyboardInterrupt.

    The first Ctrl-C sets the event `interrupted`. If `suggesting` returns True at that moment,
    `SuggestionInterrupted` is raised to end the search for the next point. `note` shows a message to the user. Ctrl-C
    keeps its usual effect if `active` is False, if this is not the main thread, or if the program handles Ctrl-C
    itself.
    """
    ours = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not active or not ours or before is not signal.default_int_handler:
        yield
        return

    def remember(number: int, frame: object) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)
        note("Interrupted: waiting for the running evaluations; Ctrl-C again cancels them.")
        if suggesting():
            raise SuggestionInterrupted

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
