"""Expected gains of states under any BoTorch model, computed from its posterior by autograd.

Nothing is known of the kernel here, so σ̃ = kⁿ((s_i, x'), candidate) / sd is the covariance of a pair of points, and
the inner maximizers are found by a pooled search and quasi-Newton steps.  This is slower than the built-in models. The
estimates are the same, and gradients hold the maximizers fixed here as well.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from conbo.ascent import ascend
from conbo.models.posterior import GainRule, LineGains
from conbo.models.snapping import action_limits, snap_actions, without_infeasible
from conbo.spaces import Space

COLD_ITERATIONS, WARM_ITERATIONS = 12, 2  # steps of an inner maximization from the pool, and from the last maximizer
ROUGH_ACTIONS = 24  # number of pool actions that rough estimates use
WIDTH = 0.2  # distance in the unit cube over which two actions count as alike


class PairwisePosterior(Protocol):
    """The methods of a posterior from which gains are computed."""

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean of points (n, d)."""

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance of the noise-free reward at points (n, d)."""

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances of the noise of new rewards at points (n, d)."""

    def pair_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance of each pair of points a (n, d), b (n, d)."""


@dataclass(frozen=True)
class BotorchLines:
    """The look-ahead lines mean + slope z of q actions, for each of k candidates and m states."""

    mean: Tensor  # (k, m, q)
    slope: Tensor  # (k, m, q)
    posterior: PairwisePosterior
    candidates: Tensor  # (k, d)
    states: Tensor  # (k, m, d_s)
    actions: Tensor  # (k, m, q, d_x)

    @classmethod
    def at(cls, posterior: PairwisePosterior, candidates: Tensor, states: Tensor, actions: Tensor) -> "BotorchLines":
        """The lines of actions (k, m, q, d_x) in states (k, m, d_s), for candidates (k, d)."""
        k, m, q, _ = actions.shape
        points = torch.cat([states[:, :, None].expand(k, m, q, -1), actions], -1).flatten(0, 2)
        sd = (posterior.variance(candidates) + posterior.noise_at(candidates)).sqrt()
        partner = candidates[:, None, None].expand(k, m, q, -1).flatten(0, 2)
        covariance = posterior.pair_covariance(points, partner).reshape(k, m, q)
        mean = posterior.mean(points).reshape(k, m, q)
        return cls(mean, covariance / sd[:, None, None], posterior, candidates, states, actions)

    def gradient(self, pull: Tensor) -> Tensor:
        """Gradient (k, d) of Σ pull · slope with respect to the candidates, for pull (k, m, q) and fixed actions."""
        with torch.enable_grad():
            variable = self.candidates.detach().clone().requires_grad_(True)
            slope = BotorchLines.at(self.posterior, variable, self.states, self.actions).slope
            (gradient,) = torch.autograd.grad((slope * pull).sum(), variable)
        return gradient

    def take(self, chosen: Tensor) -> "BotorchLines":
        """The same candidates and states with only the lines `chosen` (k, m, q') of each."""
        index = chosen[..., None].expand(*chosen.shape, self.actions.shape[-1])
        mean, slope = self.mean.gather(-1, chosen), self.slope.gather(-1, chosen)
        actions = self.actions.gather(2, index)
        return BotorchLines(mean, slope, self.posterior, self.candidates, self.states, actions)


@dataclass(frozen=True)
class BotorchGains:
    """Gains of states, by a `GainRule`; searches for look-ahead maxima start from a pool of actions (p, d_x)."""

    posterior: PairwisePosterior
    space: Space
    actions: Tensor
    rule: GainRule

    def at(self, states: Tensor) -> "BotorchStatesAhead":
        """Prepare r sets of m states (r, m, d_s); the result is a function from candidates to their gains in these."""
        return BotorchStatesAhead(self, states)

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Prepare shared states (m, d_s); the result maps candidates (r, d) to values (r, m), from part of the pool."""
        actions = self.actions if self.rule.nodes is None else self.actions[-ROUGH_ACTIONS:]

        def function(candidates: Tensor) -> Tensor:
            shared = states.expand(len(candidates), -1, -1)
            lines = self.pooled(candidates, shared, actions)
            return self.rule.rough(lines.mean, lines.slope)

        return function

    def pooled(self, candidates: Tensor, states: Tensor, actions: Tensor) -> BotorchLines:
        """Lines for candidates (k, d) at the same actions (p, d_x) in all states (k, m, d_s).

        The line of an infeasible action is never the highest.
        """
        lines = self.lines(candidates, states, actions.expand(*states.shape[:2], -1, -1))
        mean, slope = without_infeasible(self.space, states, actions, lines.mean, lines.slope)
        return replace(lines, mean=mean, slope=slope)

    def lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> BotorchLines:
        """Look-ahead lines mean + slope z of actions (k, m, q, d_x) in states (k, m, d_s), for candidates (k, d)."""
        with torch.no_grad():
            return BotorchLines.at(self.posterior, candidates, states, actions)


class BotorchStatesAhead:
    """Computes gains at r sets of m fixed states; keeps the last look-ahead maxima as starts of the next search."""

    def __init__(self, gains: BotorchGains, states: Tensor) -> None:
        self._gains, self._states = gains, states
        self._last: Tensor | None = None  # (r, m, q, d_x)
        self._visited = torch.zeros(len(states), dtype=torch.bool, device=states.device)

    def __call__(self, candidates: Tensor, rows: Tensor) -> LineGains:
        """Gains (k, m) of candidates (k, d); candidate i looks at the set of states `rows[i]`."""
        gains, states, nodes = self._gains, self._states[rows], self._gains.rule.nodes
        if nodes is None:
            lines = gains.pooled(candidates, states, gains.actions)
        else:
            lines = gains.lines(candidates, states, self._maximizers(candidates, states, nodes, rows))
            lines = lines.take(best_lines(lines, nodes))  # every node takes the best line that any node found
        return LineGains(*gains.rule.combine(lines.mean, lines.slope, similarity(lines.actions)), lines)

    def _maximizers(self, candidates: Tensor, states: Tensor, nodes: Tensor, rows: Tensor) -> Tensor:
        """The best actions (k, m, q, d_x) at every node."""
        gains, (k, m, _), q = self._gains, states.shape, len(nodes)
        if self._last is not None and bool(self._visited[rows].all()):
            starts, iterations = self._last[rows], WARM_ITERATIONS
        else:
            pooled = gains.pooled(candidates, states, gains.actions)
            starts, iterations = gains.actions[best_lines(pooled, nodes)], COLD_ITERATIONS
        z = nodes.expand(k, m, q).flatten()

        def function(actions: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
            candidate, state = which // (m * q), which // q
            with torch.enable_grad():
                variable = actions.detach().requires_grad_(True)
                own_states = states.flatten(0, 1)[state][:, None]
                lines = BotorchLines.at(gains.posterior, candidates[candidate], own_states, variable[:, None, None])
                value = lines.mean[:, 0, 0] + z[which] * lines.slope[:, 0, 0]
                (gradient,) = torch.autograd.grad(value.sum(), variable)
            return value.detach(), gradient

        lower, upper = starts.new_zeros(starts.shape[-1]), starts.new_ones(starts.shape[-1])
        repeated = states[:, :, None].expand(k, m, q, -1).flatten(0, 2)
        limits = action_limits(gains.space, repeated)
        found = ascend(function, starts.flatten(0, 2), lower, upper, iterations, limits=limits).points
        actions = snap_actions(gains.space, found, repeated).reshape(starts.shape)
        if self._last is None:
            self._last = actions.new_zeros(len(self._states), *actions.shape[1:])
        self._last[rows], self._visited[rows] = actions, True
        return actions


def best_lines(lines: BotorchLines, nodes: Tensor) -> Tensor:
    """The index (k, m, q) of the line that is highest at each node."""
    return (lines.mean[..., None, :] + nodes[:, None] * lines.slope[..., None, :]).argmax(-1)


def similarity(actions: Tensor) -> Tensor:
    """Similarities (..., q-1) of neighboring actions (..., q, d_x), from 0 to 1."""
    apart = (actions[..., 1:, :] - actions[..., :-1, :]).square().sum(-1)
    return torch.exp(-apart / (2 * WIDTH**2))
