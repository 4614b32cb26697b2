"""Compiles the loops of this package; the first call of any loop that every study needs compiles all such loops.

Compiling takes several seconds if the cache on disk is empty, and Numba compiles one function at a time in a process.
So helper processes share the work: each takes the next loop that no other process has claimed, compiles it and stores
its code in the cache. A run starts them at its beginning (`begin`), so that they work while the initial design is
evaluated. The main process compiles the loops that no helper process has compiled.

A loop that is declared `fast` may reorder sums, and one that is declared `exact` may not. Functions that loops call are
declared `helper` or `inlined`. LLVM inlines a `helper` into the loop that calls it, and Numba inlines an `inlined`
function. Without inlining, rounding errors would depend on whether a process compiled a loop or loaded it from the
cache. The only fast-math option of a `helper` is fused multiply-add.
"""

import gc
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from conbo.compiler import AVAILABLE, compiled_with
from conbo.threads import available_threads

# The modules with loops that every study needs. Those that take longest to compile come first, so that all processes
# finish at about the same time.
MODULES = (
    "ascent",
    "likelihood",
    "convex_integral",
    "product_family",
    "rough_gains",
    "product_kernel",
    "expected_max",
    "neighboring_nodes",
    "correlation",
    "distinct_rows",
)
MOST_HELPERS = 3  # more cannot be faster, because the longest loop takes a third of the time
PATIENCE = 120.0  # seconds to wait for a helper, after which its loops are compiled here
# A helper's program. Without SciPy, which the loops do not use, Numba starts faster: it looks for SciPy's BLAS.
HELPER = """
import sys
sys.modules["scipy"] = None
sys.path.append(sys.argv[1])
from conbo.loops import compiling
compiling.help_out(sys.argv[2])
"""

Array = Any  # a NumPy array inside the compiled functions
Function = Callable[..., Any]

# Options that save compile time: loops need no reference counting, and have no array expressions to rewrite.
LEAN = {"error_model": "numpy", "_nrt": False, "no_rewrites": True, "no_cfunc_wrapper": True}

FAST = {"reassoc", "contract", "arcp", "nsz"}  # fast-math flags, except those that rule out NaN and infinity

helper = compiled_with(**LEAN, no_cpython_wrapper=True, forceinline=True, fastmath={"contract"})
inlined = compiled_with(**LEAN, inline="always")


def fast(signature: str, on_demand: bool = False, **options: Any) -> Callable[[Function], Function]:
    """Decorate a function that Numba compiles with fast math, so that sums may be reordered.

    `signature` has the argument types in Numba's notation, and `options` are passed to Numba. A loop with `on_demand`,
    which few studies need, is compiled by its own first call. All other loops are compiled together, by the first call
    of any of them. Without Numba, the function is returned unchanged.
    """
    return lambda function: Loop(function, signature, on_demand, fastmath=FAST, **options) if AVAILABLE else function


def exact(signature: str) -> Callable[[Function], Function]:
    """Decorate a function that Numba compiles without fast math, so that sums keep their order.

    `signature` has the argument types in Numba's notation. Without Numba, the function is returned unchanged.
    """
    return lambda function: Loop(function, signature, fastmath=False) if AVAILABLE else function


class Loop:
    """A function that Numba compiles for one signature of argument types.

    A loop with `on_demand` is compiled, or loaded from the cache, by its own first call. All other loops are compiled
    or loaded together, by the first call of any of them.
    """

    def __init__(self, function: Function, signature: str, on_demand: bool = False, **options: Any) -> None:
        self._signature, self._on_demand = signature, on_demand
        self._compiled: Any = compiled_with(**(LEAN | options))(function)
        self.name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        if not on_demand:
            _loops.append(self)

    def __call__(self, *arguments: Any) -> Any:
        """Run the loop, after compiling it or loading its code from the cache if that has not been done before."""
        if self._on_demand:
            if not self.signatures:
                _make_one_ready(self)
        elif not _ready.is_set():
            _make_ready()
        return self._compiled(*arguments)

    def compile(self) -> None:
        """Load the loop's code from the cache, or compile the loop and store its code in the cache."""
        with _without_garbage_collection():
            self._compiled.compile(self._signature)

    @property
    def signatures(self) -> list[Any]:
        """Argument types for which the loop has been compiled or loaded: one entry, or none before that."""
        return self._compiled.signatures

    @property
    def folder(self) -> Path | None:
        """The folder of Numba's cache for this loop; None if no cache folder is writable."""
        path = self._compiled.stats.cache_path
        return None if path is None else Path(path)


