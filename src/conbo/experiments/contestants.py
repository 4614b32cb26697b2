"""Contestants of an experiment: conbo's optimizer with one of its methods, or another algorithm.

A contestant suggests points, is told their rewards and offers policies. If it offers several policies, the best of them
is scored. `entering` creates contestants.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from conbo.errors import TrialError
from conbo.experiments.run_file import RunSettings
from conbo.method_list import Method
from conbo.problems.problem import Problem
from conbo.spaces import Point, Value
from conbo.trials import Outcomes, Trial


class ActionRule(Protocol):
    """What scoring needs of a policy: a method that returns an action for each state."""

    def many(self, states: Sequence[Point]) -> list[dict[str, Value]]:
        """The action for each state."""


class Contestant(Protocol):
    """An algorithm in one run of an experiment: it suggests points, is told their rewards, and offers policies.

    Its suggestions and policies depend only on its seed and the rewards.
    """

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials so far."""

    def restore(self, trials: Iterable[Trial]) -> None:
        """Add the trials of an earlier part of the run, which is now continued."""

    def fit(self) -> None:
        """Fit the model for the next suggestion ahead of time, so that fitting is timed separately."""

    def ask(self, n: int = 1) -> list[Trial]:
        """The next n points to evaluate."""

    def tell(self, trial: Trial, reward: float, *, outcomes: Mapping[str, float] | None = None) -> None:
        """Record the reward of a trial."""

    def policies(self) -> Sequence[ActionRule]:
        """The policies that the contestant offers; the best of them is scored."""


class TrialList:
    """Base class of contestants other than conbo's `Optimizer`; it stores the trials of a run.

    Rewards must be told in the order of the trials' numbers.
    """

    def __init__(self) -> None:
        self._trials: list[Trial] = []

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials so far."""
        return tuple(self._trials)

    def restore(self, trials: Iterable[Trial]) -> None:
        """Add the trials of an earlier part of the run, which is now continued."""
        self._trials.extend(trials)

    def tell(self, trial: Trial, reward: float, *, outcomes: Mapping[str, float] | None = None) -> None:
        """Record the reward of a trial; raise TrialError if trials are not told in the order of their numbers."""
        if trial.number != len(self._trials):
            raise TrialError(f"trial {len(self._trials)} must be told next, but got trial {trial.number}.")
        told = Trial(trial.number, trial.state, trial.action, "completed", Outcomes(reward, None, dict(outcomes or {})))
        self._trials.append(told)


class Alternative(Protocol):
    """An alternative to conbo's methods, such as another library; implementations are dataclasses of settings."""

    @property
    def name(self) -> str:
        """The label of this alternative in tables and files."""

    def enter(self, problem: Problem, settings: RunSettings, evaluations: int) -> Contestant:
        """Create the contestant for one run; `evaluations` is the planned number of evaluations."""


Entry: TypeAlias = Method | Alternative
