"""A trial: one point, and what became of its evaluation."""

import math
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from conbo.errors import RewardError, TrialError, shortened
from conbo.spaces import Value, is_number

LARGEST_REWARD = 1e300  # a double ends at 1.8e308, and sums, differences and predictions go beyond the rewards

Status: TypeAlias = Literal["running", "completed", "failed"]


@dataclass(frozen=True)
class Trial:
    """A plain record, in the user's names, units and sign; trials are equal whoever evaluated them, and when."""

    number: int
    state: dict[str, Value]
    action: dict[str, Value]
    status: Status = "running"
    reward: float | None = None
    noise: float | None = None  # variance of the reward, where it is known
    error: str = ""  # of the last evaluation that failed
    worker: str | None = field(default=None, compare=False)  # who asked for it or evaluates it
    leased: bool = field(default=False, compare=False)  # whether a run evaluates it, or will when another one died
    attempts: int = field(default=1, compare=False)  # evaluations begun
    started: datetime | None = field(default=None, compare=False)  # the last of them, in UTC; None before it begins
    finished: datetime | None = field(default=None, compare=False)
    late: float | None = field(default=None, compare=False)  # a reward that came after another one stood

    def told(self, reward: object, noise: object = None) -> "Trial":
        """The trial with its reward; to repeat what was told changes nothing."""
        value = finite_number("reward", reward)
        if abs(value) > LARGEST_REWARD:
            raise RewardError(f"`abs(reward) <= {LARGEST_REWARD:g}` must hold, but got reward={value}.")
        variance = None if noise is None else finite_number("noise", noise)
        if variance is not None and variance < 0:
            raise RewardError(f"`noise >= 0` must hold for the variance of a reward, but got noise={noise}.")
        if self.status == "failed":
            raise TrialError(f"trial {self.number} has failed and cannot be told a reward, but got {value}.")
        if self.status == "completed" and (self.reward, self.noise) != (value, variance):
            was, now = (self.reward, value) if self.reward != value else (self.noise, variance)
            what = "reward" if self.reward != value else "noise"
            raise TrialError(f"trial {self.number} was told {what}={was} before and cannot be told {now} now.")
        return replace(self, status="completed", reward=value, noise=variance)

    def failed(self, error: str = "") -> "Trial":
        """The trial without a reward; to repeat it changes nothing."""
        if self.status == "completed":
            raise TrialError(f"trial {self.number} was told reward={self.reward} and cannot fail any more.")
        return self if self.status == "failed" else replace(self, status="failed", error=str(error))


@dataclass(frozen=True)
class SuggestedTrials:
    """New trials, and what their method knows of them."""

    trials: list[Trial]
    expected_gain: float | None = None  # of one evaluation, in rewards; None where the method cannot say


def unlike_before(told: Trial) -> RewardError:
    """What is wrong with a noise that is given for some rewards only."""
    return RewardError(
        f"`noise` must be given with every reward or with none, but got noise={told.noise} for trial "
        f"{told.number}, unlike before."
    )


def finite_number(name: str, value: Any) -> float:
    """The value as a float; raises RewardError unless it is one finite number."""
    try:
        plain = value.item() if hasattr(value, "item") else value  # numpy's and torch's scalars
        number = float(plain) if is_number(plain) else math.nan
    except (ValueError, RuntimeError, OverflowError):  # several numbers, or one too large
        number = math.nan
    if not math.isfinite(number):
        raise RewardError(f"a {name} must be one finite number, but got {shortened(repr(value))}.")
    return number
