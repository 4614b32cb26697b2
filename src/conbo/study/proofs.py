"""The methods of a study that test its policy: by fresh evaluations, and against the user's own decision rule."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import TYPE_CHECKING, Any

import numpy as np

from conbo.errors import ConboError, RewardError, SettingError
from conbo.names import is_encodable
from conbo.setting_rules import at_least
from conbo.spaces import Point
from conbo.study.shared import SharedOptimizer

if TYPE_CHECKING:
    from conbo.comparison import Comparison
    from conbo.outcome_constraints import LearnedSettings
    from conbo.policies.policy import Policy
    from conbo.policies.rules import Rule
    from conbo.study.executors import AnyObjective, Evaluators
    from conbo.validation import Validation

EVALUATIONS = 20  # default number of evaluations of a validation
VALIDATION_STREAM = 2  # stream of random numbers; suggestions use 0, and the initial design 1
SEED_STREAM = 1  # stream within a validation, for the choice among listed simulator seeds
PAUSE = 0.2  # seconds between two looks at an executor that has no workers
WRITE_EVERY = 1.0  # seconds between two writes of the results so far to the database


class Proofs:
    """The part of `Study` that tests its policy, by fresh evaluations to which no model is fitted.

    It also compares the policy with the user's own decision rule, which is possible without evaluations.
    """

    _shared: SharedOptimizer

    def validate(
        self,
        objective: AnyObjective,
        evaluations: int = EVALUATIONS,
        *,
        states: Sequence[Point] | None = None,
        workers: int | None = None,
        executor: Executor | None = None,
        progress: bool = True,
    ) -> Validation:
        """Measure what the policy is worth, by fresh evaluations of its actions in fresh states.

        In each state, both the policy's action and the best single action are evaluated. So half of the evaluations
        are the policy's; in a space without states, all of them are. The evaluations are stored with the study but are
        not trials: no model is fitted to them, which keeps the estimates unbiased.

        Parameters
        ----------
        objective
            As in `run`. It must evaluate every point anew: stored rewards of the trials would not be fresh.
        evaluations
            Largest number of evaluations, in total.
        states
            States to evaluate in, instead of fresh ones drawn from P[s]. All means are over these states, equally
            weighted. With at least four evaluations per state (two per action), the intervals are for the mean over
            exactly these states. Otherwise each action is evaluated only once in each state, and the intervals treat
            the states as a random sample of similar ones.
        workers, executor
            As in `run`.
        progress
            Whether to show a progress bar.

        Returns
        -------
        Validation
            The values of the policy and of the best single action, and what knowing the state is worth, each with a
            95 % confidence interval; and how often evaluations of each broke a constraint or failed. It prints as a few
            sentences.

        Raises
        ------
        ConboError
            If no trial is completed yet (unless the study has a `prior`), all evaluations failed, or the executor is
            broken.
        SettingError
            If `evaluations` is less than 4 (2 in a space without states) or less than twice the number of `states`, or
            another setting is out of range.
        PointError
            If one of `states` does not belong to the space.

        Examples
        --------
        >>> print(study.validate(profit, evaluations=20))
        Measured in 10 fresh states, the policy is worth ...
        """
        from conbo.fresh_states import best_single_rule
        from conbo.study.executors import evaluators_for
        from conbo.validation import SINGLE_ACTION

        policy = self._shared.up_to_date().policy()
        rule = best_single_rule(policy) if policy.belief.space.states else None
        name = None if rule is None else SINGLE_ACTION
        evaluators = evaluators_for(objective, workers, executor)
        return self._measured(policy, rule, name, objective, evaluations, states, evaluators, progress)

    def compare(
        self,
        rule: Any,
        objective: AnyObjective | None = None,
        evaluations: int = EVALUATIONS,
        *,
        name: str = "your rule",
        states: Sequence[Point] | None = None,
        workers: int | None = None,
        executor: Executor | None = None,
        progress: bool = True,
    ) -> Comparison:
        """Compare the policy with your own decision rule, such as the way in which actions are chosen today.

        Parameters
        ----------
        rule
            A function of the state that returns the action, one action for all states, a policy, or a table with a
            column for every state and action parameter (a list of rows, or a dataframe). In a table, the row with the
            nearest state gives the action. The list that `best_observed` returns is accepted too; its rows without an
            action are left out.
        objective
            As in `run`. With an objective, the policy and the rule are also evaluated in the same fresh states, as in
            `validate`. Without one, only the model's predictions are compared.
        evaluations
            Largest number of evaluations of the objective, in total; half of them are the policy's.
        name
            Name of the rule in sentences and reports.
        states, workers, executor, progress
            As in `validate`.

        Returns
        -------
        Comparison
            The values of the policy and of the rule, and their difference, as the model predicts them; and the
            probabilities that they satisfy the learned constraints. If an `objective` is given, the comparison's field
            `validation` holds what the fresh evaluations measured. A rule that breaks constraints more often than the
            policy, and more often than the study's `confidence` permits, is not called better.

        Raises
        ------
        ConboError
            If no trial is completed yet (unless the study has a `prior`), all evaluations failed, or the executor is
            broken.
        SettingError
            If `name` is empty, is "the best single action" or cannot be encoded in UTF-8, or a setting is out
            of range.
        PointError
            If the rule returns an action that does not belong to the space, or is not feasible in its state.

        Examples
        --------
        >>> print(study.compare(lambda state: {"stock": state["demand"]}))
        By the model, the policy is worth ... and your rule ...
        """
        from conbo.comparison import compare_by_model
        from conbo.policies.rules import rule_of
        from conbo.study.executors import evaluators_for
        from conbo.validation import SINGLE_ACTION

        if not isinstance(name, str) or not name or name == SINGLE_ACTION:
            raise SettingError(f"`name` must be a string other than '' and {SINGLE_ACTION!r}, but got {name!r}.")
        if not is_encodable(name):
            raise SettingError(f"`name` must be text that can be encoded in UTF-8, but got {name!r}.")
        policy = self._shared.up_to_date().policy()
        theirs = rule_of(rule, policy.belief.space)
        compared = compare_by_model(policy, theirs, name, None)
        if objective is None:
            return compared
        evaluators = evaluators_for(objective, workers, executor)
        measured = self._measured(policy, theirs, name, objective, evaluations, states, evaluators, progress)
        return compare_by_model(policy, theirs, name, measured)

    def validations(self) -> list[Validation]:
        """List all validations of this study, including interrupted ones.

        Returns
        -------
        list of Validation
            In the order in which they were begun.
        """
        return self._shared.records.validations.all()

    def _measured(
        self,
        policy: Policy,
        rule: Rule | None,
        rule_name: str | None,
        objective: AnyObjective,
        evaluations: int,
        states: Sequence[Point] | None,
        evaluators: Evaluators,
        progress: bool,
    ) -> Validation:
        from conbo.fresh_states import plan_validation
        from conbo.study.plan import check_arguments
        from conbo.study.progress import evaluation_bar

        if not callable(objective):
            raise SettingError(f"`objective` must be a function of state and action, but got {objective!r}.")
        check_arguments(objective, self._shared.up_to_date())
        records = self._shared.records.validations
        learned = self._shared.up_to_date().learned
        seed = [self._shared.up_to_date().seed, VALIDATION_STREAM, records.count()]
        wanted = at_least(2, "evaluations", evaluations)
        validation = plan_validation(policy, rule, rule_name, wanted, seed, learned.confidence, states)
        places = [(i, j) for i, check in enumerate(validation.checks) for j in range(len(check.measurements))]
        # in random order, so that a drift over time does not bias the comparison
        places = [places[i] for i in np.random.default_rng(seed).permutation(len(places))]
        seeds = self._validation_seeds(len(validation.checks), seed)  # policy and rule get the same seed in each state
        points = [
            (dict(validation.checks[i].state), dict(validation.checks[i].measurements[j].action), *seeds[i])
            for i, j in places
        ]
        number, written = records.add(validation), time.monotonic()
        try:
            with evaluation_bar(len(points), progress) as bar:
                for at, future in _evaluated(evaluators, objective, points):
                    place, which = places[at]
                    validation = validation.with_result(place, which, *_result(future, learned))
                    bar.update()
                    if time.monotonic() - written > WRITE_EVERY:
                        records.replace(number, validation)
                        written = time.monotonic()
        finally:
            records.replace(number, validation)
        if not validation.evaluations:
            errors = [m.error for check in validation.checks for m in check.measurements if m.error]
            raise ConboError(f"the objective failed in all states of the validation: {errors[0]}")
        return validation

    def _validation_seeds(self, n: int, stream: Sequence[int]) -> list[tuple[int, ...]]:
        """For each of n states, a tuple with one simulator seed; empty tuples if the study does not choose seeds.

        If the study lists its `seeds`, the policy is worth its mean over all of them, used or not. So they are drawn
        at random, with random numbers from `stream`, and as evenly as possible. Otherwise no trial has used them.
        """
        optimizer = self._shared.up_to_date()
        rule = optimizer.seed_rule
        if rule is None:
            return [()] * n
        if rule.listed is None:
            return [(seed,) for seed in rule.new([trial.seed for trial in optimizer.trials], n)]
        rng = np.random.default_rng([*stream, SEED_STREAM])
        rounds = [rng.permutation(len(rule.listed)) for _ in range(-(-n // len(rule.listed)))]
        return [(rule.listed[i],) for i in np.concatenate(rounds)[:n]]


def _result(future: Future[Any], learned: LearnedSettings) -> tuple[float | None, str, bool | None]:
    """Return the reward of an evaluation, the error with which it failed, and whether it broke a constraint.

    An evaluation without one of the constrained outcomes has failed, as it has in a run. Whether a constraint was
    broken is None if the evaluation failed or outcomes are not constrained.
    """
    from conbo.study.executors import error_of, text_of

    error = error_of(future)
    if error is None:
        told = future.result()
        try:
            learned.check(told.measured)
        except RewardError as wrong:
            error = wrong
        else:
            return float(told.reward), "", not learned.satisfied_by(told.measured) if learned.constraints else None
    return None, text_of(error) or "failed", None


def _evaluated(
    evaluators: Evaluators, objective: AnyObjective, points: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, Future[Any]]]:
    """Evaluate the objective with every tuple of arguments in `points`.

    Yield the index of each tuple, and the future of its evaluation, as soon as the evaluation has ended. Raises
    ConboError if the executor breaks.
    """
    from conbo.study.executors import check_intact, submitted

    waiting, running = deque(range(len(points))), dict[Future[Any], int]()
    try:
        while waiting or running:
            while waiting and len(running) < evaluators.width():
                place = waiting.popleft()
                running[submitted(evaluators, objective, points[place])] = place
            if not running:
                time.sleep(PAUSE)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                check_intact(evaluators, future, "an evaluation")
                yield running.pop(future), future
    finally:
        evaluators.close()
