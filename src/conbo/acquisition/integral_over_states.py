"""ConBO: the value of an observation in each state, integrated over the distribution of states P[s].

    ConBO(s, x) = ∫ KG_c(s'; (s, x)) P[s'] ds'

For finitely many states the integral is a sum.  For others (and for very many) it is a quadrature with a few states,
denser where the candidate matters:

- `StratifiedStates` (default): a fixed quasi-random pool that follows P[s] is ordered along a space-filling curve and
  cut, for every candidate, into cells of equal importance.  The importance of a state is a cheap estimate of its value.
  The middle state of each cell represents the cell, weighted by P[s] over its importance.  The better the estimate,
  the more similar the terms of the sum are.  Only a pool from P[s] is needed, so this also works for mixed states.  If
  there are only hundreds of states, all are in the pool.  A state that is more important than a cell represents only
  itself; the candidate's own state is such a state if states have little in common.
- `GaussianStates`: the paper's importance sampling from N(s_new, diag(l_s²)); states outside the space have weight
  zero.

Under an average of models (its members), the integral is the weighted sum of the members' integrals.  Sampled states
are divided among the members by weight, because the error of a member's integral counts only as much as the member. So
an average costs little more than one model.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor

from conbo.ascent import BatchedFunction
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.mixture import MixtureGains, weighted
from conbo.models.posterior import Averages, AveragesValues, KnowsSeeds, StateValue
from conbo.quasi_random import sobol

MOST_CLIMBED = 50  # up to this many states are summed exactly, also during local search
MOST_SUMMED = 300  # up to this many states are summed exactly for the final values
MOST_LISTED = 1000  # up to this many states are all in the pool
FLOOR = 0.05  # importance of a state that is not correlated with the candidate's state; a fully correlated state has 1
SIMILARITY_WEIGHT = 0.5  # weight of a state's similarity in its importance, relative to the rough estimate of its value
SCREENING_STATES = 32  # number of states that all screened candidates share
LEAST_SHARE = 0.25  # least share of the usual number of states that a member of little weight gets
LOOK_AGAIN = 2  # final values use this many times as many states as a local search
CURVE_BITS = 10


@dataclass(frozen=True)
class WeightedStates:
    """m states with weights for each of r candidates."""

    states: Tensor  # (r, m, d_s)
    weights: Tensor  # (r, m)


class StateValueRecipe(Protocol):
    """A recipe for a `StateValue`, such as a knowledge gradient."""

    def build(self, belief: Belief, generator: torch.Generator) -> StateValue:
        """Build the function that this recipe describes, for one belief."""


class StateRule(Protocol):
    """Chooses the states, with their weights, at which the integral for a candidate is computed."""

    @property
    def pool(self) -> Tensor:
        """States (p, d_s) that follow P[s] (or all of finitely many), shared by all candidates."""

    @property
    def pool_weights(self) -> Tensor:
        """Weights (p,) of the pool, which add up to one."""

    @property
    def complete(self) -> bool:
        """Whether the pool holds all states."""

    def around(self, states: Tensor, importance: Tensor | None = None, times: int = 1) -> WeightedStates:
        """States and weights for candidates in states (r, d_s); if states are sampled, `times` as many as usual.

        `importance` (r, p) holds the importance of each state of the pool for each candidate.
        """


class StateRuleRecipe(Protocol):
    """A recipe for a rule that chooses states."""

    def build(self, belief: Belief, generator: torch.Generator) -> StateRule:
        """Build the function that this recipe describes, for one belief."""

    def shared(self, share: float) -> Self:
        """This recipe with only a fraction of the states, if they are sampled."""


@dataclass(frozen=True)
class ExactStates:
    """The rule that takes all of finitely many states, each with its probability."""

    pool: Tensor  # (m, d_s)
    pool_weights: Tensor  # (m,)
    complete: ClassVar[bool] = True

    def around(self, states: Tensor, importance: Tensor | None = None, times: int = 1) -> WeightedStates:
        """All states, the same for every candidate."""
        r = len(states)
        return WeightedStates(self.pool.expand(r, -1, -1), self.pool_weights.expand(r, -1))


def exact_states(belief: Belief) -> ExactStates | None:
    """The rule that sums over all states, if there are few; otherwise None."""
    finite = belief.states.finite(MOST_CLIMBED)
    if finite is None:
        return None
    return ExactStates(finite[0].to(belief.device), finite[1].to(belief.device))


@dataclass(frozen=True)
class StratifiedStates:
    """A recipe for the rule that cuts a pool of states into cells of equal importance along a space-filling curve."""

    n_states: int = 20
    pool: int = 256

    def __post_init__(self) -> None:
        if not 1 <= self.n_states <= self.pool:
            raise SettingError(
                f"`1 <= n_states <= pool` must hold, but got n_states={self.n_states}, pool={self.pool}."
            )

    def shared(self, share: float) -> Self:
        """This recipe with only a fraction of the sampled states."""
        return replace(self, n_states=ceil(share * self.n_states), pool=ceil(share * self.pool))

    def build(self, belief: Belief, generator: torch.Generator) -> StateRule:
        """The rule for a belief: all states if there are few, else a pool ordered along a space-filling curve."""
        exact = exact_states(belief)
        if exact is not None:
            return exact
        listed = belief.states.finite(MOST_LISTED)
        if listed is None:
            seed = int(torch.randint(2**31, (1,), generator=generator))
            size = self.pool if belief.posterior.batches_look_ahead else min(self.pool, 4 * self.n_states)
            pool = belief.states.from_uniform(sobol(size, belief.n_state_dims, seed)).to(belief.device)
            weights = pool.new_full((size,), 1 / size)
        else:
            pool, weights = (part.to(belief.device) for part in listed)
        features = belief.posterior.state_features(pool)
        order = curve_order(features)
        return _Strata(belief, pool[order], weights[order], features[order], self.n_states, listed is not None)


class _Strata:
    def __init__(
        self, belief: Belief, pool: Tensor, weights: Tensor, features: Tensor, n_states: int, complete: bool
    ) -> None:
        self._belief, self._features, self._n = belief, features, n_states
        self.pool, self.pool_weights, self.complete = pool, weights, complete

    def around(self, states: Tensor, importance: Tensor | None = None, times: int = 1) -> WeightedStates:
        n, weights = min(times * self._n, len(self.pool)), self.pool_weights
        if self.complete and times > 1 and len(self.pool) <= MOST_SUMMED:
            return ExactStates(self.pool, weights).around(states)
        posterior = self._belief.posterior
        correlation = posterior.state_correlation(posterior.state_features(states), self._features)
        matters = _shares(correlation.square() + FLOOR)  # (r, p): values fall off about as the squared correlation
        if importance is not None:
            matters = _shares(importance.clamp_min(0)) + SIMILARITY_WEIGHT * matters
        chosen, stands_for = by_importance(matters * weights, n)
        return WeightedStates(self.pool[chosen], weights[chosen] * stands_for)


def by_importance(importance: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Indices (r, n) of n entries of each row of importances (r, p), and how many entries each of them represents.

    An entry with more than one n-th of the total importance represents itself.  The others are cut into cells of equal
    importance, each represented by its middle.
    """
    highest, order = importance.topk(n)
    alone = (n * highest > importance.sum(-1, keepdim=True)).sum(-1, keepdim=True)  # (r, 1), always below n
    place = torch.arange(n, device=importance.device)
    rest = importance.scatter(1, order, torch.where(place < alone, 0.0, highest))
    cell = rest.sum(-1, keepdim=True) / (n - alone)
    middle = torch.searchsorted(rest.cumsum(-1), (place - alone + 0.5).clamp_min(0) * cell)
    middle = middle.clamp_max(importance.shape[-1] - 1)
    stands_for = cell / rest.gather(1, middle).clamp_min(1e-300)
    return torch.where(place < alone, order, middle), torch.where(place < alone, 1.0, stands_for)


