"""The knowledge gradient of `knowledge_gradient` for any BoTorch model, through its posterior and autograd.

Nothing is known of the kernel here, so σ̃ = kⁿ((s_i, x'), candidate) / sd is the covariance of a pair of points,
and the inner maximisers are found by a pooled search and quasi-Newton steps.  Slower than the built-in models; the
estimates, and the rule that X* is held fixed in the gradient, are the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from conbo.acquisition.expected_max import expected_max
from conbo.ascent import ascend
from conbo.belief import Belief
from conbo.models.botorch_posterior import BotorchPosterior

if TYPE_CHECKING:
    from conbo.acquisition.knowledge_gradient import Combine

INNER_ITERATIONS = 12
ROUGH_ACTIONS = 24  # of the pool, in rough estimates
WIDTH = 0.2  # distance in the unit cube over which two actions count as alike


class BotorchKnowledgeGradient:
    """KG_c under one belief; `nodes` None means that the pool itself is the discrete set."""

    def __init__(self, belief: Belief, nodes: Tensor | None, combine: "Combine", actions: Tensor) -> None:
        assert isinstance(belief.posterior, BotorchPosterior)  # built-in models have knowledge_gradient
        self.belief, self.posterior = belief, belief.posterior
        self.nodes, self.combine, self.actions = nodes, combine, actions

    def at(self, states: Tensor) -> "BotorchStatesAhead":
        """Prepare r sets of m states (r, m, d_s)."""
        return BotorchStatesAhead(self, states)

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Rough values at shared states (m, d_s), with a part of the pool: from candidates (r, d) to (r, m)."""
        actions = self.actions if self.nodes is None else self.actions[-ROUGH_ACTIONS:]

        def function(candidates: Tensor) -> Tensor:
            shared = states.expand(len(candidates), -1, -1)
            with torch.no_grad():
                mean, slope = self.lines(candidates, shared, actions.expand(*shared.shape[:2], -1, -1))
            return expected_max(mean, slope).gain

        return function

    def lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and slope (k, m, q) at actions (k, m, q, d_x) of states (k, m, d_s), for candidates (k, d)."""
        k, m, q, _ = actions.shape
        points = torch.cat([states[:, :, None].expand(k, m, q, -1), actions], -1).flatten(0, 2)
        sd = (self.posterior.variance(candidates) + self.posterior.noise_at(candidates)).sqrt()
        partner = candidates[:, None, None].expand(k, m, q, -1).flatten(0, 2)
        covariance = self.posterior.pair_covariance(points, partner).reshape(k, m, q)
        mean = self.posterior.mean(points[:, None])[:, 0].reshape(k, m, q)
        return mean, covariance / sd[:, None, None]


class BotorchStatesAhead:
    """r sets of m fixed states; remembers where the last look-ahead maxima were found."""

    def __init__(self, kg: BotorchKnowledgeGradient, states: Tensor) -> None:
        self._kg, self._states = kg, states
        self._last: Tensor | None = None  # (r, m, q, d_x)
        self._visited = torch.zeros(len(states), dtype=torch.bool, device=states.device)

    def __call__(self, candidates: Tensor, rows: Tensor) -> "BotorchStateGains":
        """KG_c (k, m) of candidates (k, d), each with its own set of states `rows` (k,)."""
        kg, states = self._kg, self._states[rows]
        k, m, _ = states.shape
        if kg.nodes is None:
            actions = kg.actions.expand(k, m, -1, -1)
            likeness = states.new_ones(k, m, len(kg.actions) - 1)
        else:
            actions = self._maximisers(candidates, states, rows)
            likeness = alike(actions)
        with torch.no_grad():
            mean, slope = kg.lines(candidates, states, actions)
        if kg.nodes is not None:  # let every node take the best line that any node found
            winner = (mean[..., None, :] + kg.nodes[:, None] * slope[..., None, :]).argmax(-1)
            mean, slope = mean.gather(-1, winner), slope.gather(-1, winner)
            actions = actions.gather(2, winner[..., None].expand_as(actions))
            likeness = alike(actions)
        values, derivative = kg.combine(mean, slope, likeness)
        return BotorchStateGains(values, derivative, kg, candidates, states, actions)

    def _maximisers(self, candidates: Tensor, states: Tensor, rows: Tensor) -> Tensor:
        kg, nodes = self._kg, self._kg.nodes
        assert nodes is not None  # discrete sets need no search
        (k, m, _), q, p = states.shape, len(nodes), len(kg.actions)
        if self._last is not None and bool(self._visited[rows].all()):
            starts, iterations = self._last[rows], 2
        else:
            with torch.no_grad():
                mean, slope = kg.lines(candidates, states, kg.actions.expand(k, m, p, -1))
            winner = (mean[..., None, :] + nodes[:, None] * slope[..., None, :]).argmax(-1)
            starts, iterations = kg.actions[winner], INNER_ITERATIONS
        z = nodes.expand(k, m, q).flatten()

        def function(actions: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
            candidate, state = which // (m * q), which // q
            with torch.enable_grad():
                variable = actions.detach().requires_grad_(True)
                mean, slope = kg.lines(
                    candidates[candidate], states.flatten(0, 1)[state][:, None], variable[:, None, None]
                )
                value = mean[:, 0, 0] + z[which] * slope[:, 0, 0]
                (gradient,) = torch.autograd.grad(value.sum(), variable)
            return value.detach(), gradient

        lower, upper = starts.new_zeros(starts.shape[-1]), starts.new_ones(starts.shape[-1])
        found = ascend(function, starts.flatten(0, 2), lower, upper, iterations).points
        actions = kg.belief.snap_actions(found).reshape(starts.shape)
        if self._last is None:
            self._last = actions.new_zeros(len(self._states), *actions.shape[1:])
        self._last[rows], self._visited[rows] = actions, True
        return actions


@dataclass(frozen=True)
class BotorchStateGains:
    """Values (k, m) of k candidates at m states each, and what the gradient needs."""

    values: Tensor
    derivative: Tensor  # (k, m, q), in the slopes of the lines
    kg: BotorchKnowledgeGradient
    candidates: Tensor
    states: Tensor
    actions: Tensor

    def gradient(self, weights: Tensor) -> Tensor:
        """Gradient (k, d) in the candidates of Σ_i weights[:, i] values[:, i], with X* held fixed."""
        with torch.enable_grad():
            variable = self.candidates.detach().clone().requires_grad_(True)
            _, slope = self.kg.lines(variable, self.states, self.actions)
            total = (slope * self.derivative * weights[..., None]).sum()
            (gradient,) = torch.autograd.grad(total, variable)
        return gradient


def alike(actions: Tensor) -> Tensor:
    """Likeness (..., q-1) of neighbouring actions (..., q, d_x)."""
    apart = (actions[..., 1:, :] - actions[..., :-1, :]).square().sum(-1)
    return torch.exp(-apart / (2 * WIDTH**2))
