"""Ask, tell, policy: in memory, and a pure function of the seed and of what was told.

What trial k suggests depends on (seed, k) and on the rewards that its predecessors have, not on the order in
which these were told or the process that asked: a resumed study goes on as if it had never stopped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from conbo.acquisition.state_improvement import RewardImprovement
from conbo.belief import Belief, GaussianProcess, Model, believe
from conbo.bound_states import bind
from conbo.errors import ConboError, PointError, RewardError, SettingError, TrialError
from conbo.method_table import DEFAULT_METHOD, Method, method
from conbo.models.posterior import condition
from conbo.observations import Observations
from conbo.policies.gp_argmax import GpArgmax
from conbo.policies.interaction import warn_without_interaction
from conbo.policies.policy import Policy
from conbo.proposals.maximizer import Maximizer
from conbo.proposals.penalized_batch import penalized_batch
from conbo.quasi_random import sobol
from conbo.spaces import Point, Space, Value
from conbo.state_distributions import Product, RecipeLike, Weights
from conbo.threads import threads_for
from conbo.trials import Trial, unlike_before

Direction: TypeAlias = Literal["maximize", "minimize"]

MOST_INITIAL = 20  # the default size of the initial design stops growing with the dimension here
VALUE_STATES = 64  # on which the value of the policy is estimated

# random streams: no two of them share a number
_SUGGESTION, _DESIGN = 0, 1


class Optimizer:
    """Suggests points and learns from their rewards.

    - `method` is a name of `conbo.methods()`, or a `Method` of your own;
    - `model` is a `GaussianProcess` or a factory of BoTorch models; by default the one that the method comes with;
    - `initial` completed trials are quasi-random, with states that follow P[s], before the method takes over;
      by default 2 d + 2 for d parameters, at most 20.
    """

    def __init__(
        self,
        space: Space,
        state_distribution: RecipeLike = None,
        method: str | Method = DEFAULT_METHOD,
        model: Model | None = None,
        seed: int = 0,
        initial: int | None = None,
        direction: Direction = "maximize",
    ) -> None:
        if not isinstance(space, Space):
            raise SettingError(f"`space` must be a Space, but got {space!r}.")
        if direction not in get_args(Direction):
            raise SettingError(f"`direction` must be 'maximize' or 'minimize', but got {direction!r}.")
        if model is not None and not isinstance(model, GaussianProcess) and not callable(model):
            raise SettingError(f"`model` must be a GaussianProcess or a function, but got {model!r}.")
        self.space = space
        self.state_distribution = state_distribution
        self.states = bind(state_distribution, space)
        self.method = method if isinstance(method, Method) else _named(method)
        if self.method.needs_finite_states and self.states.finite() is None:
            raise SettingError(
                f"'{self.method.name}' visits the states in turn and must have finitely many of them, but there "
                "are more: use 'pei', 'mts' or 'conbo', which take continuous states."
            )
        self.model = self.method.model if model is None else model
        self.seed = at_least(0, "seed", seed)
        d = space.n_state_dims + space.n_action_dims
        self.initial = min(2 * d + 2, MOST_INITIAL) if initial is None else at_least(1, "initial", initial)
        self.maximize = direction == "maximize"
        self.expected_gain: float | None = None  # of the last suggestion, in rewards, where its method can say
        self._trials: list[Trial] = []
        self._beliefs: dict[bool, Belief] = {}  # by whether states are actions; emptied by every reward

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
        self._beliefs.clear()
        self.adopt(restored)

    def fit(self) -> None:
        """Fit the model that the next suggestion needs, ahead of it."""
        if self.method.uses_model and self.n_completed >= self.initial:
            self._fitted(self.method.states_as_actions)

    @property
    def knows_gains(self) -> bool:
        """Whether the method can say what the next evaluation is expected to gain."""
        return isinstance(self.method.proposal, Maximizer) and self.method.values_are_gains

    def ask(self, n: int = 1, state: Point | None = None) -> list[Trial]:
        """n new trials; `state` is one that the environment dictates."""
        trials = self.suggest(n, state)
        self.adopt(trials)
        return trials

    def suggest(self, n: int = 1, state: Point | None = None) -> list[Trial]:
        """What `ask` would return, without a record of it."""
        at_least(1, "n", n)
        dictated = None if state is None else self.space.validate_state(state)
        first = len(self._trials)
        self.expected_gain = None
        initial = self.n_completed < self.initial
        points = self._design(first, n) if initial else self._propose(n, first, dictated)
        rows = points.numpy()
        d_s = self.space.n_state_dims
        states = self.space.decode_states(rows[:, :d_s]) if dictated is None else [dict(dictated)] * n
        actions = self.space.decode_actions(rows[:, d_s:])
        pairs = enumerate(zip(states, actions, strict=True), start=first)
        return [Trial(number, dict(s), x) for number, (s, x) in pairs]

    def adopt(self, trials: Iterable[Trial]) -> None:
        """Put trials in the places of their numbers, as they were recorded elsewhere."""
        for trial in sorted(trials, key=lambda trial: trial.number):
            self._check(trial)
            known = self._trials[trial.number : trial.number + 1]
            self._trials[trial.number : trial.number + 1] = [trial]
            if trial.status == "completed" and [trial] != known:
                self._beliefs.clear()

    def tell(self, trial: Trial | int, reward: float, noise: float | None = None) -> None:
        """The reward of a trial, and its variance where it is known: for all trials, or for none."""
        told = self.find(trial).told(reward, noise)
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
            return self._trials[number]
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
            return self.suggest(state=state)[0]
        valid = self.space.validate_state(state)
        there = torch.from_numpy(self.space.encode_states([valid]))[0]
        belief, number = self._with_pending(self._fitted(states_as_actions=False)), len(self._trials)
        self.expected_gain = None
        with threads_for(len(belief.observations)):
            points = Maximizer(RewardImprovement(there)).propose(belief, 1, self._generator(number), there)
        (action,) = self.space.decode_actions(points[:, len(there) :].numpy())
        return Trial(number, valid, action)

    def best_observed(self) -> list[dict[str, Any]]:
        """For each of finitely many states its best trial's action, reward and number, None where it has none.

        States of probability zero have a row only if they have a completed trial.
        """
        finite = self.states.finite()
        if finite is None:
            raise SettingError("the best observed action of every state needs finitely many states: use `policy()`.")
        best: dict[tuple[Value, ...], Trial | None] = {}
        for state in self.space.decode_states(finite[0].numpy()):
            best[tuple(state.values())] = None
        for trial in self._with_status("completed"):
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
        self._beliefs.clear()

    def policy(self) -> Policy:
        """The best action for every state, by what was told up to now."""
        belief = self._fitted(states_as_actions=False)
        if self.method.policy is None:
            warn_without_interaction(belief)
        return Policy(belief, self.maximize, self.method.policy)

    def policy_value(self) -> float:
        """The model's own estimate of the policy's expected reward over P[s]."""
        belief = self._fitted(states_as_actions=False)
        if (finite := self.states.finite(VALUE_STATES)) is not None:
            states, weights = finite
        else:
            states = self.states.from_uniform(sobol(VALUE_STATES, self.space.n_state_dims, seed=0))
            weights = torch.full((VALUE_STATES,), 1 / VALUE_STATES, dtype=torch.float64)
        with threads_for(len(belief.observations)), torch.no_grad():
            recipe = self.method.policy or GpArgmax(candidates=64)
            actions = recipe.build(belief, torch.Generator().manual_seed(0))(states)
            mean = belief.to_reward(belief.posterior.mean(torch.cat([states, actions], -1)))
        return float(weights @ mean) * self._sign

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
            if trial.status == "completed":
                Trial(trial.number, {}, {}).told(trial.reward, trial.noise)
        except (PointError, RewardError) as error:
            raise type(error)(f"trial {trial.number}: {error}") from error

    def _with_status(self, status: str) -> list[Trial]:
        return [trial for trial in self._trials if trial.status == status]

    def _design(self, first: int, n: int) -> Tensor:
        """Points first to first + n of the quasi-random design, with states that follow P[s]."""
        d_s, d_x = self.space.n_state_dims, self.space.n_action_dims
        u = sobol(first + n, d_s + d_x, _stream(self.seed, _DESIGN) % 2**31)[first:]
        points = torch.cat([self.states.from_uniform(u[:, :d_s]), u[:, d_s:]], -1)
        return torch.from_numpy(self.space.snap(points.numpy()))

    def _propose(self, n: int, number: int, state: Point | None) -> Tensor:
        generator = self._generator(number)
        dictated = None if state is None else torch.from_numpy(self.space.encode_states([state]))[0]
        belief = self._fitted(self.method.states_as_actions) if self.method.uses_model else self._prior()
        belief = self._with_pending(belief)
        proposal = self.method.proposal
        with threads_for(len(belief.observations)):
            if not self.knows_gains or not isinstance(proposal, Maximizer):
                return proposal.propose(belief, n, generator, dictated)
            search = proposal.search(belief, generator, dictated)
            self.expected_gain = belief.scale * search.highest
            return penalized_batch(belief, search.points, search.values, n)

    def _generator(self, number: int) -> torch.Generator:
        """The randomness of the suggestion with this number."""
        return torch.Generator().manual_seed(_stream(self.seed, _SUGGESTION, number))

    def _with_pending(self, belief: Belief) -> Belief:
        """The same belief with the trials whose rewards are awaited."""
        pending = self._encoded(self._with_status("running"))
        return replace(belief, observations=belief.observations.with_pending(pending))

    def _fitted(self, states_as_actions: bool) -> Belief:
        """What is known now; a fit is made once for the same data."""
        if states_as_actions not in self._beliefs:
            observations = self._observations()
            if len(observations) == 0:
                raise ConboError("a policy needs at least one completed trial, but there is none.")
            space = self.space.with_states_as_actions() if states_as_actions else self.space
            states = bind(None, space) if states_as_actions else self.states
            with threads_for(len(observations)):
                self._beliefs[states_as_actions] = believe(space, states, observations, self.model)
        return self._beliefs[states_as_actions]

    def _prior(self) -> Belief:
        """What was known before any reward: for methods that do not look at the model."""
        family, *_ = GaussianProcess().families(self.space)
        kernel = family.kernel(torch.zeros(family.n_lengthscales + family.n_variances, dtype=torch.float64))
        observations = self._observations()
        nothing = observations.points[:0], observations.rewards[:0]
        posterior = condition(kernel, 0.0, 1.0, *nothing, new_noise=1.0)
        return Belief(self.space, self.states, observations, posterior, shift=0.0, scale=1.0)

    def _observations(self) -> Observations:
        completed = self._with_status("completed")
        points = self._encoded(completed)
        rewards = torch.tensor([trial.reward for trial in completed], dtype=torch.float64) * self._sign
        noise = [trial.noise for trial in completed if trial.noise is not None]
        if 0 < len(noise) < len(completed):
            raise unlike_before(next(trial for trial in completed if trial.noise is None))
        known = torch.tensor(noise, dtype=torch.float64) if noise else None
        return Observations(points, rewards, pending=points[:0], noise=known)

    def _encoded(self, trials: Iterable[Trial]) -> Tensor:
        """The points (n, d) of trials."""
        trials = list(trials)
        states = self.space.encode_states([trial.state for trial in trials])
        actions = self.space.encode_actions([trial.action for trial in trials])
        return torch.from_numpy(np.concatenate([states, actions], axis=1))


def at_least(least: int, name: str, value: object) -> int:
    """The value as an int; raises SettingError unless it is a whole number of at least so much."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise SettingError(f"`{name}` must be an integer of at least {least}, but got {name}={value!r}.")
    return int(value)


def has_weights(recipe: RecipeLike, name: str) -> bool:
    """Whether this P[s] lists the values of a state with their weights, so that a new one would have none."""
    marginals = recipe.marginals if isinstance(recipe, Product) else recipe
    return isinstance(marginals.get(name) if isinstance(marginals, Mapping) else marginals, Weights)


_named = method  # the constructor has a parameter of the same name


def _stream(*numbers: int) -> int:
    """A seed of its own for every tuple of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