def _shares(importance: Tensor) -> Tensor:
    """The values scaled to a mean of one along the last dimension."""
    return importance / importance.mean(-1, keepdim=True).clamp_min(1e-300)


@dataclass(frozen=True)
class GaussianStates:
    """A recipe for the paper's rule: s_i ~ N(s_new, diag(l_s²)), weighted by P[s_i] / density; zero outside S."""

    n_states: int = 20

    def __post_init__(self) -> None:
        if self.n_states < 1:
            raise SettingError(f"`n_states` must be at least 1, but got {self.n_states}.")

    def shared(self, share: float) -> Self:
        """This recipe with only a fraction of the sampled states."""
        return replace(self, n_states=ceil(share * self.n_states))

    def build(self, belief: Belief, generator: torch.Generator) -> StateRule:
        """The rule with its standard normals drawn once (common random numbers)."""
        exact = exact_states(belief)
        if exact is not None:
            return exact
        if any(p.n_levels for p in belief.space.states.values()):
            return StratifiedStates(self.n_states).build(belief, generator)  # no Gaussian around a category
        draws = torch.randn(self.n_states, belief.n_state_dims, generator=generator, dtype=torch.float64)
        pool = belief.states.sample(SCREENING_STATES, generator).to(belief.device)
        return _GaussianRule(belief, draws.to(belief.device), belief.posterior.state_lengthscales, pool)


