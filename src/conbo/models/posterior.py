"""What a posterior can do: a protocol of small capabilities that every fitted model offers.

It is implemented by `ExactPosterior` and its variants (built-in Gaussian processes), `Mixture` (an average of models)
and `BotorchPosterior` (single-output BoTorch models with an exact marginal likelihood), among others.  Callers use the
capabilities and never check the class.  Methods whose return type allows None return it when the capability is missing,
and the caller tells the user what that means.

======================  ===========================================================================================
capability              who asks for it
======================  ===========================================================================================
moments at points       improvement methods, bounds, plots, predictions
search over actions     policies, and every method that needs the best action of a state
gains of states         knowledge gradients: what one more reward is expected to bring in other states
correlation of states   the integral over states, the policy's memory of similar states
draws of paths          entropy search, posterior sampling, plots of the policy's uncertainty
plain records           saved policies, the page of a report
======================  ===========================================================================================

Rewards are in the standardized units that the model was fitted in, points are in the unit cube, states first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from conbo.models.fit_memory import FitMemory
from conbo.observations import Observations
from conbo.spaces import Space

# lines mean + slope z (..., q), similarity of neighbors (..., q-1) → value (...), ∂value/∂slope (..., q)
Combine: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Moments:
    """Posterior mean and variance of n points with their gradients in the unit cube."""

    mean: Tensor  # (n,)
    variance: Tensor  # (n,)
    mean_gradient: Tensor  # (n, d)
    variance_gradient: Tensor  # (n, d)


@dataclass(frozen=True)
class BestActions:
    """For each of m states: the best action found, its mean, and the ends of all k local searches."""

    actions: Tensor  # (m, d_x), unit cube
    mean: Tensor  # (m,)
    basins: Tensor  # (m, k, d_x), unit cube

    @classmethod
    def of_climbs(cls, ends: Tensor, mean: Tensor) -> "BestActions":
        """The best of the ends (m, k, d_x) of k local searches in each state, by their means (m, k)."""
        best = mean.argmax(-1, keepdim=True)
        chosen = ends.gather(1, best[..., None].expand(-1, -1, ends.shape[-1]))[:, 0]
        return cls(chosen, mean.gather(1, best)[:, 0], ends)

    @classmethod
    def joined(cls, parts: "Sequence[BestActions]") -> "BestActions":
        """The best actions of several sets of states, joined into one record."""
        return cls(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    def select(self, rows: Tensor) -> "BestActions":
        """The best actions of the states with these indices."""
        return BestActions(self.actions[rows], self.mean[rows], self.basins[rows])


@dataclass(frozen=True)
class GainRule:
    """How a gain is computed from lines mean + slope z, the look-ahead means of single actions in one state.

    If `nodes` is None, every action of the pool is a line.  Otherwise each node z has one line, from the action that is
    best at this z.
    """

    nodes: Tensor | None  # (q,)
    combine: Combine
    rough: Callable[[Tensor, Tensor], Tensor]  # mean and slope (..., lines) → roughly the gain (...)


class StateGains(Protocol):
    """Values (k, m) of k candidates at m states each."""

    @property
    def values(self) -> Tensor:
        """Values (k, m) of candidates at states."""

    def gradient(self, weights: Tensor) -> Tensor:
        """Gradient (k, d) of Σ_i weights[:, i] values[:, i] with respect to the candidates."""


class StateValue(Protocol):
    """The value, in each of many states, of one new observation, such as a knowledge gradient."""

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Prepare shared states (m, d_s); the result is a function from candidates (r, d) to rough values (r, m)."""

    def at(self, states: Tensor) -> Callable[[Tensor, Tensor], StateGains]:
        """Prepare sets of states (r, m, d_s); the result maps candidates (k, d) and indices of their sets to gains."""


