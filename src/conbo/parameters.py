"""The parameters of a space: which values are valid, and how they are encoded as numbers in the unit interval.

| parameter   | encoding                                                                                    |
|-------------|---------------------------------------------------------------------------------------------|
| Real        | linear from [low, high] to [0, 1], or linear in the logarithm                               |
| Integer     | the same from [low - 1/2, high + 1/2], so that every integer is inside its own bin          |
| Categorical | k choices as the centers of k equal bins, whose order has no meaning for models             |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conbo.errors import PointError, SpaceError, shortened
from conbo.names import is_encodable
from conbo.values import Value, is_finite_number, is_number

Array: TypeAlias = NDArray[np.float64]

LARGEST_INTEGER = 10**12  # largest bound for which float64 separates the bins of all integers, on both scales
LARGEST_FLOAT = np.finfo(np.float64).max.item()
LARGEST_CHOICE = 10**100  # largest integer that may be a choice, because files hold all of its digits
MAX_CHOICES = 10_000  # largest number of choices of a categorical parameter
MAX_CHOICE = 1_000  # largest number of characters in a choice, because every trial repeats it
LARGEST_LOG_RATIO = 1e300  # largest high / low for which expm1 cannot overflow


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic scale: an increasing map from values in [low, high] to the unit interval."""

    low: float
    high: float
    log: bool

    def to_unit(self, values: ArrayLike) -> Array:
        """Map values to the unit interval; values outside [low, high] are mapped outside of it."""
        offset = np.asarray(values, dtype=np.float64) - self.low
        if not self.log:
            return offset / (self.high - self.low)
        # log1p of the offset, because log(value / low) loses all digits if high is close to low
        unit = np.log1p(offset / self.low) / self._log_ratio
        # rounded logarithms need not be monotone: values just below high could be mapped above one
        return np.where(offset <= self.high - self.low, np.minimum(unit, 1.0), unit)

    def from_unit(self, array: ArrayLike) -> Array:
        """Map numbers in the unit interval to values in [low, high]; numbers outside it are clipped first."""
        unit = np.clip(np.asarray(array, dtype=np.float64), 0.0, 1.0)
        if self.log:
            values = self.low + self.low * np.expm1(unit * self._log_ratio)
        else:
            values = self.low + unit * (self.high - self.low)
        # in floating point, low + (high - low) may differ from high
        return np.where(unit == 1.0, self.high, np.minimum(values, self.high))

    def slope(self, array: ArrayLike) -> Array:
        """Return the derivative of `from_unit` at numbers in the unit interval."""
        values = self.from_unit(array)
        return values * self._log_ratio if self.log else np.full_like(values, self.high - self.low)

    @property
    def _log_ratio(self) -> float:
        # numpy's log1p as in `to_unit`, so that high is encoded as exactly one; math.log1p differs in the last digit
        return float(np.log1p((self.high - self.low) / self.low))


@dataclass(frozen=True)
class Real:
    """A real number between two bounds.

    Parameters
    ----------
    low, high
        Lower and upper bound, both included.
    log
        Whether the scale is logarithmic, as for a learning rate. Then ``low > 0`` must hold.

    Raises
    ------
    SpaceError
        If the bounds are not finite numbers in increasing order, or a log scale has a bound that is not positive.

    Examples
    --------
    >>> conbo.Real(1e-4, 1e-1, log=True)
    Real(low=0.0001, high=0.1, log=True)
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, _finite_float(name, getattr(self, name)))
        _check_log(self.log)
        _check_order(self.low, self.high)
        if not math.isfinite(self.high - self.low):
            raise SpaceError(f"`high - low` must be finite, but got low={self.low}, high={self.high}.")
        if self.log and self.low <= 0:
            raise SpaceError(f"`low > 0` must hold on a log scale, but got low={self.low}.")
        if self.log and self.high > self.low * LARGEST_LOG_RATIO:
            rule = f"`high / low <= {LARGEST_LOG_RATIO}` must hold on a log scale"
            raise SpaceError(f"{rule}, but got low={self.low}, high={self.high}.")

    @property
    def scale(self) -> Scale:
        """The linear or logarithmic map from values to the unit interval."""
        return Scale(self.low, self.high, self.log)

    @property
    def n_levels(self) -> None:
        """The number of valid values: None, because a real parameter has infinitely many."""
        return None

    def encode(self, values: ArrayLike) -> Array:
        """Map values to the unit interval; values out of range are mapped outside of it."""
        return self.scale.to_unit(values)

    def decode(self, array: ArrayLike) -> list[float]:
        """Map numbers in the unit interval to values in the user's units."""
        values: list[float] = self.scale.from_unit(array).tolist()
        return values

    def snap(self, array: ArrayLike) -> Array:
        """Clip numbers to the unit interval, so that all of them encode valid values."""
        return np.clip(np.asarray(array, dtype=np.float64), 0.0, 1.0)

    def validate(self, name: str, value: object) -> float:
        """Return the value of parameter `name` as a float; raise PointError if it is not a number in range."""
        return float(_number_in_range(name, value, self.low, self.high))