class _GaussianRule:
    def __init__(self, belief: Belief, draws: Tensor, lengthscales: Tensor, pool: Tensor) -> None:
        self._belief, self._draws, self._lengthscales = belief, draws, lengthscales
        self.pool, self.complete = pool, False
        self.pool_weights = pool.new_full((len(pool),), 1 / len(pool))

    def around(self, states: Tensor, importance: Tensor | None = None, times: int = 1) -> WeightedStates:
        proposed = states[:, None] + self._draws * self._lengthscales
        inside = ((proposed >= 0) & (proposed <= 1)).all(-1)
        proposed = proposed.clamp(0, 1)
        normal = torch.distributions.Normal(0.0, 1.0)
        density = (normal.log_prob(self._draws) - self._lengthscales.log()).sum(-1).exp()
        weights = torch.where(inside, self._belief.states.density(proposed.cpu()).to(states) / density, 0.0)
        return WeightedStates(proposed, weights / len(self._draws))


def curve_order(features: Tensor) -> Tensor:
    """The order (p,) of points (p, f) along a Morton curve; all columns are scaled by the longest side of their box."""
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
    """A recipe for ConBO: a `StateValue` integrated over states, as an acquisition function of (state, action)."""

    value: StateValueRecipe
    states: StateRuleRecipe = StratifiedStates()

    def build(self, belief: Belief, generator: torch.Generator) -> "ConditionalAcquisition | AveragedAcquisition":
        """Build the function that this recipe describes, for one belief."""
        value = self.value.build(belief, generator)
        if not isinstance(value, AveragesValues):
            return ConditionalAcquisition(belief, value, self.states.build(belief, generator))
        assert isinstance(belief.posterior, Averages)
        parts = []
        for own, posterior, weight in zip(value.values, belief.posterior.members, value.weights.tolist(), strict=True):
            member, share = replace(belief, posterior=posterior), max(weight, LEAST_SHARE)
            rule = self.states.shared(share).build(member, generator)
            parts.append(ConditionalAcquisition(member, own, rule, ceil(share * SCREENING_STATES)))
        return AveragedAcquisition(value.weights, tuple(parts))


