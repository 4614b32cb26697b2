"""The progress bar of a run."""

import time
from collections.abc import Callable
from types import TracebackType

from tqdm import tqdm

SHARE = 0.1  # of the time that estimating the policy's value for display may take


class Progress:
    """Completed trials out of those wanted, with an estimate of the policy's value that never costs much."""

    def __init__(self, completed: int, wanted: int, estimate: Callable[[], float], show: bool) -> None:
        self._estimate = estimate
        self._bar = tqdm(total=wanted, initial=min(completed, wanted), disable=not show, desc="learning", unit="trial")
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

    def advance(self) -> None:
        """One more trial is completed."""
        self._stale = not self._bar.disable
        if self._stale and (self._next is None or time.monotonic() >= self._next):
            self._show_value()
        self._bar.update()

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
            self._bar.write(text)
