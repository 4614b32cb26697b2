"""The posterior of another model, seen in other coordinates: points are converted before they reach that model.

Two posteriors work like this.  `OneStudy` adds a column that says which study a point belongs to, and
`RelativePosterior` replaces actions by actions relative to the state.  Such a class says how points, states and
gradients are converted, and how actions are searched for.  Everything else is here.  BoTorch's counterpart is an input
transform.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conbo.models.gains import LookAheadLines, StateGains, StateValue
from conbo.models.posterior import Moments, Paths, Posterior


@dataclass(frozen=True)
class Converted(ABC):
    """A posterior that converts points and asks the posterior of another model, `whole`, about them."""

    whole: Posterior

    @abstractmethod
    def converted(self, points: Tensor) -> Tensor:
        """Convert points (..., d) to those of the other model."""

    @abstractmethod
    def converted_states(self, states: Tensor) -> Tensor:
        """Convert states (..., d_s) to those of the other model."""

    @abstractmethod
    def converted_actions(self, states: Tensor, actions: Tensor) -> Tensor:
        """Convert q actions (..., q, d_x) in each of the given states (..., d_s) to those of the other model."""

    @abstractmethod
    def pulled(self, gradient: Tensor) -> Tensor:
        """Convert gradients with respect to points of the other model to gradients (..., d) with respect to ours."""

    @property
    def n_state_dims(self) -> int:
        """Number of state columns, which come first in a point."""
        return self.whole.n_state_dims

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean (n,) of the noise-free reward at points (n, d)."""
        return self.whole.mean(self.converted(points))

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance (n,) of the noise-free reward at points (n, d)."""
        return self.whole.variance(self.converted(points))

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance (p, q) of the noise-free rewards at points a (p, d) and b (q, d)."""
        return self.whole.covariance(self.converted(a), self.converted(b))

    def prior_variance(self, states: Tensor) -> Tensor:
        """Return the prior variance (c,) of the noise-free reward in states (c, d_s)."""
        return self.whole.prior_variance(self.converted_states(states))

    def joint(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (c, p) and covariance (c, p, p) of each of c sets of p points (c, p, d)."""
        return self.whole.joint(self.converted(points))

    def moments(self, points: Tensor) -> Moments:
        """Posterior mean, variance and their gradients at points (n, d)."""
        found = self.whole.moments(self.converted(points))
        in_mean, in_variance = self.pulled(found.mean_gradient), self.pulled(found.variance_gradient)
        return replace(found, mean_gradient=in_mean, variance_gradient=in_variance)

    def mean_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (n,) at points (n, d), and its gradient (n, d) with respect to them."""
        mean, gradient = self.whole.mean_and_gradient(self.converted(points))
        return mean, self.pulled(gradient)

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances (n,) of the noise of new rewards at points (n, d)."""
        return self.whole.noise_at(self.converted(points))

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Gradients (n, d) of `noise_at` with respect to the points (n, d)."""
        return self.pulled(self.whole.noise_gradient(self.converted(points)))

    def leave_one_out(self) -> tuple[Tensor, Tensor] | None:
        """Return leave-one-out residuals (n,) of the observed rewards, and predictive standard deviations (n,).

        The standard deviations include noise. None if the model cannot compute them.
        """
        return self.whole.leave_one_out()

    @property
    def state_lengthscales(self) -> Tensor:
        """Lengthscales (d_s,) of the state columns, in the unit cube."""
        return self.whole.state_lengthscales

    def state_features(self, states: Tensor) -> Tensor:
        """Return states (..., d_s) as feature vectors; the closer two vectors, the more similar the states."""
        return self.whole.state_features(self.converted_states(states))

    def state_correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """Return correlations (p, q) of states: how similarly their rewards depend on the action.

        `a` holds p states and `b` holds q states, as feature vectors from `state_features`.
        """
        return self.whole.state_correlation(a, b)

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Return flags (m,): which states (m, d_s) have a correlation >= `least` with any `known` state (k, d_s)."""
        return self.whole.resemble(self.converted_states(states), self.converted_states(known), least)

    def similarity(self, points: Tensor, chosen: Tensor) -> Tensor:
        """Return similarities (p, q) in [0, 1] between points (p, d) and `chosen` points (q, d).

        A similarity says how much a reward at the chosen point tells about the reward at the other point.
        """
        return self.whole.similarity(self.converted(points), self.converted(chosen))

    @property
    def batches_look_ahead(self) -> bool:
        """Whether `look_ahead_slopes` is fast for thousands of points."""
        return self.whole.batches_look_ahead

    def even_actions(self, actions: Tensor) -> Tensor:
        """Return the pool `actions` (p, d_x) with the inverse input warping applied to every second action.

        The given actions are evenly spread in the unit cube; the changed ones are evenly spread after warping.
        """
        return self.whole.even_actions(actions)

    def look_ahead_lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> "ConvertedLines":
        """Return the posterior means of q actions in each of m states, as functions of one more reward at a candidate.

        Each of the k `candidates` (k, d) has its own m `states` (k, m, d_s), and each of these its own q `actions`
        (k, m, q, d_x). If the new reward is z standard deviations above its prediction, the posterior mean of an action
        is the line mean + slope z.
        """
        moved = self.converted_states(states), self.converted_actions(states, actions)
        return ConvertedLines(self, self.whole.look_ahead_lines(self.converted(candidates), *moved))

    def look_ahead_slopes(self, candidates: Tensor, points: Tensor) -> Tensor:
        """Return how strongly the posterior means at points (p, d) react to one more reward at candidates (c, d).

        If the reward at a candidate is z standard deviations above its prediction, the mean at a point rises by σ̃ z.
        The results are these slopes σ̃ (c, p).
        """
        return self.whole.look_ahead_slopes(self.converted(candidates), self.converted(points))

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> "ConvertedPaths | None":
        """Draw n functions from the posterior; None if the model cannot draw functions.

        `features` is the number of random features that approximate the prior.
        """
        drawn = self.whole.draw_paths(n, generator, features)
        return None if drawn is None else ConvertedPaths(self, drawn)


@dataclass(frozen=True)
class ConvertedValues:
    """An acquisition function, such as the knowledge gradient, for candidates in other coordinates than the model's.

    It says what one more reward at a candidate is worth in each state.
    """

    posterior: Converted
    whole: StateValue

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a fast function from candidates (r, d) to rough estimates of their values (r, m) in states (m, d_s).

        The values are those of the acquisition function, such as knowledge gradients.
        """
        function = self.whole.rough(self.posterior.converted_states(states))
        return lambda candidates: function(self.posterior.converted(candidates))

    def at(self, states: Tensor) -> "Callable[[Tensor, Tensor], ConvertedGains]":
        """Return a function from candidates (k, d) to their values in m states each, with gradients.

        The values are those of the acquisition function, such as knowledge gradients. `states` (r, m, d_s) holds r sets
        of m states. The function is called with the candidates and with indices (k,): the values of candidate i are
        those in the m states of set `indices[i]`.
        """
        posterior, function = self.posterior, self.whole.at(self.posterior.converted_states(states))
        return lambda candidates, rows: ConvertedGains(posterior, function(posterior.converted(candidates), rows))


@dataclass(frozen=True)
class ConvertedGains:
    """Values of an acquisition function, such as the knowledge gradient, for k candidates in m states each.

    The class also computes gradients of the values with respect to the candidates.
    """

    posterior: Converted
    whole: StateGains

    @property
    def values(self) -> Tensor:
        """Values (k, m) of the acquisition function for k candidates in m states each."""
        return self.whole.values

    def gradient(self, weights: Tensor) -> Tensor:
        """Return the gradients (k, d) of Σ_i weights[:, i] values[:, i] with respect to the k candidates.

        The sum, with `weights` (k, m), is over the m states.
        """
        return self.posterior.pulled(self.whole.gradient(weights))


@dataclass(frozen=True)
class ConvertedLines:
    """Look-ahead lines mean + slope z in other coordinates than the model's.

    A line is the posterior mean of one action if the reward at a candidate is z standard deviations above its
    prediction.
    """

    posterior: Converted
    whole: LookAheadLines

    @property
    def mean(self) -> Tensor:
        """Posterior means (k, m, q) of q actions in each of m states, for k candidates, before the new reward."""
        return self.whole.mean

    @property
    def slope(self) -> Tensor:
        """Slopes (k, m, q): how strongly posterior means react to a new reward at one of k candidates."""
        return self.whole.slope

    def gradient(self, pull: Tensor) -> Tensor:
        """Return the gradients (k, d) of Σ pull · slope with respect to the k candidates.

        The sum is over q fixed actions in each of m fixed states, with weights `pull` (k, m, q).
        """
        return self.posterior.pulled(self.whole.gradient(pull))


@dataclass(frozen=True)
class ConvertedPaths:
    """Sample paths of a posterior, as functions of points in other coordinates than the model's."""

    posterior: Converted
    whole: Paths

    @property
    def n(self) -> int:
        """Number of drawn functions."""
        return self.whole.n

    def __call__(self, points: Tensor) -> Tensor:
        """Return the values (p, n) of all n functions at points (p, d)."""
        return self.whole(self.posterior.converted(points))

    def along(self, points: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Return values (p,) and gradients (p, d) at points (p, d); point i uses the function with index `draws[i]`."""
        values, gradients = self.whole.along(self.posterior.converted(points), draws)
        return values, self.posterior.pulled(gradients)
