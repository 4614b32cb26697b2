"""Ask, tell, policy: in memory, and a pure function of the seed and of what was told.

What trial k suggests depends on (seed, k) and on the rewards that its predecessors have, not on the order in
which these were told or the process that asked: a resumed study goes on as if it had never stopped.

Only what needs a model imports torch, through `conbo.learner` on first use: torch takes seconds to import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from conbo.bound_states import bind
from conbo.common_random_numbers import check_seed, seed_rule
from conbo.errors import PointError, RewardError, SettingError, TrialError, shortened
from conbo.method_list import DEFAULT_METHOD, Method, listed
from conbo.notices import LOG
from conbo.outcome_constraints import DEFAULT_CONFIDENCE, Failures, LearnedSettings, OutcomeConstraints
from conbo.prices import Cost, check_cost, check_told, with_cost
from conbo.prior_study import PriorStudy
from conbo.quasi_random import sobol_points
from conbo.reward_range import RewardRange, checked_range
from conbo.setting_conflicts import check_model, check_together
from conbo.spaces import Array, Point, Space, Value
from conbo.state_distributions import Product, RecipeLike, Weights
from conbo.trials import Outcomes, SuggestedTrials, Trial, unlike_before

if TYPE_CHECKING:
    from conbo.belief import ModelLike
    from conbo.learner import Learner
    from conbo.models.fit_memory import Shelf
    from conbo.policies.policy import Policy
    from conbo.summary import StudySummary

Direction: TypeAlias = Literal["maximize", "minimize"]

MOST_INITIAL_WITH_PRIOR = 2  # an earlier study says more than a design could
MOST_INITIAL = 20  # the default size of the initial design stops growing with the dimension here

# random streams: no two of them share a number
_SUGGESTION, _DESIGN = 0, 1


class Optimizer:
    """Suggests points and learns from their rewards.

    - `method` is a name of `conbo.methods()`, or a `Method` of your own;
    - `model` is a `GaussianProcess` or a factory of BoTorch models; by default the one that the method comes with;
    - `device` is where the model is fitted and searched, as torch names it ("cpu", "cuda", "cuda:1");
    - `initial` completed trials are quasi-random, with states that follow P[s], before the method takes over;
      by default 2 d + 2 for d parameters, at most 20;
    - `cost` is a function of state and action that says what an evaluation costs, or "learned" where costs are told
      with the rewards; the method then maximizes gain per cost;
    - `prior` is an earlier study of a similar problem, or its policy: a snapshot of its results is modelled together
      with this study, which learns how much to believe them. Then `initial` is 2 by default;
    - `reward_range` holds known limits of the expected reward, such as (0, 1) of an accuracy or (0, None) of a waiting
      time: predictions stay inside. Single rewards may exceed them by noise;
    - `common_random_numbers`: whether the method also chooses the `seed` of every trial, so that a simulator can give
      several actions the same randomness;
    - `seeds` lists all the seeds that there are, such as recorded days; the policy is then for their mean. It implies
      `common_random_numbers`;
    - `outcome_constraints` are limits on outcomes that are told with the rewards, such as `{"wait": conbo.AtMost(5)}`;
      the policy keeps all of them with a probability of at least `confidence`, as far as there are such actions;
    - `failures` says whether failed trials teach where evaluations fail: "learn", once there are two, or "ignore".
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
        if not isinstance(space, Space):
            raise SettingError(f"`space` must be a Space, but got {space!r}.")
        if direction not in get_args(Direction):
            raise SettingError(f"`direction` must be 'maximize' or 'minimize', but got {direction!r}.")
        check_model(model)
        check_cost(cost)
        self.space, self.cost = space, cost
        self.state_distribution = state_distribution
        self.states = bind(state_distribution, space)
        self._method = method
        known = method if isinstance(method, Method) else listed(method)
        if known.needs_finite_states and self.states.listed() is None:
            raise SettingError(
                f"'{self.method}' visits the states in turn and must have finitely many of them, but there "
                "are more: use 'pei', 'mts' or 'conbo', which take continuous states."
            )
        self.model = known.model if model is None else model
        self.seed = at_least(0, "seed", seed)
        d = space.n_state_dims + space.n_action_dims
        self.prior = None if prior is None else PriorStudy.of(prior)
        self._prior_trials = [] if self.prior is None else self.prior.within(space, direction)
        self.reward_range = checked_range(reward_range)
        self.seed_rule = seed_rule(common_random_numbers, seeds, (*space.states, *space.actions))
        self.learned = LearnedSettings.checked(outcome_constraints, confidence, failures)
        self.learned.check_method(self.method, known.keeps_constraints)
        check_together(self.model, self.prior, self.reward_range, self.seed_rule, self.learned)
        usual = min(2 * d + 2, MOST_INITIAL if self.prior is None else MOST_INITIAL_WITH_PRIOR)
        self.initial = usual if initial is None else at_least(1, "initial", initial)
        self.maximize = direction == "maximize"
        self._trials: list[Trial] = []
        self._made_learner: Learner | None = None
        if not isinstance(device, str) or not device:
            raise SettingError(f"`device` must be the name of a device, such as 'cpu' or 'cuda', but got {device!r}.")
        self.device = device
        self.shelf: Shelf | None = None  # where fits are shared with other processes

    @property
    def method(self) -> str:
        """The name of the method."""
        return self._method.name if isinstance(self._method, Method) else self._method

    @property
    def recipe(self) -> Method:
        """The method with everything that it is made of, which is imported on first use."""
        if isinstance(self._method, Method):
            return self._method
        from conbo.method_table import method

        return method(self._method)

    @property
    def learner(self) -> Learner:
        """What fits models and suggests points; to make it takes seconds if torch is not loaded yet."""
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
        """How many trials have a reward."""
        return len(self._with_status("completed"))

    def restore(self, trials: Iterable[Trial]) -> None:
        """Go on from trials that an optimizer of the same settings made, in the order of their numbers.

        Raises TrialError, PointError or RewardError if they cannot be such trials.
        """
        restored = list(trials)
        for number, trial in enumerate(restored):
            if trial.number != number:
                raise TrialError(f"trials must be numbered 0, 1, 2, …, but got {trial.number} in place of {number}.")
        self._trials = []
        self.adopt(restored)

    def fit(self) -> None:
        """Fit the model that the next suggestion needs, ahead of it."""
        if self.n_completed >= self.initial:
            self.learner.fit(self.trials)

    @property
    def knows_gains(self) -> bool:
        """Whether the method can say what the next evaluation is expected to gain."""
        return self.learner.knows_gains

    def ask(self, n: int = 1, state: Point | None = None) -> list[Trial]:
        """n new trials; `state` is one that the environment dictates."""
        trials = self.suggest(n, state).trials
        self.adopt(trials)
        return trials

    def suggest(self, n: int = 1, state: Point | None = None) -> SuggestedTrials:
        """What `ask` would return, without a record of it."""
        at_least(1, "n", n)
        dictated = None if state is None else self._valid_state(state)
        known = self.trials  # as they are now: another thread may tell some of them meanwhile
        first, gain, cost, seeds = len(known), None, None, None
        if sum(trial.status == "completed" for trial in known) < self.initial:
            rows = self._design(first, n, dictated)
        else:
            suggestion = self.learner.propose(known, n, self._suggestion_seed(first), dictated)
            rows, gain = suggestion.points.numpy(), suggestion.expected_gain
            cost = None if suggestion.expected_costs is None else float(suggestion.expected_costs.sum())
            seeds = suggestion.seeds or [None] * n
        d_s = self.space.n_state_dims
        states = self.space.decode_states(rows[:, :d_s]) if dictated is None else [dict(dictated)] * n
        actions = self.space.decode_actions(rows[:, d_s:])
        points = enumerate(zip(states, actions, self._seeds(known, n, seeds), strict=True), start=first)
        return SuggestedTrials([Trial(k, dict(s), x, seed=seed) for k, (s, x, seed) in points], gain, cost)

    def adopt(self, trials: Iterable[Trial]) -> None:
        """Put trials in the places of their numbers, as they were recorded elsewhere."""
        for trial in sorted(trials, key=lambda trial: trial.number):
            self._check(trial)
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
        """The reward of a trial, and its variance where it is known: for all trials, or for none.

        The `cost` of the evaluation is for studies that learn it. Further `outcomes` by name, such as a waiting time,
        are recorded beside the reward; all that are constrained must be told.
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
        """A trial that will not have a reward."""
        failed = self.find(trial).failed(error)
        self._trials[failed.number] = failed

    def find(self, trial: Trial | int) -> Trial:
        """The trial, or that of this number, as it is known now."""
        number = trial.number if isinstance(trial, Trial) else trial
        if isinstance(number, int) and 0 <= number < len(self._trials):
            known_trial = self._trials[number]
            if isinstance(trial, Trial) and trial.arguments != known_trial.arguments:
                rule = f"trial {number} must be one of this study"
                here, there = (one.point for one in (known_trial, trial))
                raise TrialError(f"{rule}, where it is at {shortened(str(here))}, but got {shortened(str(there))}.")
            return known_trial
        known = f"known are 0 to {len(self._trials) - 1}" if self._trials else "none was asked for yet"
        raise TrialError(f"unknown trial {number!r}: {known}.")

    def ask_improving(self, state: Point) -> Trial:
        """A new trial in this state, where its next reward is expected to exceed its best reward by most."""
        trial = self.suggest_improving(state)
        self.adopt([trial])
        return trial

    def suggest_improving(self, state: Point) -> Trial:
        """What `ask_improving` would return, without a record of it."""
        if self.n_completed == 0:
            return self.suggest(state=state).trials[0]
        valid = self._valid_state(state)
        known = self.trials
        number = len(known)
        rows = self.learner.propose_improving(known, self._suggestion_seed(number), valid)
        (action,) = self.space.decode_actions(rows)
        return Trial(number, valid, action, seed=self._seeds(known, 1, [None])[0])

    def _seeds(self, known: Sequence[Trial], n: int, chosen: Sequence[int | None] | None) -> Sequence[int | None]:
        """The seeds of n new trials: the chosen ones with new seeds in place of None, or those of the design."""
        if self.seed_rule is None:
            return [None] * n
        if chosen is None:
            return self.seed_rule.of_design(range(len(known), len(known) + n), self.initial)
        return self.seed_rule.filled([trial.seed for trial in known], chosen)

    def best_observed(self) -> list[dict[str, Any]]:
        """For each of finitely many states its best trial's action, reward and number, None where it has none.

        States of probability zero have a row only if they have such a trial; it must keep all outcome constraints.
        """
        listed = self.states.listed()
        if listed is None:
            raise SettingError("the best observed action of every state needs finitely many states: use `policy()`.")
        best: dict[tuple[Value, ...], Trial | None] = {}
        for state in self.space.decode_states(listed[0]):
            best[tuple(state.values())] = None
        for trial in (trial for trial in self._with_status("completed") if self.learned.kept(trial.measured)):
            known = best.get(key := tuple(trial.state.values()))
            if known is None or self._sign * trial.reward > self._sign * known.reward:  # type: ignore[operator]
                best[key] = trial
        return [
            {
                "state": dict(zip(self.space.states, key, strict=True)),
                "action": trial and dict(trial.action),
                "reward": trial and trial.reward,
                "number": trial and trial.number,
            }
            for key, trial in best.items()
        ]

    def add_choices(self, name: str, choices: Iterable[Value], state_distribution: RecipeLike = None) -> None:
        """More choices for a categorical state or action; all trials stay as they are.

        Where P[s] has weights for the choices of this state, it must be given anew.
        """
        space = self.space.with_choices(name, choices)
        if state_distribution is None:
            state_distribution = self.state_distribution
            if name in space.states and has_weights(state_distribution, name):
                raise SettingError(
                    f"`state_distribution` must be given with new choices of '{name}', since P[s] has weights for "
                    "its choices, but got none."
                )
        self.states = bind(state_distribution, space)
        self.space, self.state_distribution = space, state_distribution
        self._made_learner = None

    def total_cost(self) -> tuple[float, float]:
        """What the trials that have ended cost, and what the running ones cost; unknown costs as they are expected."""
        return (0.0, 0.0) if self.cost is None else self.learner.total_cost(self.trials)

    def policy(self) -> Policy:
        """The best action for every state, by what was told up to now."""
        return self.learner.policy(self.trials)

    def policy_value(self) -> float:
        """The model's own estimate of the policy's expected reward over P[s]."""
        return self.learner.policy_value(self.trials)

    def summary(self) -> StudySummary:
        """What was learned up to now, in numbers; printed, it is a few sentences."""
        return self.learner.summary(self.trials)

    @property
    def _sign(self) -> int:
        """Inside, rewards are always to be maximised."""
        return 1 if self.maximize else -1

    def _check(self, trial: Trial) -> None:
        """Raise an error that names the trial unless it is one of this space, after all that came before it."""
        if not 0 <= trial.number <= len(self._trials):
            raise TrialError(f"trial {len(self._trials)} must come before trial {trial.number}, but is missing.")
        try:
            self.space.validate_state(trial.state)
            self.space.validate_action(trial.action)
            check_seed(self.seed_rule, trial.seed)
            if trial.status == "completed" and trial.outcomes is None:
                raise RewardError("a completed trial must have a reward, but got none.")
            if trial.status == "completed":
                self.learned.check(trial.measured)
        except (PointError, RewardError, TrialError) as error:
            raise type(error)(f"trial {trial.number}: {error}") from error

    def _with_status(self, status: str) -> list[Trial]:
        return [trial for trial in self._trials if trial.status == status]

    def _valid_state(self, state: Point) -> dict[str, Value]:
        """The state with plain values; raises PointError if it is not valid or has no feasible action."""
        valid = self.space.validate_state(state)
        self.space.check_feasible(self.space.encode_states([valid]))
        return valid

    def _design(self, first: int, n: int, state: Point | None = None) -> Array:
        """Points first to first + n of the quasi-random design, with states that follow P[s], or one given state."""
        d_s, d_x = self.space.n_state_dims, self.space.n_action_dims
        u = sobol_points(first + n, d_s + d_x, _stream(self.seed, _DESIGN) % 2**31)[first:]
        states = self.states.transform(u[:, :d_s])
        if state is not None:
            states = np.repeat(self.space.encode_states([state]), n, axis=0)
        return self.space.spread(np.concatenate([states, u[:, d_s:]], axis=1))

    def _suggestion_seed(self, number: int) -> int:
        """The randomness of the suggestion with this number."""
        return _stream(self.seed, _SUGGESTION, number)


def at_least(least: int, name: str, value: object) -> int:
    """The value as an int; raises SettingError unless it is a whole number of at least so much."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise SettingError(f"`{name}` must be an integer of at least {least}, but got {name}={value!r}.")
    return int(value)


def has_weights(recipe: RecipeLike, name: str) -> bool:
    """Whether this P[s] lists the values of a state with their weights, so that a new one would have none."""
    marginals = recipe.marginals if isinstance(recipe, Product) else recipe
    return isinstance(marginals.get(name) if isinstance(marginals, Mapping) else marginals, Weights)


def _stream(*numbers: int) -> int:
    """A seed of its own for every tuple of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
