"""The knowledge gradient of a state whose policy must satisfy learned constraints.

An evaluation tells the reward and the constrained outcomes, so it changes both the expected rewards and the
probabilities of satisfying the constraints.  An action is worth its expected reward if the constraints are satisfied,
and the lowest expected reward of its state otherwise:

    U(x') = M + (μ(x') - M) P(x'),      gain = E[max_x' Uⁿ⁺¹(x')] - max_x' Uⁿ(x')

==========  ====================  =====================================================================
symbol      here                  meaning
==========  ====================  =====================================================================
M           ``worst``             lowest expected reward of the state, over the pool
μ + σ̃ z     ``mean``, ``slope``   look-ahead of the expected reward, z ~ N(0, 1)
m + τ̃ ζ     ``mean``, ``slope``   look-ahead of a constraint's expected slack, ζ ~ N(0, 1)
v - τ̃²                            its variance after the evaluation
P(ζ)        ``kept``              Π Φ((m + τ̃ ζ - t) / √(v - τ̃²))
==========  ====================  =====================================================================

Given the ζ of all constraints, the (μ - M) P are lines in z, and their expected maximum is exact.  The mean over ζ uses
a few quasi-random values.  The present value is the best mean over the same values, so no gain is negative.  The
maximum is over a short list of actions: the policy's own, the candidate's, and the actions of the pool that would be
best if rewards were higher, or constraints more likely to be satisfied, than expected.

This is the constrained knowledge gradient of Ungredda & Branke, "Bayesian Optimization for Constrained Problems"
(2021), for the best action of every state.  Their policy maximizes U, too; ours asks for a confidence.  The difference
is small once the constraints are known near the policy.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.acquisition.expected_max import expected_max
from conbo.belief import Belief
from conbo.learned_constraints import LearnedConstraints, inverse_mills
from conbo.models.posterior import GainRule, LookAheadLines, StateValue
from conbo.models.snapping import contains, violations
from conbo.quasi_random import sobol

FANTASIES = 8  # number of values of ζ; each value is a vector over all constraints
LEAST_VARIANCE = 1e-10  # least variance of a standardized slack after the evaluation
MOST_VALUES = 2**21  # largest product of the numbers of candidates, states, actions and fantasies in one pass
# standard deviations added to the reward, and the power of the probability, for actions that may become the best
HOPES = ((0.0, 1.0), (0.0, 0.5), (0.0, 0.2), (1.0, 1.0), (1.0, 0.5), (1.0, 0.2), (2.0, 1.0))
CLIMBS = 1  # local searches for the policy's own action, in addition to one from the best action without constraints


def state_gains(belief: Belief, actions: Tensor, rule: GainRule) -> StateValue:
    """Expected gains of states, from a pool of actions (p, d_x); `rule` is used only if no constraints are learned."""
    if belief.constraints is None:
        return belief.posterior.action_search(belief.space, actions).gains(rule)
    return ConstrainedGains(belief, belief.constraints, actions)


@dataclass(frozen=True)
class Look:
    """The look-ahead of the reward, or of a constraint's slack, at q actions for each of k candidates and m states."""

    mean: Tensor  # (k, m, q)
    slope: Tensor  # (k, m, q)


@dataclass(frozen=True)
class Slack:
    """The look-ahead of a constraint's slack, with its variance before the evaluation and its threshold."""

    mean: Tensor  # (k, m, q)
    slope: Tensor  # (k, m, q)
    variance: Tensor  # (k, m, q)
    threshold: float


@dataclass(frozen=True)
class Gain:
    """Gains (k, m), with derivatives (k, m, q) with respect to the slopes of the reward and of every constraint."""

    values: Tensor
    reward: Tensor
    constraints: list[Tensor]


