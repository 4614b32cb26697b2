"""The timeout of an evaluation: the time that it may take.

In a local process, the clock starts when the process is ready, so that the start of the process does not count. In the
user's executor, the clock starts when the evaluation is submitted, because few executors report when it begins. The
loop in `run.py` checks the clocks at short intervals. An evaluation whose time is over counts as failed, and is stopped
if the executor can stop it.
"""

import time
from math import inf


class Timeout:
    """The time limit of one evaluation, in seconds since `start` was called; None stands for no limit."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self.deadline = inf  # when the time is over, by time.monotonic; infinite until the clock is started

    @property
    def waits(self) -> bool:
        """Whether there is a limit, but the clock has not been started yet."""
        return self._seconds is not None and self.deadline == inf

    @property
    def is_over(self) -> bool:
        """Whether the time limit has passed; false if there is no limit, or the clock has not been started."""
        return time.monotonic() > self.deadline

    def start(self) -> None:
        """Start the clock of the evaluation."""
        if self._seconds is not None:
            self.deadline = time.monotonic() + self._seconds

    def error(self) -> TimeoutError:
        """The error of an evaluation whose time is over."""
        return TimeoutError(f"no result after {self._seconds:g} s")