@runtime_checkable
class KnowsSeeds(Protocol):
    """A `StateValue` that depends on the seed of the new observation."""

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The observed seeds; empty if the value does not depend on seeds."""

    def for_seeds(self, seeds: Tensor) -> StateValue:
        """The value of new observations with these seeds: (1,) for all candidates, or one for each of them."""


@runtime_checkable
class AveragesValues(Protocol):
    """A `StateValue` that is the weighted sum of several others."""

    @property
    def values(self) -> tuple[StateValue, ...]:
        """The values that are summed up."""

    @property
    def weights(self) -> Tensor:
        """Weights (members,) of the summed values."""


@dataclass(frozen=True)
class LineGains:
    """Gains (k, m) computed from lines, with their derivative with respect to the slopes of the lines."""

    values: Tensor  # (k, m)
    derivative: Tensor  # (k, m, q)
    lines: "LookAheadLines"

    def gradient(self, weights: Tensor) -> Tensor:
        """Gradient (k, d) of Σ_i weights[:, i] values[:, i] with respect to the candidates, for fixed best actions."""
        return self.lines.gradient(self.derivative * weights[..., None])


class LookAheadLines(Protocol):
    """How the means at q points of each of m states would change with one more reward: mean + slope z."""

    @property
    def mean(self) -> Tensor:
        """Intercepts (k, m, q) of the lines."""

    @property
    def slope(self) -> Tensor:
        """Slopes (k, m, q) of the lines."""

    def gradient(self, pull: Tensor) -> Tensor:
        """Gradient (k, d) of Σ pull · slope with respect to the candidates, for pull (k, m, q) and fixed points."""


class BestSearch(Protocol):
    """A search for the best actions of states, which starts from a pool of actions."""

    @property
    def actions(self) -> Tensor:
        """The pool (p, d_x), in the unit cube."""

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        """Search for the actions with the highest posterior mean in states (m, d_s)."""


class ActionSearch(BestSearch, Protocol):
    """A search over actions under one posterior, which also computes gains of states."""

    def gains(self, rule: GainRule) -> StateValue:
        """Expected gains of states; searches for look-ahead maxima start from the pool."""


class Paths(Protocol):
    """Functions drawn from one posterior."""

    @property
    def n(self) -> int:
        """Number of functions."""

    def __call__(self, points: Tensor) -> Tensor:
        """All draws at points (p, d): (p, n)."""

    def along(self, points: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Values (p,) and gradients (p, d) at points (p, d); point i uses draw `draws[i]`."""


class Predicts(Protocol):
    """The capability to predict: moments of the posterior at points."""

    @property
    def n_state_dims(self) -> int:
        """Number of state columns, which come first in a point."""

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean of points (n, d)."""

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance of the noise-free reward at points (n, d)."""

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance between points a (p, d) and b (q, d)."""

    def prior_variance(self, states: Tensor) -> Tensor:
        """Variance (c,) of a reward in states (c, d_s) before any observation: the scale of rounding errors."""

    def joint(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (c, p) and covariance (c, p, p) of each of c sets of points (c, p, d)."""

    def moments(self, points: Tensor) -> Moments:
        """Mean, variance and their gradients at points (n, d)."""

    def mean_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (n,) of points (n, d) and its gradient (n, d)."""

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances of the noise of new rewards at points (n, d)."""

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Gradients (n, d) of the noise variances of new rewards."""

    def leave_one_out(self) -> tuple[Tensor, Tensor] | None:
        """Leave-one-out residuals (n,) and predictive standard deviations (n,), noise included; None if unavailable."""


class ComparesStates(Protocol):
    """How similar states are; similar states have similar best actions."""

    @property
    def state_lengthscales(self) -> Tensor:
        """Distances (d_s,) in the unit cube over which rewards change with the state."""

    def state_features(self, states: Tensor) -> Tensor:
        """States (..., d_s) as features; the closer two of these are, the more similar their states are."""

    def state_correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """Correlations (p, q) between states, given as features: how similarly their rewards depend on the action."""

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Which states (m, d_s) resemble one of the known states (k, d_s), so that its best action is a good start."""

    def similarity(self, points: Tensor, chosen: Tensor) -> Tensor:
        """How much a reward at each chosen point (q, d) already says about each point (p, d): (p, q), from 0 to 1."""


