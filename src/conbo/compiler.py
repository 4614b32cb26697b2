"""Compiles functions with Numba, if the extra `fast` is installed, and never uses stale code from Numba's disk cache.

Numba caches machine code on disk, and compiles a function again when the function's own file changes. But the machine
code includes that of called functions, which may be in other files. So the name of every function ends in a hash of
everything that its code depends on. After a change, the name differs, and the old code is not found.

The cache is in `__pycache__` beside the source. If the source folder is read-only, it is in the user's cache folder
(`~/.cache/numba` on Linux). The environment variable NUMBA_CACHE_DIR names another folder.
"""

import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

numba: Any
try:
    import numba
    from llvmlite import binding
except ImportError:  # the extra is not installed
    numba = None
else:
    if numba.config.DISABLE_JIT:  # use torch, which is faster than loops in Python
        numba = None

AVAILABLE = numba is not None
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled_with(**options: Any) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function with Numba on its first call; without Numba, it changes nothing.

    `options` are passed to `numba.njit`.  The machine code is cached on disk and runs without the GIL.  All compiled
    functions that the function calls must be in the same folder, because a hash of this folder decides whether the
    cached code is still valid.
    """

    def compile_lazily(function: Function) -> Function:
        if numba is None:
            return function
        function.__qualname__ += f"_{_fingerprint(Path(function.__code__.co_filename).parent)}"
        try:
            return cast(Function, numba.njit(cache=True, nogil=True, **options)(function))
        except RuntimeError:  # no folder is writable, so every process has to compile
            return cast(Function, numba.njit(nogil=True, **options)(function))

    return compile_lazily


@cache
def _fingerprint(folder: Path) -> str:
    """Return a hash of all sources in the folder and of this file, the versions of Numba and Python, and the CPU."""
    digest = sha256(f"{numba.__version__} {sys.version} {binding.get_host_cpu_name()}".encode())
    for path in (Path(__file__), *sorted(folder.glob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
