"""Knowledge gradients under a BoTorch model: the expected rise of a state's highest mean after one more reward.

The point whose reward is observed next is the candidate.  If its reward is z standard deviations above the prediction,
the mean at any other point rises by σ̃ z.  The slope σ̃ is the posterior covariance of the noise-free rewards at the
candidate and at that point, divided by the standard deviation of the candidate's reward.  Covariance and standard
deviation come from the model's predictions, because its kernel is not known here.  The actions with the highest means
after the reward are found by scoring a pool, followed by quasi-Newton steps.  Gradients with respect to the candidate
hold these actions fixed.  All of this is slower than for the built-in models (`exact_gains.py`), but estimates the same
quantities.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from conbo.ascent import ascend
from conbo.models.gains import GainRule, LineGains
from conbo.models.snapping import action_limits, snap_actions, without_infeasible
from conbo.spaces import Space

COLD_ITERATIONS = 12  # steps of a search for look-ahead maximizers that starts from the pool
WARM_ITERATIONS = 2  # steps of a search that starts from the last maximizers
ROUGH_ACTIONS = 24  # number of pool actions that rough estimates use
WIDTH = 0.2  # lengthscale, in the unit cube, of the similarity of two actions


class PairwisePosterior(Protocol):
    """The methods of a posterior that are needed to compute knowledge gradients."""

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean (n,) of the noise-free reward at points (n, d)."""

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance (n,) of the noise-free reward at points (n, d)."""

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances (n,) of the noise of new rewards at points (n, d)."""

    def pair_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariances (n,) of the noise-free rewards at pairs of points, a (n, d) and b (n, d)."""


@dataclass(frozen=True)
class BotorchLines:
    """The posterior means of q actions in each of m states, after one more reward at one of k candidates.

    Each mean is a line in z, mean + slope z, where the reward is z standard deviations above its prediction.
    """

    mean: Tensor  # (k, m, q)
    slope: Tensor  # (k, m, q)
    posterior: PairwisePosterior
    candidates: Tensor  # (k, d)
    states: Tensor  # (k, m, d_s)
    actions: Tensor  # (k, m, q, d_x)

    @classmethod
    def at(cls, posterior: PairwisePosterior, candidates: Tensor, states: Tensor, actions: Tensor) -> "BotorchLines":
        """Return the posterior means of q actions in each of m states, after one more reward at one of k candidates.

        The m states and their q actions may differ between candidates: `candidates` are (k, d), `states` (k, m, d_s),
        and `actions` (k, m, q, d_x). If the new reward is z standard deviations above its prediction, the posterior
        mean of an action is the line mean + slope z.
        """
        k, m, q, _ = actions.shape
        points = torch.cat([states[:, :, None].expand(k, m, q, -1), actions], -1).flatten(0, 2)
        sd = (posterior.variance(candidates) + posterior.noise_at(candidates)).sqrt()
        partner = candidates[:, None, None].expand(k, m, q, -1).flatten(0, 2)
        covariance = posterior.pair_covariance(points, partner).reshape(k, m, q)
        mean = posterior.mean(points).reshape(k, m, q)
        return cls(mean, covariance / sd[:, None, None], posterior, candidates, states, actions)

    def gradient(self, pull: Tensor) -> Tensor:
        """Return the gradients (k, d) of Σ pull · slope with respect to the k candidates.

        The sum is over q actions in each of m states, and `pull` (k, m, q) are its weights. A slope says how strongly
        the posterior mean of an action reacts to a new reward at the candidate. States, actions and weights are held
        fixed.
        """
        with torch.enable_grad():
            variable = self.candidates.detach().clone().requires_grad_(True)
            slope = BotorchLines.at(self.posterior, variable, self.states, self.actions).slope
            (gradient,) = torch.autograd.grad((slope * pull).sum(), variable)
        return gradient

    def take(self, chosen: Tensor) -> "BotorchLines":
        """Return the lines of only some of the q actions, for each of k candidates and m states.

        `chosen` (k, m, q') holds the indices of the q' actions that are kept.
        """
        index = chosen[..., None].expand(*chosen.shape, self.actions.shape[-1])
        mean, slope = self.mean.gather(-1, chosen), self.slope.gather(-1, chosen)
        actions = self.actions.gather(2, index)
        return BotorchLines(mean, slope, self.posterior, self.candidates, self.states, actions)


@dataclass(frozen=True)
class BotorchGains:
    """Computes knowledge gradients of candidates in given states, under a BoTorch model.

    Searches for the actions with the highest means after a new reward start from a pool of actions. A `GainRule` says
    how knowledge gradients are estimated from these means.
    """

    posterior: PairwisePosterior
    space: Space
    actions: Tensor  # (p, d_x), the pool
    rule: GainRule

    def at(self, states: Tensor) -> "BotorchStatesAhead":
        """Return a function that computes knowledge gradients of candidates in r sets of m states (r, m, d_s).

        It takes k candidates (k, d) and indices (k,). The knowledge gradients of candidate i are those in the m states
        of set `indices[i]`.
        """
        return BotorchStatesAhead(self, states)

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a fast function that estimates knowledge gradients (r, m) of candidates (r, d) in states (m, d_s).

        The function compares only actions of the pool and never searches for better ones. It uses the last
        ROUGH_ACTIONS actions of the pool, or the whole pool if the `GainRule` has no `nodes`.
        """
        actions = self.actions if self.rule.nodes is None else self.actions[-ROUGH_ACTIONS:]

        def function(candidates: Tensor) -> Tensor:
            shared = states.expand(len(candidates), -1, -1)
            lines = self.pooled(candidates, shared, actions)
            return self.rule.rough(lines.mean, lines.slope)

        return function

    def pooled(self, candidates: Tensor, states: Tensor, actions: Tensor) -> BotorchLines:
        """Return posterior means of the same p actions in all m states, after one more reward at one of k candidates.

        The m states may differ between candidates: `candidates` are (k, d), `states` (k, m, d_s), and `actions`
        (p, d_x). If the new reward is z standard deviations above its prediction, the posterior mean of an action is
        the line mean + slope z. The lines of infeasible actions are put far below all others.
        """
        lines = self.lines(candidates, states, actions.expand(*states.shape[:2], -1, -1))
        mean, slope = without_infeasible(self.space, states, actions, lines.mean, lines.slope)
        return replace(lines, mean=mean, slope=slope)

    def lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> BotorchLines:
        """Return the posterior means of q actions in each of m states, after one more reward at one of k candidates.

        The m states and their q actions may differ between candidates: `candidates` are (k, d), `states` (k, m, d_s),
        and `actions` (k, m, q, d_x). If the new reward is z standard deviations above its prediction, the posterior
        mean of an action is the line mean + slope z.
        """
        with torch.no_grad():
            return BotorchLines.at(self.posterior, candidates, states, actions)


class BotorchStatesAhead:
    """Computes knowledge gradients of candidates, each in one of r fixed sets of m states.

    A knowledge gradient needs the actions with the highest posterior means after the new reward. The last
    maximizers found for each set are kept, so that the next search in the same states can start from them.
    """

    def __init__(self, gains: BotorchGains, states: Tensor) -> None:
        self._gains, self._states = gains, states
        self._last: Tensor | None = None  # (r, m, q, d_x), the last maximizers of the sets that were visited
        self._visited = torch.zeros(len(states), dtype=torch.bool, device=states.device)

    def __call__(self, candidates: Tensor, rows: Tensor) -> LineGains:
        """Return knowledge gradients (k, m) of candidates (k, d); candidate i uses the m states of set `rows[i]`."""
        gains, states, nodes = self._gains, self._states[rows], self._gains.rule.nodes
        if nodes is None:
            lines = gains.pooled(candidates, states, gains.actions)
        else:
            lines = gains.lines(candidates, states, self._maximizers(candidates, states, nodes, rows))
            lines = lines.take(best_lines(lines, nodes))  # every node takes the best line that any node found
        return LineGains(*gains.rule.combine(lines.mean, lines.slope, similarity(lines.actions)), lines)

    def _maximizers(self, candidates: Tensor, states: Tensor, nodes: Tensor, rows: Tensor) -> Tensor:
        """Return the actions (k, m, q, d_x) with the highest posterior means after a new reward at a candidate.

        There is one action for each of k candidates (k, d), each of m states per candidate (k, m, d_s), and each of q
        `nodes`. At node z, the reward is z standard deviations above its prediction. `rows` (k,) are the indices of the
        candidates' sets of states. If every such set has been searched before, the searches start from the maximizers
        found last. Otherwise they start from the pool.
        """
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
    """Return the indices (k, m, q) of the lines mean + slope z that are highest at q values of z, the `nodes`.

    The lines of each of k candidates and m states are compared separately.
    """
    return (lines.mean[..., None, :] + nodes[:, None] * lines.slope[..., None, :]).argmax(-1)


def similarity(actions: Tensor) -> Tensor:
    """Return similarities (..., q-1), from 0 to 1, of neighbors in a sequence of q actions (..., q, d_x).

    The similarity of two actions is exp(-r² / (2 WIDTH²)), where r is the distance between them.
    """
    apart = (actions[..., 1:, :] - actions[..., :-1, :]).square().sum(-1)
    return torch.exp(-apart / (2 * WIDTH**2))
