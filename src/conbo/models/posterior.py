"""The protocols of a fitted model: what a posterior can compute, and the records in which it returns results.

`Posterior` is implemented by `ExactPosterior` and its variants (built-in Gaussian processes), `Mixture` (an average of
models) and `BotorchPosterior` (single-output BoTorch models with an exact marginal likelihood), among others.  Callers
use the capabilities and never check for one of these classes.  A capability can be missing in two ways.  A method whose
return type allows None returns None, and the caller tells the user what that means.  Methods that only some posteriors
or values have are in protocols of their own (such as `ImaginesRewards` and `KnowsSeeds`), for which callers test with
`isinstance`.

======================  ===========================================================================================
capability              who asks for it
======================  ===========================================================================================
moments at points       expected improvement, confidence bounds, plots, predictions
search over actions     policies, and every method that needs the best action of a state
gains of states         knowledge gradients: how much one more reward is expected to raise the best means
correlation of states   the integral over states, the policy's memory of similar states
draws of paths          entropy search, posterior sampling, plots of the policy's uncertainty
plain records           saved policies, the report's web page
======================  ===========================================================================================

Rewards are standardized as for the fit.  Points (n, d) are in the unit cube; their first d_s columns are the state, the
last d_x the action.  A candidate is a point that may be evaluated next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from conbo.models.gains import GainRule, LookAheadLines, StateValue
from conbo.spaces import Space


@dataclass(frozen=True)
class Moments:
    """Posterior means and variances at n points, with their gradients with respect to the points."""

    mean: Tensor  # (n,)
    variance: Tensor  # (n,)
    mean_gradient: Tensor  # (n, d)
    variance_gradient: Tensor  # (n, d)


@dataclass(frozen=True)
class BestActions:
    """For each of m states: the best action found, its posterior mean, and where all k local searches ended."""

    actions: Tensor  # (m, d_x), unit cube
    mean: Tensor  # (m,)
    basins: Tensor  # (m, k, d_x), unit cube: the ends of the local searches

    @classmethod
    def of_climbs(cls, ends: Tensor, mean: Tensor) -> "BestActions":
        """Return the best actions of m states, given where k local searches per state ended.

        `ends` (m, k, d_x) are the actions where the searches ended, and `mean` (m, k) their posterior means.
        """
        best = mean.argmax(-1, keepdim=True)
        chosen = ends.gather(1, best[..., None].expand(-1, -1, ends.shape[-1]))[:, 0]
        return cls(chosen, mean.gather(1, best)[:, 0], ends)

    @classmethod
    def joined(cls, parts: "Sequence[BestActions]") -> "BestActions":
        """Concatenate the results for several sets of states."""
        return cls(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    def select(self, rows: Tensor) -> "BestActions":
        """Return the best actions of the states with indices `rows`."""
        return BestActions(self.actions[rows], self.mean[rows], self.basins[rows])


class BestSearch(Protocol):
    """A search for the action with the highest posterior mean in each given state, starting from a pool of actions."""

    @property
    def actions(self) -> Tensor:
        """The pool of actions (p, d_x) from which searches start, in the unit cube."""

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        """Search for the actions with the highest posterior mean in states (m, d_s).

        In each state, local searches begin at promising actions of the pool. `starts` is the number of these searches,
        and `steps` the largest number of steps of each.
        """


class ActionSearch(BestSearch, Protocol):
    """A search for the best actions of given states that can also compute knowledge gradients."""

    def gains(self, rule: GainRule) -> StateValue:
        """Return the object that computes knowledge gradients of candidates in states.

        `rule` says how a knowledge gradient is estimated from posterior means after a new reward.
        """


class Paths(Protocol):
    """Sample paths: functions of state and action that are drawn from a posterior."""

    @property
    def n(self) -> int:
        """Number of drawn functions."""

    def __call__(self, points: Tensor) -> Tensor:
        """Return the values (p, n) of all n functions at points (p, d)."""

    def along(self, points: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Return values (p,) and gradients (p, d) at points (p, d); point i uses the function with index `draws[i]`."""


