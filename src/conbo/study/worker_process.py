"""The functions that run in a worker process: they load and evaluate the objective, without importing torch."""

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conbo.errors import shortened
from conbo.trials import Outcomes, outcomes_of

POLL_SECONDS = 0.5  # seconds between two checks whether the parent process is alive
PACKAGE = str(Path(__file__).parents[1]) + os.sep  # folder of conbo's own code
PROGRAMS: set[int] = set()  # process numbers of the programs that this process runs; they end with it
MAX_MESSAGE = 10_000  # largest number of characters of a message, and of a traceback, that are sent back


@dataclass(frozen=True)
class Failure:
    """An exception in a worker process, as strings, because the exception itself may not be picklable."""

    error: str  # its type and message
    traceback: str


def evaluate(objective: Callable[..., Any], *arguments: Any) -> "Outcomes | Failure":
    """Evaluate the objective; return its outcomes, or a `Failure` if it raised an exception other than Ctrl-C."""
    try:
        return outcomes_of(objective(*arguments))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too, because the process is not the objective's to end
        return Failure(located_text(error), shortened(traceback.format_exc(), MAX_MESSAGE))


def load(objective: bytes) -> None:
    """Import everything that a pickled objective needs, which may take seconds.

    Errors are ignored here, because the evaluation will report them.
    """
    with suppress(BaseException):  # also SystemExit, of a module that ends its program
        pickle.loads(objective)


def load_and_evaluate(objective: bytes, *arguments: Any) -> "Outcomes | Failure":
    """Load and evaluate a pickled objective; return its outcomes, or a `Failure` if an exception was raised."""
    try:
        function = pickle.loads(objective)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        text = f"the objective cannot be loaded in a worker process: {error_text(error)}"
        return Failure(text, shortened(traceback.format_exc(), MAX_MESSAGE))
    return evaluate(function, *arguments)


def error_text(error: BaseException) -> str:
    """Type and message of an exception; if `str(error)` itself fails, a note takes the place of the message."""
    try:
        message = str(error)
    except Exception as wrong:
        message = f"(its message cannot be read: {type(wrong).__name__})"
    return shortened(f"{type(error).__name__}: {message}", MAX_MESSAGE)


def located_text(error: BaseException) -> str:
    """Type, message and origin of an exception, such as "ValueError: too hot (simulator.py, line 7)".

    If a library that the objective calls raised the exception, the line is that of the call in the objective's file.
    """
    text, place = error_text(error), _place(error)
    return shortened(text, MAX_MESSAGE - len(place)) + place


def _place(error: BaseException) -> str:
    """The line of the objective's file that led to an exception, as " (simulator.py, line 7)"; empty if none did."""
    ours = (PACKAGE, "<string>")  # "<string>" is the constructor of a dataclass
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def prepare(parent: int) -> None:
    """Prepare a worker process: ignore Ctrl-C, which the parent handles, and end the process when the parent has ended.

    Ctrl-C reaches the worker too, because a terminal sends it to all its processes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), name="conbo parent watch", daemon=True).start()


def end_program(program: int) -> None:
    """End a program that this process runs and, except on Windows, everything that it has started."""
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            os.kill(program, signal.SIGTERM)
        else:
            os.killpg(program, signal.SIGKILL)


def end_programs() -> None:
    """End all programs that this process runs."""
    for program in list(PROGRAMS):
        end_program(program)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    end_programs()
    os._exit(1)
