"""The progress bar of a run."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from tqdm import tqdm

SHARE = 0.1  # of the time that estimating the policy's value for display may take


class _Bar(tqdm):  # type: ignore[misc]
    """A bar whose lock is not shared with forked processes, where it would stay locked if one of them were killed."""

    _lock = threading.RLock()
    monitor_interval = 0  # no thread that might hold it during a fork


class Progress:
    """Completed trials out of those wanted, with an estimate of the policy's value that never costs much."""

    def __init__(self, completed: int, wanted: int, estimate: Callable[[], float], show: bool) -> None:
        self._estimate = estimate
        initial = min(completed, wanted)
        self._bar = _Bar(total=wanted, initial=initial, disable=not show, desc="learning", unit="trial", miniters=1)
        self._next: float | None = None  # when an estimate may be made again
        self._stale = False  # whether rewards came in since the last one

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._stale and error is None:
            self._show_value()
        self._bar.close()

    def show(self, completed: int) -> None:
        """So many trials are completed now."""
        self._stale = not self._bar.disable
        if self._stale and (self._next is None or time.monotonic() >= self._next):
            self._show_value()
        self._bar.update(max(0, completed - self._bar.n))

    def _show_value(self) -> None:
        began = time.monotonic()
        self._bar.set_postfix_str(f"policy value ≈ {self._estimate():.4g}")
        ended = time.monotonic()
        # the first estimate also pays for imports and compilation, which says nothing about the next
        self._next = ended if self._next is None else ended + (ended - began) / SHARE
        self._stale = False

    def note(self, text: str) -> None:
        """A line that stays above the bar."""
        if not self._bar.disable:
            with suppress(RuntimeError):  # an interrupt may come in the middle of another line
                self._bar.write(text, file=sys.stderr)
