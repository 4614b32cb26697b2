"""What Ctrl-C does to a run."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SuggestionInterrupted(KeyboardInterrupt):
    """Ctrl-C while the next point was looked for, which is not needed any more."""


@contextmanager
def first_interrupt_waits(
    active: bool, note: Callable[[str], None], suggesting: Callable[[], bool]
) -> Iterator[threading.Event]:
    """The first Ctrl-C sets the event and ends the search for the next point; the second is an interrupt again."""
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
