"""Finds, for each of many states, the best action that satisfies the learned constraints with confidence.

An action is *confidently feasible* if its probability of satisfying all learned constraints is at least the required
confidence.  The best action is the one with the highest expected reward among those that are confidently feasible; if
there is none, it is the action with the highest probability.  Actions are therefore compared by a score.  The score of
a confidently feasible action is its expected reward.  The score of any other action increases with its probability,
and is far below all rewards.

First, a search in each state ignores the constraints.  If the action that it finds is confidently feasible, it is the
result.  In all other states, a pool of actions, with some evenly spread ones, is scored.  Local searches start from the
action that the first search found, from actions of the pool that have the highest scores and are far enough apart, and
from the one that most probably satisfies the constraints.  They maximize the expected reward among confidently feasible
actions, and slide along the curved boundary of these (`constrained_ascent.py`).  If none of these searches starts or
ends at a confidently feasible action, further searches maximize the probability itself.  Of all actions at which
searches start or end, the one with the highest score is the result.  The models of the constraints are averaged over
their hyperparameters; only the pool is scored without this averaging, to save time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from conbo.ascent import ascend, holding
from conbo.constrained_ascent import constrained_ascent
from conbo.learned_constraints import LearnedConstraints
from conbo.models.distinct_best import distinct_best
from conbo.models.exact_search import level_columns, polish_integers
from conbo.models.feasible_ends import feasible_ends
from conbo.models.posterior import ActionSearch, BestActions, Posterior
from conbo.models.snapping import FAR_BELOW, action_limits, masked, snap_actions
from conbo.quasi_random import sobol
from conbo.spaces import Space

MOST_POINTS = 50_000  # largest number of (state, action) pairs of the pool that are scored at once
NOT_SURE = -FAR_BELOW / 4  # actions that are not confidently feasible have scores below this
EVEN = 64  # number of evenly spread actions that are added to the pool, which may lack actions that satisfy constraints
APART = 0.1  # distance in the unit cube, divided by √d_x, below which two actions count as the same start
MARGIN = 0.001  # standard deviations beyond the confidence that searches aim at, because they end a little short of it
STEPS = 20  # steps of every local search
TOLERANCE = 1e-7  # expected gain of a step (standardized reward) below which a search stops

# local searches in states (r, d_s) from actions (r, d_x); the given columns of the actions keep their values
Climb = Callable[[Tensor, Tensor, tuple[int, ...]], Tensor]


@dataclass(frozen=True)
class ConstrainedSearch:
    """Finds, for each state, the best action that satisfies the learned constraints with the required confidence."""

    posterior: Posterior  # model of the reward
    space: Space
    constraints: LearnedConstraints
    search: ActionSearch  # finds the best actions without learned constraints

    @property
    def actions(self) -> Tensor:
        """The pool of actions (p, d_x), in the unit cube, from which local searches start."""
        return self.search.actions

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        """Find, for each state (m, d_s), the best action that satisfies the constraints with the required confidence.

        If no such action is found, the result is the action, among those found, that most probably satisfies the
        constraints.  A first search, with `starts` local searches of at most `steps` iterations, ignores the
        constraints.  In states where its result lacks the required confidence, further local searches start from this
        result, from at most `starts` good actions of the pool, and from the one that most probably satisfies the
        constraints.
        """
        chunk = max(1, MOST_POINTS // (len(self.actions) + EVEN))
        return BestActions.joined([self._best(some, starts, steps) for some in states.split(chunk)])

    def _best(self, states: Tensor, starts: int, steps: int) -> BestActions:
        unlimited = self.search.best(states, starts, steps)
        free = snap_actions(self.space, unlimited.actions, states)
        width = 2 * (min(starts, len(self.actions) + EVEN) + 2)  # starts and ends
        found = free[:, None].expand(-1, width, -1).clone()
        scores = self._scores(states, free[:, None])
        # search further in these states; in all others the best action without constraints is confidently feasible
        unsure = scores[:, 0] < NOT_SURE
        scores = scores.expand(-1, width).clone()
        if bool(unsure.any()):
            found[unsure], scores[unsure] = self._searched(states[unsure], free[unsure], starts)
        best = scores.argmax(-1, keepdim=True)
        chosen = found.gather(1, best[..., None].expand(-1, -1, free.shape[-1]))[:, 0]
        # other maxima without constraints may be the best actions of similar states
        others = snap_actions(self.space, unlimited.basins, states[:, None])
        basins = torch.cat([found, others], 1)
        return BestActions(chosen, self.posterior.mean(torch.cat([states, chosen], -1)), basins)

    def _searched(self, states: Tensor, free: Tensor, starts: int) -> tuple[Tensor, Tensor]:
        """Search in each of m states (m, d_s) for good actions that satisfy the constraints.

        In each state, there are k local searches.  One starts from `free` (m, d_x), the best action without
        constraints, one from the action of the pool that most probably satisfies the constraints, and the others, at
        most `starts`, from other actions of the pool.  Return the k actions at which the searches start, followed by
        the k at which they end, as one tensor (m, 2 k, d_x), and the scores (m, 2 k) of all these actions.
        """
        pool = self._pool.expand(len(states), -1, -1)
        pooled, likely = self._compared(states, pool, self.constraints.of_most_probable())
        pooled, likely = (masked(self.space, states, self._pool, values) for values in (pooled, likely))
        chosen = torch.cat([distinct_best(pooled, self._alike, starts), likely.argmax(-1, keepdim=True)], 1)
        first = snap_actions(self.space, self._pool[chosen], states[:, None])  # (m, k - 1, d_x)
        first = torch.cat([first, free[:, None]], 1)
        ends = self._climbed(states, first, self._best_sure)
        found = torch.cat([first, ends], 1)
        scores = self._scores(states, found)
        lost = scores.amax(-1) < NOT_SURE
        if bool(lost.any()):
            k = first.shape[1]
            likely = self._climbed(states[lost], first[lost], self._most_probable)
            better = self._scores(states[lost], likely)
            kept = better > scores[lost, k:]
            found[lost, k:] = torch.where(kept[..., None], likely, found[lost, k:])
            scores[lost, k:] = torch.where(kept, better, scores[lost, k:])
        return found, scores

    @cached_property
    def _pool(self) -> Tensor:
        """The pool `actions` (p, d_x), followed by evenly spread ones."""
        return torch.cat([self.actions, sobol(EVEN, self.actions.shape[-1], seed=0).to(self.actions)])

    @cached_property
    def _alike(self) -> Tensor:
        """A matrix (p, p): 1 for two actions of the pool that are so close that one search suffices, otherwise 0."""
        return (torch.cdist(self._pool, self._pool) < APART * self._pool.shape[-1] ** 0.5).to(self._pool)

    def _scores(self, states: Tensor, actions: Tensor) -> Tensor:
        """Return the scores (m, k) by which k actions (m, k, d_x) in each of m states (m, d_s) are compared.

        The score of an action that satisfies the constraints with the required confidence is its expected reward.  The
        scores of all other actions are far lower, and ordered by their probabilities of satisfying the constraints.
        """
        return self._compared(states, actions, self.constraints)[0]

    def _compared(self, states: Tensor, actions: Tensor, constraints: LearnedConstraints) -> tuple[Tensor, Tensor]:
        """Return the scores (m, k) of actions, as `_scores` does, and their log-probabilities of feasibility (m, k)."""
        points = torch.cat([states[:, None].expand(*actions.shape[:2], -1), actions], -1).flatten(0, 1)
        likely = constraints.log_probability(points)
        below = constraints.ranks(likely) - FAR_BELOW / 2
        scores = torch.where(constraints.is_sure(likely), self.posterior.mean(points), below)
        return scores.unflatten(0, actions.shape[:2]), likely.unflatten(0, actions.shape[:2])

    def _climbed(self, states: Tensor, first: Tensor, climb: Climb) -> Tensor:
        """Run local searches from k actions `first` (m, k, d_x) in each of m states (m, d_s).

        Return the actions (m, k, d_x) at which they end, with integers and categories at valid values.
        """
        d_s, rows = states.shape[-1], states.repeat_interleave(first.shape[1], 0)

        def score(points: Tensor) -> Tensor:
            return self._scores(points[:, :d_s], points[:, None, d_s:])[:, 0]

        def ends_of(actions: Tensor, held: tuple[int, ...] = ()) -> Tensor:
            at = actions.flatten(0, 1)
            ends = feasible_ends(self.space, rows, at, climb(rows, at, held), score)
            return ends.unflatten(0, actions.shape[:2])

        ends = ends_of(first)
        if self.space.has_integer_actions:
            own, levels = None if self.space.feasible_set is None else states, level_columns(self.space)
            follow = partial(ends_of, held=levels)
            return polish_integers(self.space, partial(self._scores, states), follow, ends, own)[0]
        return snap_actions(self.space, ends, states[:, None])

    def _best_sure(self, states: Tensor, actions: Tensor, held: tuple[int, ...]) -> Tensor:
        """Search for the highest expected reward among confidently feasible actions."""

        def function(at: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            points = torch.cat([states[rows], at], -1)
            mean, slope = self.posterior.mean_and_gradient(points)
            level, rise = self.constraints.levels(points)
            return mean, slope[:, -at.shape[-1] :], level - self.constraints.wanted - MARGIN, rise[:, -at.shape[-1] :]

        limits = action_limits(self.space, states, held)
        return constrained_ascent(function, actions, held, STEPS, TOLERANCE, MARGIN / 2, limits)

    def _most_probable(self, states: Tensor, actions: Tensor, held: tuple[int, ...]) -> Tensor:
        """Search for the highest probability of feasibility."""

        def function(at: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            level, rise = self.constraints.levels(torch.cat([states[rows], at], -1))
            return level, rise[:, -at.shape[-1] :]

        lower, upper = torch.zeros_like(actions[0]), torch.ones_like(actions[0])
        free, limits = holding(function, held), action_limits(self.space, states, held)
        return ascend(free, actions, lower, upper, STEPS, tolerance=TOLERANCE, limits=limits).points