Watcher = Callable[[], AbstractContextManager[None]]
watchers: list[Watcher] = []  # make contexts that are active while this process compiles, such as a progress message

_log = logging.getLogger("conbo.compiling")
_loops: list[Loop] = []
_ready = threading.Event()
_lock = threading.Lock()
_helpers: list[subprocess.Popen[bytes]] = []
_claims: list[TemporaryDirectory[str]] = []  # while there are helpers: the folder in which a file claims each loop


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Switch garbage collection off within a `with` block, because it takes a tenth of the compile time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def all_loops() -> list[Loop]:
    """Import all `MODULES` and return their loops, except those compiled on demand; without Numba, there are none."""
    for name in MODULES:
        import_module(f"conbo.loops.{name}")
    return list(_loops)


def begin() -> None:
    """Start processes that compile loops in the background, if the cache on disk does not hold all loops yet."""
    with _lock:
        if is_cold():
            _start_helpers()


def is_cold() -> bool:
    """Return whether the next call of a loop has to wait for the compiler."""
    if not AVAILABLE or _ready.is_set():
        return False
    return not _are_cached(all_loops())


def notice() -> str:
    """Return a message for a user who has to wait for the compiler."""
    if _is_kept():
        return "Compiling inner loops for this machine; this happens once."
    return "Compiling inner loops, in every process: no cache folder is writable (NUMBA_CACHE_DIR names one)."


def help_out(claims: str) -> None:
    """Compile the loops that no other process has claimed; the helper processes and the main process run this.

    A process claims a loop by creating a file with the loop's name in the folder `claims`.
    """
    for loop in all_loops():
        if _claim(Path(claims), loop):
            loop.compile()


def _are_cached(loops: list[Loop]) -> bool:
    """Return whether the compiled code of all given loops is in the cache on disk."""
    folder = loops[0].folder
    if folder is None:
        return False
    found = os.listdir(folder) if folder.exists() else []
    kept = {name.rpartition("-")[0] for name in found if name.endswith(".nbi")}  # "module.function-line.python.nbi"
    return all(loop.name in kept for loop in loops)


def _is_kept() -> bool:
    """Return whether compiled code can be stored in a cache folder for later processes."""
    return all_loops()[0].folder is not None


def _make_ready() -> None:
    """Make all loops ready, except those with `on_demand`: load them from the cache, or compile them.

    Helper processes, where they can be started, share the work of compiling.
    """
    with _lock, ExitStack() as watched:
        if is_cold():
            _say_so(watched)
            _start_helpers()
            for claims in _claims:
                help_out(claims.name)
        _dismiss_helpers()
        for loop in all_loops():  # load what is in the cache, and compile what no helper compiled
            loop.compile()
        _ready.set()


def _make_one_ready(loop: Loop) -> None:
    """Compile a loop with `on_demand`, or load it from the cache."""
    with _lock, ExitStack() as watched:
        if not _are_cached([loop]):
            _say_so(watched)
        loop.compile()


def _say_so(watched: ExitStack) -> None:
    """Tell the user that this process is compiling, by calling all functions in `watchers`.

    Each of them returns a context manager, which shows, for example, a progress message until the stack `watched` is
    closed. If `watchers` is empty, a message is logged instead.
    """
    if not watchers:
        _log.info(notice())
    for watcher in watchers:
        watched.enter_context(watcher())


def _start_helpers() -> None:
    """Start the processes that help to compile, unless they are already running or cannot store what they compile."""
    if _claims or not _is_kept() or not sys.executable or getattr(sys, "frozen", False):
        return
    with suppress(OSError):  # no folder for temporary files, or no more processes: go on without helpers
        _claims.append(TemporaryDirectory(prefix="conbo-", ignore_cleanup_errors=True))
        command = [sys.executable, "-P", "-c", HELPER, str(Path(__file__).parents[2]), _claims[0].name]
        for _ in range(max(1, min(MOST_HELPERS, available_threads() - 1))):
            # in a session of its own, so that Ctrl-C in this process does not interrupt the helper
            null = subprocess.DEVNULL
            helper = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)
            _helpers.append(helper)


def _dismiss_helpers() -> None:
    """Wait for the processes that help to compile, kill those that take longer than `PATIENCE`, and clean up."""
    for helper in _helpers:
        try:
            helper.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            helper.kill()
            helper.wait()
    for claims in _claims:
        claims.cleanup()
    _helpers.clear()
    _claims.clear()


def _claim(folder: Path, loop: Loop) -> bool:
    """Claim a loop for this process by creating a file; return False if another process has already claimed it."""
    try:
        (folder / loop.name).touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # the process that started this helper has ended and removed the folder
        return True
    return True
