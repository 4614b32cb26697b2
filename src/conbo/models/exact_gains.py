"""Knowledge gradients under an exact Gaussian process: the expected rise of a state's highest mean after a new reward.

The reward is assumed to be z standard deviations above its prediction, for a few values of z (nodes).  The look-ahead
means, which are the posterior means after this reward, are maximized over actions for all candidates, states and nodes
in one batch of `ActionFunctions`.  By the envelope theorem, the gradient with respect to the candidate is
computed with the maximizers held fixed.  It is a weighted sum of gradients of the kernel.
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
from conbo.models.gains import GainRule, LineGains
from conbo.models.kernels import ProductKernel
from conbo.models.neighboring_nodes import neighbor_similarity, shared_between_nodes
from conbo.models.snapping import masked, snap_actions, without_infeasible
from conbo.spaces import Space

TRIAL_STEPS = 1  # Newton steps from each possible start, before the best of them is chosen
COLD_STEPS = 5  # Newton steps from the chosen start
WARM_STEPS = 1  # Newton steps of a maximization that starts from the maximizers for the previous candidate
BASINS = 4  # number of local maxima of the posterior mean that are kept for each state


@dataclass(frozen=True)
class ExactLines:
    """The posterior means of q actions in each of m states, after one more reward at one of k candidates.

    Each mean is a line in z, mean + slope z, where the reward is z standard deviations above its prediction.
    """

    mean: Tensor  # (k, m, q)
    slope: Tensor  # (k, m, q)
    actions: Tensor  # (k, m, q, width), scaled inputs
    correlation: Tensor  # (k, m, q, n), κ with the observed actions
    posterior: Conditioned
    ahead: LookAhead
    rows: StateRows

    def gradient(self, pull: Tensor) -> Tensor:
        """Return the gradients (k, d) of Σ pull · slope with respect to the k candidates.

        The sum is over q actions in each of m states, and `pull` (k, m, q) are its weights. A slope says how strongly
        the posterior mean of an action reacts to a new reward at the candidate. States, actions and weights are held
        fixed.
        """
        posterior, ahead, rows = self.posterior, self.ahead, self.rows
        # Σ pull σ̃ = Σ pull kⁿ(x*, candidate) / sd, and kⁿ = k⁰(x*, candidate) - k⁰(x*, X̃) K⁻¹ k⁰(X̃, candidate)
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
        """Return weighted sums (k, n) of covariances with n observed points, for each of k candidates.

        Each sum is Σ pull · k⁰(x*, observed point) over q actions x* in each of m states. k⁰ is the kernel, and `pull`
        (k, m, q) are the weights.
        """
        rows = self.rows
        if compiled.AVAILABLE and pull.device.type == "cpu" and self.correlation.is_contiguous():
            sums = compiled_correlation.weighted_sums(pull, self.correlation, rows.scale)
        else:
            sums = ((pull[..., None, :] @ self.correlation)[..., 0, :] * rows.scale).sum(1)
        return sums if rows.offset is None else sums + (pull.sum(-1)[:, None] @ rows.offset)[:, 0]


def lines_at(posterior: Conditioned, candidates: Tensor, states: Tensor, actions: Tensor) -> ExactLines:
    """Return the posterior means of q actions in each of m states, after one more reward at one of k candidates.

    The m states and their q actions may differ between candidates: `candidates` are (k, d), `states` (k, m, d_s),
    and `actions` (k, m, q, d_x). If the new reward is z standard deviations above its prediction, the posterior
    mean of an action becomes `mean` + `slope` z, a line in z.
    """
    ahead, rows = posterior.look_ahead(candidates), state_rows(posterior, states)
    features, shape = posterior.kernel.actions.scaled(actions), states.shape[:2]
    at_actions = look_ahead_functions(posterior, ahead, rows).at(features.flatten(0, 1))
    mean, slope, correlation = (part.unflatten(0, shape) for part in at_actions)
    return ExactLines(mean, slope, features, correlation, posterior, ahead, rows)


class ExactGains:
    """Computes knowledge gradients of candidates in given states, under an exact Gaussian process.

    Searches for the actions with the highest means after a new reward start from a pool of actions. A `GainRule` says
    how knowledge gradients are estimated from these means.
    """

    def __init__(self, pool: ActionPool, rule: GainRule) -> None:
        self.pool, self.rule = pool, rule
        self.policy = BestActionsOnce(pool, BASINS)
        self._rough: list[tuple[Tensor, RoughGains]] = []  # the last states with their rough gains, shared by all seeds

    @property
    def posterior(self) -> Conditioned:
        """The Gaussian process under which knowledge gradients are computed."""
        return self.pool.posterior

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The observed simulator seeds; empty if knowledge gradients do not depend on seeds."""
        return self.posterior.seen_seeds

    def for_seeds(self, seeds: Tensor) -> "ExactGains":
        """Return a copy for new rewards with these simulator seeds.

        `seeds` holds one seed for all candidates (1,), or one seed for each of c candidates (c,). The cache of best
        actions is shared with the original, because best actions do not depend on new seeds.
        """
        other = copy(self)
        other.pool = copy(self.pool)
        other.pool.posterior = self.posterior.for_seeds(seeds)
        return other

    def at(self, states: Tensor) -> "StatesAhead":
        """Return a function that computes knowledge gradients of candidates in r sets of m states (r, m, d_s).

        It takes k candidates (k, d) and indices (k,). The knowledge gradients of candidate i are those in the m states
        of set `indices[i]`.
        """
        return StatesAhead(self, states)

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a fast function that estimates knowledge gradients (r, m) of candidates (r, d) in states (m, d_s).

        The estimates are rough, because the function does not search for the best actions after a new reward (see
        `RoughGains`). If the `GainRule` needs no such search (its `nodes` are None), the function computes knowledge
        gradients without this approximation.
        """
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
    """The sets of states that the current candidates use, selected from the r sets of a `StatesAhead`.

    The best actions that the last searches found in these states are included, because the next searches start there.
    """

    indices: Tensor  # (k,), indices of these sets among all sets
    numbers: list[int]  # the same indices
    rows: StateRows
    states: Tensor  # (k·m, d_s)
    limits: FeatureLimits | None
    last: Tensor | None  # (k·m, q, width), the last maximizers as scaled inputs; None if a set has none yet


class StatesAhead:
    """Computes knowledge gradients of candidates, each in one of r fixed sets of m states.

    A knowledge gradient needs the actions with the highest posterior means after the new reward. The last
    maximizers found for each set are kept, so that the next search in the same states can start from them.
    """

    def __init__(self, gains: ExactGains, states: Tensor) -> None:
        self._gains, self._states = gains, states
        self._rows = state_rows(gains.posterior, states)
        self._last: dict[int, Tensor] = {}  # the last maximizers (m, q, width), by the index of the set
        self._selected: SelectedSets | None = None  # a local search asks for the same sets many times

    @property
    def is_recordable(self) -> bool:
        """Whether calls can be recorded on a GPU, as a CUDA graph.

        They can, unless there are categories, integer actions, constraints or effects of simulator seeds, or the kernel
        or one of its profiles is user-defined.
        """
        gains, kernel = self._gains, self._gains.posterior.kernel
        space = gains.pool.space
        plain = space.feasible_set is None and not space.has_integer_actions and not gains.seen_seeds
        built_in = isinstance(kernel.without_main_effects(), ProductKernel)
        built_in = built_in and kernel.actions.profile.built_in and kernel.states.profile.built_in
        return plain and built_in and not any(space.state_categories + space.action_categories)

    def __call__(self, candidates: Tensor, rows: Tensor) -> LineGains:
        """Return knowledge gradients (k, m) of candidates (k, d); candidate i uses the m states of set `rows[i]`."""
        posterior, rule = self._gains.posterior.of_rows(rows), self._gains.rule
        sets, ahead = self._select(rows), posterior.look_ahead(candidates)
        functions = look_ahead_functions(posterior, ahead, sets.rows, sets.limits)
        shape = sets.rows.mean_constant.shape
        space, pool = self._gains.pool.space, self._gains.pool
        if rule.nodes is None:
            mean, slope = (part.unflatten(0, shape) for part in functions.pooled(pool.correlation, pool.features))
            actions, correlation = pool.features.expand(*shape, -1, -1), pool.correlation.mT.expand(*shape, -1, -1)
            mean, slope = without_infeasible(space, self._states[rows], pool.actions, mean, slope)
            similarity = mean  # a placeholder: without nodes, similarities are not used
        else:
            maxima = self._maxima(functions, rule.nodes, sets)
            parts = (maxima.mean, maxima.slope, maxima.actions, maxima.correlation)
            mean, slope, actions, correlation = (part.unflatten(0, shape) for part in parts)
            similarity = neighbor_similarity(functions, actions, rule.nodes)
        lines = ExactLines(mean, slope, actions, correlation, posterior, ahead, sets.rows)
        return LineGains(*rule.combine(mean, slope, similarity), lines)

    def _select(self, rows: Tensor) -> SelectedSets:
        """Return the sets of states with indices `rows` (k,), with the maximizers that the last search found there."""
        before = self._selected
        if before is not None and before.indices is rows:
            return before
        numbers = rows.tolist()  # waits for the GPU, if that has the indices
        if before is not None and before.numbers == numbers:
            return before
        if before is not None and before.last is not None:
            self._last |= zip(before.numbers, before.last.unflatten(0, (len(before.numbers), -1)), strict=True)
        known = [self._last[number] for number in numbers if number in self._last]
        last = torch.cat(known) if len(known) == len(numbers) else None
        states = self._states[rows].flatten(0, 1)
        limits = feature_limits(self._gains.pool.limit_shapes, states)
        self._selected = SelectedSets(rows, numbers, self._rows.select(rows), states, limits, last)
        return self._selected

    def _maxima(self, functions: ActionFunctions, nodes: Tensor, sets: SelectedSets) -> Maxima:
        """Maximize k·m posterior means over actions, at each of q nodes z.

        Each of these `functions` of the action is the posterior mean in one of m states, after a new reward at one of k
        candidates. At node z, this reward is z standard deviations above its prediction.
        """
        if sets.last is not None:
            starts, steps = sets.last, WARM_STEPS
        else:
            starts, steps = self._cold_starts(functions, nodes, sets.states), COLD_STEPS
        maxima = functions.maximize(starts, nodes, steps, keep_correlation=True)
        maxima = shared_between_nodes(snapped(self._gains.pool.space, functions, maxima), nodes)
        if sets.last is None:
            sets.last = maxima.actions.clone()
        else:
            sets.last.copy_(maxima.actions)  # in place, because a recording reads and writes the same tensor
        return maxima

    def _cold_starts(self, functions: ActionFunctions, nodes: Tensor, states: Tensor) -> Tensor:
        """Return initial actions (k·m, q, width) for the maximization of k·m functions at each of q nodes z.

        Each function is the posterior mean in one of m states after a new reward at one of k candidates. At node z,
        this reward is z standard deviations above its prediction. At z = 0, the initial action is the best action of
        the state before the reward. At other nodes, TRIAL_STEPS Newton steps are taken from each of two possible
        starts, and the initial action is the better end point.
        """
        best = self._gains.policy(states)
        moving = nodes.nonzero().squeeze(-1)
        starts = functions.factor.scaled(best.actions)[:, None].repeat(1, len(nodes), 1)
        possible = self._possible_starts(functions, nodes[moving], states, best.basins)
        starts[:, moving] = self._best_start(functions, nodes[moving], possible)
        return starts

    def _possible_starts(self, functions: ActionFunctions, nodes: Tensor, states: Tensor, basins: Tensor) -> Tensor:
        """Return two initial actions (k·m, q, 2, width) for the maximization of k·m functions at each of q values z.

        Each function is the posterior mean in one of m states after a new reward at one of k candidates. This reward is
        z standard deviations above its prediction, and the values z are the `nodes`. `basins` are the local maximizers
        of the posterior mean in each state before that reward.

        The first action is the pool's best action or the best basin, whichever has the higher mean after the reward.
        The second is the candidate's own action or the pool's second-best action, whichever has the higher mean after
        the reward. Actions of the pool that are similar to its best one do not count as second-best.
        """
        pool, moved = self._gains.pool, nodes[:, None]
        mean, slope = functions.pooled(pool.correlation, pool.features)
        mean = masked(pool.space, states, pool.actions, mean)
        scores = mean[:, None] + moved * slope[:, None]  # (k·m, q, p)
        pooled_best = distinct_best(scores.flatten(0, 1), pool.similarity, 2).unflatten(0, scores.shape[:2])
        others = torch.cat([functions.factor.scaled(basins), functions.new_points[:, None]], 1)
        other_mean, other_slope = functions.lines_at(others)
        heights = other_mean[:, None] + moved * other_slope[:, None]  # (k·m, q, basins + 1), the own action last
        basin = heights[..., :-1].argmax(-1, keepdim=True)
        rivals = torch.cat([basin, torch.full_like(basin, heights.shape[-1] - 1)], -1)  # (k·m, q, 2)
        higher = heights.gather(-1, rivals) > scores.gather(-1, pooled_best)
        rows = torch.arange(len(others), device=others.device)[:, None, None]
        return torch.where(higher[..., None], others[rows, rivals], pool.features[pooled_best])

    def _best_start(self, functions: ActionFunctions, nodes: Tensor, starts: Tensor) -> Tensor:
        """Take TRIAL_STEPS Newton steps from c actions for each function and node, and return the best end points.

        There are k·m functions: for each of k candidates, the posterior means in m states after a new reward. The q
        `nodes` are values of z: the reward is z standard deviations above its prediction. `starts` (k·m, q, c, width)
        are the actions, and the result is (k·m, q, width).
        """
        _, q, n_starts, _ = starts.shape
        z = nodes.repeat_interleave(n_starts)
        maxima = functions.maximize(starts.flatten(1, 2), z, TRIAL_STEPS)
        best = (maxima.mean + z * maxima.slope).unflatten(1, (q, n_starts)).argmax(-1)
        chosen = best + n_starts * torch.arange(q, device=best.device)
        return maxima.take(chosen).actions


def snapped(space: Space, functions: ActionFunctions, maxima: Maxima) -> Maxima:
    """Move the maxima to valid actions nearby, with integers rounded, and evaluate the functions there.

    In a space without integer actions, the maxima are returned unchanged.
    """
    if not space.has_integer_actions:
        return maxima
    if functions.limits is None:
        features = functions.factor.scaled(snap_actions(space, functions.factor.unscaled(maxima.actions)))
    else:
        features = functions.limits.snapped(maxima.actions)
    return Maxima(features, *functions.at(features))
