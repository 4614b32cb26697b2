"""The class `Study`: its settings, and the methods by which trials are asked for and told."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from conbo.bound_states import InfeasibleStatesWarning
from conbo.cost_rules import Cost, with_cost
from conbo.direction import Direction
from conbo.method_list import DEFAULT_METHOD, Method
from conbo.optimizer import Optimizer
from conbo.outcome_constraints import DEFAULT_CONFIDENCE, Failures, OutcomeConstraints
from conbo.reward_range import RewardRange
from conbo.setting_rules import at_least, with_new_choices
from conbo.spaces import Point, Space, Value
from conbo.state_distributions import RecipeLike
from conbo.study.asking import ask, fail, release, renew, tell
from conbo.study.database import Database, Storage
from conbo.study.description import Settings, from_record, storable
from conbo.study.evaluating import Evaluating
from conbo.study.learned import Learned
from conbo.study.proofs import Proofs
from conbo.study.shared import SharedOptimizer
from conbo.study.stored import MAY_BE_LEFT_OUT, create_or_resume
from conbo.study.trial_tables import TrialTables
from conbo.study.workers import worker_name
from conbo.trials import Outcomes, Trial

if TYPE_CHECKING:
    from conbo.belief import ModelLike
    from conbo.study.run import Run


class Study(TrialTables, Learned, Evaluating, Proofs):
    """Learns the best action for every state from noisy evaluations.

    With a `storage`, the study is kept there under its name. The same call continues it later or in another process,
    and any number of processes may work on it at the same time.

    Parameters
    ----------
    space
        States and actions.
    direction
        "maximize" or "minimize" the reward.
    method
        How points are chosen: a name from `conbo.methods`, or your own `Method`; "conbo" by default.
    state_distribution
        P[s], how often states occur: a mapping from names of states to `Uniform`, `Triangular`, `Normal` or `Weights`,
        or a `Density` or function of the whole state. By default states are uniform.
    model
        What is fitted to the rewards: a `GaussianProcess`, a function that returns a BoTorch model, or any `Model`. By
        default the model that belongs to the method.
    seed
        Seed of all suggestions; by default 0, or that of the stored study. The same seed and rewards give the same
        suggestions.
    initial
        Number of completed trials before the method takes over; until then, Sobol points are suggested. By default
        2 d + 2 for d parameters, at most 20; with a `prior`, 2.
    cost
        What an evaluation costs: a function of state and action, or "learned" if costs are told with the rewards. The
        method then maximizes gain per cost. With a function, there are fewer initial points where costs are high.
    prior
        An earlier `Study` of a similar problem, or its `Policy`. A snapshot of its results is modeled together with
        the results of this study, and the model learns how far to trust them (a warm start).
    reward_range
        Known limits of the expected reward, such as (0, 1) for an accuracy or (0, None) for a waiting time. Predictions
        stay within these limits; single rewards may exceed them because of noise.
    common_random_numbers
        Whether the method also chooses the seed of every trial, so that a simulator can give several actions the same
        randomness.
    seeds
        All possible seeds, for example the numbers of recorded days. The policy then optimizes the mean reward over
        these seeds. Implies `common_random_numbers`.
    outcome_constraints
        Limits on outcomes that are told with the rewards, such as ``{"wait": conbo.AtMost(5)}``. They are learned.
    confidence
        Least probability with which the policy's actions satisfy all learned limits, in states where some action can
        reach this probability; 0.95 by default.
    failures
        "learn" predicts where evaluations fail, if that depends on the point; "ignore" does not. By default a new
        study learns, and a stored one continues as it was begun.
    name
        Name of the study in its storage.
    storage
        Path of an SQLite file, or URL of a PostgreSQL database; by default memory.
    device
        Torch device for fitting the model and for searches, such as "cpu", "cuda" or "cuda:1". It is not stored.

    Raises
    ------
    SettingError
        If a setting is out of range, or the method needs finitely many states or actions and there are too many.
    SpaceError
        If the state distribution does not fit the space.
    StudyError
        If a study of this name is stored with other settings.
    StorageError
        If the database cannot be reached, read or written.

    Examples
    --------
    >>> study = conbo.Study(space, state_distribution={"demand": conbo.Triangular(30)}, seed=1)
    >>> study.run(profit, evaluations=3, progress=False).completed
    3
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
        self.name, self._device = name, device
        self._settings = Settings.of(checked, method)
        given = {"model": model, "seed": seed, "initial": initial, "failures": failures}
        not_given = [key for key in MAY_BE_LEFT_OUT if given[key] is None]
        records, stored = create_or_resume(Database(storage), name, storable(self._settings), not_given)
        self._shared = SharedOptimizer(records, self._optimizer, stored)
        self._runs: list[Run] = []  # runs of this study in this process

    def __repr__(self) -> str:
        from conbo.study.notebook_view import line_of

        return line_of(self)

    def _repr_html_(self) -> str:
        """Return HTML that shows the settings, progress and policy of the study in a notebook."""
        from conbo.study.notebook_view import html_of

        return html_of(self)

    def _optimizer(self, record: dict[str, Any]) -> Optimizer:
        """Create an optimizer from a stored record of settings, and make them the settings of this study."""
        self._settings = s = from_record(record, self._settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InfeasibleStatesWarning)  # the warning was given when the study was created
            return Optimizer(s.space, **s.of_optimizer(), device=self._device)

    @property
    def direction(self) -> Direction:
        """Whether rewards are maximized or minimized."""
        return self._settings.direction

    @property
    def method(self) -> str:
        """The name of the method by which points are chosen, such as "conbo"."""
        return self._settings.method_name

    @property
    def model(self) -> ModelLike:
        """The model that is fitted to the rewards."""
        return self._settings.model

    @property
    def outcome_constraints(self) -> OutcomeConstraints:
        """The limits on measured outcomes, which the study learns to satisfy, as a dict by outcome name."""
        return dict(self._settings.outcome_constraints or {})

    @property
    def seed(self) -> int:
        """The seed of all suggestions."""
        return self._settings.seed

    @property
    def common_random_numbers(self) -> bool:
        """Whether the method also chooses the simulator seed of every trial."""
        return self._settings.common_random_numbers

    def add_choices(self, name: str, choices: Iterable[Value], state_distribution: RecipeLike = None) -> None:
        """Add choices to a categorical state or action. All trials stay as they are.

        Parameters
        ----------
        name
            Name of the parameter.
        choices
            The new choices, which come after the old ones.
        state_distribution
            The new P[s]. It is needed if the current one has weights for the choices of this state.

        Raises
        ------
        SpaceError
            If the parameter is unknown or not categorical, or a choice is not new.
        SettingError
            If `state_distribution` is needed and missing, or there would be too many states or actions for the method.

        Examples
        --------
        >>> shops = conbo.Space(states={"shop": conbo.Categorical(["north"])}, actions={"stock": conbo.Real(0, 150)})
        >>> study = conbo.Study(shops)
        >>> study.add_choices("shop", ["south"])
        >>> study.space.states["shop"].choices
        ('north', 'south')
        """

        def change(_: Optimizer) -> list[Trial]:
            space = self._settings.space.with_choices(name, choices)
            recipe = with_new_choices(state_distribution, self._settings.state_distribution, space, name)
            settings = replace(self._settings, space=space, state_distribution=recipe)
            Optimizer(space, **settings.of_optimizer(), device=self._device)  # checks them before they are stored
            self._shared.records.change_settings(storable(settings))
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
        """Suggest the next trial, or several together.

        Enqueued trials come first; with a `state`, only those in that state. A trial that you asked for is yours: no
        other worker gets it, and it counts as pending until `tell` or `fail`.

        Parameters
        ----------
        n
            Number of trials; without it, a single trial is returned instead of a list.
        state
            The state that the environment has set; by default the method chooses it.
        lease
            Seconds for which the trial is yours; `renew` extends this time. After that, a run, or anyone else who asks
            with a lease, may get the trial. By default the trial is yours until `tell` or `fail`.

        Returns
        -------
        Trial or list of Trial
            The trial or trials to evaluate.

        Raises
        ------
        PointError
            If the state does not belong to the space or has no feasible action.
        SettingError
            If `n` is not a positive integer, or `lease` is not a positive number of at most 100 years.

        Examples
        --------
        >>> study = conbo.Study(space)
        >>> trial = study.ask(state={"demand": 60})
        >>> study.tell(trial, profit(trial.state, trial.action))
        """
        wanted = 1 if n is None else at_least(1, "n", n)
        trials = ask(self._shared, wanted, state, lease)
        return trials[0] if n is None else trials

    def renew(self, trial: Trial, lease: float) -> None:
        """Extend the lease of a trial, so that no other worker gets it.

        Parameters
        ----------
        trial
            The trial, as `ask` returned it.
        lease
            Seconds from now for which it is yours.

        Raises
        ------
        TrialError
            If the trial is unknown, has ended, was enqueued or asked for without a lease, or now belongs to another
            worker, because its lease had ended.
        SettingError
            If `lease` is not a positive number of at most 100 years.
        """
        renew(self._shared, trial, None if trial.is_enqueued else trial.worker, lease)

    def release(self, trial: Trial) -> None:
        """Give back a trial that was asked for with a lease, so that others can have it immediately.

        Parameters
        ----------
        trial
            The trial, as `ask` returned it. Nothing happens if it is another worker's, or has ended.

        Raises
        ------
        TrialError
            If the trial is unknown.

        Examples
        --------
        >>> study = conbo.Study(space)
        >>> trial = study.ask(lease=60)
        >>> study.renew(trial, lease=120)
        >>> study.release(trial)
        """
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
        """Record the reward of a trial. Telling the same result again does nothing.

        Parameters
        ----------
        trial
            The trial or its number.
        reward
            The reward as the objective returns it, whether it is maximized or minimized.
        noise
            Noise variance of the reward. Give it for all trials of a study or for none.
        outcomes
            Further results by name, such as ``{"wait": 4.2}``. They are recorded. In a study with
            `outcome_constraints`, the constrained ones are required.
        cost
            What the evaluation cost, for a study with ``cost="learned"``.

        Raises
        ------
        TrialError
            If the trial is unknown, has failed, or already has a result that differs from this one.
        RewardError
            If a value is not one finite number, a constrained outcome or a required cost is missing, a required cost is
            not positive, or noise is given although earlier trials have none (or the reverse).
        """
        tell(self._shared, trial, Outcomes(reward, noise, with_cost(outcomes, cost)))

    def fail(self, trial: Trial | int, error: str = "") -> None:
        """Record that a trial will not get a reward.

        Parameters
        ----------
        trial
            The trial or its number. A leased trial, given as a `Trial`, is left as it is if another worker has taken
            it over since.
        error
            Why it failed. From failures with an error, the study learns where evaluations fail, unless it was created
            with ``failures="ignore"``. Without an error the trial is canceled, and nothing is learned from it.

        Raises
        ------
        TrialError
            If the trial is unknown or already has a reward.

        Examples
        --------
        >>> study = conbo.Study(space)
        >>> study.fail(study.ask(), "the simulator crashed")
        """
        owner = trial.worker if isinstance(trial, Trial) and trial.leased and not trial.is_enqueued else None
        if not fail(self._shared, trial, error, owner):
            self._shared.up_to_date().find(trial).failed()  # an error if it has a reward
