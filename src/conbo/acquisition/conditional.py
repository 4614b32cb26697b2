"""ConBO: a value per state, integrated over the distribution of states.

    ConBO(s, x) = ∫ KG_c(s'; (s, x)) P[s'] ds'

For finitely many states the integral is a sum.  For others (and very many) it is a quadrature with a few states,
denser where the candidate matters:

- `StratifiedStates` (default): a fixed quasi-random pool that follows P[s] is laid out along a space-filling curve
  and cut, for every candidate, into cells of equal importance, importance being a cheap estimate of the value
  itself.  The middle state of each cell stands for it, weighted by P[s] over its importance: the better the
  estimate, the more alike the terms of the sum.  It needs nothing of P[s] but a pool, and mixed states are no
  different from others.
- `GaussianStates`: the paper's importance sampling from N(s_new, diag(l_s²)), where states outside are lost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from conbo.ascent import BatchedFunction
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.posterior import Posterior
from conbo.state_distributions import sobol

MOST_STATES = 300  # finitely many states are summed exactly up to this number
FLOOR = 0.05  # importance of a state that is unlike the candidate's, where one that is alike has 1
DOUBT = 0.5  # weight of likeness beside the estimate of the value itself, which may be wrong
EVERY = 4  # one in so many states of the pool is asked for its importance while climbing
CURVE_BITS = 10


# states (r, p, d_s), p of them for each candidate → rough values there (r, p)
Importance = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class WeightedStates:
    """m states with weights for each of r candidates."""

    states: Tensor  # (r, m, d_s)
    weights: Tensor  # (r, m)


class StateGains(Protocol):
    """Values (k, m) of k candidates at m states each."""

    @property
    def values(self) -> Tensor:
        """(k, m)."""

    def gradient(self, weights: Tensor) -> Tensor:
        """Gradient (k, d) in the candidates of Σ_i weights[:, i] values[:, i]."""


class StateValue(Protocol):
    """A value per state of a new observation elsewhere, such as KG_c, under one belief."""

    def screen(self, candidates: Tensor, states: Tensor) -> Tensor:
        """Cheap estimates (r, m) for candidates (r, d) and states (r, m, d_s)."""

    def at(self, states: Tensor) -> Callable[[Tensor, Tensor], StateGains]:
        """For r sets of states (r, m, d_s): (candidates (k, d), which set each belongs to (k,)) → gains."""


class StateValueRecipe(Protocol):
    """A recipe for such a value."""

    def build(self, belief: Belief, generator: torch.Generator) -> StateValue:
        """Ready for use under one belief."""


class StateRule(Protocol):
    """Chooses states and weights around a candidate's state."""

    def around(
        self, states: Tensor, n: int | None = None, importance: Importance | None = None, every: int = 1
    ) -> WeightedStates:
        """For candidates' states (r, d_s).

        n overrides the number of states; `importance` says where they matter, asked at one in `every` states.
        """


class StateRuleRecipe(Protocol):
    """A recipe for such a rule."""

    def build(self, belief: Belief, generator: torch.Generator) -> StateRule:
        """Ready for use under one belief."""


@dataclass(frozen=True)
class ExactStates:
    """All of finitely many states, each with its probability."""

    states: Tensor  # (m, d_s)
    probabilities: Tensor  # (m,)

    def around(
        self, states: Tensor, n: int | None = None, importance: Importance | None = None, every: int = 1
    ) -> WeightedStates:
        """The same for every candidate."""
        r = len(states)
        return WeightedStates(self.states.expand(r, -1, -1), self.probabilities.expand(r, -1))


def exact_states(belief: Belief) -> ExactStates | None:
    """The exact sum, where states are few."""
    finite = belief.states.finite(MOST_STATES)
    if finite is None:
        return None
    return ExactStates(finite[0].to(belief.device), finite[1].to(belief.device))


