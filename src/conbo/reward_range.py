"""The setting `reward_range`: known limits of the expected reward."""

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any, TypeAlias

from conbo.errors import SettingError
from conbo.values import is_number

RewardRange: TypeAlias = tuple[float | None, float | None]


def checked_range(given: Any) -> RewardRange | None:
    """Return the setting `reward_range` with infinite limits replaced by None.

    Raises SettingError unless it is None, or a pair of a lower and a higher limit, at least one of which is finite.
    """
    if given is None:
        return None
    rule = "`reward_range` must be a low and a higher limit of the expected reward, one of them possibly None"
    pair = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    if len(pair) != 2 or not all(one is None or is_number(one) for one in pair):
        raise SettingError(f"{rule}, but got {given!r}.")
    low, high = -inf if pair[0] is None else float(pair[0]), inf if pair[1] is None else float(pair[1])
    if not low < high or not (isfinite(low) or isfinite(high)):
        raise SettingError(f"{rule}, but got {given!r}.")
    return low if isfinite(low) else None, high if isfinite(high) else None


def maximized(given: RewardRange | None, maximize: bool) -> tuple[float, float] | None:
    """Convert the setting `reward_range` to a lower and an upper limit for models, which always maximize rewards.

    If the user minimizes rewards, models maximize the negated reward, so the limits are negated and swapped. A limit
    that is None becomes infinite. The result is None if no range is given.
    """
    if given is None:
        return None
    low, high = -inf if given[0] is None else given[0], inf if given[1] is None else given[1]
    return (low, high) if maximize else (-high, -low)
