"""What happens where an objective is evaluated in another process; for this it need not import torch."""

import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from conbo.errors import shortened
from conbo.trials import finite_number

LOOK_UP = 0.5  # seconds between two looks at whether the parent is there
MAX_MESSAGE = 10_000  # characters of a message, and of a traceback, that travel


@dataclass(frozen=True)
class Failure:
    """An exception as text, because not every exception can be pickled, and not every pickled one can be read."""

    error: str  # its type and message
    traceback: str


def evaluate(objective: Callable[..., Any], state: dict[str, Any], action: dict[str, Any]) -> "float | Failure":
    """The reward; whatever goes wrong becomes text, and the rest of a result never travels."""
    try:
        return finite_number("reward", objective(state, action))
    except Exception as error:
        return Failure(error_text(error), shortened(traceback.format_exc(), MAX_MESSAGE))


def load(objective: bytes) -> None:
    """Import all that a pickled objective needs, which may take seconds; an evaluation says what goes wrong."""
    with suppress(Exception):
        pickle.loads(objective)


def load_and_evaluate(objective: bytes, state: dict[str, Any], action: dict[str, Any]) -> "float | Failure":
    """The reward of a pickled objective, which need not be readable here."""
    try:
        function = pickle.loads(objective)
    except Exception as error:
        text = f"the objective cannot be loaded in a worker process: {error_text(error)}"
        return Failure(text, shortened(traceback.format_exc(), MAX_MESSAGE))
    return evaluate(function, state, action)


def error_text(error: BaseException) -> str:
    """The type and the message of an exception, even of one that cannot say what it means."""
    try:
        message = str(error)
    except Exception as wrong:
        message = f"(its message cannot be read: {type(wrong).__name__})"
    return shortened(f"{type(error).__name__}: {message}", MAX_MESSAGE)


def prepare(parent: int) -> None:
    """Leave Ctrl-C, which reaches all processes of a terminal, to the parent; end when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), name="conbo parent watch", daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_UP)
    os._exit(1)