def gain_of(reward: Look, worst: Tensor, slacks: list[Slack], allowed: Tensor | None, nodes: Tensor) -> Gain:
    """The gain of the module's docstring, for fantasies (f, constraints); actions that are not `allowed` have P = 0."""
    height, nodes = reward.mean - worst[..., None], nodes.to(reward.mean)
    log_kept, rises = height.new_zeros(*height.shape[:2], len(nodes), height.shape[2]), []  # (k, m, f, q)
    for slack, zeta in zip(slacks, nodes.T[:, :, None], strict=True):
        variance = slack.variance - slack.slope.square()
        left = variance.clamp_min(LEAST_VARIANCE)[:, :, None]
        slope = slack.slope[:, :, None]
        margin = (slack.mean[:, :, None] + slope * zeta - slack.threshold) / left.sqrt()
        log_cdf = torch.special.log_ndtr(margin)
        shrinks = torch.where(variance[:, :, None] > LEAST_VARIANCE, margin * slope / left, 0.0)
        rises.append(inverse_mills(margin, log_cdf) * (zeta / left.sqrt() + shrinks))  # ∂ log P / ∂ τ̃
        log_kept = log_kept + log_cdf
    kept = log_kept.exp()
    if allowed is not None:
        kept = kept * allowed[:, :, None]
    value = height[:, :, None] * kept
    lines = expected_max(value, reward.slope[:, :, None] * kept)
    before = value.mean(2)  # (k, m, q)
    now, best = before.max(-1, keepdim=True)
    values = lines.gain.mean(-1) + (value.amax(-1).mean(-1) - now[..., 0]).clamp_min(0)
    steep = (lines.probability * height[:, :, None] + lines.density * reward.slope[:, :, None]) * kept
    present = torch.zeros_like(before).scatter(-1, best, 1.0)[:, :, None] * value
    return Gain(
        values,
        (lines.density * kept).mean(2),
        [((steep - present) * rise).mean(2) for rise in rises],
    )


@dataclass(frozen=True)
class ConstrainedLineGains:
    """Gains (k, m) at fixed actions, computed from the look-ahead lines of the reward and of all constraints."""

    gain: Gain
    lines: list[LookAheadLines]  # lines of the reward, then of the constraints

    @property
    def values(self) -> Tensor:
        """Gains (k, m) of candidates at states."""
        return self.gain.values

    def gradient(self, weights: Tensor) -> Tensor:
        """Gradient (k, d) of Σ_i weights[:, i] values[:, i] with respect to the candidates, the actions held fixed."""
        pulls = [self.gain.reward, *self.gain.constraints]
        parts = [one.gradient(pull * weights[..., None]) for one, pull in zip(self.lines, pulls, strict=True)]
        return torch.stack(parts).sum(0)


@dataclass(frozen=True)
class ShortLists:
    """q actions for each of m states, and the lowest expected reward of each state."""

    actions: Tensor  # (m, q, d_x)
    worst: Tensor  # (m,)


