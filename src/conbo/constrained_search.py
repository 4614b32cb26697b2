"""Finds, for each of many states, the best action that satisfies the learned constraints with confidence.

An action is sure enough if its probability of satisfying all learned constraints is at least the confidence.  The best
action is the one with the highest expected reward among those that are sure enough; if there is none, it is the action
with the highest probability.  One score expresses both: the expected reward if an action is sure enough, and otherwise
the logarithm of its probability, far below all rewards.

If the best action without constraints is sure enough, it is the answer.  For all other states the pool is scored.  From
the best actions that are far enough apart, local searches maximize the expected reward with a penalty for missing
confidence, which is stronger in a second round.  If no end is sure enough, they maximize the probability itself.  The
best score among starts and ends wins.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from conbo.ascent import ascend
from conbo.learned_constraints import LearnedConstraints
from conbo.models.distinct_best import distinct_best
from conbo.models.exact_search import polish_integers
from conbo.models.posterior import ActionSearch, BestActions, Posterior
from conbo.models.snapping import FAR_BELOW, action_limits, masked, snap_actions
from conbo.spaces import Space

MOST_POINTS = 50_000  # largest number of (state, action) pairs of the pool that are scored at once
NOT_SURE = -FAR_BELOW / 4  # actions that are not sure enough have scores below this
LEAST_LOG = -1e4  # logarithms of probabilities below this are all the same
APART = 0.1  # distance in the unit cube, divided by √d_x, below which two actions count as the same start
# penalty (standardized reward) per standard deviation of missing confidence, in each round of searches
PENALTIES = (10.0, 1000.0)
MARGIN = 0.02  # standard deviations beyond the confidence that searches aim at, because they end a little short of it
STEPS = 15  # steps of each round
TOLERANCE = 1e-7  # expected gain of a step (standardized reward) below which a search stops


@dataclass(frozen=True)
class ConstrainedSearch:
    """A search over actions that satisfies learned constraints; `search` considers the reward alone."""

    posterior: Posterior
    space: Space
    constraints: LearnedConstraints
    search: ActionSearch

    @property
    def actions(self) -> Tensor:
        """The pool (p, d_x), in the unit cube."""
        return self.search.actions

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        """For states (m, d_s), the best actions that are sure enough; if none is, those most likely to be feasible."""
        chunk = max(1, MOST_POINTS // len(self.actions))
        return BestActions.joined([self._best(some, starts, steps) for some in states.split(chunk)])

    def _best(self, states: Tensor, starts: int, steps: int) -> BestActions:
        free = snap_actions(self.space, self.search.best(states, 1, steps).actions, states)
        width = 2 * (min(starts, len(self.actions)) + 1)  # starts and ends
        found = free[:, None].expand(-1, width, -1).clone()
        scores = self._scores(states, free[:, None])
        # search further in these states; in all others the best action without constraints is sure enough
        rest = scores[:, 0] < NOT_SURE
        scores = scores.expand(-1, width).clone()
        if bool(rest.any()):
            found[rest], scores[rest] = self._searched(states[rest], free[rest], starts)
        best = scores.argmax(-1, keepdim=True)
        chosen = found.gather(1, best[..., None].expand(-1, -1, free.shape[-1]))[:, 0]
        return BestActions(chosen, self.posterior.mean(torch.cat([states, chosen], -1)), found)

    def _searched(self, states: Tensor, free: Tensor, starts: int) -> tuple[Tensor, Tensor]:
        """Starts and ends (m, 2 k, d_x) of local searches in states (m, d_s), and their scores (m, 2 k)."""
        pooled = self._scores(states, self.actions.expand(len(states), -1, -1))
        pooled = masked(self.space, states, self.actions, pooled)
        first = self.actions[distinct_best(pooled, self._alike, starts)]  # (m, k - 1, d_x)
        first = torch.cat([snap_actions(self.space, first, states[:, None]), free[:, None]], 1)
        ends = self._climbed(states, first, self._penalized, PENALTIES)
        found = torch.cat([first, ends], 1)
        scores = self._scores(states, found)
        lost = scores.amax(-1) < NOT_SURE
        if bool(lost.any()):
            k = first.shape[1]
            likely = self._climbed(states[lost], first[lost], self._level, PENALTIES[:1])
            better = self._scores(states[lost], likely)
            kept = better > scores[lost, k:]
            found[lost, k:] = torch.where(kept[..., None], likely, found[lost, k:])
            scores[lost, k:] = torch.where(kept, better, scores[lost, k:])
        return found, scores

    @cached_property
    def _alike(self) -> Tensor:
        """A matrix (p, p): 1 if two actions of the pool are too close for a search to start from each, otherwise 0."""
        return (torch.cdist(self.actions, self.actions) < APART * self.actions.shape[-1] ** 0.5).to(self.actions)

    def _scores(self, states: Tensor, actions: Tensor) -> Tensor:
        """Scores (m, k) of actions (m, k, d_x) in states (m, d_s)."""
        points = torch.cat([states[:, None].expand(*actions.shape[:2], -1), actions], -1).flatten(0, 1)
        likely = self.constraints.log_probability(points)
        below = likely.clamp_min(LEAST_LOG) - FAR_BELOW / 2
        scores = torch.where(self.constraints.is_sure(likely), self.posterior.mean(points), below)
        return scores.unflatten(0, actions.shape[:2])

    def _climbed(
        self,
        states: Tensor,
        first: Tensor,
        climbs: Callable[[Tensor, float], tuple[Tensor, Tensor]],
        penalties: Sequence[float],
    ) -> Tensor:
        """The ends of local searches from actions (m, k, d_x), as valid actions; there is one round per penalty."""
        (m, k, d_x), at = first.shape, first.flatten(0, 1)
        rows = states.repeat_interleave(k, 0)
        lower, upper = at.new_zeros(d_x), at.new_ones(d_x)
        limits = action_limits(self.space, rows)
        for penalty in penalties:

            def function(actions: Tensor, which: Tensor, penalty: float = penalty) -> tuple[Tensor, Tensor]:
                value, gradient = climbs(torch.cat([rows[which], actions], -1), penalty)
                return value, gradient[:, -d_x:]

            at = ascend(function, at, lower, upper, STEPS, tolerance=TOLERANCE, limits=limits).points
        ends = at.unflatten(0, (m, k))
        if self.space.has_integer_actions:
            own = None if self.space.feasible_set is None else states
            return polish_integers(self.space, lambda actions: self._scores(states, actions), ends, own)[0]
        return snap_actions(self.space, ends, states[:, None])

    def _penalized(self, points: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
        """The expected reward of points (n, d) minus a penalty for missing confidence, and its gradients."""
        mean, slope = self.posterior.mean_and_gradient(points)
        level, rise = self.constraints.levels(points)
        lack = (self.constraints.wanted + MARGIN - level).clamp_min(0)
        return mean - penalty * lack.square(), slope + (2 * penalty * lack)[:, None] * rise

    def _level(self, points: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
        """The levels Φ⁻¹(P) of points (n, d) and their gradients; P is the probability that all constraints hold."""
        return self.constraints.levels(points)
