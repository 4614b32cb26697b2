"""The knowledge gradient in each state, for a policy that must satisfy learned constraints.

An evaluation measures the reward and the constrained outcomes, so it changes both the expected rewards and the
probabilities of satisfying the constraints.  Its gain in a state is the expected rise of the largest utility of any
action (`utility_gain.py`).  The maximum is over a short list of actions: the policy's action, the candidate's action,
and a few actions of the pool.  Each of these few has the highest utility of the pool under a different degree of
optimism about rewards and probabilities.

Under output warping, the expected rewards in these utilities are those of the Gaussian process, which models mapped
rewards, because expected rewards in the user's units are far from linear in the observation.  The gain is then
converted, as it is without constraints.  If several models are averaged and one of them has output warping or effects
of seeds, the gain is the weighted mean of the models' gains.

This is the constrained knowledge gradient of Ungredda & Branke, "Bayesian Optimization for Constrained Problems"
(2021), applied in every state.  Their policy maximizes the utility.  Ours maximizes the expected reward among the
actions that satisfy the constraints with a given confidence.  The two differ little once the outcomes are well known
near the policy's actions.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conbo.acquisition.utility_gain import GainWithDerivatives, MeansAhead, SlackAhead, gain_of
from conbo.belief import Belief
from conbo.models.conditioned import Conditioned
from conbo.models.gains import GainRule, LookAheadLines, StateValue
from conbo.models.mixture import Mixture
from conbo.models.mixture_gains import MixtureGains
from conbo.models.posterior import BestSearch, Posterior
from conbo.models.relative import RelativePosterior
from conbo.models.snapping import contains, violations
from conbo.models.transformed import TransformedPosterior
from conbo.quasi_random import sobol

FANTASIES = 8  # number of values of ζ; each value is a vector with one entry per constraint
MOST_VALUES = 2**21  # largest product of the numbers of candidates, states, actions and fantasies in one pass
# Each pair puts one action on the short list of a state: the action that would be best if all rewards were higher by
# this many standard deviations, and all probabilities of feasibility were raised to this power.
OPTIMISM = ((0.0, 1.0), (0.0, 0.5), (0.0, 0.2), (1.0, 1.0), (1.0, 0.5), (1.0, 0.2), (2.0, 1.0))
POLICY_STARTS = 1  # starts of the search for the policy's action, besides the best action without constraints


def state_gains(belief: Belief, actions: Tensor, rule: GainRule) -> StateValue:
    """Return the object that computes knowledge gradients of candidates in states.

    Searches for each state's best action start from the pool `actions` (p, d_x); if `rule.nodes` is None, the best
    action is sought only in this pool.  `rule` says how a knowledge gradient is computed from the posterior means after
    the evaluation.  If constraints are learned, `rule` is ignored, and the result is a `ConstrainedGains` or an average
    of several, which have their own formula (`utility_gain.py`).
    """
    if belief.constraints is None:
        return belief.posterior.action_search(belief.space, actions).gains(rule)
    belief = replace(belief, constraints=belief.constraints.of_most_probable())  # averages would take too long
    search, whole = LastSearch(belief.search(actions)), belief.posterior
    if not isinstance(whole, Mixture) or not any(has_own_gain(one) for one in whole.members):
        return ConstrainedGains(belief, whole, actions, search)
    gains = tuple(ConstrainedGains(belief, one, actions, search) for one in whole.members)
    return MixtureGains(gains, whole.weights)


def has_own_gain(posterior: Posterior) -> bool:
    """Return whether a model of an average needs a gain of its own: with output warping or effects of seeds."""
    return unmapped(posterior)[1] is not None or bool(seeds_of(posterior))


def unmapped(posterior: Posterior) -> tuple[Posterior, TransformedPosterior | None]:
    """Return the model of mapped rewards, and the posterior that maps them; under output warping, these are two.

    Without output warping, they are the posterior itself and None.
    """
    if isinstance(posterior, TransformedPosterior):
        return posterior.process, posterior
    if isinstance(posterior, RelativePosterior) and isinstance(posterior.whole, TransformedPosterior):
        return replace(posterior, whole=posterior.whole.process), posterior.whole
    return posterior, None


def seeds_of(posterior: Posterior) -> tuple[int, ...]:
    """Return the simulator seeds of the observed rewards; empty if the posterior does not depend on seeds."""
    return posterior.seen_seeds if isinstance(posterior, Conditioned) else ()


@dataclass(frozen=True)
class ConstrainedLineGains:
    """Constrained knowledge gradients of k candidates, each in m states of its own.

    `gradient` differentiates their weighted sum over the states with respect to the candidates.
    """

    gain: GainWithDerivatives  # under output warping, in units of the Gaussian process
    lines: list[LookAheadLines]  # posterior means after the evaluation: of the reward, then of each constraint's slack
    values: Tensor  # (k, m), in units of the reward
    derivative: Tensor  # (k, m), of `values` with respect to the values of `gain`

    def gradient(self, weights: Tensor) -> Tensor:
        """Return the gradients (k, d) of Σ_i weights[:, i] values[:, i] with respect to the k candidates.

        The sum, with `weights` (k, m), is over the m states.  The actions among which each state's best one is sought
        are held fixed.
        """
        pulls, weights = [self.gain.reward, *self.gain.constraints], weights * self.derivative
        parts = [one.gradient(pull * weights[..., None]) for one, pull in zip(self.lines, pulls, strict=True)]
        return torch.stack(parts).sum(0)


@dataclass(frozen=True)
class ShortLists:
    """Short lists of actions: for each of m states, q actions that an evaluation may turn into the state's best action.

    `worst` is the lowest expected reward of each state, over a pool of actions.
    """

    actions: Tensor  # (m, q, d_x)
    worst: Tensor  # (m,)


class KnownLists:
    """The short lists of the states for which they were computed so far."""

    def __init__(self) -> None:
        self._rows: dict[tuple[float, ...], int] = {}  # index of each state in the short lists
        self._lists: ShortLists | None = None

    def of(self, states: Tensor, find: Callable[[Tensor], ShortLists]) -> ShortLists:
        """Return the short lists of m states (m, d_s); `find` computes those of states that are not known yet."""
        keys = [tuple(state) for state in states.tolist()]
        new = {key: row for row, key in enumerate(keys) if key not in self._rows}
        if new or self._lists is None:
            found, known = find(states[list(new.values())]), self._lists
            self._rows |= zip(new, range(len(self._rows), len(self._rows) + len(new)), strict=True)
            if known is not None:
                found = ShortLists(torch.cat([known.actions, found.actions]), torch.cat([known.worst, found.worst]))
            self._lists = found
        rows = torch.tensor([self._rows[key] for key in keys], device=states.device)
        return ShortLists(self._lists.actions[rows], self._lists.worst[rows])


class LastSearch:
    """A search for the policy's actions that keeps its last result, because several models ask for the same states."""

    def __init__(self, search: BestSearch) -> None:
        self._search = search
        self._states: Tensor | None = None
        self._actions: Tensor | None = None

    def actions(self, states: Tensor) -> Tensor:
        """Return the policy's actions (m, d_x) in states (m, d_s)."""
        if self._actions is None or self._states is None or not torch.equal(states, self._states):
            self._states, self._actions = states, self._search.best(states, POLICY_STARTS).actions
        return self._actions