class LooksAhead(Protocol):
    """How one more reward would change the posterior."""

    @property
    def batches_look_ahead(self) -> bool:
        """Whether look-ahead at thousands of pairs of points takes milliseconds; if not, callers use fewer pairs."""

    def even_actions(self, actions: Tensor) -> Tensor:
        """Actions (p, d_x), some of them moved; the moved ones are evenly spread after input warping."""

    def action_search(self, space: Space, actions: Tensor) -> ActionSearch:
        """A search over actions that starts from a pool (p, d_x)."""

    def look_ahead_lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> LookAheadLines:
        """Look-ahead lines mean + slope z of actions (k, m, q, d_x) in states (k, m, d_s), for candidates (k, d)."""

    def look_ahead_slopes(self, candidates: Tensor, points: Tensor) -> Tensor:
        """Slopes σ̃ (c, p) of the look-ahead means at points (p, d), for every candidate (c, d)."""

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> Paths | None:
        """n functions drawn from the posterior, by `features` features of the prior; None if this is impossible."""


class KeepsRecords(Protocol):
    """The posterior as plain values, which JSON can hold."""

    def record(self) -> dict[str, Any] | None:
        """The values that a saved policy needs in addition to the observations; None if the model cannot be saved."""

    def page_record(self, space: Space) -> dict[str, Any] | None:
        """The values that a report's page needs to compute the posterior; None if the page shows a table instead."""

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> "Posterior | None":
        """The same hyperparameters with other observations.

        `noise` (n,) holds variances if they are known, and `seeds` (n,) the rewards' seeds if they have any.
        """


class Posterior(Predicts, ComparesStates, LooksAhead, KeepsRecords, Protocol):
    """A fitted model, with all of the capabilities above."""


@runtime_checkable
class Averages(Protocol):
    """A posterior that is the average of several, the most probable first."""

    @property
    def members(self) -> tuple[Posterior, ...]:
        """The posteriors that are averaged."""

    def most_probable(self, share: float) -> Posterior:
        """The fewest most probable members whose weights reach `share`, averaged; one member is returned as it is."""


@runtime_checkable
class ImaginesRewards(Protocol):
    """A posterior that can be conditioned on imagined rewards with given seeds."""

    def imagined(self, points: Tensor, seeds: Tensor) -> Posterior:
        """The posterior after imagined rewards at points (k, d) with seeds (k,), each equal to its expectation."""


class Model(Protocol):
    """The type of a model: anything that can be fitted to rewards, such as `GaussianProcess`.

    Examples
    --------
    >>> model: conbo.Model = conbo.GaussianProcess()
    """

    def fit(self, space: Space, observations: Observations) -> Posterior:
        """Fit the model.

        Parameters
        ----------
        space
            States and actions.
        observations
            Points in the unit cube and standardized rewards.

        Returns
        -------
        Posterior
            The fitted model, as the rest of conbo uses it.
        """


@runtime_checkable
class FitsInSteps(Protocol):
    """A model whose hyperparameters are fitted to the first rewards only, so that one fit serves many suggestions."""

    def fitted_rewards(self, n: int) -> int:
        """How many rewards, the first of n, hyperparameters are fitted to; all rewards are standardized by these."""

    def begins_with(self, n: int) -> int:
        """The number m such that a fit to n rewards starts from the fit to the first m; m = n means from scratch."""

    def fit_and_average(
        self,
        space: Space,
        observations: Observations,
        memory: FitMemory | None = None,
        before: Observations | None = None,
    ) -> tuple[Posterior, Callable[[], Posterior] | None]:
        """The posterior, and a function that averages it over its hyperparameters, or None if that changes nothing.

        A `memory` of earlier fits saves time and does not change the result. `before` holds the first observations,
        standardized on their own, if a fit starts from them.
        """