@dataclass(frozen=True)
class Integer:
    """An integer between two bounds.

    Parameters
    ----------
    low, high
        Lower and upper bound, both included, within ±1e12.
    log
        Whether the scale is logarithmic, as for a batch size. Then ``low >= 1`` must hold.

    Raises
    ------
    SpaceError
        If the bounds are not integers in increasing order, or a log scale begins below 1.

    Examples
    --------
    >>> conbo.Integer(16, 512, log=True)
    Integer(low=16, high=512, log=True)
    """

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            bound = _finite_float(name, getattr(self, name))
            if not bound.is_integer() or abs(bound) > LARGEST_INTEGER:
                rule = f"`{name}` must be an integer within ±{LARGEST_INTEGER}"
                raise SpaceError(f"{rule}, but got {name}={getattr(self, name)}.")
            object.__setattr__(self, name, int(bound))
        _check_log(self.log)
        _check_order(self.low, self.high)
        if self.log and self.low < 1:
            raise SpaceError(f"`low >= 1` must hold for integers on a log scale, but got low={self.low}.")

    @property
    def scale(self) -> Scale:
        """The linear or logarithmic map from [low - 1/2, high + 1/2] to the unit interval."""
        return Scale(self.low - 0.5, self.high + 0.5, self.log)

    @property
    def n_levels(self) -> int:
        """The number of integers from `low` to `high`."""
        return self.high - self.low + 1

    def levels(self) -> Array:
        """Return the numbers (n_levels,) in the unit interval that encode the integers from `low` to `high`."""
        return self.encode(np.arange(self.low, self.high + 1))

    def cell(self, array: ArrayLike) -> tuple[Array, Array]:
        """For each number in the unit interval, return the lower and the upper end of its bin.

        A bin holds all numbers that encode the same integer.
        """
        values = self._nearest(array)
        return self.scale.to_unit(values - 0.5), self.scale.to_unit(values + 0.5)

    def encode(self, values: ArrayLike) -> Array:
        """Map integers to the unit interval; those out of range are mapped outside of it."""
        return self.scale.to_unit(values)

    def decode(self, array: ArrayLike) -> list[int]:
        """Map each number in the unit interval to the integer that it encodes."""
        values: list[int] = self._nearest(array).astype(np.int64).tolist()
        return values

    def snap(self, array: ArrayLike) -> Array:
        """Move each number in the unit interval to the encoding of the integer whose bin contains it."""
        return self.encode(self._nearest(array))

    def validate(self, name: str, value: object) -> int:
        """Return the value of parameter `name` as an int; raise PointError if it is not a whole number in range."""
        number = _number_in_range(name, value, self.low, self.high)
        if number != int(number):
            raise PointError(f"'{name}' must be an integer, but got {value}.")
        return int(number)

    def _nearest(self, array: ArrayLike) -> Array:
        return np.clip(np.floor(self.scale.from_unit(array) + 0.5), self.low, self.high)