class ConstrainedGains:
    """Gains of states under one belief with learned constraints."""

    keeps_constraints = True  # these gains already look ahead at the constraints

    def __init__(self, belief: Belief, constraints: LearnedConstraints, pool: Tensor) -> None:
        self.belief, self._pool, self._search = belief, pool, belief.search(pool)
        self.constraints = constraints.all
        self.posteriors = [belief.posterior, *(one.posterior for one in self.constraints)]
        even = sobol(FANTASIES // 2, len(self.constraints), seed=0).to(belief.device)
        half = torch.special.ndtri(even.clamp(1e-6, 1 - 1e-6))
        self.nodes = torch.cat([half, -half])  # (f, constraints), with mean zero
        self._rows: dict[tuple[float, ...], int] = {}  # index of each known state
        self._known: ShortLists | None = None

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Prepare shared states (m, d_s); the result is a function from candidates (r, d) to gains (r, m)."""
        lists, (m, d_s) = self.lists(states), states.shape
        points = torch.cat([states[:, None].expand(-1, lists.actions.shape[1], -1), lists.actions], -1)
        flat, shape = points.flatten(0, 1), points.shape[:2]
        means = [posterior.mean(flat).reshape(shape) for posterior in self.posteriors]
        variances = [posterior.variance(flat).reshape(shape) for posterior in self.posteriors[1:]]

        def values(candidates: Tensor) -> Tensor:
            own = candidates[:, None, None, d_s:].expand(-1, m, 1, -1)
            there = states.expand(len(candidates), -1, -1)
            at_own = torch.cat([there[:, :, None], own], -1)
            looks = []
            for posterior, mean in zip(self.posteriors, means, strict=True):
                line = posterior.look_ahead_lines(candidates, there, own)
                slope = posterior.look_ahead_slopes(candidates, flat).reshape(-1, *shape)
                both = torch.cat([mean.expand_as(slope), line.mean], -1)
                looks.append(Look(both, torch.cat([slope, line.slope], -1)))
            slacks = []
            for one, look, variance in zip(self.constraints, looks[1:], variances, strict=True):
                new = one.posterior.variance(at_own.flatten(0, 2)).reshape(at_own.shape[:3])
                whole = torch.cat([variance.expand(len(candidates), -1, -1), new], -1)
                slacks.append(Slack(look.mean, look.slope, whole, one.threshold))
            allowed = self._allowed(torch.cat([points.expand(len(candidates), -1, -1, -1), at_own], 2))
            return gain_of(looks[0], lists.worst.expand(len(candidates), -1), slacks, allowed, self.nodes).values

        step = max(1, MOST_VALUES // (m * (shape[1] + 1) * len(self.nodes)))
        return lambda candidates: torch.cat([values(some) for some in candidates.split(step)])

    def at(self, states: Tensor) -> "ConstrainedStatesAhead":
        """Prepare r sets of m states (r, m, d_s); the result is a function from candidates to their gains in these."""
        return ConstrainedStatesAhead(self, states)

    def gains_at(self, candidates: Tensor, states: Tensor, actions: Tensor, worst: Tensor) -> ConstrainedLineGains:
        """Gains of candidates (k, d) in states (k, m, d_s) with actions (k, m, q, d_x); `worst` (k, m) is M."""
        lines = [posterior.look_ahead_lines(candidates, states, actions) for posterior in self.posteriors]
        points = torch.cat([states[:, :, None].expand(*actions.shape[:3], -1), actions], -1)
        slacks = [
            Slack(line.mean, line.slope, one.posterior.variance(points.flatten(0, 2)).view_as(line.mean), one.threshold)
            for one, line in zip(self.constraints, lines[1:], strict=True)
        ]
        reward = Look(lines[0].mean, lines[0].slope)
        return ConstrainedLineGains(gain_of(reward, worst, slacks, self._allowed(points), self.nodes), lines)

    def lists(self, states: Tensor) -> ShortLists:
        """The short lists of states (m, d_s), from a cache if possible."""
        keys = [tuple(state) for state in states.tolist()]
        new = {key: row for row, key in enumerate(keys) if key not in self._rows}
        if new or self._known is None:
            found, known = self._new_lists(states[list(new.values())]), self._known
            self._rows |= zip(new, range(len(self._rows), len(self._rows) + len(new)), strict=True)
            if known is not None:
                found = ShortLists(torch.cat([known.actions, found.actions]), torch.cat([known.worst, found.worst]))
            self._known = found
        rows = torch.tensor([self._rows[key] for key in keys], device=states.device)
        return ShortLists(self._known.actions[rows], self._known.worst[rows])

    def _new_lists(self, states: Tensor) -> ShortLists:
        m, pool = len(states), self._pool
        points = torch.cat([states[:, None].expand(-1, len(pool), -1), pool.expand(m, -1, -1)], -1).flatten(0, 1)
        mean, sd = (part.unflatten(0, (m, len(pool))) for part in self._reward_moments(points))
        likely = torch.stack([torch.special.log_ndtr(one.margins(points)) for one in self.constraints]).sum(0)
        kept, worst = likely.exp().unflatten(0, (m, len(pool))), mean.amin(-1)
        broken = violations(self.belief.space, states, pool)
        if broken is not None:
            kept = torch.where(broken > 0, 0.0, kept)
        height = mean - worst[:, None]
        chosen = torch.stack([((height + more * sd) * kept.pow(power)).argmax(-1) for more, power in HOPES], -1)
        policy = self._search.best(states, CLIMBS).actions[:, None]
        return ShortLists(torch.cat([policy, pool[chosen]], 1), worst)

    def _reward_moments(self, points: Tensor) -> tuple[Tensor, Tensor]:
        posterior = self.belief.posterior
        return posterior.mean(points), posterior.variance(points).sqrt()

    def _allowed(self, points: Tensor) -> Tensor | None:
        """Which points satisfy the known limits of the space; None if the space has no limits."""
        if self.belief.space.feasible_set is None:
            return None
        return contains(self.belief.space, points).to(points)


class ConstrainedStatesAhead:
    """Computes gains at r sets of m fixed states, from short lists plus the action of each set's first candidate."""

    def __init__(self, gains: ConstrainedGains, states: Tensor) -> None:
        self._gains, self._states = gains, states
        lists = gains.lists(states.flatten(0, 1))
        self._actions = lists.actions.unflatten(0, states.shape[:2])  # (r, m, q, d_x)
        self._worst = lists.worst.unflatten(0, states.shape[:2])
        self._own = states.new_full((len(states), self._actions.shape[-1]), torch.nan)

    def __call__(self, candidates: Tensor, rows: Tensor) -> ConstrainedLineGains:
        """Gains (k, m) of candidates (k, d); candidate i looks at the set of states `rows[i]`."""
        new = self._own[rows].isnan().any(-1)
        self._own[rows[new]] = candidates[new, self._states.shape[-1] :]
        own = self._own[rows][:, None, None].expand(-1, self._states.shape[1], 1, -1)
        actions = torch.cat([self._actions[rows], own], 2)
        return self._gains.gains_at(candidates, self._states[rows], actions, self._worst[rows])
