"""The states and weights of the quadrature with which the acquisition function ConBO integrates over P[s].

If there are only a few states, the integral is a sum over all of them.  Otherwise, it is a weighted sum over some
states, which are denser where the value of an observation is likely to be high.  Two recipes choose these states:

- `StratifiedStates` (default): a quasi-random pool of states that follows P[s] is ordered along a space-filling curve.
  For every candidate, the pool is cut into cells of equal importance.  The importance of a state is its probability
  times a weighted sum of two terms: a rough estimate of the candidate's value in this state, and the squared
  correlation between this state and the candidate's own state.  The middle state of each cell represents the cell, with
  a weight proportional to P[s] / importance.  A state that is more important than a whole cell represents only itself.
  State parameters may be real or categorical.  If there are only hundreds of states, all of them are in the pool.
- `GaussianStates`: the ConBO paper's importance sampling from N(s, diag(l_s²)), where l_s are the lengthscales of the
  states; sampled states outside the space have weight zero.
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.quasi_random import sobol

MOST_CLIMBED = 50  # largest number of states up to which the sum is over all of them, also during local search
MOST_SUMMED = 300  # largest number of states up to which the final values are sums over all of them
MOST_LISTED = 1000  # largest number of states up to which all of them are in the pool
FLOOR = 0.05  # added to the squared correlation with the candidate's state, so that no state has importance zero
SIMILARITY_WEIGHT = 0.5  # weight of this correlation in the importance, relative to the rough estimate of the value
SCREENING_STATES = 32  # number of states at which candidates are screened, the same for all candidates
CURVE_BITS = 10  # bits per column of the positions along the space-filling curve


@dataclass(frozen=True)
class WeightedStates:
    """For each of r candidates, m states and their weights, with which an integral over states is approximated."""

    states: Tensor  # (r, m, d_s)
    weights: Tensor  # (r, m)


class StateRule(Protocol):
    """Chooses the states and weights of the quadrature by which an acquisition function is integrated over states."""

    @property
    def pool(self) -> Tensor:
        """States (p, d_s) that represent P[s]: a sample from it, or all states.

        Candidates are screened in some of these states, and a rule may choose the states of the quadrature from them.
        """

    @property
    def pool_weights(self) -> Tensor:
        """Probabilities (p,) of the states in the pool; their sum is one."""

    @property
    def complete(self) -> bool:
        """Whether the weighted sum over the pool is the integral itself, not an estimate of it."""

    def around(self, states: Tensor, importance: Tensor | None = None, times: int = 1) -> WeightedStates:
        """Choose, for each of r candidates, the states and weights with which its integral over states is computed.

        `states` (r, d_s) are the candidates' own states.  `importance` (r, p) is a rough estimate of each candidate's
        value in each of the p states of the pool; None if there is no estimate.  With `times` = 2, twice as many
        states are chosen as by default.  A rule may ignore `importance` and `times`.
        """


class StateRuleRecipe(Protocol):
    """A recipe for a rule that chooses the states and weights of a quadrature over states."""

    def build(self, belief: Belief, generator: torch.Generator) -> StateRule:
        """Build the rule that chooses states and weights, from a belief, which is what is known so far."""

    def shared(self, share: float) -> Self:
        """Return the recipe for a cheaper rule, which chooses `share` (at most 1) times as many states.

        It is used for averages of models, in which a model with a small weight gets few states.
        """


@dataclass(frozen=True)
class ExactStates:
    """The rule for an integral over finitely many states: take all of them, weighted by their probabilities."""

    pool: Tensor  # (m, d_s)
    pool_weights: Tensor  # (m,)
    complete: ClassVar[bool] = True

    def around(self, states: Tensor, importance: Tensor | None = None, times: int = 1) -> WeightedStates:
        """Return all states and their probabilities, the same for each of r candidates in states (r, d_s).

        `importance` and `times` are ignored, because no states are left out.
        """
        r = len(states)
        return WeightedStates(self.pool.expand(r, -1, -1), self.pool_weights.expand(r, -1))


def exact_states(belief: Belief) -> ExactStates | None:
    """Return the rule that integrates over all states if there are few of them; otherwise None."""
    finite = belief.states.finite(MOST_CLIMBED)
    if finite is None:
        return None
    return ExactStates(finite[0].to(belief.device), finite[1].to(belief.device))


@dataclass(frozen=True)
class StratifiedStates:
    """A recipe for stratified states: a pool of states is cut into cells, and one state represents each cell.

    The cells have equal importance.  The importance of a state grows with its probability, with a rough estimate of a
    candidate's value there, and with its correlation with the candidate's state.
    """

    n_states: int = 20  # number of cells
    pool: int = 256  # number of states in the pool

    def __post_init__(self) -> None:
        if not 1 <= self.n_states <= self.pool:
            raise SettingError(
                f"`1 <= n_states <= pool` must hold, but got n_states={self.n_states}, pool={self.pool}."
            )

    def shared(self, share: float) -> Self:
        """Return a cheaper recipe, with `share` times as many cells, and `share` times as many states in the pool."""
        return replace(self, n_states=ceil(share * self.n_states), pool=ceil(share * self.pool))

    def build(self, belief: Belief, generator: torch.Generator) -> StateRule:
        """Build the rule that chooses states, for one belief; if there are few states, it takes all of them."""
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
        matters = _scaled(correlation.square() + FLOOR)  # (r, p): values decrease about as the squared correlation does
        if importance is not None:
            matters = _scaled(importance.clamp_min(0)) + SIMILARITY_WEIGHT * matters
        chosen, stands_for = by_importance(matters * weights, n)
        return WeightedStates(self.pool[chosen], weights[chosen] * stands_for)


def by_importance(importance: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Choose n representatives of p states for each of r candidates, given the importance (r, p) of each state.

    Return the indices (r, n) of the chosen states, and their weights (r, n): the weighted sum over the chosen states
    approximates the sum over all p states.  A state with more than 1/n of the total importance is always chosen, with
    weight 1.  The other states, in the given order, are divided into cells of equal importance, and the middle state of
    each cell stands for the whole cell.  The weight of this state is the importance of the cell, divided by the
    importance of the state.
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


def _scaled(importance: Tensor) -> Tensor:
    """Scale values to a mean of one along the last dimension."""
    return importance / importance.mean(-1, keepdim=True).clamp_min(1e-300)


@dataclass(frozen=True)
class GaussianStates:
    """A recipe for the ConBO paper's importance sampling: states s_i ~ N(s, diag(l_s²)) around the candidate's state s.

    Here, l_s are the lengthscales of the states.  The weight of s_i is P[s_i], divided by the normal density and by the
    number of sampled states.  It is zero if s_i is outside the space.
    """

    n_states: int = 20  # number of sampled states

    def __post_init__(self) -> None:
        if self.n_states < 1:
            raise SettingError(f"`n_states` must be at least 1, but got {self.n_states}.")

    def shared(self, share: float) -> Self:
        """Return a cheaper recipe, with `share` times as many sampled states."""
        return replace(self, n_states=ceil(share * self.n_states))

    def build(self, belief: Belief, generator: torch.Generator) -> StateRule:
        """Build the rule that chooses the states, for one belief.

        The first of these cases that applies decides what the rule does:

        - If there are few states, take all of them.
        - If some state parameter is categorical or an integer, use the rule of `StratifiedStates`.
        - Otherwise, sample states, with the same standard normal draws for all candidates.
        """
        exact = exact_states(belief)
        if exact is not None:
            return exact
        if any(p.n_levels for p in belief.space.states.values()):
            return StratifiedStates(self.n_states).build(belief, generator)  # categories have no normal distribution
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
    """Return the indices (p,) that sort p points with f columns (p, f) along a space-filling curve (Morton order)."""
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