@dataclass(frozen=True)
class StratifiedStates:
    """Cells of equal importance along a space-filling curve."""

    n_states: int = 20
    pool: int = 256

    def __post_init__(self) -> None:
        if not 1 <= self.n_states <= self.pool or self.pool % EVERY:
            raise SettingError(
                f"`1 <= n_states <= pool` and a pool divisible by {EVERY} are needed, "
                f"but got n_states={self.n_states}, pool={self.pool}."
            )

    def build(self, belief: Belief, generator: torch.Generator) -> StateRule:
        """Lay out the pool."""
        exact = exact_states(belief)
        if exact is not None:
            return exact
        seed = int(torch.randint(2**31, (1,), generator=generator))
        # a BoTorch model is asked pair by pair: fewer states must do for it
        size = self.pool if isinstance(belief.posterior, Posterior) else min(self.pool, EVERY * self.n_states)
        pool = belief.states.from_uniform(sobol(size, belief.n_state_dims, seed)).to(belief.device)
        scaled = state_features(belief, pool)
        order = curve_order(scaled)
        return _Strata(belief, pool[order], scaled[order], self.n_states)


class _Strata:
    def __init__(self, belief: Belief, pool: Tensor, features: Tensor, n_states: int) -> None:
        self._belief, self._pool, self._features, self._n = belief, pool, features, n_states

    def around(
        self, states: Tensor, n: int | None = None, importance: Importance | None = None, every: int = 1
    ) -> WeightedStates:
        n = min(n or self._n, len(self._pool))
        likeness = state_likeness(self._belief, state_features(self._belief, states), self._features)
        matters = likeness.square() + FLOOR  # (r, pool): KG falls off about as the squared correlation
        if importance is not None:
            # neighbours along the curve are taken to be alike
            probed = importance(self._pool[every // 2 :: every].expand(len(states), -1, -1)).clamp_min(0)
            values = probed.repeat_interleave(every, -1)
            matters = _shares(values) + DOUBT * _shares(matters)
        total = matters.sum(-1, keepdim=True)
        marks = (torch.arange(n, dtype=total.dtype, device=total.device) + 0.5) / n
        middle = torch.searchsorted(matters.cumsum(-1), marks * total).clamp_max(len(self._pool) - 1)
        weights = total / (n * len(self._pool) * matters.gather(1, middle))
        return WeightedStates(self._pool[middle], weights)


def _shares(importance: Tensor) -> Tensor:
    """Scaled to a mean of one along the last dimension."""
    return importance / importance.mean(-1, keepdim=True).clamp_min(1e-300)


@dataclass(frozen=True)
class GaussianStates:
    """The paper's proposal: s_i ~ N(s_new, diag(l_s²)), weighted by P[s_i] / density, zero outside the space."""

    n_states: int = 20

    def __post_init__(self) -> None:
        if self.n_states < 1:
            raise SettingError(f"`n_states` must be at least 1, but got {self.n_states}.")

    def build(self, belief: Belief, generator: torch.Generator) -> StateRule:
        """Draw the standard normals once: common random numbers."""
        exact = exact_states(belief)
        if exact is not None:
            return exact
        if any(p.n_levels for p in belief.space.states.values()):
            return StratifiedStates(self.n_states).build(belief, generator)  # no Gaussian around a category
        draws = torch.randn(self.n_states, belief.n_state_dims, generator=generator, dtype=torch.float64)
        return _GaussianRule(belief, draws.to(belief.device), _state_lengthscales(belief))


class _GaussianRule:
    def __init__(self, belief: Belief, draws: Tensor, lengthscales: Tensor) -> None:
        self._belief, self._draws, self._lengthscales = belief, draws, lengthscales

    def around(
        self, states: Tensor, n: int | None = None, importance: Importance | None = None, every: int = 1
    ) -> WeightedStates:
        draws = self._draws[: n or len(self._draws)]
        proposed = states[:, None] + draws * self._lengthscales
        inside = ((proposed >= 0) & (proposed <= 1)).all(-1)
        proposed = proposed.clamp(0, 1)
        normal = torch.distributions.Normal(0.0, 1.0)
        density = (normal.log_prob(draws) - self._lengthscales.log()).sum(-1).exp()
        weights = torch.where(inside, self._belief.states.density(proposed.cpu()).to(states) / density, 0.0)
        return WeightedStates(proposed, weights / len(draws))


def _state_lengthscales(belief: Belief) -> Tensor:
    posterior = belief.posterior
    if isinstance(posterior, Posterior):
        return posterior.kernel.states.lengthscales
    return torch.full((belief.n_state_dims,), 0.3, dtype=torch.float64, device=belief.device)


def state_features(belief: Belief, states: Tensor) -> Tensor:
    """States (..., d_s) in units in which distances mean likeness."""
    posterior = belief.posterior
    if isinstance(posterior, Posterior):
        return posterior.kernel.states.scaled(states)
    return states / _state_lengthscales(belief)


def state_likeness(belief: Belief, a: Tensor, b: Tensor) -> Tensor:
    """Correlation between states, from 0 to 1, given as features."""
    posterior = belief.posterior
    if isinstance(posterior, Posterior):
        own = posterior.kernel.scale(b[:1], b[:1])
        return posterior.kernel.scale(a, b) / own
    return torch.exp(-torch.cdist(a, b).square() / 2)


def curve_order(features: Tensor) -> Tensor:
    """Order points (p, f) along a Morton curve through their bounding box, the box keeping its proportions."""
    low, high = features.amin(0), features.amax(0)
    longest = (high - low).amax().clamp_min(1e-300)
    cells = ((features - low) / longest * (2**CURVE_BITS - 1)).long()
    f = features.shape[-1]
    if f == 1:
        return features[:, 0].argsort(stable=True)
    bits = min(CURVE_BITS, 62 // f)
    code = torch.zeros(len(features), dtype=torch.long, device=features.device)
    for bit in range(CURVE_BITS - 1, CURVE_BITS - 1 - bits, -1):
        for column in range(f):
            code = (code << 1) | ((cells[:, column] >> bit) & 1)
    return code.argsort(stable=True)


@dataclass(frozen=True)
class ConBO:
    """The integral of a per-state value over states, as an acquisition over (state, action)."""

    value: StateValueRecipe
    states: StateRuleRecipe = StratifiedStates()
    screening_states: int = 8

    def build(self, belief: Belief, generator: torch.Generator) -> "ConditionalAcquisition":
        """Ready for use under one belief."""
        return ConditionalAcquisition(
            belief, self.value.build(belief, generator), self.states.build(belief, generator), self.screening_states
        )


class ConditionalAcquisition:
    """ConBO(s, x) under one belief."""

    climbs_logarithm = False

    def __init__(self, belief: Belief, value: StateValue, rule: StateRule, screening_states: int) -> None:
        self._d_s, self.value, self.rule = belief.n_state_dims, value, rule
        self._screening_states = screening_states

    def screen(self, points: Tensor) -> Tensor:
        """Cheap estimates (c,) for points (c, d): few states, no climbing."""
        chosen = self.rule.around(points[:, : self._d_s], self._screening_states)
        return (chosen.weights * self.value.screen(points, chosen.states)).sum(-1)

    def __call__(self, points: Tensor) -> Tensor:
        """Full estimates (c,) for points (c, d), states chosen around each."""
        chosen = self.states_of(points)
        gains = self.value.at(chosen.states)(points, torch.arange(len(points), device=points.device))
        return (chosen.weights * gains.values).sum(-1)

    def states_of(self, points: Tensor, every: int = 1) -> WeightedStates:
        """States and weights for the integral at each of points (c, d)."""
        return self.rule.around(
            points[:, : self._d_s], importance=lambda states: self.value.screen(points, states), every=every
        )

    def local(self, starts: Tensor) -> BatchedFunction:
        """Values and gradients near starts (r, d), with the states chosen around each start held fixed."""
        chosen = self.states_of(starts, EVERY)
        ahead = self.value.at(chosen.states)

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            gains, weights = ahead(points, rows), chosen.weights[rows]
            return (weights * gains.values).sum(-1), gains.gradient(weights)

        return function
