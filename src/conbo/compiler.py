"""Numba, if the extra `fast` is installed, and the names under which it keeps machine code on disk.

Numba compiles a function again when its own file changes. But the machine code of a function includes the code of the
functions it calls, which may be in other files. So the name of every function ends in a fingerprint of everything that
its code depends on, and code that was compiled before a change is never found again.

Numba keeps the code in `__pycache__` beside the source, or in the user's cache folder if that is read-only
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
    if numba.config.DISABLE_JIT:  # then torch is faster than plain Python
        numba = None

AVAILABLE = numba is not None
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled_with(**options: Any) -> Callable[[Function], Function]:
    """Compile a function on its first call, if Numba is installed. The code is kept on disk and runs without the GIL.

    All functions that it calls must be in files of the same folder.
    """

    def compile_lazily(function: Function) -> Function:
        if numba is None:
            return function
        function.__qualname__ += f"_{_fingerprint(Path(function.__code__.co_filename).parent)}"
        try:
            return cast(Function, numba.njit(cache=True, nogil=True, **options)(function))
        except RuntimeError:  # no folder can be written to, so every process compiles for itself
            return cast(Function, numba.njit(nogil=True, **options)(function))

    return compile_lazily


@cache
def _fingerprint(folder: Path) -> str:
    """Digest of all sources in the folder, of the options in this file, and of compiler and processor."""
    digest = sha256(f"{numba.__version__} {sys.version} {binding.get_host_cpu_name()}".encode())
    for path in (Path(__file__), *sorted(folder.glob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