@dataclass(frozen=True)
class Categorical:
    """One of several choices that have no order.

    Parameters
    ----------
    choices
        Strings, finite numbers or booleans, all different; at most 10,000.

    Raises
    ------
    SpaceError
        If there are no choices or too many, a choice appears twice, or a choice is of another type.

    Examples
    --------
    >>> conbo.Categorical(["adam", "sgd"])
    Categorical(choices=('adam', 'sgd'))
    """

    choices: tuple[Value, ...]

    def __init__(self, choices: Iterable[Value]) -> None:
        if isinstance(choices, str) or not isinstance(choices, Iterable):
            raise SpaceError(f"`choices` must be a sequence of values, but got {choices!r}.")
        if isinstance(choices, set | frozenset):
            rule = "`choices` must have an order, because the order of a set changes from one program to the next"
            raise SpaceError(f"{rule}, but got {choices!r}.")
        plain = tuple(_plain_choice(choice) for choice in islice(choices, MAX_CHOICES + 1))
        if len(plain) > MAX_CHOICES:
            raise SpaceError(f"`choices` must be at most {MAX_CHOICES} values, but got more.")
        if not plain:
            raise SpaceError("`choices` must not be empty, but got none.")
        if len(set(plain)) < len(plain):
            again = next(choice for i, choice in enumerate(plain) if choice in plain[:i])
            equal = f"{plain[plain.index(again)]!r} == {again!r}"  # such as 1 == True
            raise SpaceError(
                f"`choices` must differ from each other, but got {equal} in {shortened(repr(plain), 1_000)}."
            )
        object.__setattr__(self, "choices", plain)

    @property
    def n_levels(self) -> int:
        """The number of choices."""
        return len(self.choices)

    def levels(self) -> Array:
        """Return the numbers (n_levels,) in the unit interval that encode the choices."""
        return (np.arange(self.n_levels) + 0.5) / self.n_levels

    def cell(self, array: ArrayLike) -> tuple[Array, Array]:
        """For each number in the unit interval, return the lower and the upper end of its bin.

        A bin holds all numbers that encode the same choice.
        """
        index = self._index(array)
        return index / self.n_levels, (index + 1) / self.n_levels

    def encode(self, values: Sequence[Value]) -> Array:
        """Map choices to the unit interval: each to the center of its bin."""
        index = {choice: i for i, choice in enumerate(self.choices)}
        return (np.array([index[value] for value in values], dtype=np.float64) + 0.5) / self.n_levels

    def decode(self, array: ArrayLike) -> list[Value]:
        """Map each number in the unit interval to the choice that it encodes."""
        return [self.choices[i] for i in self._index(array).tolist()]

    def snap(self, array: ArrayLike) -> Array:
        """Move each number in the unit interval to the encoding of the choice whose bin contains it."""
        return (self._index(array) + 0.5) / self.n_levels

    def validate(self, name: str, value: object) -> Value:
        """Return the choice of the parameter `name` that equals `value`; raise PointError if there is none."""
        plain = value.item() if isinstance(value, np.generic) else value
        for choice in self.choices if isinstance(plain, str | int | float) else ():
            # True == 1 in Python, but not for users
            if isinstance(plain, bool) is isinstance(choice, bool) and plain == choice:
                return choice
        known = shortened(", ".join(map(repr, self.choices)), 1_000)
        raise PointError(f"'{name}' must be one of {known}, but got {shortened(repr(value))}.")

    def _index(self, array: ArrayLike) -> NDArray[np.int64]:
        unit = np.asarray(array, dtype=np.float64)
        return np.clip(np.floor(unit * self.n_levels), 0, self.n_levels - 1).astype(np.int64)


Parameter: TypeAlias = Real | Integer | Categorical


def _check_log(log: object) -> None:
    if not isinstance(log, bool | np.bool_):
        raise SpaceError(f"`log` must be True or False, but got log={log!r}.")


def _finite_float(name: str, value: Any) -> float:
    if not is_finite_number(value):
        raise SpaceError(f"`{name}` must be a finite number, but got {name}={value!r}.")
    return float(value)


def _check_order(low: float, high: float) -> None:
    if not low < high:
        raise SpaceError(f"`low < high` must hold, but got low={low}, high={high}.")


def _number_in_range(name: str, value: Any, low: float, high: float) -> Any:
    if not is_number(value):
        raise PointError(f"'{name}' must be a number, but got {value!r}.")
    if not low <= value <= high:  # false for NaN, too
        raise PointError(f"`{low} <= {name} <= {high}` must hold, but got {name}={shortened(str(value))}.")
    return value


def _plain_choice(choice: object) -> Value:
    plain = choice.item() if isinstance(choice, np.generic) else choice
    if not isinstance(plain, str | int | float) or (isinstance(plain, float) and not math.isfinite(plain)):
        raise SpaceError(f"a choice must be a string, a finite number or a boolean, but got {choice!r}.")
    if isinstance(plain, str) and len(plain) > MAX_CHOICE:
        rule = f"a choice must have at most {MAX_CHOICE} characters"
        raise SpaceError(f"{rule}, but got {len(plain)}: {shortened(repr(plain))}.")
    if isinstance(plain, str) and not is_encodable(plain):
        raise SpaceError(f"a choice must be text that can be encoded in UTF-8, but got {plain!r}.")
    if isinstance(plain, int) and abs(plain) > LARGEST_CHOICE:
        raise SpaceError(f"a choice that is an integer must be within ±1e100, but got {shortened(hex(plain))}.")
    return plain