class ConditionalAcquisition:
    """The acquisition function ConBO(s, x), an integral over states, under one belief."""

    climbs_logarithm = False

    def __init__(
        self, belief: Belief, value: StateValue, rule: StateRule, screening_states: int = SCREENING_STATES
    ) -> None:
        self._d_s, self.value, self.rule, self._belief = belief.n_state_dims, value, rule, belief
        self._screening_states = screening_states
        self._at_all_states = rule.complete and belief.posterior.batches_look_ahead
        # whether its gains look ahead at learned constraints
        self.includes_constraints: bool = getattr(value, "includes_constraints", False)

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The observed seeds; empty if the value does not depend on seeds."""
        return self.value.seen_seeds if isinstance(self.value, KnowsSeeds) else ()

    def for_seeds(self, seeds: Tensor) -> "ConditionalAcquisition":
        """The same function for observations with these seeds (c,), one for each of the c points it is called with."""
        assert isinstance(self.value, KnowsSeeds)
        return ConditionalAcquisition(self._belief, self.value.for_seeds(seeds), self.rule, self._screening_states)

    @cached_property
    def _importance(self) -> Callable[[Tensor], Tensor]:
        return self.value.rough(self.rule.pool)

    def screen(self, points: Tensor) -> Tensor:
        """Rough values (c,) of points (c, d), at a few shared states, or at all states if there are few."""
        if self._at_all_states:
            return self._importance(points) @ self.rule.pool_weights
        every = max(1, len(self.rule.pool) // self._screening_states)
        states, weights = self.rule.pool[::every], self.rule.pool_weights[::every]
        return self.value.rough(states)(points) @ (weights / weights.sum())

    def __call__(self, points: Tensor) -> Tensor:
        """Full values (c,) of points (c, d), with more states around each than in a local search."""
        return self.integral(points, LOOK_AGAIN)

    def integral(self, points: Tensor, times: int = 1) -> Tensor:
        """The integral over states (c,) at points (c, d), with `times` as many states as usual."""
        chosen = self.states_of(points, times)
        gains = self.value.at(chosen.states)(points, torch.arange(len(points), device=points.device))
        return (chosen.weights * gains.values).sum(-1)

    def states_of(self, points: Tensor, times: int = 1) -> WeightedStates:
        """States and weights for the integral at each of points (c, d)."""
        return self.rule.around(points[:, : self._d_s], self._importance(points), times)

    def local(self, starts: Tensor) -> BatchedFunction:
        """A function that gives values and gradients near starts (r, d), with the states of each start held fixed."""
        chosen = self.states_of(starts)
        ahead = self.value.at(chosen.states)

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            gains, weights = ahead(points, rows), chosen.weights[rows]
            return (weights * gains.values).sum(-1), gains.gradient(weights)

        return function


@dataclass(frozen=True)
class AveragedAcquisition:
    """ConBO(s, x) under an average of models: the weighted sum over its members, each with its own states."""

    weights: Tensor  # (members,)
    parts: tuple[ConditionalAcquisition, ...]  # one for each member
    climbs_logarithm: ClassVar[bool] = False

    @property
    def value(self) -> StateValue:
        """The `StateValue` under the average of models."""
        return MixtureGains(tuple(part.value for part in self.parts), self.weights)

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The observed seeds that matter to some member."""
        return max((part.seen_seeds for part in self.parts), key=len)

    def for_seeds(self, seeds: Tensor) -> "AveragedAcquisition":
        """The same function for observations with these seeds; members without seeds stay as they are."""
        known = (part.for_seeds(seeds) if isinstance(part.value, KnowsSeeds) else part for part in self.parts)
        return AveragedAcquisition(self.weights, tuple(known))

    def screen(self, points: Tensor) -> Tensor:
        """Rough values (c,) of points (c, d)."""
        return weighted(self.weights, [part.screen(points) for part in self.parts])

    def __call__(self, points: Tensor) -> Tensor:
        """Full values (c,) of points (c, d)."""
        return self.integral(points, LOOK_AGAIN)

    def integral(self, points: Tensor, times: int = 1) -> Tensor:
        """The integral over states (c,) at points (c, d), with `times` as many states as usual."""
        return weighted(self.weights, [part.integral(points, times) for part in self.parts])

    def local(self, starts: Tensor) -> BatchedFunction:
        """A function that gives values and gradients near starts (r, d), with the states of each start held fixed."""
        functions = [part.local(starts) for part in self.parts]

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            values, gradients = zip(*(one(points, rows) for one in functions), strict=True)
            return weighted(self.weights, values), weighted(self.weights, gradients)

        return function
