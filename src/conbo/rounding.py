"""Formats numbers for people: with a few significant digits, and with margins.

Wherever conbo writes ± after a model's estimate of an expected reward, the margin is 1.96 standard deviations of this
estimate, so that estimate ± margin is a 95 % credible interval. The margin does not include the
noise of a single reward.
"""

import math
from collections.abc import Sequence

NINETY_FIVE = 1.96  # number of standard deviations around the mean that contain 95 % of a normal distribution
MARGIN_IN_WORDS = "± is 1.96 standard deviations of the mean, without noise"
BAND = "± 1.96 sd of the mean"  # name of a band around a curve in legends
SMALLEST_PLAIN = 1e-3  # absolute value below which numbers are written with an exponent
MOST_DIGITS = 6  # largest number of significant digits of a number with a margin


def number(value: float, digits: int = 4) -> str:
    """Return a number as text, rounded to `digits` significant digits, but not coarser than to an integer.

    A number whose absolute value is below 0.001 or at least a million is written with an exponent, and with one
    significant digit fewer (but at least two).
    """
    if value and not SMALLEST_PLAIN <= abs(value) < 1e6:
        return f"{value:.{max(1, digits - 2)}e}"
    decimals = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
    text = f"{value:.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def with_margin(mean: float, std: float) -> str:
    """Return a mean and its margin of 1.96 standard deviations as text, such as "165.9 ± 7.1".

    Both have as many decimals as the margin needs for two significant digits. There are exceptions for very small and
    very large numbers.
    """
    margin = NINETY_FIVE * std
    short = number(margin, 2)
    if SMALLEST_PLAIN <= margin < 1e6:
        short = f"{margin:.{_decimals(margin)}f}"
    return f"{as_precise(mean, std)} ± {short}"


def as_precise(value: float, std: float) -> str:
    """Return a number as text, with as many decimals as its margin, 1.96 times `std`, needs for two significant digits.

    For example, 165.93 with the margin 7.1 becomes "165.9". There are exceptions for very small and very large numbers.
    """
    margin = NINETY_FIVE * std
    if value and 0 < max(margin, abs(value)) < SMALLEST_PLAIN:
        return _small(value, margin)
    if not SMALLEST_PLAIN <= margin < 1e6:
        return number(value)
    room = MOST_DIGITS - 1 - math.floor(math.log10(abs(value))) if value else MOST_DIGITS
    return f"{value:.{max(0, min(_decimals(margin), room))}f}"


def _small(value: float, margin: float) -> str:
    """Return a number below 1e-3 in magnitude as text, rounded to the second significant digit of its margin.

    The exponent is that of the number or the margin, whichever is larger: 1e-08 with the margin 1.7e-07 becomes
    "0.1e-07".
    """
    exponent = math.floor(math.log10(max(abs(value), margin)))
    digits = exponent - math.floor(math.log10(margin)) + 1 if margin else 2
    return f"{value / 10.0**exponent:.{min(digits, MOST_DIGITS - 1)}f}e{exponent:03d}"


def _decimals(margin: float) -> int:
    return max(0, 1 - math.floor(math.log10(margin)))


def listed(names: Sequence[str]) -> str:
    """Join names for a sentence: "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def counted(n: int, noun: str, several: str = "") -> str:
    """Return a number with its noun: "1 result", "2 results"; `several` is the plural if it is irregular."""
    return f"{n} {noun if n == 1 else several or noun + 's'}"
