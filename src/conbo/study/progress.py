"""The progress bars of runs and validations."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from tqdm import tqdm

from conbo.loops import compiling

ESTIMATE_SHARE = 0.1  # share of the time that may be spent on estimating the policy's value for display


class _Bar(tqdm):  # type: ignore[misc]
    """A progress bar with a lock of its own, because tqdm's lock is shared with forked processes.

    A process that is killed while it holds a shared lock would block the bar for good.
    """

    _lock = threading.RLock()
    monitor_interval = 0  # no monitor thread, which might hold the lock during a fork


def _bar_class() -> type[Any]:
    """The class of progress bars: tqdm's notebook bar in a notebook with ipywidgets, otherwise a bar for a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if not hasattr(shell, "kernel") or find_spec("ipywidgets") is None:
        return _Bar
    from tqdm.notebook import tqdm_notebook

    return type("NotebookBar", (tqdm_notebook,), {"_lock": _Bar._lock, "monitor_interval": 0})


def evaluation_bar(wanted: int, show: bool) -> Any:
    """Return a progress bar for a validation of `wanted` evaluations; the bar is invisible if `show` is False."""
    return _bar_class()(total=wanted, desc="validating", unit="evaluation", miniters=1, disable=not show)


class Progress:
    """The progress bar of a run: the number of completed trials, and an estimate of the policy's value.

    The estimate is updated so rarely that it takes at most about a tenth of the run's time.
    """

    def __init__(self, completed: int, wanted: int | None, estimate: Callable[[], float], show: bool) -> None:
        self._estimate = estimate
        initial = completed if wanted is None else min(completed, wanted)
        options = {"desc": "learning", "unit": "trial", "miniters": 1}
        self._bar = _bar_class()(total=wanted, initial=initial, disable=not show, **options)
        self._next: float | None = None  # earliest time of the next estimate
        self._stale = False  # whether rewards have come in since the last estimate

    def __enter__(self) -> "Progress":
        if not self._bar.disable:
            compiling.watchers.append(self._while_compiling)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._stale and error is None:
            self._show_value()
        if not self._bar.disable:
            compiling.watchers.remove(self._while_compiling)
        self._bar.close()

    def show(self, completed: int) -> None:
        """Show this number of completed trials and, unless the last estimate is too recent, a new policy value.

        The policy value is an estimate that takes time, so it is not computed at every call.
        """
        self._stale = not self._bar.disable
        due = self._next is None or time.monotonic() >= self._next
        if self._stale and due and not compiling.is_cold():  # a cold estimate would wait for the compiler
            self._show_value()
        self._bar.update(max(0, completed - self._bar.n))

    def _show_value(self) -> None:
        began = time.monotonic()
        self._bar.set_postfix_str(f"policy value ≈ {self._estimate():.4g}")
        ended = time.monotonic()
        # the first estimate includes imports, so its duration says nothing about the next one
        self._next = ended if self._next is None else ended + (ended - began) / ESTIMATE_SHARE
        self._stale = False

    def note(self, text: str) -> None:
        """Print a line that stays above the bar."""
        if not self._bar.disable:
            with suppress(RuntimeError):  # an interrupt may come in the middle of another line
                self._bar.write(text, file=sys.stderr)

    @contextmanager
    def _while_compiling(self) -> Iterator[None]:
        """Context for compiling numerical loops: it shows a message, and excludes the time from the bar's rate."""
        with suppress(RuntimeError):
            self._bar.write(compiling.notice(), file=sys.stderr)
        began = time.time()
        try:
            yield
        finally:
            seconds = time.time() - began
            self._bar.start_t += seconds
            self._bar.last_print_t += seconds
