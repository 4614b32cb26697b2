"""What a local process does beside evaluating; for this it need not import torch."""

import os
import signal
import threading
import time

LOOK_UP = 0.5  # seconds between two looks at whether the parent is there


def prepare(parent: int) -> None:
    """Leave Ctrl-C, which reaches all processes of a terminal, to the parent; end when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), name="conbo parent watch", daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_UP)
    os._exit(1)
