"""A study: an objective, evaluated where it teaches most about the best action of every state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from conbo.bound_states import InfeasibleStatesWarning
from conbo.errors import StudyError
from conbo.method_list import DEFAULT_METHOD, Method
from conbo.notices import listening
from conbo.optimizer import Direction, Optimizer, at_least
from conbo.outcome_constraints import DEFAULT_CONFIDENCE, Failures, OutcomeConstraints
from conbo.prices import Cost, with_cost
from conbo.record_fields import errors_about
from conbo.reward_range import RewardRange
from conbo.spaces import Point, Space, Value
from conbo.state_distributions import RecipeLike
from conbo.study.asking import ask, fail, release, renew, tell
from conbo.study.database import Database, Storage
from conbo.study.description import Settings, from_record
from conbo.study.executors import AnyObjective, Borrowed, Evaluators, Here, Processes
from conbo.study.notebook_view import html_of, line_of
from conbo.study.plan import EVALUATIONS, Ends, Plan, check_callbacks, check_plan
from conbo.study.proofs import Proofs
from conbo.study.records import MAX_LOST_WORKERS
from conbo.study.run import Run, RunSummary
from conbo.study.shared import SharedOptimizer
from conbo.study.stored import create_or_resume, stored_settings
from conbo.study.trial_tables import TrialTables
from conbo.study.workers import worker_name
from conbo.trials import Outcomes, Trial

if TYPE_CHECKING:
    from conbo.belief import ModelLike
    from conbo.policies.policy import Policy
    from conbo.study.progress import Progress
    from conbo.summary import StudySummary


class Study(TrialTables, Proofs):
    """Learns the best action for every state; the settings are those of `Optimizer`.

    With `storage`, a file for SQLite or the URL of a PostgreSQL database, the study is kept there under its name. If
    it is there already it goes on where it stopped, unless its settings were others, which raises StudyError. Any
    number of processes may work on it at once. `device` is neither stored nor compared: it belongs to the machine.
    A new study learns from failures; one that is there goes on as it was begun, unless `failures` says otherwise, which
    raises StudyError, too.
    """

    def __init__(
        self,
        space: Space,
        *,
        direction: Direction = "maximize",
        method: str | Method = DEFAULT_METHOD,
        state_distribution: RecipeLike = None,
        model: ModelLike | None = None,
        seed: int | None = None,
        initial: int | None = None,
        cost: Cost = None,
        prior: Any = None,
        reward_range: RewardRange | None = None,
        common_random_numbers: bool = False,
        seeds: Sequence[int] | None = None,
        outcome_constraints: OutcomeConstraints | None = None,
        confidence: float = DEFAULT_CONFIDENCE,
        failures: Failures | None = None,
        name: str = "default",
        storage: Storage | None = None,
        device: str = "cpu",
    ) -> None:
        checked = Optimizer(
            space,
            direction=direction,
            method=method,
            state_distribution=state_distribution,
            model=model,
            seed=0 if seed is None else seed,
            initial=initial,
            device=device,
            cost=cost,
            prior=prior,
            reward_range=reward_range,
            common_random_numbers=common_random_numbers,
            seeds=seeds,
            outcome_constraints=outcome_constraints,
            confidence=confidence,
            failures="learn" if failures is None else failures,
        )
        rule = checked.seed_rule
        self.name, self._device = name, device
        self._settings = Settings(
            space,
            direction,
            method,
            state_distribution,
            checked.model,
            checked.seed,
            checked.initial,
            cost,
            checked.prior,
            checked.reward_range,
            rule is not None,
            None if rule is None else rule.listed,
            checked.learned.constraints,
            checked.learned.confidence,
            checked.learned.failures,
        )
        given = {"model": model, "seed": seed, "initial": initial, "failures": failures}
        not_given = [key for key, value in given.items() if value is None]
        # the snapshot of a prior is taken once: that study may have gone on since
        records, stored = create_or_resume(
            Database(storage), name, self._settings.to_record(), not_given, taken_once=("prior",)
        )
        self._shared = SharedOptimizer(records, self._optimizer, stored)
        self._runs: list[Run] = []  # that are going on here

    def __repr__(self) -> str:
        return line_of(self)

    def _repr_html_(self) -> str:
        """Settings, progress and policy, in a notebook."""
        return html_of(self)

    def _optimizer(self, record: dict[str, Any]) -> Optimizer:
        """An optimizer for settings as they are stored."""
        self._settings = s = from_record(record, self._settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InfeasibleStatesWarning)  # said when the study was made
            return Optimizer(s.space, **s.of_optimizer(), device=self._device)

    @property
    def direction(self) -> Direction:
        """Whether rewards are maximised or minimised."""
        return self._settings.direction

    @property
    def method(self) -> str:
        """The name of the method."""
        return self._settings.method_name

    @property
    def model(self) -> ModelLike:
        """What is fitted to the rewards."""
        return self._settings.model

    @property
    def outcome_constraints(self) -> OutcomeConstraints:
        """The limits on outcomes that are learned, by the names of the outcomes."""
        return dict(self._settings.outcome_constraints or {})

    @property
    def seed(self) -> int:
        """On which all suggestions depend."""
        return self._settings.seed

    @property
    def common_random_numbers(self) -> bool:
        """Whether trials have seeds, which the method chooses."""
        return self._settings.common_random_numbers

    def add_choices(self, name: str, choices: Iterable[Value], state_distribution: RecipeLike = None) -> None:
        """More choices for a categorical state or action; all trials stay as they are.

        Where P[s] has weights for the choices of this state, it must be given anew.
        """

        def change(_: Optimizer) -> list[Trial]:
            wider = self._optimizer(self._settings.to_record())
            wider.add_choices(name, choices, state_distribution)
            settings = replace(self._settings, space=wider.space, state_distribution=wider.state_distribution)
            self._shared.records.change_settings(settings.to_record())
            self._settings = settings
            return []

        self._shared.add(change, worker_name())

    @overload
    def ask(self, *, state: Point | None = None, lease: float | None = None) -> Trial: ...
    @overload
    def ask(self, n: int, state: Point | None = None, *, lease: float | None = None) -> list[Trial]: ...
    def ask(
        self, n: int | None = None, state: Point | None = None, *, lease: float | None = None
    ) -> Trial | list[Trial]:
        """One new trial, or a list of n; `state` is one that the environment dictates.

        Trials that were enqueued come first, or those of them that are in this state.
        It is yours: no other worker is given it, and it is awaited until it is told or failed. With a `lease`, it is
        yours for so many seconds, unless you `renew` that: then a run, or whoever else asks with a lease, is given it.
        """
        wanted = 1 if n is None else at_least(1, "n", n)
        trials = ask(self._shared, wanted, state, lease)
        return trials[0] if n is None else trials

    def renew(self, trial: Trial, lease: float) -> None:
        """Keep a trial that was asked for with a lease: it is yours for so many seconds from now.

        Raises
        ------
        TrialError
            If the lease had ended and the trial was given to somebody else, or the trial has ended.
        """
        renew(self._shared, trial, trial.worker, lease)

    def release(self, trial: Trial) -> None:
        """Give back a trial that was asked for with a lease, so that others are given it at once."""
        release(self._shared, trial, trial.worker)

    def tell(
        self,
        trial: Trial | int,
        reward: float,
        noise: float | None = None,
        *,
        outcomes: Mapping[str, float] | None = None,
        cost: float | None = None,
    ) -> None:
        """The reward of a trial (or of its number), and the reward's variance where it is known.

        A variance is given for all trials or for none; to repeat what was told does nothing. The `cost` of the
        evaluation is for studies that learn it. Further `outcomes` by name, such as `{"wait": 4.2}`, are recorded
        beside the reward; all that are constrained must be told.
        """
        tell(self._shared, trial, Outcomes(reward, noise, with_cost(outcomes, cost)))

    def fail(self, trial: Trial | int, error: str = "") -> None:
        """A trial (or its number) that will not have a reward.

        With an `error`, it counts as an evaluation that failed and may teach where others fail; without, it is
        cancelled.
        """
        fail(self._shared, trial, error)

    def total_cost(self) -> float:
        """What all trials cost up to now; running and failed ones, and others without a cost, as it is expected."""
        return sum(self._shared.up_to_date().total_cost())

    def best_observed(self) -> list[dict[str, Any]]:
        """For each of finitely many states its best trial's action, reward and number, None where it has none."""
        return self._shared.up_to_date().best_observed()

    def policy(self) -> Policy:
        """The best action for every state, by what was told up to now."""
        return self._shared.up_to_date().policy()

    def policy_value(self) -> float:
        """The model's own estimate of the policy's expected reward over P[s]."""
        return self._shared.up_to_date().policy_value()

    def summary(self) -> StudySummary:
        """What was learned up to now, by the model.

        Returns
        -------
        StudySummary
            What the policy and the best single action are worth, what it is worth to know the state, and where most is
            left to learn. Printed, it is two or three sentences.

        Raises
        ------
        ConboError
            If no trial is completed yet.

        Examples
        --------
        >>> print(study.summary())  # doctest: +SKIP
        The policy is worth 165.9 ± 7.1; the best single action for all states 110.4: knowing the state is worth
        55.5 ± 8.2. Most is left to learn around demand 80 to 100; one evaluation is expected to gain at most 3.2 in
        its state. (± is 1.96 standard deviations of the mean, without noise.)
        """
        return self._shared.up_to_date().summary()

    def run(
        self,
        objective: AnyObjective,
        evaluations: int | None = None,
        *,
        budget: float | None = None,
        max_seconds: float | None = None,
        worth: float | None = None,
        workers: int | None = None,
        executor: Executor | None = None,
        batch: int | None = None,
        timeout: float | None = None,
        retries: int = 0,
        stop_below: float | None = None,
        finish: Literal["best-observed"] | None = None,
        on_interrupt: Literal["wait", "cancel"] = "wait",
        lease: float = 60.0,
        max_lost_workers: int = MAX_LOST_WORKERS,
        callbacks: Sequence[Callable[[Study, Trial], object]] = (),
        progress: bool = True,
    ) -> RunSummary:
        """Evaluate `objective(state, action)` until the study has so many completed trials in total, by default 80.

        With common random numbers it is called as `objective(state, action, seed)`. In a space without states the
        state is {}. The objective returns the reward, or a mapping such as
        `{"reward": 1.2, "noise": 0.1, "wait": 4.2}`, whose other values are recorded as outcomes of the trial. Where it
        raises, or returns anything else than finite numbers, the trial is tried `retries` more times and then has
        failed, and the run goes on.

        - `workers`: local processes, or how many evaluations an `executor` runs at once, where it does not say; by
          default the objective runs here, one evaluation after the other;
        - `executor`: anything with the `submit` of concurrent.futures: pools, Dask's `client.get_executor()`, mpi4py;
        - `batch`: so many trials are asked for together, and all told before the next; by default a new one is asked
          for as soon as one is told;
        - `timeout`: seconds after which an evaluation has failed: it is killed, in a process of its own; an `executor`
          goes on with it, and that place stays busy;
        - `budget`: the run ends when all trials of the study together have cost this much, running ones counted at
          their expected cost; the last evaluation may exceed it. The study needs a `cost`. Then `evaluations` may be
          left out;
        - `max_seconds`: no evaluation begins later than this after the beginning of the run;
        - `worth`: what a unit of reward is worth in units of cost. The run ends when the expected gain of the next
          evaluation is worth less than the evaluation is expected to cost;
        - `stop_below`: the run ends when the expected gain of the next evaluation is below this;
        - `finish="best-observed"`: the last evaluations, one for each state, look for the best action of that state;
        - `on_interrupt`: after Ctrl-C, "wait" for the running evaluations, or "cancel" them, as a second Ctrl-C does;
        - `lease`: seconds after which another worker takes over a trial if this one gives no sign of life;
        - `max_lost_workers`: a trial fails when this many workers have died while evaluating it. Raise it where jobs
          are preempted, because a failed trial is one that an undisturbed study would not have;
        - `callbacks`: functions that are called here, as `callback(study, trial)`, after every trial that this run
          completed or that failed. They may call `study.stop()`, and what they raise ends the run.
        """
        wanted = EVALUATIONS if evaluations is None and budget is None else evaluations
        ends = Ends(wanted, budget, max_seconds, stop_below, worth)
        plan = Plan(ends, batch, timeout, retries, finish, on_interrupt, lease, max_lost_workers)
        optimizer = self._shared.up_to_date()
        check_plan(plan, objective, workers, optimizer)
        check_callbacks(callbacks)
        _ = optimizer.learner  # loads torch now, rather than in the middle of the run
        evaluators: Evaluators
        if executor is not None:
            evaluators = Borrowed(executor, workers)
        elif (workers or 1) > 1 or timeout is not None:
            evaluators = Processes(workers or 1, objective)
        else:
            evaluators = Here()
        from conbo.loops import compiling  # Numba and the bar are slow to import, and only a run needs them
        from conbo.study.progress import Progress

        compiling.begin()  # while the initial design is evaluated
        completed = self._shared.up_to_date().n_completed
        with Progress(completed, wanted, self.policy_value, progress) as bar, _shown_by(bar, progress):
            run = Run(self._shared, evaluators, objective, plan, bar, [partial(each, self) for each in callbacks])
            self._runs.append(run)
            try:
                summary = run()
            finally:
                self._runs.remove(run)
            self._shared.records.settle()
            if summary.stopped == "interrupted":
                kept = self._shared.up_to_date().n_completed
                bar.note(f"Interrupted: {kept}{'' if wanted is None else f' of {wanted}'} evaluations are kept.")
        if progress:
            print(summary)
        return summary

    def stop(self) -> None:
        """End the run that is going on: no evaluation is begun any more, and the running ones are waited for.

        It is called from a callback, from another thread, or from an objective that runs in this process.

        Raises
        ------
        StudyError
            If no run of this study is going on in this process.
        """
        if not self._runs:
            raise StudyError("`stop` ends a run that is going on, but no run of this study is going on here.")
        for run in tuple(self._runs):
            run.stop()


def open_study(storage: Storage, name: str = "default", *, device: str = "cpu") -> Study:
    """A study that is in a database; raises StudyError with the names there are if it is not."""
    settings, origin = stored_settings(storage, name)
    with errors_about(origin):
        s = from_record(settings)
    return Study(s.space, **s.of_optimizer(), name=name, storage=storage, device=device)


def _shown_by(bar: Progress, progress: bool) -> AbstractContextManager[None]:
    """While a bar is shown, log lines appear above it."""
    return listening(bar.note) if progress else nullcontext()
