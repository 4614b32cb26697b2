"""What the compiled loops share: the compiler, if it is installed, and an exponential that it can vectorise.

`fast` lets it reorder sums, `exact` does not, `fused` lets it only round a product and a sum at once; all release the
interpreter's lock.  `inlined` ones become part of their `fast` callers: of a function by itself there would be several
versions that reorder sums in their own ways, and a process that compiles would meet another one than a process that
finds what is compiled.  What is compiled is kept beside each file until that file changes: after a change here, delete
`__pycache__`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from conbo.models.profiles import Profile

try:
    from numba import njit
except ImportError:  # the extra `fast` is not installed: the callers go on in torch
    AVAILABLE = False

    def njit(**_: Any) -> Callable[[Any], Any]:  # type: ignore[no-redef]
        """Leave a function as it is."""
        return lambda function: function
else:
    AVAILABLE = True

Array = Any  # a numpy array inside the compiled functions
fast = njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
exact = njit(cache=True, nogil=True, fastmath=False, error_model="numpy")  # a caller's fastmath must not leak in
inlined = njit(cache=True, nogil=True, fastmath=True, error_model="numpy", forceinline=True)
fused = njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")


def handles(profile: Profile) -> bool:
    """Whether there are compiled loops for a kernel of this profile; profiles of one's own are computed in torch."""
    return AVAILABLE and profile.built_in


@fused
def exp_of_minus(r: Array, result: Array, whole: Array) -> None:
    """exp(-r) for r ≥ 0, written so that the compiler can vectorise it (a call of the library's exp it cannot).

    -r = k log 2 + y with |y| ≤ ½ log 2; a polynomial gives e^y to 1e-16, and 2^k is put together from bits:
    adding 1.5·2⁵² leaves k in the low bits of a double.
    """
    bits = whole.view(np.int64)
    for m in range(len(r)):
        x = -min(r[m], 700.0)
        shifted = x * 1.4426950408889634 + 6755399441055744.0
        whole[m] = shifted
        k = shifted - 6755399441055744.0
        y = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10
        p = 1.0 / 479001600.0
        p = p * y + 1.0 / 39916800.0
        p = p * y + 1.0 / 3628800.0
        p = p * y + 1.0 / 362880.0
        p = p * y + 1.0 / 40320.0
        p = p * y + 1.0 / 5040.0
        p = p * y + 1.0 / 720.0
        p = p * y + 1.0 / 120.0
        p = p * y + 1.0 / 24.0
        p = p * y + 1.0 / 6.0
        p = p * y + 0.5
        result[m] = (p * y + 1.0) * y + 1.0
    for m in range(len(r)):
        bits[m] = (bits[m] + 1023) << 52
    for m in range(len(r)):
        result[m] *= whole[m]
