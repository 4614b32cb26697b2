"""The part of an optimizer that needs torch: it fits models to trials, suggests points and creates policies."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import nan

import numpy as np
import torch
from torch import Tensor

from conbo.acquisition.state_improvement import RewardImprovement
from conbo.belief import Belief, ModelLike, fit_belief
from conbo.bound_states import StateDistribution, bind
from conbo.common_random_numbers import SeedRule
from conbo.constraint_learner import ConstraintLearner
from conbo.cost_learner import CostLearner
from conbo.cost_rules import Cost
from conbo.direction import sign_of
from conbo.errors import ConboError
from conbo.gaussian_process import GaussianProcess
from conbo.loops import compiling
from conbo.method_list import Method
from conbo.models.exact import condition
from conbo.models.fit import ANNOUNCED_SECONDS
from conbo.models.fit_memory import FitMemory, Shelf
from conbo.models.moving import usable_device
from conbo.models.snapping import contains, snap
from conbo.notices import LOG, in_words
from conbo.observations import Observations, Seeds
from conbo.outcome_constraints import NOTHING_LEARNED, LearnedSettings
from conbo.policies.gp_argmax import GpArgmax
from conbo.policies.interaction import warn_without_interaction
from conbo.policies.policy import Policy
from conbo.policies.policy_value import typical_states
from conbo.prior_belief import fit_with_prior
from conbo.proposals import Suggestion
from conbo.proposals.maximizer import Maximizer
from conbo.reward_range import RewardRange, maximized
from conbo.spaces import Array, Point, Space
from conbo.study_summary import StudySummary, summarize
from conbo.threads import threads_for
from conbo.trials import Trial, unlike_before

VALUE_STATES = 64  # number of states over which the value of the policy is averaged


class Learner:
    """Fits models to the trials of a study, suggests points and creates policies.

    Its functions take all trials of the study, in the order of their numbers.  Fitted models are cached.
    """

    def __init__(
        self,
        space: Space,
        states: StateDistribution,
        method: Method,
        model: ModelLike,
        maximize: bool,
        shelf: Shelf | None = None,
        device: str = "cpu",
        cost: Cost = None,
        prior: Sequence[Trial] = (),
        reward_range: RewardRange | None = None,
        seed_rule: SeedRule | None = None,
        learned: LearnedSettings = NOTHING_LEARNED,
    ) -> None:
        self._reward_range = reward_range
        self._seed_rule = seed_rule  # None if trials have no seeds
        self._prior_trials = prior  # completed trials of an earlier study
        # the belief of the earlier study, by number of state columns, which is 0 if a method models states as actions
        self._earlier: dict[int, Belief] = {}
        self._space, self._states, self._method, self._model = space, states, method, model
        self._maximize, self._memory, self._device = maximize, FitMemory(shelf), usable_device(device)
        self._costs = CostLearner(space, states, cost)
        self._constraints = ConstraintLearner(learned.constraints, learned.confidence, shelf)
        self._learns_failures = learned.failures == "learn"
        # by states_as_actions: the trials that were learned from, and the belief fitted to them
        self._beliefs: dict[bool, tuple[list[Trial], Belief]] = {}

    @property
    def knows_gains(self) -> bool:
        """Whether the method computes the expected gain of the next evaluation, in units of the reward."""
        return self._method.values_are_gains and getattr(self._method.proposal, "knows_gains", False)

    def fit(self, trials: Sequence[Trial]) -> None:
        """Fit the model to the trials now, so that the next suggestion takes less time."""
        if self._method.uses_model:
            self._fitted(trials, self._method.states_as_actions)

    def propose(self, trials: Sequence[Trial], n: int, seed: int, state: Point | None = None) -> Suggestion:
        """Suggest the next n points to evaluate; if a state is given, all points are in this state."""
        generator = torch.Generator().manual_seed(seed)
        method = self._method
        belief = self._fitted(trials, method.states_as_actions) if method.uses_model else self._prior(trials)
        belief = replace(self._with_pending(belief, trials), cost=self._costs.model(trials))
        given_state = None
        if state is not None:
            given_state = torch.from_numpy(self._space.encode_states([state]))[0].to(belief.device)
        began = time.monotonic()
        with threads_for(len(belief.observations)):
            suggestion = method.proposal.propose(belief, n, generator, given_state)
        suggestion = replace(suggestion, points=suggestion.points.cpu())
        LOG.debug("Chose %d points by '%s' in %.2f s.", n, method.name, time.monotonic() - began)
        if self._space.feasible_set is not None:  # suggestions are feasible even if the method ignores limits
            suggestion = replace(suggestion, points=self._feasible(suggestion.points, generator))
        if belief.cost is not None:
            suggestion = replace(suggestion, expected_costs=belief.cost.expected(suggestion.points))
        return suggestion if self.knows_gains else replace(suggestion, expected_gain=None)

    def _feasible(self, points: Tensor, generator: torch.Generator) -> Tensor:
        """Move points (n, d) to feasible ones nearby; replace states without a feasible action by draws from P[s]."""
        near = snap(self._space, points)
        lost = ~contains(self._space, near)
        if bool(lost.any()):
            states = self._states.sample(int(lost.sum()), generator)
            near[lost] = snap(self._space, torch.cat([states, near[lost, states.shape[1] :]], -1))
        return near

    def propose_improving(self, trials: Sequence[Trial], admissible: Sequence[Trial], seed: int, state: Point) -> Array:
        """Return the action (1, d_x) with the highest expected improvement in the given state.

        The improvement is over the best reward of the admissible trials in this state or, if there are none, over the
        best posterior mean of the state.
        """
        there = torch.from_numpy(self._space.encode_states([state]))[0].to(self._device)
        generator = torch.Generator().manual_seed(seed)
        belief = self._fitted(trials, states_as_actions=False)
        observed = self._observations(admissible).to(self._device)
        belief = self._with_pending(replace(belief, observations=observed), trials)
        with threads_for(len(belief.observations)):
            points = Maximizer(RewardImprovement(there)).propose(belief, 1, generator, there).points
        points = snap(self._space, points.cpu())
        return points[:, len(there) :].numpy()

    def total_cost(self, trials: Sequence[Trial]) -> tuple[float, float]:
        """Return the total cost of the trials that have ended, and the total cost of the running ones.

        If costs are learned, those of running and failed trials are not known, and their expected costs are used
        instead.
        """
        return self._costs.total(trials)

    def policy(self, trials: Sequence[Trial]) -> Policy:
        """Return the policy learned from the trials; warn if the model implies the same action for every state.

        There is no warning if the method has a policy of its own or if constraints are learned, because actions may
        then depend on the state even if the model of the rewards implies otherwise.
        """
        belief = self._fitted(trials, states_as_actions=False)
        # learned constraints can make the best action depend on the state even if the reward's model does not
        if self._method.policy is None and belief.constraints is None:
            warn_without_interaction(belief)
        return Policy(belief, self._maximize, self._method.policy)

    def policy_value(self, trials: Sequence[Trial]) -> float:
        """Return the model's estimate of the policy's expected reward, averaged over P[s]."""
        belief = self._fitted(trials, states_as_actions=False)
        states, weights = typical_states(belief, VALUE_STATES)
        states = states.to(belief.device)
        with threads_for(len(belief.observations)), torch.no_grad():
            recipe = self._method.policy or GpArgmax(candidates=64)
            actions = recipe.build(belief, torch.Generator().manual_seed(0))(states)
            actions = belief.feasible_actions(states, actions)
            mean = belief.to_reward(belief.predictive.mean(torch.cat([states, actions], -1)))
        return float(weights @ mean.cpu()) * sign_of(self._maximize)

    def summary(self, trials: Sequence[Trial]) -> StudySummary:
        """Return a summary of what was learned, in numbers and sentences."""
        belief = self._fitted(trials, states_as_actions=False).to(torch.device("cpu"))
        if not self._method.keeps_constraints:
            belief = replace(belief, constraints=None)
        rule = (self._method.policy or GpArgmax()).build(belief, torch.Generator().manual_seed(0))
        return summarize(belief, lambda states: belief.feasible_actions(states, rule(states)), self._maximize)

    def _with_pending(self, belief: Belief, trials: Iterable[Trial]) -> Belief:
        """Return the belief with the points of running trials as pending points."""
        pending = self._encoded([trial for trial in trials if trial.status == "running"])
        return replace(belief, observations=belief.observations.with_pending(pending.to(belief.device)))

    def _fitted(self, trials: Sequence[Trial], states_as_actions: bool) -> Belief:
        """Return the belief that is fitted to completed trials and, if failures are learned, to failed ones.

        The belief is cached until there are further trials to fit.  With `states_as_actions`, state parameters are
        modeled as actions; a space without states has the same belief either way.
        """
        states_as_actions = states_as_actions and self._space.n_state_dims > 0
        ended = [trial for trial in trials if trial.status == "completed" or self._teaches(trial)]
        known, belief = self._beliefs.get(states_as_actions, (None, None))
        if belief is None or known != ended:
            completed = _completed(ended)
            if not completed and not self._prior_trials:
                raise ConboError(
                    "a policy needs at least one completed trial, but there is none yet: "
                    "run an objective, or tell a reward."
                )
            space = self._space.with_states_as_actions() if states_as_actions else self._space
            states = bind(None, space) if states_as_actions else self._states
            began, compiles = time.monotonic(), compiling.is_cold()
            with threads_for(len(completed)):
                told = self._observations(completed).to(self._device)
                belief = self._belief(space, states, told)
                before = self._observations(self._prior_trials).to(self._device) if self._prior_trials else None
                learned = self._constraints.learn(space, states, told, self._labels(ended), before)
                belief = replace(belief, constraints=learned)
            if (seconds := time.monotonic() - began) > ANNOUNCED_SECONDS and not compiles:
                LOG.info("Fitted in %s; looking for the best points now.", in_words(seconds))
            LOG.debug("Fitted %d rewards in %.2f s: %s.", len(completed), seconds, belief.posterior)
            self._beliefs[states_as_actions] = ended, belief
        return belief

    def _teaches(self, trial: Trial) -> bool:
        """Return whether a trial has failed, and the study learns from this where evaluations fail."""
        return self._learns_failures and trial.teaches_failure

    def _labels(self, ended: Sequence[Trial]) -> Observations:
        """Return the points of trials that have ended, with a reward of 1/2 for a success and -1/2 for a failure."""
        points = self._encoded(ended).to(self._device)
        labels = torch.tensor([0.5 if trial.status == "completed" else -0.5 for trial in ended], dtype=torch.float64)
        return Observations(points, labels.to(points), pending=points[:0])

    def _belief(self, space: Space, states: StateDistribution, told: Observations) -> Belief:
        """Fit a belief to the observations `told` and, if the study has a prior, to those of the earlier study."""
        if not self._prior_trials:
            return fit_belief(space, states, told, self._model, self._memory)
        if (before := self._earlier.get(space.n_state_dims)) is None:
            earlier = self._observations(self._prior_trials).to(self._device)
            before = fit_belief(space, states, earlier, self._model, self._memory)
            self._earlier[space.n_state_dims] = before
        return fit_with_prior(space, states, told, before, self._model, self._memory)

    def _prior(self, trials: Iterable[Trial]) -> Belief:
        """Return a belief for methods that use no model; its posterior is a fixed prior that ignores all rewards."""
        family, *_ = GaussianProcess().structures(self._space).plain
        kernel = family.kernel(torch.zeros(family.n_lengthscales + family.n_variances, dtype=torch.float64))
        observations = self._observations(_completed(trials))
        nothing = observations.points[:0], observations.rewards[:0]
        posterior = condition(kernel, 0.0, 1.0, *nothing, new_noise=1.0)
        return Belief(self._space, self._states, observations, posterior, shift=0.0, scale=1.0)

    def _observations(self, completed: Sequence[Trial]) -> Observations:
        points = self._encoded(completed)
        rewards = torch.tensor([trial.reward for trial in completed], dtype=torch.float64) * sign_of(self._maximize)
        noise = [trial.noise for trial in completed if trial.noise is not None]
        if 0 < len(noise) < len(completed):
            raise unlike_before(next(trial for trial in completed if trial.noise is None))
        known = torch.tensor(noise, dtype=torch.float64) if noise else None
        limits = maximized(self._reward_range, self._maximize)
        seeds = None
        if self._seed_rule is not None and self._seed_rule.total != 1:  # with a single seed there is no randomness
            seeds = Seeds(torch.tensor([trial.seed for trial in completed], dtype=torch.long), self._seed_rule.total)
        return Observations(points, rewards, points[:0], known, _measured(completed), limits, seeds)

    def _encoded(self, trials: Sequence[Trial]) -> Tensor:
        """Return the points (n, d) of n trials in the unit cube."""
        states = self._space.encode_states([trial.state for trial in trials])
        actions = self._space.encode_actions([trial.action for trial in trials])
        return torch.from_numpy(np.concatenate([states, actions], axis=1))


def _completed(trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.status == "completed"]


def _measured(completed: Sequence[Trial]) -> dict[str, Tensor]:
    """Return the measured outcomes of n trials, besides the rewards: tensors (n,) by name, with NaN where missing."""
    names = sorted({name for trial in completed for name in trial.measured})
    columns = ([trial.measured.get(name, nan) for trial in completed] for name in names)
    return {name: torch.tensor(column, dtype=torch.float64) for name, column in zip(names, columns, strict=True)}
