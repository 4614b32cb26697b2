"""Knowledge gradient of a state: how much a new observation is expected to raise the best mean reward there.

    KG_c(s_i; (s,x)) = E_y[max_x' μⁿ⁺¹(s_i, x')] - max_x'' μⁿ(s_i, x''),   μⁿ⁺¹ = μⁿ + σ̃ Z

=============  ===================================  ===========================================================
paper          here                                 meaning
=============  ===================================  ===========================================================
KG_d           ``DiscreteKG``                       the maxima over a fixed random set of actions
KG_MC          ``MonteCarloKG``                     random Z_j, each maximum by optimisation, averaged
KG_h           ``HybridKG(spread=1, "lower")``      quantiles Z_j, maximisers x*_j as the discrete set
(none)         ``HybridKG()``                       the same maximisers, integrated better: see convex_integral
μ*, σ̃*         ``mean``, ``slope``                  value and slope of the lines that belong to x*_j
=============  ===================================  ===========================================================

References: Frazier, Powell & Dayanik (2009); Scott, Frazier & Powell (2011); Wu & Frazier (2017); Pearce, Klaise &
Groves, "Practical Bayesian Optimization of Objectives with Conditioning Variables".

All inner problems of (candidates × states × Z) are one batch of `ActionFunctions`.  By the envelope theorem the
gradient in the candidate needs no derivative of the maximisers: with X* fixed it is a weighted kernel gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from conbo.acquisition.botorch_knowledge_gradient import BotorchKnowledgeGradient
from conbo.acquisition.convex_integral import SPREAD, ConvexIntegral, quantile_nodes
from conbo.acquisition.expected_max import expected_max
from conbo.acquisition.neighbouring_nodes import neighbour_likeness, shared_between_nodes
from conbo.acquisition.rough_knowledge_gradient import RoughKnowledgeGradient
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.action_functions import (
    ActionFunctions,
    Maxima,
    StateRows,
    look_ahead_functions,
    state_rows,
)
from conbo.models.posterior import LookAhead, Posterior, covariance_gradient
from conbo.search.action_candidates import ActionPool, action_candidates, pooled
from conbo.search.best_actions import BestActionsOnce, best_actions, distinct_best

RACE_STEPS = 2  # Newton steps from each of several starts, of which the best goes on …
COLD_STEPS = 4  # … for so many more
WARM_STEPS = 1  # Newton steps of an inner maximisation that starts where the last outer step ended
THOROUGH_STARTS, THOROUGH_STEPS = 6, 20  # where bounds are wanted
BASINS = 4  # local maxima of the posterior mean that are kept for each state
POLICY_STATES = 32  # whose best actions join the pool

# lines (..., q): mean, slope; likeness of neighbours (..., q-1) → value (...), ∂value/∂slope (..., q)
Combine = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class Estimator(Protocol):
    """A recipe for KG_c."""

    def build(self, belief: Belief, generator: torch.Generator) -> "AnyKnowledgeGradient":
        """Ready for use under one belief."""


@dataclass(frozen=True)
class HybridKG:
    """KG at n_z quantile nodes: `best` integrates values and slopes, `lower` is the paper's KG_h on these nodes."""

    n_z: int = 5
    spread: float = SPREAD
    estimate: str = "best"

    def __post_init__(self) -> None:
        if self.n_z < 3 or self.n_z % 2 == 0:
            raise SettingError(f"`n_z` must be odd and at least 3, so that z = 0 is a node, but got {self.n_z}.")
        if self.estimate not in ("best", "lower"):
            raise SettingError(f"`estimate` must be 'best' or 'lower', but got {self.estimate!r}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "AnyKnowledgeGradient":
        """Ready for use under one belief."""
        nodes = quantile_nodes(self.n_z, self.spread).to(belief.device)
        integral = ConvexIntegral(nodes)

        def combine(mean: Tensor, slope: Tensor, likeness: Tensor) -> tuple[Tensor, Tensor]:
            if self.estimate == "lower":
                lines = expected_max(mean, slope)
                return lines.gain, lines.density
            gains = integral(mean, slope, likeness)
            return gains.best, gains.slope_derivative

        return _engine(belief, nodes, combine, look_ahead_pool(belief, generator))


@dataclass(frozen=True)
class MonteCarloKG:
    """KG by averaging the maxima of n_z sampled look-ahead means: unbiased, noisy, may be negative."""

    n_z: int = 32

    def __post_init__(self) -> None:
        if self.n_z < 1:
            raise SettingError(f"`n_z` must be at least 1, but got {self.n_z}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "AnyKnowledgeGradient":
        """Draw Z once: common random numbers for every candidate and state."""
        samples = torch.randn(self.n_z, generator=generator, dtype=torch.float64)
        nodes = torch.cat([samples, torch.zeros(1, dtype=torch.float64)]).to(belief.device)  # the last is μⁿ itself
        share = nodes / self.n_z

        def combine(mean: Tensor, slope: Tensor, likeness: Tensor) -> tuple[Tensor, Tensor]:
            value = (mean + slope * nodes)[..., :-1].mean(-1) - mean[..., -1]
            return value, share.expand_as(slope)

        return _engine(belief, nodes, combine, look_ahead_pool(belief, generator))


@dataclass(frozen=True)
class DiscreteKG:
    """KG over a fixed set of n random actions."""

    n: int = 100

    def __post_init__(self) -> None:
        if self.n < 1:
            raise SettingError(f"`n` must be at least 1, but got {self.n}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "AnyKnowledgeGradient":
        """Draw the actions once."""

        def combine(mean: Tensor, slope: Tensor, likeness: Tensor) -> tuple[Tensor, Tensor]:
            lines = expected_max(mean, slope)
            return lines.gain, lines.density

        d_x = belief.space.n_action_dims
        drawn = torch.rand(self.n, d_x, generator=generator, dtype=torch.float64).to(belief.device)
        return _engine(belief, None, combine, belief.snap_actions(drawn))


def look_ahead_pool(belief: Belief, generator: torch.Generator) -> Tensor:
    """Actions (p, d_x): spread out, well observed, and the present policy's at states that follow P[s]."""
    spread = action_candidates(belief, 32 + 32 * min(belief.space.n_action_dims, 4), generator)
    states = belief.states.sample(POLICY_STATES, generator).to(belief.device)
    pool = pooled(belief.posterior, spread) if isinstance(belief.posterior, Posterior) else spread
    return torch.cat([spread, best_actions(belief, pool, states, starts=2).actions])


def _engine(belief: Belief, nodes: Tensor | None, combine: Combine, actions: Tensor) -> "AnyKnowledgeGradient":
    """Closed forms for the built-in models, autograd for others."""
    closed = isinstance(belief.posterior, Posterior)
    return (KnowledgeGradient if closed else BotorchKnowledgeGradient)(belief, nodes, combine, actions)


@dataclass(frozen=True)
class Lines:
    """The lines whose maximum stands for V(z): q of them for each of r candidates and m states."""

    mean: Tensor  # (r, m, q)
    slope: Tensor  # (r, m, q)
    actions: Tensor  # (r, m, q, features), scaled
    correlation: Tensor  # (r, m, q, n) with the observed actions


class KnowledgeGradient:
    """KG_c under one belief, with its pool of actions; `nodes` None means that the pool itself is the discrete set."""

    def __init__(self, belief: Belief, nodes: Tensor | None, combine: Combine, actions: Tensor) -> None:
        assert isinstance(belief.posterior, Posterior)  # others have botorch_knowledge_gradient
        self.belief, self.posterior = belief, belief.posterior
        self.nodes, self.combine = nodes, combine
        self.pool: ActionPool = pooled(self.posterior, actions)
        self.policy = BestActionsOnce(belief, self.pool, BASINS)

    def at(self, states: Tensor) -> "StatesAhead":
        """Prepare r sets of m states (r, m, d_s)."""
        return StatesAhead(self, states)

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Rough values at shared states (m, d_s), quickly: a function from candidates (r, d) to (r, m)."""
        if self.nodes is not None:
            return RoughKnowledgeGradient(self.posterior, states, self.policy(states))

        def discrete(candidates: Tensor) -> Tensor:
            sets = self.at(states.expand(len(candidates), -1, -1))
            return sets(candidates, torch.arange(len(candidates), device=candidates.device)).values

        return discrete

    def bounds(self, candidates: Tensor, states: Tensor) -> "Bounds":
        """Best estimate, lower and upper bound (r, m) of KG_c; states (r, m, d_s).  Thorough, so slower.

        The bounds hold as far as every inner maximum is found: each is searched for from several starts, and the
        steepest slopes, which the upper bound needs beyond the outer nodes, are two more inner problems.
        """
        if self.nodes is None or float(self.nodes[len(self.nodes) // 2]) != 0.0:
            raise SettingError("bounds need nodes around z = 0: use HybridKG.")
        shape = states.shape[:2]
        prepared = state_rows(self.posterior, states)
        functions = look_ahead_functions(self.posterior, self.posterior.look_ahead(candidates), prepared)
        flat = states.flatten(0, 1)
        basins = best_actions(self.belief, self.pool, flat, THOROUGH_STARTS, THOROUGH_STEPS).basins
        maxima = self._thorough(functions, self.nodes, basins)
        if self.belief.has_integers:
            maxima = snapped(self.belief, functions, maxima)
        maxima = shared_between_nodes(maxima, self.nodes)
        likeness = neighbour_likeness(functions, maxima.actions, self.nodes)
        integral, middle = ConvexIntegral(self.nodes), len(self.nodes) // 2
        slope = maxima.slope - maxima.slope[:, middle : middle + 1]
        gain = maxima.mean - maxima.mean[:, middle : middle + 1] + slope * self.nodes
        slopes_alone = replace(functions, mean_weights=torch.zeros_like(functions.mean_weights))
        ends = self.nodes.new_tensor([-1.0, 1.0])
        steepest = self._thorough(slopes_alone, ends, basins).slope - maxima.slope[:, middle : middle + 1]
        lower = integral.lower(gain.clamp_min(0), slope)
        upper = torch.maximum(integral.upper(gain.clamp_min(0), steepest), lower)
        best = integral(maxima.mean, maxima.slope, likeness).best.clamp(lower, upper)
        return Bounds(*(value.unflatten(0, shape) for value in (best, lower, upper)))

    def _thorough(self, functions: ActionFunctions, nodes: Tensor, basins: Tensor) -> Maxima:
        """Maxima at every node from several starts: the best of pool and μⁿ's local maxima, and the candidate."""
        mean, slope = functions.pooled(self.pool.correlation, self.pool.features)
        scores = mean[:, None] + nodes[:, None] * slope[:, None]  # (rows, q, p)
        rows, q, _ = scores.shape
        chosen = distinct_best(scores.flatten(0, 1), self.pool.likeness, THOROUGH_STARTS).unflatten(0, (rows, q))
        special = torch.cat([functions.factor.scaled(basins), functions.new_points[:, None]], 1)
        starts = torch.cat([self.pool.features[chosen], special[:, None].expand(-1, q, -1, -1)], 2)
        k = starts.shape[2]
        maxima = functions.maximize(starts.flatten(1, 2), nodes.repeat_interleave(k), THOROUGH_STEPS, True)
        value = (maxima.mean + nodes.repeat_interleave(k) * maxima.slope).unflatten(1, (q, k))
        best = value.argmax(-1) + torch.arange(q, device=nodes.device) * k  # (rows, q)
        return maxima.take(best)


@dataclass(frozen=True)
class Bounds:
    """KG_c and what it lies between: (r, m) each."""

    best: Tensor
    lower: Tensor
    upper: Tensor


AnyKnowledgeGradient = KnowledgeGradient | BotorchKnowledgeGradient


class StatesAhead:
    """r sets of m fixed states; knows where the last look-ahead maxima were found."""

    def __init__(self, gradient: KnowledgeGradient, states: Tensor) -> None:
        self._kg, self._shape = gradient, states.shape[:2]
        self._rows = state_rows(gradient.posterior, states)
        self._states = states
        self._last: Tensor | None = None  # (r, m, q, features)
        self._visited = torch.zeros(len(states), dtype=torch.bool, device=states.device)

    def __call__(self, candidates: Tensor, rows: Tensor) -> "StateGains":
        """KG_c (k, m) of candidates (k, d), each with its own set of states `rows` (k,)."""
        kg = self._kg
        ahead = kg.posterior.look_ahead(candidates)
        prepared = self._rows.select(rows)
        functions = look_ahead_functions(kg.posterior, ahead, prepared)
        lines = self._lines(functions, rows)
        likeness = neighbour_likeness(functions, lines.actions, kg.nodes) if kg.nodes is not None else lines.mean
        value, derivative = kg.combine(lines.mean, lines.slope, likeness)
        return StateGains(value, derivative, lines, kg.posterior, ahead, prepared)

    def _lines(self, functions: ActionFunctions, rows: Tensor) -> Lines:
        kg, k, m = self._kg, len(rows), self._shape[1]
        if kg.nodes is None:
            mean, slope = functions.pooled(kg.pool.correlation, kg.pool.features)
            features = kg.pool.features.expand(k, m, -1, -1)
            correlation = kg.pool.correlation.mT.expand(k, m, -1, -1)
            return Lines(mean.unflatten(0, (k, m)), slope.unflatten(0, (k, m)), features, correlation)
        if self._last is not None and bool(self._visited[rows].all()):
            starts, steps = self._last[rows].flatten(0, 1), WARM_STEPS
        else:
            starts, steps = self._race(functions, self._cold_starts(functions, rows)), COLD_STEPS
        maxima = functions.maximize(starts, kg.nodes, steps, keep_correlation=True)
        if kg.belief.has_integers:
            maxima = snapped(kg.belief, functions, maxima)
        maxima = shared_between_nodes(maxima, kg.nodes)
        lines = Lines(
            maxima.mean.unflatten(0, (k, m)),
            maxima.slope.unflatten(0, (k, m)),
            maxima.actions.unflatten(0, (k, m)),
            maxima.correlation.unflatten(0, (k, m)),
        )
        if self._last is None:
            self._last = lines.actions.new_zeros(self._shape[0], *lines.actions.shape[1:])
        self._last[rows], self._visited[rows] = lines.actions, True
        return lines

    def _cold_starts(self, functions: ActionFunctions, rows: Tensor) -> Tensor:
        """Starts (k·m, q, starts, features) for every function and node.

        The best of the pool, its best that is not alike, the best local maximum of μⁿ, and the candidate's action.
        """
        kg, nodes = self._kg, self._kg.nodes
        assert nodes is not None  # discrete sets have no starts
        mean, slope = functions.pooled(kg.pool.correlation, kg.pool.features)
        scores = mean[:, None] + nodes[:, None] * slope[:, None]  # (k·m, q, p)
        pooled_best = distinct_best(scores.flatten(0, 1), kg.pool.likeness, 2).unflatten(0, scores.shape[:2])
        basins = kg.posterior.kernel.actions.scaled(kg.policy(self._states[rows].flatten(0, 1)).basins)
        basin_mean, basin_slope, _ = functions.at(basins)
        basin = (basin_mean[:, None] + nodes[:, None] * basin_slope[:, None]).argmax(-1)  # (k·m, q)
        own = functions.new_points[:, None].expand(-1, len(nodes), -1)
        return torch.cat(
            [
                kg.pool.features[pooled_best],
                basins.gather(1, basin[..., None].expand_as(own))[:, :, None],
                own[:, :, None],
            ],
            2,
        )

    def _race(self, functions: ActionFunctions, starts: Tensor) -> Tensor:
        """For every function and node the start (k·m, q, features) that is highest after a few steps from each."""
        nodes = self._kg.nodes
        assert nodes is not None  # discrete sets have no starts
        _, q, k, _ = starts.shape
        z = nodes.repeat_interleave(k)
        maxima = functions.maximize(starts.flatten(1, 2), z, RACE_STEPS)
        best = (maxima.mean + z * maxima.slope).unflatten(1, (q, k)).argmax(-1)
        chosen = best + k * torch.arange(q, device=best.device)
        return maxima.take(chosen).actions


@dataclass(frozen=True)
class StateGains:
    """Values (k, m) of k candidates at m states each, and what the gradient needs."""

    values: Tensor
    derivative: Tensor  # (k, m, q), in the slopes of the lines
    lines: Lines
    posterior: Posterior
    ahead: LookAhead
    rows: StateRows

    def gradient(self, weights: Tensor) -> Tensor:
        """Gradient (k, d) in the candidates of Σ_i weights[:, i] values[:, i], with X* held fixed."""
        lines, ahead = self.lines, self.ahead
        pull = self.derivative * weights[..., None]  # (k, m, q)
        # Σ pull σ̃ = Σ pull kⁿ(x*, candidate) / sd; the observed points' share of kⁿ needs one solve
        at_observed = (pull[..., None, :] @ lines.correlation)[..., 0, :] * self.rows.scale  # (k, m, n)
        if self.rows.offset is not None:
            at_observed = at_observed + pull.sum(-1, keepdim=True) * self.rows.offset
        solved = self.posterior.solve(at_observed.sum(1).mT).mT  # (k, n)
        total = (pull * lines.slope).sum((1, 2))
        old_weights = (total / ahead.sd)[:, None] * ahead.weights - solved
        kernel, here = self.posterior.kernel, (ahead.states, ahead.actions)
        k, m, q = pull.shape
        states = self.rows.features[:, :, None].expand(k, m, q, -1).flatten(1, 2)
        new = covariance_gradient(kernel, here, (states, lines.actions.flatten(1, 2)), pull.flatten(1, 2))
        old = covariance_gradient(kernel, here, (self.posterior.states, self.posterior.actions), old_weights)
        noise = (total / (2 * ahead.sd))[:, None] * ahead.noise_gradient
        return (new + old - noise) / ahead.sd[:, None]


def snapped(belief: Belief, functions: ActionFunctions, maxima: Maxima) -> Maxima:
    """The same maxima moved to the nearest actions that the space allows."""
    factor = functions.factor
    actions = belief.snap_actions(factor.unscaled(maxima.actions))
    features = factor.scaled(actions)
    return Maxima(features, *functions.at(features))
