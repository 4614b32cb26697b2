"""An exponential function that the compiler can vectorize, unlike a call of the math library."""

from conbo.loops.compiling import Array, fused_helper


@fused_helper
def exp_of_minus(r: Array, result: Array, whole: Array, bits: Array) -> None:
    """Write exp(-r) to `result`, for r ≥ 0; r above 700 counts as 700.

    `whole`, as long as r, is scratch, and `bits` is the same memory as integers.
    """
    # With -r = k log 2 + y for an integer k and |y| ≤ ½ log 2, the result is 2^k e^y. A polynomial gives e^y with an
    # error of 1e-16. 2^k is composed of its bits: adding 1.5·2⁵² to a double leaves the integer k in its low bits, from
    # where it is shifted into the exponent.
    for m in range(len(r)):
        x = -(700.0 if r[m] > 700.0 else r[m])
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
