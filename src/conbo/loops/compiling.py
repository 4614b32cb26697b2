"""How the loops are compiled: the first call of any loop compiles all loops that every study needs.

Compiling takes several seconds on an empty cache, and Numba compiles one function at a time in a process. So helper
processes take part: each takes the next loop that nobody has claimed and puts its code into the cache on disk. A run
starts them at its beginning (`begin`), so that they work while the initial design is evaluated. Whatever they do
not finish, this process compiles.

`fast` loops may reorder sums and `exact` loops may not; `fused_helper` may only use fused multiply-add.
Every helper becomes part of the loop that calls it, by Numba (`inlined`) or by LLVM. Otherwise a process that compiles
and one that loads the cache would link different copies of the helper, which LLVM optimized separately, and would round
differently.
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

# Where the loops are, the longest first: short ones at the end keep all processes busy until the end.
MODULES = (
    "ascent",
    "convex_integral",
    "product_kernel",
    "product_family",
    "likelihood",
    "correlation",
    "expected_max",
    "neighboring_nodes",
    "distinct_rows",
)
MOST_HELPERS = 3  # more cannot be faster, because the longest loop takes a third of the time
PATIENCE = 120.0  # seconds to wait for a helper, after which its loops are compiled here
HELPER = "import sys; sys.path.append(sys.argv[1]); from conbo.loops import compiling; compiling.help_out(sys.argv[2])"

Array = Any  # a NumPy array inside the compiled functions
Function = Callable[..., Any]

# Options that save compile time: loops need no reference counting, and have no array expressions to rewrite.
LEAN = {"error_model": "numpy", "_nrt": False, "no_rewrites": True, "no_cfunc_wrapper": True}

# Of a `fast` loop whose results may be NaN or infinite; other `fast` loops are compiled as if that never happened.
MAY_FAIL = {"reassoc", "contract", "arcp", "nsz"}

exact_helper = compiled_with(**LEAN, no_cpython_wrapper=True, forceinline=True)
fused_helper = compiled_with(**LEAN, no_cpython_wrapper=True, forceinline=True, fastmath={"contract"})
inlined = compiled_with(**LEAN, inline="always")


def fast(signature: str, on_demand: bool = False, **options: Any) -> Callable[[Function], Function]:
    """Turn a function into a compiled loop, in which sums may be reordered.

    `signature` declares its argument types as Numba writes them. With `on_demand`, for loops that few studies need,
    only the loop's own first call compiles it.
    """
    options = {"fastmath": True} | options
    return lambda function: Loop(function, signature, on_demand, **options) if AVAILABLE else function


def exact(signature: str) -> Callable[[Function], Function]:
    """Turn a function into a compiled loop, in which sums keep the order in which they are written."""
    return lambda function: Loop(function, signature, fastmath=False) if AVAILABLE else function


class Loop:
    """A compiled function of one signature; the first call of any loop makes all loops ready.

    A loop that is compiled on demand is made ready by its own first call.
    """

    def __init__(self, function: Function, signature: str, on_demand: bool = False, **options: Any) -> None:
        self._signature, self._on_demand = signature, on_demand
        self._compiled: Any = compiled_with(**(LEAN | options))(function)
        self.name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        if not on_demand:
            _loops.append(self)

    def __call__(self, *arguments: Any) -> Any:
        """Run the loop, after all loops are ready."""
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
        """The signatures that the loop has been compiled for."""
        return self._compiled.signatures

    @property
    def folder(self) -> Path | None:
        """The folder that holds the compiled code; None if no folder can be written to."""
        path = self._compiled.stats.cache_path
        return None if path is None else Path(path)


Watcher = Callable[[], AbstractContextManager[None]]
watchers: list[Watcher] = []  # contexts that surround the time in which this process compiles

_log = logging.getLogger("conbo.compiling")
_loops: list[Loop] = []
_ready = threading.Event()
_lock = threading.Lock()
_helpers: list[subprocess.Popen[bytes]] = []
_claims: list[TemporaryDirectory[str]] = []  # the folder of claims shared with the helpers, while there are any


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A context without garbage collection, which would take a tenth of the compiler's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def all_loops() -> list[Loop]:
    """All loops, in the order of `MODULES`; empty without Numba."""
    for name in MODULES:
        import_module(f"conbo.loops.{name}")
    return list(_loops)


def begin() -> None:
    """Start other processes that compile the loops that are not in the cache, without waiting for the result."""
    with _lock:
        if is_cold():
            _start_helpers()


def is_cold() -> bool:
    """Whether a call of a loop would have to wait for the compiler."""
    if not AVAILABLE or _ready.is_set():
        return False
    return not _are_cached(all_loops())


def notice() -> str:
    """A message for a user who has to wait for the compiler."""
    if _is_kept():
        return "Compiling inner loops for this machine; this happens once."
    return "Compiling inner loops, in every process: no cache folder is writable (NUMBA_CACHE_DIR names one)."


def help_out(claims: str) -> None:
    """Compile all loops that nobody else has claimed."""
    for loop in all_loops():
        if _claim(Path(claims), loop):
            loop.compile()


def _are_cached(loops: list[Loop]) -> bool:
    folder = loops[0].folder
    if folder is None:
        return False
    found = os.listdir(folder) if folder.exists() else []
    kept = {name.rpartition("-")[0] for name in found if name.endswith(".nbi")}  # "module.function-line.python.nbi"
    return all(loop.name in kept for loop in loops)


def _is_kept() -> bool:
    """Whether compiled code is kept in a folder where the next process will find it."""
    return all_loops()[0].folder is not None


def _make_ready() -> None:
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
    with _lock, ExitStack() as watched:
        if not _are_cached([loop]):
            _say_so(watched)
        loop.compile()


def _say_so(watched: ExitStack) -> None:
    """Enter the contexts of all watchers while this process compiles; closing the stack exits them."""
    if not watchers:
        _log.info(notice())
    for watcher in watchers:
        watched.enter_context(watcher())


def _start_helpers() -> None:
    if _claims or not _is_kept() or not sys.executable or getattr(sys, "frozen", False):
        return
    with suppress(OSError):  # no folder for temporary files, or no more processes: go on without helpers
        _claims.append(TemporaryDirectory(prefix="conbo-", ignore_cleanup_errors=True))
        command = [sys.executable, "-P", "-c", HELPER, str(Path(__file__).parents[2]), _claims[0].name]
        for _ in range(max(1, min(MOST_HELPERS, available_threads() - 1))):
            # in a session of its own, so that an interrupt of this process leaves it working
            null = subprocess.DEVNULL
            helper = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)
            _helpers.append(helper)


def _dismiss_helpers() -> None:
    """Wait until the helpers have compiled what they claimed."""
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
    try:
        (folder / loop.name).touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # the process that started this helper has ended and removed the folder
        return True
    return True
