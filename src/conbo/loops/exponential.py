"""An exponential function that the compiler can vectorize, unlike a call to the math library."""

import numpy as np

from conbo.loops.compiling import helper


@helper
def exp_of_minus(r: float) -> float:
    """Return exp(-r), for r ≥ 0; r above 700 counts as 700."""
    # With -r = k log 2 + y for an integer k and |y| ≤ ½ log 2, the result is 2^k e^y. A polynomial gives e^y with an
    # error of 1e-16. 2^k is composed of its bits: adding 1.5·2⁵² to a double leaves the integer k in its low bits, from
    # where it is shifted into the exponent.
    x = -(700.0 if r > 700.0 else r)
    shifted = x * 1.4426950408889634 + 6755399441055744.0
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
    bits = (np.float64(shifted).view(np.int64) + 1023) << 52
    return ((p * y + 1.0) * y + 1.0) * np.int64(bits).view(np.float64)