class ConstrainedGains:
    """Computes constrained knowledge gradients of candidates in states, under a belief with learned constraints.

    `posterior` is the model of the rewards: that of the belief, or one of the models of which it is the average.
    """

    includes_constraints = True  # the gains take account of the constraints, so nobody has to weight them

    def __init__(self, belief: Belief, posterior: Posterior, pool: Tensor, search: LastSearch) -> None:
        assert belief.constraints is not None, "without learned constraints, gains need no account of them"
        self.belief, self._pool, self._search = belief, pool, search
        reward, self._mapped = unmapped(posterior)
        self.constraints = belief.constraints.all
        self.posteriors = [reward, *(one.posterior for one in self.constraints)]
        even = sobol(FANTASIES // 2, len(self.constraints), seed=0).to(belief.device)
        half = torch.special.ndtri(even.clamp(1e-6, 1 - 1e-6))
        self.fantasies = torch.cat([half, -half])  # (f, constraints), with mean zero
        self._known = KnownLists()

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The simulator seeds of the observed rewards; empty if gains do not depend on seeds."""
        return seeds_of(self.posteriors[0])

    def for_seeds(self, seeds: Tensor) -> "ConstrainedGains":
        """Return the gains of evaluations that are simulated with these seeds.

        `seeds` is (1,), one seed for all candidates, or (c,), one seed for each of c candidates. Short lists do not
        depend on the seeds of new evaluations, so the copy and the original share them.
        """
        other, reward = copy(self), self.posteriors[0]
        if isinstance(reward, Conditioned):
            other.posteriors = [reward.for_seeds(seeds), *self.posteriors[1:]]
        return other

    def posteriors_of(self, rows: Tensor) -> list[Posterior]:
        """Return the models of the reward and of the constraints, for the evaluations with the indices `rows` (k,).

        If every evaluation has its own seed, the model of the reward keeps only the seeds of these evaluations.
        """
        reward = self.posteriors[0]
        return [reward.of_rows(rows) if isinstance(reward, Conditioned) else reward, *self.posteriors[1:]]

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a fast function for screening, which computes rough constrained knowledge gradients.

        It takes r candidates (r, d), and returns the knowledge gradient (r, m) of each candidate in each of the m
        `states` (m, d_s).
        """
        lists, (m, d_s) = self.lists(states), states.shape
        points = torch.cat([states[:, None].expand(-1, lists.actions.shape[1], -1), lists.actions], -1)
        flat, shape = points.flatten(0, 1), points.shape[:2]
        means = [posterior.mean(flat).reshape(shape) for posterior in self.posteriors]
        variances = [posterior.variance(flat).reshape(shape) for posterior in self.posteriors[1:]]

        def values(candidates: Tensor, rows: Tensor) -> Tensor:
            own = candidates[:, None, None, d_s:].expand(-1, m, 1, -1)
            there = states.expand(len(candidates), -1, -1)
            at_own = torch.cat([there[:, :, None], own], -1)
            looks = []
            for posterior, mean in zip(self.posteriors_of(rows), means, strict=True):
                line = posterior.look_ahead_lines(candidates, there, own)
                slope = posterior.look_ahead_slopes(candidates, flat).reshape(-1, *shape)
                both = torch.cat([mean.expand_as(slope), line.mean], -1)
                looks.append(MeansAhead(both, torch.cat([slope, line.slope], -1)))
            slacks = []
            for one, look, variance in zip(self.constraints, looks[1:], variances, strict=True):
                new = one.posterior.variance(at_own.flatten(0, 2)).reshape(at_own.shape[:3])
                whole = torch.cat([variance.expand(len(candidates), -1, -1), new], -1)
                slacks.append(SlackAhead(look.mean, look.slope, whole, one.threshold))
            allowed = self._allowed(torch.cat([points.expand(len(candidates), -1, -1, -1), at_own], 2))
            gain = gain_of(looks[0], lists.worst.expand(len(candidates), -1), slacks, allowed, self.fantasies)
            return self._worth(gain)[0]

        step = max(1, MOST_VALUES // (m * (shape[1] + 1) * len(self.fantasies)))

        def in_steps(candidates: Tensor) -> Tensor:
            steps = torch.arange(len(candidates), device=candidates.device).split(step)
            return torch.cat([values(candidates[rows], rows) for rows in steps])

        return in_steps

    def at(self, states: Tensor) -> "ConstrainedStatesAhead":
        """Return a function that computes knowledge gradients of candidates in r sets of m states (r, m, d_s).

        It takes k candidates (k, d) and, for each candidate, the index (k,) of its set.  It computes the
        knowledge gradients (k, m) of the candidates, each in the m states of its set.
        """
        return ConstrainedStatesAhead(self, states)

    def gains_at(
        self, candidates: Tensor, rows: Tensor, states: Tensor, actions: Tensor, worst: Tensor
    ) -> ConstrainedLineGains:
        """Compute the constrained knowledge gradients (k, m) of k candidates (k, d) in states (k, m, d_s).

        Each candidate has its own m states.  The best action of a state is sought among q `actions` (k, m, q, d_x), and
        `worst` (k, m) is the state's lowest expected reward.  If evaluations have seeds of their own, candidate i has
        the seed of index `rows[i]`.
        """
        lines = [posterior.look_ahead_lines(candidates, states, actions) for posterior in self.posteriors_of(rows)]
        points = torch.cat([states[:, :, None].expand(*actions.shape[:3], -1), actions], -1)
        slacks = [
            SlackAhead(
                line.mean, line.slope, one.posterior.variance(points.flatten(0, 2)).view_as(line.mean), one.threshold
            )
            for one, line in zip(self.constraints, lines[1:], strict=True)
        ]
        reward = MeansAhead(lines[0].mean, lines[0].slope)
        gain = gain_of(reward, worst, slacks, self._allowed(points), self.fantasies)
        return ConstrainedLineGains(gain, lines, *self._worth(gain))

    def _worth(self, gain: GainWithDerivatives) -> tuple[Tensor, Tensor]:
        """Return the gains (k, m) in units of the reward, and their derivatives with respect to the given gains."""
        if self._mapped is None:
            return gain.values, torch.ones_like(gain.values)
        noise = gain.values.new_tensor(self._mapped.process.usual_noise).expand_as(gain.values)
        return self._mapped.output.gain(gain.before, gain.values, noise)

    def lists(self, states: Tensor) -> ShortLists:
        """Return, for each of m states (m, d_s), a short list of actions and the state's lowest expected reward.

        An evaluation may turn any action of the short list into the state's best action.  The lowest expected reward is
        over a pool of actions.  Results are cached.
        """
        return self._known.of(states, self._new_lists)

    def _new_lists(self, states: Tensor) -> ShortLists:
        m, pool = len(states), self._pool
        points = torch.cat([states[:, None].expand(-1, len(pool), -1), pool.expand(m, -1, -1)], -1).flatten(0, 1)
        mean, sd = (part.unflatten(0, (m, len(pool))) for part in self._reward_moments(points))
        likely = torch.stack([torch.special.log_ndtr(one.margins(points)) for one in self.constraints]).sum(0)
        feasible, worst = likely.exp().unflatten(0, (m, len(pool))), mean.amin(-1)
        broken = violations(self.belief.space, states, pool)
        if broken is not None:
            feasible = torch.where(broken > 0, 0.0, feasible)
        height = mean - worst[:, None]
        chosen = torch.stack([((height + more * sd) * feasible.pow(power)).argmax(-1) for more, power in OPTIMISM], -1)
        policy = self._search.actions(states)[:, None]
        return ShortLists(torch.cat([policy, pool[chosen]], 1), worst)

    def _reward_moments(self, points: Tensor) -> tuple[Tensor, Tensor]:
        return self.posteriors[0].mean(points), self.posteriors[0].variance(points).sqrt()

    def _allowed(self, points: Tensor) -> Tensor | None:
        """Return 1 for points (..., d) that satisfy the known limits and 0 for others; None if there are no limits."""
        if self.belief.space.feasible_set is None:
            return None
        return contains(self.belief.space, points).to(points)


class ConstrainedStatesAhead:
    """A function from candidates to their constrained knowledge gradients in fixed states.

    There are r sets of m states, and every candidate is given with the index of its set.  The best action of a state is
    sought in a short list of actions.  The first candidate that is given with a set adds its action to the short lists
    of all states in this set.  Later candidates do not change these lists, so the knowledge gradient is a smooth
    function of the candidate.
    """

    def __init__(self, gains: ConstrainedGains, states: Tensor) -> None:
        self._gains, self._states = gains, states
        lists = gains.lists(states.flatten(0, 1))
        self._actions = lists.actions.unflatten(0, states.shape[:2])  # (r, m, q, d_x)
        self._worst = lists.worst.unflatten(0, states.shape[:2])
        self._own = states.new_full((len(states), self._actions.shape[-1]), torch.nan)

    def __call__(self, candidates: Tensor, rows: Tensor) -> ConstrainedLineGains:
        """Compute constrained knowledge gradients (k, m) of k candidates (k, d), each in the m states of its set.

        There are several fixed sets of m states, and the set of candidate i has the index `rows[i]`.
        """
        new = self._own[rows].isnan().any(-1)
        self._own[rows[new]] = candidates[new, self._states.shape[-1] :]
        own = self._own[rows][:, None, None].expand(-1, self._states.shape[1], 1, -1)
        actions = torch.cat([self._actions[rows], own], 2)
        return self._gains.gains_at(candidates, rows, self._states[rows], actions, self._worst[rows])