class Predicts(Protocol):
    """The capability to predict rewards at points."""

    @property
    def n_state_dims(self) -> int:
        """Number of state columns, which come first in a point."""

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean (n,) of the noise-free reward at points (n, d)."""

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance (n,) of the noise-free reward at points (n, d)."""

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance (p, q) of the noise-free rewards at points a (p, d) and b (q, d)."""

    def prior_variance(self, states: Tensor) -> Tensor:
        """Return the prior variance (c,) of the noise-free reward in states (c, d_s).

        Callers judge rounding errors relative to this variance.
        """

    def joint(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (c, p) and covariance (c, p, p) of each of c sets of p points (c, p, d)."""

    def moments(self, points: Tensor) -> Moments:
        """Posterior mean, variance and their gradients at points (n, d)."""

    def mean_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (n,) at points (n, d), and its gradient (n, d) with respect to them."""

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances (n,) of the noise of new rewards at points (n, d)."""

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Gradients (n, d) of `noise_at` with respect to the points (n, d)."""

    def leave_one_out(self) -> tuple[Tensor, Tensor] | None:
        """Return leave-one-out residuals (n,) of the observed rewards, and predictive standard deviations (n,).

        The standard deviations include noise. None if the model cannot compute them.
        """


class ComparesStates(Protocol):
    """The capability to tell how similar states are; similar states have similar best actions."""

    @property
    def state_lengthscales(self) -> Tensor:
        """Lengthscales (d_s,) of the state columns, in the unit cube."""

    def state_features(self, states: Tensor) -> Tensor:
        """Return states (..., d_s) as feature vectors; the closer two vectors, the more similar the states."""

    def state_correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """Return correlations (p, q) of states: how similarly their rewards depend on the action.

        `a` holds p states and `b` holds q states, as feature vectors from `state_features`.
        """

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Return flags (m,): which states (m, d_s) have a correlation >= `least` with any `known` state (k, d_s).

        In a flagged state, the best action of that known state is a good initial action for a search.
        """

    def similarity(self, points: Tensor, chosen: Tensor) -> Tensor:
        """Return similarities (p, q) in [0, 1] between points (p, d) and `chosen` points (q, d).

        A similarity says how much a reward at the chosen point tells about the reward at the other point.
        """


class LooksAhead(Protocol):
    """The capability to search for best actions, to predict what one more reward would change, and to draw functions.

    The functions are drawn from the posterior.
    """

    @property
    def batches_look_ahead(self) -> bool:
        """Whether `look_ahead_slopes` is fast for thousands of points; if not, callers pass fewer points."""

    def even_actions(self, actions: Tensor) -> Tensor:
        """Return the pool `actions` (p, d_x) with the inverse input warping applied to every second action.

        The given actions are evenly spread in the unit cube; the changed ones are evenly spread after warping. Without
        input warping, no action changes.
        """

    def action_search(self, space: Space, actions: Tensor) -> ActionSearch:
        """Return an object that searches for the best action of a state, starting from a pool of actions (p, d_x)."""

    def look_ahead_lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> LookAheadLines:
        """Return the posterior means of q actions in each of m states, as functions of one more reward at a candidate.

        Each of the k `candidates` (k, d) has its own m `states` (k, m, d_s), and each of these its own q `actions`
        (k, m, q, d_x). If the new reward is z standard deviations above its prediction, the posterior mean of an action
        is the line mean + slope z.
        """

    def look_ahead_slopes(self, candidates: Tensor, points: Tensor) -> Tensor:
        """Return how strongly the posterior means at points (p, d) react to one more reward at candidates (c, d).

        If the reward at a candidate is z standard deviations above its prediction, the mean at a point rises by σ̃ z.
        The results are these slopes σ̃ (c, p).
        """

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> Paths | None:
        """Draw n functions from the posterior; None if the model cannot draw functions.

        `features` is the number of random features that approximate the prior.
        """


class KeepsRecords(Protocol):
    """The capability to describe the posterior by values that can be stored, and to condition it on other data."""

    def record(self) -> dict[str, Any] | None:
        """Return the values that a saved policy needs besides the observations; None if the model cannot be saved."""

    def page_record(self, space: Space) -> dict[str, Any] | None:
        """Return the values from which the report's web page computes the posterior; None if the page cannot do so."""

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> "Posterior | None":
        """Return the posterior given these observations instead of its own, with the same hyperparameters.

        The result is None if the model cannot do this. The observations are `rewards` (n,) at `points` (n, d). `noise`
        (n,) holds the variances of the rewards' noise if they are known, and `seeds` (n,) the rewards' simulator seeds
        if they have any.
        """


class Posterior(Predicts, ComparesStates, LooksAhead, KeepsRecords, Protocol):
    """A fitted model: it predicts rewards, compares states, looks ahead to new rewards, and can be saved."""


@runtime_checkable
class Averages(Protocol):
    """A posterior that is the weighted average of several models' posteriors, called its members."""

    @property
    def members(self) -> tuple[Posterior, ...]:
        """The posteriors that are averaged, the most probable first, except in averages over drawn hyperparameters."""

    def most_probable(self, share: float) -> Posterior:
        """Return the average of the most probable models alone: the fewest whose total weight is at least `share`.

        If one model is enough, the result is its posterior.
        """


@runtime_checkable
class ImaginesRewards(Protocol):
    """A posterior that can be conditioned on hypothetical rewards with given simulator seeds."""

    def imagined(self, points: Tensor, seeds: Tensor) -> Posterior:
        """Return the posterior given hypothetical rewards at points (k, d) with simulator seeds (k,).

        Each reward equals its posterior mean, so only variances change.
        """
