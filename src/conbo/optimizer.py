"""The optimizer: suggests trials, records their rewards and learns a policy, in memory.

The suggestion of trial k depends on (seed, k) and on the rewards of earlier trials, but neither on the order in which
these rewards were recorded nor on the process that asks. So a resumed study continues as if it had never stopped.
Everything that needs torch is in `learner.py`, which is imported on first use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from conbo.best_observed import best_observed
from conbo.bound_states import bind
from conbo.common_random_numbers import new_seeds, seed_rule
from conbo.cost_rules import Cost, check_cost, check_told, with_cost
from conbo.design_by_cost import design_points_by_cost
from conbo.direction import Direction
from conbo.errors import ConboError, TrialError, shortened
from conbo.initial_design import default_size, design_points
from conbo.method_list import DEFAULT_METHOD, Method, listed
from conbo.notices import LOG
from conbo.outcome_constraints import DEFAULT_CONFIDENCE, Failures, LearnedSettings, OutcomeConstraints
from conbo.prior_study import PriorStudy
from conbo.reward_range import RewardRange, checked_range
from conbo.setting_conflicts import check_draws, check_finite, check_model, check_suggestion, check_together
from conbo.setting_rules import at_least, check_settings, with_new_choices
from conbo.spaces import Array, Point, Space, Value
from conbo.state_distributions import RecipeLike
from conbo.suggestion_seeds import design_seed, suggestion_seed
from conbo.trials import Outcomes, SuggestedTrials, Trial, check_trial, unlike_before

if TYPE_CHECKING:
    from conbo.belief import ModelLike
    from conbo.learner import Learner
    from conbo.models.fit_memory import Shelf
    from conbo.policies.policy import Policy
    from conbo.study_summary import StudySummary


class Optimizer:
    """Suggests trials and learns from their rewards, in memory; your own code evaluates the trials.

    `Study` does the same, stores the trials, and can also evaluate them.

    Parameters
    ----------
    space
        States and actions.
    direction
        "maximize" or "minimize" the reward.
    method, model
        How points are chosen, and which model is fitted to the rewards, as in `Study`.
    state_distribution, initial, cost, prior, reward_range
        P[s], the size of the initial design, costs of evaluations, an earlier study, and known limits of the expected
        reward, as in `Study`.
    common_random_numbers, seeds
        Whether the method chooses the simulator's seed, and from which list, as in `Study`.
    outcome_constraints, confidence, failures
        Limits on measured outcomes, the probability with which the policy must satisfy them, and whether to learn where
        evaluations fail, as in `Study`.
    seed
        Seed of all suggestions.
    device
        The device for fitting the model, and for searching for the next points and the policy's actions, as torch
        names it: "cpu", "cuda", "cuda:1".

    Raises
    ------
    SettingError
        If a setting is out of range, or the method needs finitely many states or actions and there are too many.
    SpaceError
        If the state distribution does not fit the space.

    Examples
    --------
    >>> optimizer = conbo.Optimizer(space, seed=1)
    >>> for trial in optimizer.ask(2):
    ...     optimizer.tell(trial, profit(trial.state, trial.action))
    >>> len(optimizer.trials)
    2
    """

    def __init__(
        self,
        space: Space,
        *,
        direction: Direction = "maximize",
        method: str | Method = DEFAULT_METHOD,
        state_distribution: RecipeLike = None,
        model: ModelLike | None = None,
        seed: int = 0,
        initial: int | None = None,
        device: str = "cpu",
        cost: Cost = None,
        prior: Any = None,
        reward_range: RewardRange | None = None,
        common_random_numbers: bool = False,
        seeds: Sequence[int] | None = None,
        outcome_constraints: OutcomeConstraints | None = None,
        confidence: float = DEFAULT_CONFIDENCE,
        failures: Failures = "learn",
    ) -> None:
        check_settings(space, direction, device)
        check_model(model)
        check_cost(cost)
        self.space, self.cost = space, cost
        self.state_distribution = state_distribution
        self.states = bind(state_distribution, space)
        self._method = method
        known = method if isinstance(method, Method) else listed(method)
        check_finite(self.method, known, space, self.states)
        self.model = known.model if model is None else model
        check_draws(self.method, known, self.model)
        self.seed = at_least(0, "seed", seed)
        self.prior = None if prior is None else PriorStudy.of(prior)
        self._prior_trials = [] if self.prior is None else self.prior.within(space, direction)
        self.reward_range = checked_range(reward_range)
        self.seed_rule = seed_rule(common_random_numbers, seeds, (*space.states, *space.actions))
        self.learned = LearnedSettings.checked(outcome_constraints, confidence, failures)
        self.learned.check_method(self.method, known.keeps_constraints)
        check_together(self.model, self.prior, self.reward_range, self.seed_rule)
        usual = default_size(space, has_prior=self.prior is not None)
        self.initial = usual if initial is None else at_least(1, "initial", initial)
        self.maximize = direction == "maximize"
        self._trials: list[Trial] = []
        self._made_learner: Learner | None = None
        self.device = device
        self.shelf: Shelf | None = None  # where fits are shared with other processes

    @property
    def method(self) -> str:
        """The name of the method."""
        return self._method.name if isinstance(self._method, Method) else self._method

    @property
    def recipe(self) -> Method:
        """The method, including its proposal and policy, which are imported on first use."""
        if isinstance(self._method, Method):
            return self._method
        from conbo.method_table import method

        return method(self._method)

    @property
    def learner(self) -> Learner:
        """The object that fits models and suggests points; its first use takes seconds if torch is not loaded."""
        if self._made_learner is None:
            if "torch" not in sys.modules:
                LOG.info("Loading torch for the model; this takes a few seconds.")
            from conbo.learner import Learner

            settings = self.space, self.states, self.recipe, self.model, self.maximize
            more = self.cost, self._prior_trials, self.reward_range, self.seed_rule, self.learned
            self._made_learner = Learner(*settings, self.shelf, self.device, *more)
        return self._made_learner

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials, in the order of their numbers."""
        return tuple(self._trials)

    @property
    def n_completed(self) -> int:
        """Number of trials that have a reward."""
        return len(self._with_status("completed"))

    def restore(self, trials: Iterable[Trial]) -> None:
        """Replace all trials by those of another optimizer with the same settings.

        The new trials must be in the order of their numbers, starting from 0, and valid under these settings.
        Otherwise, TrialError, PointError or RewardError is raised, and the trials stay as they were.
        """
        restored = list(trials)
        for number, trial in enumerate(restored):
            if trial.number != number:
                raise TrialError(f"trials must be numbered 0, 1, 2, …, but got {trial.number} in place of {number}.")
        before, self._trials = self._trials, []
        try:
            self.adopt(restored)
        except ConboError:
            self._trials = before
            raise

    def fit(self) -> None:
        """Fit the model now, if the initial design is complete, so that the next suggestion takes less time."""
        if self.n_completed >= self.initial:
            self.learner.fit(self.trials)

    @property
    def knows_gains(self) -> bool:
        """Whether the method computes the expected gain of the next evaluation, in units of the reward."""
        return self.learner.knows_gains

    def ask(self, n: int = 1, state: Point | None = None) -> list[Trial]:
        """Suggest new trials.

        Parameters
        ----------
        n
            Number of trials.
        state
            The state that the environment has set; by default, the method chooses it.

        Returns
        -------
        list of Trial
            The new trials, which are pending until `tell` or `fail`.

        Raises
        ------
        SettingError
            If `n` is not a positive integer.
        PointError
            If the state does not belong to the space or has no feasible action.
        """
        trials = self.suggest(n, state).trials
        self.adopt(trials)
        return trials

    def suggest(self, n: int = 1, state: Point | None = None) -> SuggestedTrials:
        """Suggest n trials as `ask` does, but without recording them as pending.

        The result also has the expected gain of the best of these trials, and the expected cost of all of them. Both
        are None for trials of the initial design.
        """
        at_least(1, "n", n)
        given = None if state is None else self._valid_state(state)
        known = self.trials  # a copy, because another thread may record rewards meanwhile
        first, gain, cost, seeds = len(known), None, None, None
        if sum(trial.status == "completed" for trial in known) < self.initial:
            rows = self._design(first, n, given)
        else:
            suggestion = self.learner.propose(known, n, suggestion_seed(self.seed, first), given)
            check_suggestion(self.method, suggestion.points, n, self.space.n_state_dims + self.space.n_action_dims)
            rows, gain = suggestion.points.numpy(), suggestion.expected_gain
            cost = None if suggestion.expected_costs is None else float(suggestion.expected_costs.sum())
            seeds = suggestion.seeds or [None] * n
        d_s = self.space.n_state_dims
        states = self.space.decode_states(rows[:, :d_s]) if given is None else [dict(given)] * n
        actions = self.space.decode_actions(rows[:, d_s:])
        seeds = new_seeds(self.seed_rule, [t.seed for t in known], n, seeds, self.initial)
        points = enumerate(zip(states, actions, seeds, strict=True), start=first)
        return SuggestedTrials([Trial(k, dict(s), x, seed=seed) for k, (s, x, seed) in points], gain, cost)

    def _design(self, first: int, n: int, state: Point | None) -> Array:
        """Return points (n, d) of the initial design, from the one with the index `first` on."""
        seed = design_seed(self.seed)
        if callable(self.cost):
            return design_points_by_cost(self.space, self.states, self.cost, seed, first, n, state)
        return design_points(self.space, self.states, seed, first, n, state)

    def adopt(self, trials: Iterable[Trial]) -> None:
        """Record trials that were created or changed elsewhere; a trial replaces the one with the same number."""
        for trial in sorted(trials, key=lambda trial: trial.number):
            check_trial(trial, self.space, self.seed_rule, self.learned, len(self._trials))
            self._trials[trial.number : trial.number + 1] = [trial]

    def tell(
        self,
        trial: Trial | int,
        reward: float,
        noise: float | None = None,
        *,
        outcomes: Mapping[str, float] | None = None,
        cost: float | None = None,
    ) -> None:
        """Record the reward of a trial.

        Parameters
        ----------
        trial
            The trial or its number.
        reward, noise
            The reward, as the objective returns it, and its noise variance, which is given for all trials or for none.
        outcomes, cost
            Further results by name, such as ``{"wait": 4.2}``, and what the evaluation cost. The cost is required if
            the optimizer was created with ``cost="learned"``.

        Raises
        ------
        TrialError
            If the trial is unknown, has failed, or already has a result that differs from this one.
        RewardError
            If a value is not a single finite number, noise is negative, a constrained outcome or a required cost is
            missing, a required cost is not positive, the cost is given twice (as `cost` and as an outcome "cost"), or
            noise is given although earlier trials have none (or the reverse).
        """
        result = Outcomes(reward, noise, with_cost(outcomes, cost))
        check_told(self.cost, result.measured)
        self.learned.check(result.measured)
        told = self.find(trial).told(result)
        others = (t for t in self._with_status("completed") if t.number != told.number)
        if any((other.noise is None) != (told.noise is None) for other in others):
            raise unlike_before(told)
        self.adopt([told])

    def fail(self, trial: Trial | int, error: str = "") -> None:
        """Record that a trial will not get a reward.

        Parameters
        ----------
        trial
            The trial or its number.
        error
            Why it failed. Without an error, the trial is canceled, and nothing is learned from it.

        Raises
        ------
        TrialError
            If the trial is unknown or already has a reward.
        """
        failed = self.find(trial).failed(error)
        self._trials[failed.number] = failed

    def find(self, trial: Trial | int) -> Trial:
        """Return the latest version of a trial, given an older one or its number, which may be an integer of NumPy.

        Raises TrialError if the number is unknown, or if the given trial has another point than the known one.
        """
        number = trial.number if isinstance(trial, Trial) else trial
        number = int(number) if isinstance(number, Integral) and not isinstance(number, bool) else number
        if type(number) is int and 0 <= number < len(self._trials):
            known_trial = self._trials[number]
            if isinstance(trial, Trial) and trial.arguments != known_trial.arguments:
                rule = f"trial {number} must be one of this study"
                here, there = (one.point for one in (known_trial, trial))
                raise TrialError(f"{rule}, where it is at {shortened(str(here))}, but got {shortened(str(there))}.")
            return known_trial
        known = f"known are 0 to {len(self._trials) - 1}" if self._trials else "none was asked for yet"
        raise TrialError(f"unknown trial {number!r}: {known}.")

    def ask_improving(self, state: Point) -> Trial:
        """Suggest a trial in the given state, with the action that has the highest expected improvement.

        The improvement is over the reward of the state's best trial that `best_observed` would list or, if there is
        none, over the state's best posterior mean. If no trial of the study is completed yet, the action comes from the
        initial design.
        """
        trial = self.suggest_improving(state)
        self.adopt([trial])
        return trial

    def suggest_improving(self, state: Point) -> Trial:
        """Suggest a trial in a state, as `ask_improving` does, without recording it as pending."""
        if self.n_completed == 0:
            return self.suggest(state=state).trials[0]
        valid = self._valid_state(state)
        known = self.trials
        number = len(known)
        rows = self.learner.propose_improving(known, self._admissible(), suggestion_seed(self.seed, number), valid)
        (action,) = self.space.decode_actions(rows)
        (seed,) = new_seeds(self.seed_rule, [t.seed for t in known], 1, [None], self.initial)
        return Trial(number, valid, action, seed=seed)

    def best_observed(self) -> list[dict[str, Any]]:
        """List the states, each with the action, the reward and the number of its best trial.

        Only completed trials with a feasible action whose measured outcomes satisfy the constraints count. In a state
        without such a trial, action, reward and number are None; a state of probability zero is listed only if it has
        such a trial. Raises SettingError if there are infinitely many states, or too many to list.
        """
        return best_observed(self.space, self.states, self._admissible(), self.maximize)

    def _admissible(self) -> list[Trial]:
        """The completed trials that have a feasible action, and measured outcomes that satisfy the constraints."""
        return [
            trial
            for trial in self._with_status("completed")
            if self.learned.satisfied_by(trial.measured) and self.space.is_feasible(trial.state, trial.action)
        ]

    def add_choices(self, name: str, choices: Iterable[Value], state_distribution: RecipeLike = None) -> None:
        """Add choices to the categorical parameter `name`.

        If the current P[s] has weights for the choices of this parameter, a new `state_distribution` is required.
        """
        space = self.space.with_choices(name, choices)
        state_distribution = with_new_choices(state_distribution, self.state_distribution, space, name)
        self.states = bind(state_distribution, space)
        self.space, self.state_distribution = space, state_distribution
        self._made_learner = None

    def total_cost(self) -> tuple[float, float]:
        """Return the total cost of the trials that have ended, and the total cost of the running trials.

        If costs are learned, those of running and failed trials are not known, and their expected costs are used
        instead.
        """
        return (0.0, 0.0) if self.cost is None else self.learner.total_cost(self.trials)

    def policy(self) -> Policy:
        """Learn the best action for every state from the rewards so far.

        Returns
        -------
        Policy
            A function from states to actions.

        Raises
        ------
        ConboError
            If no trial is completed yet, unless the study has a `prior`.
        """
        return self.learner.policy(self.trials)

    def policy_value(self) -> float:
        """Estimate the policy's expected reward under the model, averaged over P[s].

        Returns
        -------
        float
            The estimate.

        Raises
        ------
        ConboError
            If no trial is completed yet, unless the study has a `prior`.
        """
        return self.learner.policy_value(self.trials)

    def summary(self) -> StudySummary:
        """Summarize what the model has learned.

        Returns
        -------
        StudySummary
            The values of the policy and of the best single action, and the expected gain of one more evaluation.

        Raises
        ------
        ConboError
            If no trial is completed yet, unless the study has a `prior`.
        """
        return self.learner.summary(self.trials)

    def _with_status(self, status: str) -> list[Trial]:
        return [trial for trial in self._trials if trial.status == status]

    def _valid_state(self, state: Point) -> dict[str, Value]:
        """Return the state with its values converted to plain Python objects.

        Raises PointError if the state does not belong to the space or has no feasible action.
        """
        valid = self.space.validate_state(state)
        self.space.check_feasible(self.space.encode_states([valid]))
        return valid
