"""A trial: one point, and what became of its evaluation."""

import inspect
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from conbo.errors import RewardError, TrialError, shortened
from conbo.spaces import MAX_NAME, Value, is_number

LARGEST_REWARD = 1e300  # a double ends at 1.8e308, and sums, differences and predictions go beyond the rewards
MAX_MEASURED = 100  # measured outcomes of a trial

LOST = "workers were lost with this trial"  # the end of the error of a trial that failed for that reason …
LOST_KINDS = ("TerminatedWorkerError:", "BrokenProcessPool:", "BrokenExecutor:")  # … or the beginning of it
ENQUEUED = "enqueued"  # in the place of a worker: the trial waits for whoever comes first

Status: TypeAlias = Literal["running", "completed", "failed"]

ASYNC_RULE = "an objective must return its result and not be async: wrap it with asyncio.run"

_NAMES = ("reward", "noise", "measured")  # of the outcomes, in the order in which differences are reported


@dataclass(frozen=True)
class Outcomes:
    """What an evaluation gave: the reward, and whatever else was measured.

    Parameters
    ----------
    reward
        The number that is maximized or minimized.
    noise
        The variance of the reward, where it is known.
    measured
        Further results by name, such as a waiting time. They are recorded, and no built-in model looks at them but at
        the 'cost' of a study that learns it.

    Raises
    ------
    RewardError
        If a value is not one finite number, the reward is too large, the noise is negative, or a name is not valid.
    """

    reward: float
    noise: float | None = None
    measured: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        reward = finite_number("reward", self.reward)
        if abs(reward) > LARGEST_REWARD:
            raise RewardError(f"`abs(reward) <= {LARGEST_REWARD:g}` must hold, but got reward={reward}.")
        noise = None if self.noise is None else finite_number("noise", self.noise)
        if noise is not None and noise < 0:
            raise RewardError(f"`noise >= 0` must hold for the variance of a reward, but got noise={noise:g}.")
        for name, value in (("reward", reward), ("noise", noise), ("measured", _checked_measured(self.measured))):
            object.__setattr__(self, name, value)


def outcomes_of(result: object) -> Outcomes:
    """The outcomes that an objective returned, as a number or as a mapping with 'reward'; raises RewardError."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()  # or Python would say later that nobody awaited it
        raise RewardError(f"{ASYNC_RULE}, but it returned something to await.")
    if not isinstance(result, Mapping):
        return Outcomes(result)  # type: ignore[arg-type]
    if "reward" not in result:
        rule = "an objective must return a number or a mapping with 'reward'"
        raise RewardError(f"{rule}, but got {shortened(repr(result))}.")
    measured = {name: value for name, value in result.items() if name not in ("reward", "noise")}
    return Outcomes(result["reward"], result.get("noise"), measured)


@dataclass(frozen=True)
class Trial:
    """A plain record, in the user's names, units and sign; trials are equal whoever evaluated them, and when."""

    number: int
    state: dict[str, Value]
    action: dict[str, Value]
    status: Status = "running"
    outcomes: Outcomes | None = None  # of a completed trial
    error: str = ""  # of the last evaluation that failed
    worker: str | None = field(default=None, compare=False)  # who asked for it or evaluates it
    leased: bool = field(
        default=False, compare=False
    )  # whether it belongs to a run; if that run dies, another may take it over
    attempts: int = field(
        default=1, compare=False
    )  # number of the current evaluation, or of the next one if it has not begun; starts at 1
    started: datetime | None = field(default=None, compare=False)  # the last of them, in UTC; None before it begins
    finished: datetime | None = field(default=None, compare=False)
    late: float | None = field(
        default=None, compare=False
    )  # a different reward that arrived after the trial was completed
    seed: int | None = None  # of the simulator, where the study chooses it

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What an objective is called with: copies of state and action, and the seed if there is one."""
        return dict(self.state), dict(self.action), *(() if self.seed is None else (self.seed,))

    @property
    def point(self) -> dict[str, Value]:
        """Names and values of state and action, and of the seed if there is one."""
        return {**self.state, **self.action, **({} if self.seed is None else {"seed": self.seed})}

    @property
    def reward(self) -> float | None:
        """The reward, None before the trial is completed."""
        return None if self.outcomes is None else self.outcomes.reward

    @property
    def noise(self) -> float | None:
        """The variance of the reward, where it is known."""
        return None if self.outcomes is None else self.outcomes.noise

    @property
    def measured(self) -> Mapping[str, float]:
        """What else was measured, by name."""
        return {} if self.outcomes is None else self.outcomes.measured

    @property
    def is_enqueued(self) -> bool:
        """Whether it waits to be evaluated by whoever comes first."""
        return self.status == "running" and self.worker == ENQUEUED

    @property
    def teaches_failure(self) -> bool:
        """Whether it failed for a reason that may lie in its point: not by lost workers, nor cancelled by hand."""
        lost = self.error.endswith(LOST) or self.error.startswith(LOST_KINDS)
        return self.status == "failed" and self.error != "" and not lost

    def told(self, outcomes: Outcomes) -> "Trial":
        """The trial with its outcomes; to repeat what was told changes nothing."""
        if self.status == "failed":
            raise TrialError(f"trial {self.number} has failed and cannot be told a reward, but got {outcomes.reward}.")
        if self.outcomes is not None and self.outcomes != outcomes:
            what = next(name for name in _NAMES if getattr(self.outcomes, name) != getattr(outcomes, name))
            was, now = (shortened(str(getattr(told, what))) for told in (self.outcomes, outcomes))
            raise TrialError(f"trial {self.number} was told {what}={was} before and cannot be told {now} now.")
        return replace(self, status="completed", outcomes=outcomes)

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
    expected_cost: float | None = None  # of all of them together; None where evaluations have no prices


def unlike_before(told: Trial) -> RewardError:
    """What is wrong with a noise that is given for some rewards only."""
    return RewardError(
        f"`noise` must be given with every reward or with none, but got noise={told.noise} for trial "
        f"{told.number}, unlike before."
    )


def _checked_measured(measured: object) -> dict[str, float]:
    """Further outcomes with plain values; raises RewardError unless all names and values are valid."""
    if not isinstance(measured, Mapping):
        raise RewardError(f"outcomes must be a mapping from names to numbers, but got {shortened(repr(measured))}.")
    if len(measured) > MAX_MEASURED:
        raise RewardError(f"there must be at most {MAX_MEASURED} outcomes beside the reward, but got {len(measured)}.")
    for name in measured:
        if not isinstance(name, str) or not name:
            raise RewardError(f"the name of an outcome must be a non-empty text, but got {shortened(repr(name))}.")
        if name in ("reward", "noise"):
            raise RewardError(f"an outcome beside the reward must not be named 'reward' or 'noise', but got {name!r}.")
        if len(name) > MAX_NAME:
            rule = f"the name of an outcome must have at most {MAX_NAME} characters"
            raise RewardError(f"{rule}, but got {len(name)}: {shortened(repr(name))}.")
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
            raise RewardError(f"the name of an outcome must have no control characters, but got {name!r}.")
    return {name: finite_number(f"value of the outcome '{name}'", value) for name, value in measured.items()}


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
