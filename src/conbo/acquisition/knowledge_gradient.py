"""The knowledge gradient in a state s_i: how much an observation is expected to raise the state's best posterior mean.

    KG_c(s_i; (s,x)) = E_y[max_x' μⁿ⁺¹(s_i, x')] - max_x'' μⁿ(s_i, x''),   μⁿ⁺¹ = μⁿ + σ̃ Z

The observation y is at the candidate (s, x), whose state s may differ from s_i, and Z ~ N(0, 1) is y, standardized.

=============  ========================================  ==============================================================
ConBO paper    here                                      meaning
=============  ========================================  ==============================================================
KG_d           ``DiscreteKG``                            maxima over a fixed random set of actions
KG_MC          ``MonteCarloKG``                          average over random Z_j; each maximum is found by local search
KG_h           ``HybridKG(spread=1, estimate="lower")``  maxima over the actions x*_j that are best at quantiles Z_j
(none)         ``HybridKG()``                            quantiles of a wider normal; see convex_integral.py
μ*, σ̃*         ``mean``, ``slope``                       mean μⁿ and slope σ̃ at x*_j
=============  ========================================  ==============================================================

References: Frazier, Powell & Dayanik (2009); Scott, Frazier & Powell (2011); Wu & Frazier (2017); Pearce, Klaise &
Groves, "Practical Bayesian Optimization of Objectives with Conditioning Variables" (the ConBO paper).

If constraints are learned, all three recipes compute the gain of `constrained_gain.py`, each with its own pool of
actions.

A recipe defines for which values z of Z the best actions are needed, and how the gain is computed from the lines
μⁿ + σ̃ z of these actions (`GainRule`).  The posterior finds these actions and calls the rule; for the built-in models,
see `models/exact_gains.py`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from conbo.acquisition.constrained_gain import state_gains
from conbo.acquisition.convex_integral import SPREAD, ConvexIntegral, quantile_nodes
from conbo.acquisition.expected_max import expected_gain, expected_max
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.gains import GainRule, StateValue
from conbo.search.action_candidates import action_candidates

POLICY_STATES = 32  # number of states whose best actions are in the pool


class Estimator(Protocol):
    """A recipe for an estimate of the knowledge gradient of a candidate in a state."""

    def build(self, belief: Belief, generator: torch.Generator) -> StateValue:
        """Build the object that computes knowledge gradients of candidates in states, for one belief."""


def discrete_gain(mean: Tensor, slope: Tensor, similarity: Tensor) -> tuple[Tensor, Tensor]:
    """Return E[max (`mean` + `slope` Z)] - max `mean`, with Z ~ N(0, 1): the knowledge gradient over q actions.

    Also return its derivatives (..., q) with respect to the slopes.  `mean` and `slope` are (..., q).  `similarity` is
    not used; it is an argument because other estimates of the knowledge gradient, which are called in the same way,
    need it.
    """
    lines = expected_max(mean, slope)
    return lines.gain, lines.density


DISCRETE = GainRule(None, discrete_gain, expected_gain)  # the rule for a maximum over a fixed set of actions


@cache
def _integral(n_z: int, spread: float, device: torch.device) -> ConvexIntegral:
    """Return the `ConvexIntegral` with `n_z` nodes, from a cache if it was built before.

    It estimates E[V(Z)] - V(0), Z ~ N(0, 1), from the tangents of a convex function V at the nodes.  The nodes are
    quantiles of a normal distribution with standard deviation `spread`.
    """
    return ConvexIntegral(quantile_nodes(n_z, spread).to(device))


@dataclass(frozen=True)
class HybridKG:
    """A recipe for the knowledge gradient, estimated from a few values of the standardized observation Z.

    For each of these values, a search finds the action that would be the best one after such an observation.  From the
    posterior means of these actions, the expectation over all Z is estimated.
    """

    n_z: int = 5  # number of values of Z
    spread: float = SPREAD  # standard deviation of the normal distribution whose quantiles these values are
    estimate: str = "best"  # "best" is the estimate of convex_integral.py, and "lower" the paper's lower bound KG_h

    def __post_init__(self) -> None:
        if self.n_z < 3 or self.n_z % 2 == 0:
            raise SettingError(f"`n_z` must be odd and at least 3, so that z = 0 is a node, but got {self.n_z}.")
        if self.estimate not in ("best", "lower"):
            raise SettingError(f"`estimate` must be 'best' or 'lower', but got {self.estimate!r}.")

    def build(self, belief: Belief, generator: torch.Generator) -> StateValue:
        """Build the object that computes knowledge gradients of candidates in states, for one belief."""
        integral = _integral(self.n_z, self.spread, belief.device)
        nodes = integral.nodes

        def combine(mean: Tensor, slope: Tensor, similarity: Tensor) -> tuple[Tensor, Tensor]:
            if self.estimate == "lower":
                lines = expected_max(mean, slope)
                return lines.gain, lines.density
            gains = integral(mean, slope, similarity)
            return gains.best, gains.slope_derivative

        return state_gains(belief, look_ahead_pool(belief, generator), GainRule(nodes, combine, expected_gain))


@dataclass(frozen=True)
class MonteCarloKG:
    """A recipe for the knowledge gradient as an average over random observations: unbiased but noisy."""

    n_z: int = 32  # number of random observations

    def __post_init__(self) -> None:
        if self.n_z < 1:
            raise SettingError(f"`n_z` must be at least 1, but got {self.n_z}.")

    def build(self, belief: Belief, generator: torch.Generator) -> StateValue:
        """Build the object that computes knowledge gradients of candidates in states, for one belief.

        The standardized random observations are drawn here, once. They are the same for all candidates and states.
        """
        samples = torch.randn(self.n_z, generator=generator, dtype=torch.float64)
        nodes = torch.cat([samples, torch.zeros(1, dtype=torch.float64)]).to(belief.device)  # zero gives μⁿ itself
        share = nodes / self.n_z

        def combine(mean: Tensor, slope: Tensor, similarity: Tensor) -> tuple[Tensor, Tensor]:
            value = (mean + slope * nodes)[..., :-1].mean(-1) - mean[..., -1]
            return value, share.expand_as(slope)

        return state_gains(belief, look_ahead_pool(belief, generator), GainRule(nodes, combine, expected_gain))


@dataclass(frozen=True)
class DiscreteKG:
    """A recipe for the discrete knowledge gradient: each state's best action is sought in a fixed random set."""

    n: int = 100  # number of actions

    def __post_init__(self) -> None:
        if self.n < 1:
            raise SettingError(f"`n` must be at least 1, but got {self.n}.")

    def build(self, belief: Belief, generator: torch.Generator) -> StateValue:
        """Build the object that computes knowledge gradients of candidates in states, for one belief.

        The random actions among which the best action is sought are drawn here, once. They are the same for all
        candidates and states.
        """
        d_x = belief.space.n_action_dims
        drawn = torch.rand(self.n, d_x, generator=generator, dtype=torch.float64).to(belief.device)
        return state_gains(belief, belief.spread_actions(drawn), DISCRETE)


def look_ahead_pool(belief: Belief, generator: torch.Generator) -> Tensor:
    """Return a pool of actions (p, d_x), from which searches for a state's best action start.

    It contains evenly spread actions, the observed actions with the highest rewards, and the actions that are currently
    best in states drawn from P[s].
    """
    spread = action_candidates(belief, 32 + 32 * min(belief.space.n_action_dims, 4), generator)
    states = belief.states.sample(POLICY_STATES, generator).to(belief.device)
    return torch.cat([spread, belief.of_most_probable(0).search(spread).best(states, starts=2).actions])
