"""Knowledge gradient of a state: how much a new observation is expected to raise the best mean reward there.

    KG_c(s_i; (s,x)) = E_y[max_x' μⁿ⁺¹(s_i, x')] - max_x'' μⁿ(s_i, x''),   μⁿ⁺¹ = μⁿ + σ̃ Z

=============  ===================================  ===========================================================
paper          here                                 meaning
=============  ===================================  ===========================================================
KG_d           ``DiscreteKG``                       the maxima over a fixed random set of actions
KG_MC          ``MonteCarloKG``                     random Z_j, each maximum by optimization, averaged
KG_h           ``HybridKG(spread=1, "lower")``      quantiles Z_j, maximizers x*_j as the discrete set
(none)         ``HybridKG()``                       the same maximizers, integrated better: see convex_integral
μ*, σ̃*         ``mean``, ``slope``                  value and slope of the lines that belong to x*_j
=============  ===================================  ===========================================================

References: Frazier, Powell & Dayanik (2009); Scott, Frazier & Powell (2011); Wu & Frazier (2017); Pearce, Klaise &
Groves, "Practical Bayesian Optimization of Objectives with Conditioning Variables".

If constraints are learned, all three compute the gain of `constrained_gain`, each on its own pool of actions.

An estimator defines at which z maximizers are needed and how a value is computed from their lines (`GainRule`).  The
posterior decides how the maximizers are found.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from conbo.acquisition.constrained_gain import state_gains
from conbo.acquisition.convex_integral import SPREAD, ConvexIntegral, quantile_nodes
from conbo.acquisition.expected_max import expected_gain, expected_max
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.posterior import GainRule, StateValue
from conbo.search.action_candidates import action_candidates

POLICY_STATES = 32  # number of states whose best actions join the pool


class Estimator(Protocol):
    """A recipe for an estimate of KG_c."""

    def build(self, belief: Belief, generator: torch.Generator) -> StateValue:
        """Build the function that this recipe describes, for one belief."""


def discrete_gain(mean: Tensor, slope: Tensor, similarity: Tensor) -> tuple[Tensor, Tensor]:
    """The gain of `expected_gain`, with its derivative with respect to the slopes."""
    lines = expected_max(mean, slope)
    return lines.gain, lines.density


DISCRETE = GainRule(None, discrete_gain, expected_gain)  # the maximum is taken over a fixed set of actions


@dataclass(frozen=True)
class HybridKG:
    """A recipe for KG at n_z quantile nodes: "best" integrates values and slopes, "lower" is the paper's KG_h."""

    n_z: int = 5
    spread: float = SPREAD
    estimate: str = "best"

    def __post_init__(self) -> None:
        if self.n_z < 3 or self.n_z % 2 == 0:
            raise SettingError(f"`n_z` must be odd and at least 3, so that z = 0 is a node, but got {self.n_z}.")
        if self.estimate not in ("best", "lower"):
            raise SettingError(f"`estimate` must be 'best' or 'lower', but got {self.estimate!r}.")

    def build(self, belief: Belief, generator: torch.Generator) -> StateValue:
        """Build the function that this recipe describes, for one belief."""
        nodes = quantile_nodes(self.n_z, self.spread).to(belief.device)
        integral = ConvexIntegral(nodes)

        def combine(mean: Tensor, slope: Tensor, similarity: Tensor) -> tuple[Tensor, Tensor]:
            if self.estimate == "lower":
                lines = expected_max(mean, slope)
                return lines.gain, lines.density
            gains = integral(mean, slope, similarity)
            return gains.best, gains.slope_derivative

        return state_gains(belief, look_ahead_pool(belief, generator), GainRule(nodes, combine, expected_gain))


@dataclass(frozen=True)
class MonteCarloKG:
    """A recipe for KG as the average of n_z sampled look-ahead maxima: unbiased, noisy, possibly negative."""

    n_z: int = 32

    def __post_init__(self) -> None:
        if self.n_z < 1:
            raise SettingError(f"`n_z` must be at least 1, but got {self.n_z}.")

    def build(self, belief: Belief, generator: torch.Generator) -> StateValue:
        """The estimate with Z drawn once: common random numbers for all candidates and states."""
        samples = torch.randn(self.n_z, generator=generator, dtype=torch.float64)
        nodes = torch.cat([samples, torch.zeros(1, dtype=torch.float64)]).to(belief.device)  # zero gives μⁿ itself
        share = nodes / self.n_z

        def combine(mean: Tensor, slope: Tensor, similarity: Tensor) -> tuple[Tensor, Tensor]:
            value = (mean + slope * nodes)[..., :-1].mean(-1) - mean[..., -1]
            return value, share.expand_as(slope)

        return state_gains(belief, look_ahead_pool(belief, generator), GainRule(nodes, combine, expected_gain))


@dataclass(frozen=True)
class DiscreteKG:
    """A recipe for KG over a fixed set of n random actions."""

    n: int = 100

    def __post_init__(self) -> None:
        if self.n < 1:
            raise SettingError(f"`n` must be at least 1, but got {self.n}.")

    def build(self, belief: Belief, generator: torch.Generator) -> StateValue:
        """The estimate with its actions drawn once."""
        d_x = belief.space.n_action_dims
        drawn = torch.rand(self.n, d_x, generator=generator, dtype=torch.float64).to(belief.device)
        return state_gains(belief, belief.spread_actions(drawn), DISCRETE)


def look_ahead_pool(belief: Belief, generator: torch.Generator) -> Tensor:
    """Actions (p, d_x): evenly spread ones, the best observed ones, and the policy's actions in states from P[s]."""
    spread = action_candidates(belief, 32 + 32 * min(belief.space.n_action_dims, 4), generator)
    states = belief.states.sample(POLICY_STATES, generator).to(belief.device)
    return torch.cat([spread, belief.of_most_probable(0).search(spread).best(states, starts=2).actions])
