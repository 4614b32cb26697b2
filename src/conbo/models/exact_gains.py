"""Expected gains of states under an exact Gaussian process, in closed form.

All inner problems of (candidates × states × z) are one batch of `ActionFunctions`.  By the envelope theorem the
gradient with respect to the candidate needs no derivative of the maximizers: with these held fixed, it is a weighted
kernel gradient.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.models import compiled, compiled_correlation
from conbo.models.action_functions import (
    ActionFunctions,
    Maxima,
    StateRows,
    look_ahead_functions,
    state_rows,
)
from conbo.models.conditioned import Conditioned, LookAhead
from conbo.models.distinct_best import distinct_best
from conbo.models.exact_rough_gains import RoughGains
from conbo.models.exact_search import ActionPool, BestActionsOnce
from conbo.models.feature_limits import FeatureLimits, feature_limits
from conbo.models.neighboring_nodes import neighbor_similarity, shared_between_nodes
from conbo.models.posterior import GainRule, LineGains
from conbo.models.snapping import masked, snap_actions, without_infeasible
from conbo.spaces import Space

RACE_STEPS = 1  # Newton steps from each of several starts, before the best of them continues
COLD_STEPS = 5  # Newton steps from the winner of the race
WARM_STEPS = 1  # Newton steps of an inner maximization that starts where the last outer step ended
BASINS = 4  # local maxima of the posterior mean that are kept for each state


@dataclass(frozen=True)
class ExactLines:
    """The look-ahead lines mean + slope z of q actions, for each of k candidates and m states."""

    mean: Tensor  # (k, m, q)
    slope: Tensor  # (k, m, q)
    actions: Tensor  # (k, m, q, features), scaled
    correlation: Tensor  # (k, m, q, n) with the observed actions
    posterior: Conditioned
    ahead: LookAhead
    rows: StateRows

    def gradient(self, pull: Tensor) -> Tensor:
        """Gradient (k, d) of Σ pull · slope with respect to the candidates, for pull (k, m, q) and fixed actions."""
        posterior, ahead, rows = self.posterior, self.ahead, self.rows
        # Σ pull σ̃ = Σ pull kⁿ(x*, candidate) / sd; the observed points' share of kⁿ needs one solve
        solved = posterior.solve(self._at_observed(pull).mT).mT  # (k, n)
        total = (pull * self.slope).sum((1, 2))
        old_weights = (total / ahead.sd)[:, None] * ahead.weights - solved
        here = ahead.states, ahead.actions
        k, m, q = pull.shape
        states = rows.features[:, :, None].expand(k, m, q, -1).flatten(1, 2)
        new = posterior.kernel.gradient(here, (states, self.actions.flatten(1, 2)), pull.flatten(1, 2))
        old = posterior.reward_gradient(ahead, old_weights)
        noise = (total / (2 * ahead.sd))[:, None] * ahead.noise_gradient
        return (new + old - noise) / ahead.sd[:, None]

    def _at_observed(self, pull: Tensor) -> Tensor:
        """The sums (k, n) of pull · k⁰(x*, observed point) over the actions x* of all lines."""
        rows = self.rows
        if compiled.AVAILABLE and pull.device.type == "cpu" and self.correlation.is_contiguous():
            sums = compiled_correlation.weighted_sums(pull, self.correlation, rows.scale)
        else:
            sums = ((pull[..., None, :] @ self.correlation)[..., 0, :] * rows.scale).sum(1)
        return sums if rows.offset is None else sums + (pull.sum(-1)[:, None] @ rows.offset)[:, 0]


def lines_at(posterior: Conditioned, candidates: Tensor, states: Tensor, actions: Tensor) -> ExactLines:
    """Look-ahead lines mean + slope z of actions (k, m, q, d_x) in states (k, m, d_s), for candidates (k, d)."""
    ahead, rows = posterior.look_ahead(candidates), state_rows(posterior, states)
    features, shape = posterior.kernel.actions.scaled(actions), states.shape[:2]
    at_actions = look_ahead_functions(posterior, ahead, rows).at(features.flatten(0, 1))
    mean, slope, correlation = (part.unflatten(0, shape) for part in at_actions)
    return ExactLines(mean, slope, features, correlation, posterior, ahead, rows)


class ExactGains:
    """Gains of states, by a `GainRule`; searches for look-ahead maxima start from a pool of actions."""

    def __init__(self, pool: ActionPool, rule: GainRule) -> None:
        self.pool, self.rule = pool, rule
        self.policy = BestActionsOnce(pool, BASINS)
        self._rough: list[tuple[Tensor, RoughGains]] = []  # states and their rough gains, which hold for every seed

    @property
    def posterior(self) -> Conditioned:
        """The Gaussian process under which gains are computed."""
        return self.pool.posterior

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The observed seeds; empty if gains do not depend on seeds."""
        return self.posterior.seen_seeds

    def for_seeds(self, seeds: Tensor) -> "ExactGains":
        """The same gains for new rewards with these seeds, (1,) or one for each candidate; best actions are shared."""
        other = copy(self)
        other.pool = copy(self.pool)
        other.pool.posterior = self.posterior.for_seeds(seeds)
        return other

    def at(self, states: Tensor) -> "StatesAhead":
        """Prepare r sets of m states (r, m, d_s); the result is a function from candidates to their gains in these."""
        return StatesAhead(self, states)

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Prepare shared states (m, d_s); the result quickly maps candidates (r, d) to rough values (r, m)."""
        if self.rule.nodes is not None:
            known = next((gains for of_states, gains in self._rough if of_states is states), None)
            if known is not None:
                return known.under(self.posterior)
            limits = feature_limits(self.pool.limit_shapes, states)
            gains = RoughGains(self.posterior, limits, states, self.policy(states), self.rule.rough)
            self._rough[:] = [(states, gains)]
            return gains

        def discrete(candidates: Tensor) -> Tensor:
            sets = self.at(states.expand(len(candidates), -1, -1))
            return sets(candidates, torch.arange(len(candidates), device=candidates.device)).values

        return discrete


@dataclass
class SelectedSets:
    """Some of the sets of states, and where their last look-ahead maxima were found."""

    numbers: list[int]  # indices of these k sets among all r
    rows: StateRows
    states: Tensor  # (k·m, d_s)
    limits: FeatureLimits | None
    last: Tensor | None  # (k·m, q, features); None if some set was not looked at yet


class StatesAhead:
    """Computes gains at r sets of m fixed states; keeps the last look-ahead maxima as starts of the next search."""

    def __init__(self, gains: ExactGains, states: Tensor) -> None:
        self._gains, self._states = gains, states
        self._rows = state_rows(gains.posterior, states)
        self._last: dict[int, Tensor] = {}  # (m, q, features), by the number of the set
        self._selected: SelectedSets | None = None  # a local search asks for the same sets many times

    def __call__(self, candidates: Tensor, rows: Tensor) -> LineGains:
        """Gains (k, m) of candidates (k, d); candidate i looks at the set of states `rows[i]`."""
        posterior, rule = self._gains.posterior.of_rows(rows), self._gains.rule
        sets, ahead = self._select(rows), posterior.look_ahead(candidates)
        functions = look_ahead_functions(posterior, ahead, sets.rows, sets.limits)
        shape = sets.rows.mean_constant.shape
        space, pool = self._gains.pool.space, self._gains.pool
        if rule.nodes is None:
            mean, slope = (part.unflatten(0, shape) for part in functions.pooled(pool.correlation, pool.features))
            actions, correlation = pool.features.expand(*shape, -1, -1), pool.correlation.mT.expand(*shape, -1, -1)
            mean, slope = without_infeasible(space, self._states[rows], pool.actions, mean, slope)
            similarity = mean  # without nodes there are no neighbors
        else:
            maxima = self._maxima(functions, rule.nodes, sets)
            parts = (maxima.mean, maxima.slope, maxima.actions, maxima.correlation)
            mean, slope, actions, correlation = (part.unflatten(0, shape) for part in parts)
            similarity = neighbor_similarity(functions, actions, rule.nodes)
        lines = ExactLines(mean, slope, actions, correlation, posterior, ahead, sets.rows)
        return LineGains(*rule.combine(mean, slope, similarity), lines)

    def _select(self, rows: Tensor) -> SelectedSets:
        """The sets of states with indices `rows` (k,)."""
        numbers, before = rows.tolist(), self._selected
        if before is not None and before.numbers == numbers:
            return before
        if before is not None and before.last is not None:
            self._last |= zip(before.numbers, before.last.unflatten(0, (len(before.numbers), -1)), strict=True)
        known = [self._last[number] for number in numbers if number in self._last]
        last = torch.cat(known) if len(known) == len(numbers) else None
        states = self._states[rows].flatten(0, 1)
        limits = feature_limits(self._gains.pool.limit_shapes, states)
        self._selected = SelectedSets(numbers, self._rows.select(rows), states, limits, last)
        return self._selected

    def _maxima(self, functions: ActionFunctions, nodes: Tensor, sets: SelectedSets) -> Maxima:
        """The maxima of all k·m functions at every node."""
        if sets.last is not None:
            starts, steps = sets.last, WARM_STEPS
        else:
            starts, steps = self._cold_starts(functions, nodes, sets.states), COLD_STEPS
        maxima = functions.maximize(starts, nodes, steps, keep_correlation=True)
        maxima = shared_between_nodes(snapped(self._gains.pool.space, functions, maxima), nodes)
        sets.last = maxima.actions
        return maxima

    def _cold_starts(self, functions: ActionFunctions, nodes: Tensor, states: Tensor) -> Tensor:
        """Starts of Newton's method (k·m, q, features): the best action at z = 0, elsewhere the winner of `_race`."""
        best = self._gains.policy(states)
        moving = nodes.nonzero().squeeze(-1)
        starts = functions.factor.scaled(best.actions)[:, None].repeat(1, len(nodes), 1)
        entrants = self._entrants(functions, nodes[moving], states, best.basins)
        starts[:, moving] = self._race(functions, nodes[moving], entrants)
        return starts

    def _entrants(self, functions: ActionFunctions, nodes: Tensor, states: Tensor, basins: Tensor) -> Tensor:
        """The starts (k·m, q, 2, features) from which `_race` selects, for every function and node.

        The first one is the higher of the pool's best action and the best local maximum of μⁿ, which are often on one
        hill.  The second is the higher of the pool's best action that is dissimilar to the first and the candidate's
        own action.
        """
        pool, moved = self._gains.pool, nodes[:, None]
        mean, slope = functions.pooled(pool.correlation, pool.features)
        mean = masked(pool.space, states, pool.actions, mean)
        scores = mean[:, None] + moved * slope[:, None]  # (k·m, q, p)
        pooled_best = distinct_best(scores.flatten(0, 1), pool.similarity, 2).unflatten(0, scores.shape[:2])
        others = torch.cat([functions.factor.scaled(basins), functions.new_points[:, None]], 1)
        other_mean, other_slope, _ = functions.at(others)
        heights = other_mean[:, None] + moved * other_slope[:, None]  # (k·m, q, basins + 1), the own action last
        basin = heights[..., :-1].argmax(-1, keepdim=True)
        rivals = torch.cat([basin, torch.full_like(basin, heights.shape[-1] - 1)], -1)  # (k·m, q, 2)
        higher = heights.gather(-1, rivals) > scores.gather(-1, pooled_best)
        rows = torch.arange(len(others), device=others.device)[:, None, None]
        return torch.where(higher[..., None], others[rows, rivals], pool.features[pooled_best])

    def _race(self, functions: ActionFunctions, nodes: Tensor, starts: Tensor) -> Tensor:
        """For every function and node, the highest point (k·m, q, features) after a few steps from every start."""
        _, q, n_starts, _ = starts.shape
        z = nodes.repeat_interleave(n_starts)
        maxima = functions.maximize(starts.flatten(1, 2), z, RACE_STEPS)
        best = (maxima.mean + z * maxima.slope).unflatten(1, (q, n_starts)).argmax(-1)
        chosen = best + n_starts * torch.arange(q, device=best.device)
        return maxima.take(chosen).actions


def snapped(space: Space, functions: ActionFunctions, maxima: Maxima) -> Maxima:
    """The maxima; if some actions are integers, moved to the nearest actions that the space allows."""
    if not space.has_integer_actions:
        return maxima
    if functions.limits is None:
        features = functions.factor.scaled(snap_actions(space, functions.factor.unscaled(maxima.actions)))
    else:
        features = functions.limits.snapped(maxima.actions)
    return Maxima(features, *functions.at(features))
