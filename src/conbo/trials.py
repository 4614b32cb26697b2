"""A trial: one point (state and action), and the result of its evaluation."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from conbo.common_random_numbers import SeedRule, check_seed
from conbo.cost_rules import as_mapping
from conbo.errors import PointError, RewardError, TrialError, shortened
from conbo.names import wrong_outcomes
from conbo.outcome_constraints import LearnedSettings
from conbo.values import Value, is_number

if TYPE_CHECKING:
    from conbo.spaces import Space

LARGEST_REWARD = 1e300  # far below the largest float (1.8e308), so that sums and predictions do not overflow

LOST = "workers were lost with this trial"  # end of the error of a trial whose workers died
LOST_KINDS = ("TerminatedWorkerError:", "BrokenProcessPool:", "BrokenExecutor:")  # beginnings of such errors
ENQUEUED = "enqueued"  # replaces the worker's name while an enqueued trial waits for a free worker

Status: TypeAlias = Literal["running", "completed", "failed"]

ASYNC_RULE = "an objective must return its result and not be async: wrap it with asyncio.run"

_NAMES = ("reward", "noise", "measured")  # fields of `Outcomes`; the first one that differs is named in an error


@dataclass(frozen=True)
class Outcomes:
    """The results of an evaluation: the reward, and outcomes that were measured besides it.

    Parameters
    ----------
    reward
        The number that is maximized or minimized.
    noise
        Noise variance of the reward; None if it is not known.
    measured
        Other outcomes by name, such as a waiting time. All are stored. A study models those that its
        `outcome_constraints` limit, and 'cost' if it learns costs.

    Raises
    ------
    RewardError
        If a value is not a single finite number, the reward is beyond ±1e300, the noise is negative, or the name of a
        measured outcome is not valid, such as "" or "noise".

    Examples
    --------
    >>> conbo.Outcomes(12.5, measured={"wait": 4.2}).measured
    {'wait': 4.2}
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
    """Convert what an objective returned, a number or a mapping with the key 'reward', to `Outcomes`.

    Raises RewardError if it is neither, or if a value or the name of an outcome is not valid.
    """
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()  # otherwise Python warns later that it was never awaited
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
    """One point of a study (state and action), and the result of its evaluation.

    Values have the user's names and units. Two trials are equal if they have the same number, state, action, seed,
    status, outcomes and error, regardless of who evaluated them and when.

    Parameters
    ----------
    number
        Number of the trial in its study, counted from 0.
    state
        The state as a dict from names to values; {} in a space without states.
    action
        The action as a dict from names to values.
    status
        "running" until the trial has ended, even while it waits for a worker; then "completed" or "failed".
    outcomes
        The results of the evaluation; None unless the trial is completed.
    error
        Why the last evaluation failed; empty if none did.
    worker
        Name of the process that asked for the trial or evaluates it; None if it is not known.
    leased
        Whether a worker holds a lease on the trial. If the worker dies, another one takes the trial over.
    attempts
        Number of the last attempt to evaluate the trial, or of the next one if the trial waits for a worker. It starts
        at 1, and grows when a failed attempt is repeated, or when an attempt loses its worker.
    started
        When this attempt began, in UTC; None if it has not begun.
    finished
        When the trial was completed or failed, in UTC; None until then.
    late
        A different reward that arrived after the trial was completed; None if there was none.
    seed
        The simulator's seed, in a study with common random numbers; None in others.

    Examples
    --------
    >>> trial = conbo.Study(space).add_trial({"demand": 60}, {"stock": 55}, reward=165)
    >>> trial.status, trial.reward
    ('completed', 165.0)
    """

    number: int
    state: dict[str, Value]
    action: dict[str, Value]
    status: Status = "running"
    outcomes: Outcomes | None = None
    error: str = ""
    worker: str | None = field(default=None, compare=False)
    leased: bool = field(default=False, compare=False)
    attempts: int = field(default=1, compare=False)
    started: datetime | None = field(default=None, compare=False)
    finished: datetime | None = field(default=None, compare=False)
    late: float | None = field(default=None, compare=False)
    seed: int | None = None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments with which an objective is called: state, action and, with common random numbers, the seed."""
        return dict(self.state), dict(self.action), *(() if self.seed is None else (self.seed,))

    @property
    def point(self) -> dict[str, Value]:
        """The values of state, action and, with common random numbers, the seed, by name."""
        return {**self.state, **self.action, **({} if self.seed is None else {"seed": self.seed})}

    @property
    def reward(self) -> float | None:
        """The reward; None unless the trial is completed."""
        return None if self.outcomes is None else self.outcomes.reward

    @property
    def noise(self) -> float | None:
        """The noise variance of the reward; None if it is not known."""
        return None if self.outcomes is None else self.outcomes.noise

    @property
    def measured(self) -> Mapping[str, float]:
        """The measured outcomes besides the reward, by name."""
        return {} if self.outcomes is None else self.outcomes.measured

    @property
    def is_enqueued(self) -> bool:
        """Whether the trial was enqueued by the user and waits for a free worker."""
        return self.status == "running" and self.worker == ENQUEUED

    @property
    def teaches_failure(self) -> bool:
        """Whether the trial failed, probably because of its point, so that a study may learn from the failure.

        A study learns nothing from a trial that was canceled, or whose workers died.
        """
        lost = self.error.endswith(LOST) or self.error.startswith(LOST_KINDS)
        return self.status == "failed" and self.error != "" and not lost

    def told(self, outcomes: Outcomes) -> Trial:
        """Return a completed copy of the trial with these outcomes.

        Raises TrialError if the trial has failed, or already has different outcomes.
        """
        if self.status == "failed":
            raise TrialError(f"trial {self.number} has failed and cannot be told a reward, but got {outcomes.reward}.")
        if self.outcomes is not None and self.outcomes != outcomes:
            what = next(name for name in _NAMES if getattr(self.outcomes, name) != getattr(outcomes, name))
            was, now = (shortened(str(getattr(told, what))) for told in (self.outcomes, outcomes))
            raise TrialError(f"trial {self.number} was told {what}={was} before and cannot be told {now} now.")
        return replace(self, status="completed", outcomes=outcomes)

    def failed(self, error: str = "") -> Trial:
        """Return a failed copy of the trial with this error; raise TrialError if it is completed.

        A trial that has already failed is returned unchanged.
        """
        if self.status == "completed":
            raise TrialError(f"trial {self.number} was told reward={self.reward} and cannot fail any more.")
        return self if self.status == "failed" else replace(self, status="failed", error=str(error))


@dataclass(frozen=True)
class SuggestedTrials:
    """New trials that a method suggests, with the expected gain of the best one and the expected cost of all."""

    trials: list[Trial]
    # expected gain of the best trial, in units of the reward; None in the initial design, or if the method does not
    # compute it
    expected_gain: float | None = None
    expected_cost: float | None = None  # expected cost of all trials together; None if evaluations have no costs


def unlike_before(told: Trial) -> RewardError:
    """Return the error for a trial that has a noise variance although earlier trials have none, or the reverse."""
    return RewardError(
        f"`noise` must be given with every reward or with none, but got noise={told.noise} for trial "
        f"{told.number}, unlike before."
    )


def check_trial(trial: Trial, space: Space, rule: SeedRule | None, learned: LearnedSettings, n_known: int) -> None:
    """Raise an error that names the trial, unless it is valid in a study that has `n_known` trials.

    Its number must be that of a known trial or the next one, its point must belong to the space, and its seed must be
    one that `rule` allows. If the trial is completed, it must have a reward, and its outcomes must include those that
    the study constrains.
    """
    if not 0 <= trial.number <= n_known:
        raise TrialError(f"trial {n_known} must come before trial {trial.number}, but is missing.")
    try:
        space.validate_state(trial.state)
        space.validate_action(trial.action)
        check_seed(rule, trial.seed)
        if trial.status == "completed" and trial.outcomes is None:
            raise RewardError("a completed trial must have a reward, but got none.")
        if trial.status == "completed":
            learned.check(trial.measured)
    except (PointError, RewardError, TrialError) as error:
        raise type(error)(f"trial {trial.number}: {error}") from error


def _checked_measured(measured: object) -> dict[str, float]:
    """Return the outcomes besides the reward as floats.

    Raises RewardError if a value is not a single finite number, or a name is not valid, such as "" or "noise".
    """
    measured = as_mapping(measured)
    if wrong := wrong_outcomes(measured):
        raise RewardError(wrong)
    return {name: finite_number(f"value of the outcome '{name}'", value) for name, value in measured.items()}


def finite_number(name: str, value: Any) -> float:
    """Return the value as a float; raise RewardError unless it is a single finite number.

    `name` says what the value is, such as "reward", for the error message.
    """
    try:
        plain = value.item() if hasattr(value, "item") else value  # numpy's and torch's scalars
        number = float(plain) if is_number(plain) else math.nan
    except (ValueError, RuntimeError, OverflowError):  # several numbers, or one too large
        number = math.nan
    if not math.isfinite(number):
        raise RewardError(f"a {name} must be one finite number, but got {shortened(repr(value))}.")
    return number
