"""Contestants of an experiment: our optimizer with a method, or another way to spend the same evaluations.

A contestant asks for evaluations, is told their rewards and offers policies.  If it offers several, such as the nearest
state's action and an interpolated one, the best of them is scored.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from conbo.errors import TrialError
from conbo.experiments.run_file import RunSettings
from conbo.method_list import Method
from conbo.optimizer import Optimizer
from conbo.problems.problem import Problem
from conbo.spaces import Point, Value
from conbo.trials import Outcomes, Trial


class ActionRule(Protocol):
    """The part of a policy that scoring needs."""

    def many(self, states: Sequence[Point]) -> list[dict[str, Value]]:
        """The action for each state."""


class Contestant(Protocol):
    """Spends evaluations and offers policies, and depends only on its seed and the rewards."""

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials so far."""

    def restore(self, trials: Iterable[Trial]) -> None:
        """Take over the trials of a run that is continued."""

    def fit(self) -> None:
        """Fit the model for the next suggestion ahead of time, so that fitting is timed separately."""

    def ask(self, n: int = 1) -> list[Trial]:
        """The next points to evaluate."""

    def tell(self, trial: Trial, reward: float, *, outcomes: Mapping[str, float] | None = None) -> None:
        """Record the reward of a trial."""

    def policies(self) -> Sequence[ActionRule]:
        """The policies on offer, the best of which is scored."""


class TrialList:
    """A list of trials, for a contestant that is not an `Optimizer`; trials are told one after the other."""

    def __init__(self) -> None:
        self._trials: list[Trial] = []

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials so far."""
        return tuple(self._trials)

    def restore(self, trials: Iterable[Trial]) -> None:
        """Take over the trials of a run that is continued."""
        self._trials.extend(trials)

    def tell(self, trial: Trial, reward: float, *, outcomes: Mapping[str, float] | None = None) -> None:
        """Record the reward of the next trial."""
        if trial.number != len(self._trials):
            raise TrialError(f"trial {len(self._trials)} must be told next, but got trial {trial.number}.")
        told = Trial(trial.number, trial.state, trial.action, "completed", Outcomes(reward, None, dict(outcomes or {})))
        self._trials.append(told)


class Alternative(Protocol):
    """Settings of another way to spend evaluations; implementations are frozen dataclasses."""

    @property
    def name(self) -> str:
        """The label in tables and files."""

    def enter(self, problem: Problem, settings: RunSettings, evaluations: int) -> Contestant:
        """The contestant for one run."""


Entry: TypeAlias = Method | Alternative


class Ours(Optimizer):
    """Our optimizer as a contestant."""

    def policies(self) -> list[ActionRule]:
        """A list of one policy, the optimizer's."""
        return [self.policy()]


def contestant(entry: Entry, problem: Problem, settings: RunSettings, evaluations: int) -> Contestant:
    """The contestant for one run."""
    if not isinstance(entry, Method):
        return entry.enter(problem, settings, evaluations)
    return Ours(
        problem.space,
        state_distribution=problem.state_distribution,
        method=entry,
        seed=settings.seed,
        initial=settings.initial,
        common_random_numbers=settings.seed_habit == "chosen",
        outcome_constraints=problem.outcome_constraints,
    )
