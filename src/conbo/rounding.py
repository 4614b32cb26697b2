"""Numbers as people read them: a few significant digits, and margins that say how sure a number is.

Wherever conbo writes ±, the margin is 1.96 standard deviations of the expected reward, so that it holds 95 % of what
the model thinks possible. The noise of a single reward is not part of it.
"""

import math

NINETY_FIVE = 1.96  # standard deviations around the mean that hold 95 % of a normal distribution
MARGIN_IN_WORDS = "± is 1.96 standard deviations of the mean, without noise"
BAND = "± 1.96 sd of the mean"  # what a band around a curve is called
MOST_DIGITS = 6  # significant digits of a number with a margin


def number(value: float, digits: int = 4) -> str:
    """A number with this many significant digits, without a needless exponent."""
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{max(1, digits - 2)}e}"
    decimals = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
    text = f"{value:.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def with_margin(mean: float, std: float) -> str:
    """A mean and its margin of 1.96 standard deviations, both to the second digit of the margin: "165.9 ± 7.1"."""
    margin = NINETY_FIVE * std
    short = number(margin, 2)
    if 1e-3 <= margin < 1e6:
        short = f"{margin:.{_decimals(margin)}f}"
    return f"{as_precise(mean, std)} ± {short}"


def as_precise(value: float, std: float) -> str:
    """A number to the second digit of the margin that goes with this standard deviation."""
    margin = NINETY_FIVE * std
    if not 1e-3 <= margin < 1e6 or abs(value) >= 1e6:
        return number(value)
    room = MOST_DIGITS - 1 - math.floor(math.log10(abs(value))) if value else MOST_DIGITS
    return f"{value:.{max(0, min(_decimals(margin), room))}f}"


def _decimals(margin: float) -> int:
    return max(0, 1 - math.floor(math.log10(margin)))


def counted(n: int, noun: str, several: str = "") -> str:
    """A number with its noun: "1 result", "2 results"."""
    return f"{n} {noun if n == 1 else several or noun + 's'}"
