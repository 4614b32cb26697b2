"""The posterior of rewards whose images under output warping are a Gaussian process.

The process models z = g(y); see output_maps.py.  Means and variances of the expected reward are exact up to quadrature.
Covariances are approximate, in the way that Stein's lemma suggests: the covariance of a reward with a Gaussian variable
is the covariance of z with that variable times a slope E[dy/dz].  The slope of a point is the one that reproduces its
variance.  The gain of a state is the rise of its expected reward if its best z rose by exactly the gain of the process.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from conbo.models.exact import ExactPosterior, ExactSearch
from conbo.models.exact_gains import ExactGains
from conbo.models.mean_search import best_by_mean
from conbo.models.output_maps import OutputMap
from conbo.models.page_record import output_record
from conbo.models.posterior import BestActions, GainRule, LineGains, LookAheadLines, Moments, Paths
from conbo.spaces import Space


@dataclass(frozen=True)
class TransformedPosterior:
    """The posterior of rewards whose images under a monotone map are a Gaussian process."""

    process: ExactPosterior
    output: OutputMap

    def __str__(self) -> str:
        """The process and its map, for the log."""
        return f"{self.process}, mapped rewards ({type(self.output).__name__})"

    @property
    def n_state_dims(self) -> int:
        """Number of state columns, which come first in a point."""
        return self.process.n_state_dims

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean of the expected reward at points (n, d)."""
        return self._moments(points)[0]

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance of the expected reward at points (n, d)."""
        return self._moments(points)[1]

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance between points a (p, d) and b (q, d)."""
        return self._slopes(a)[:, None] * self.process.covariance(a, b) * self._slopes(b)

    def prior_variance(self, states: Tensor) -> Tensor:
        """Prior variance (c,) of the process: the scale of rounding errors."""
        return self.process.prior_variance(states)

    def joint(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (c, p) and covariance (c, p, p) of each of c sets of points (c, p, d)."""
        _, covariance = self.process.joint(points)
        flat = points.flatten(0, 1)
        slopes = self._slopes(flat).unflatten(0, points.shape[:2])
        return self.mean(flat).unflatten(0, points.shape[:2]), slopes[..., None] * covariance * slopes[:, None]

    def moments(self, points: Tensor) -> Moments:
        """Mean, variance and their gradients at points (n, d), by the chain rule."""
        (mean, in_mean), (variance, in_variance) = self._with_gradients(points, self.output.moments)
        return Moments(mean, variance, in_mean, in_variance)

    def mean_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (n,) of points (n, d) and its gradient (n, d)."""
        moments = self.moments(points)
        return moments.mean, moments.mean_gradient

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances of the noise of new rewards at points (n, d), to first order."""
        return self._slopes(points).square() * self.process.noise_at(points)

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Gradients (n, d) of the noise variances of new rewards."""

        def noise(mean: Tensor, variance: Tensor, noise: Tensor) -> tuple[Tensor]:
            return (self.output.slope(mean, variance, noise).square() * noise,)

        return self._with_gradients(points, noise)[0][1]

    def leave_one_out(self) -> tuple[Tensor, Tensor] | None:
        """Leave-one-out residuals (n,) and predictive standard deviations (n,), noise included; None if unavailable."""
        found = self.process.leave_one_out()
        if found is None or len(found[0]) != self.process.n_observations:
            return None  # the process keeps only a summary of the rewards
        residuals, deviations = found
        noise, values = self.process.observed_noise, self.process.observed_values
        without = values - residuals, (deviations.square() - noise).clamp_min(0), noise
        mean, variance = self.output.moments(*without)
        own_noise = self.output.slope(*without).square() * noise
        return self.output.rewards(values) - mean, (variance + own_noise).sqrt()

    @property
    def state_lengthscales(self) -> Tensor:
        """Lengthscales (d_s,) of the process."""
        return self.process.state_lengthscales

    def state_features(self, states: Tensor) -> Tensor:
        """States (..., d_s) in the units of the process."""
        return self.process.state_features(states)

    def state_correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """Correlations (p, q) between states, given as features: how similarly their rewards depend on the action."""
        return self.process.state_correlation(a, b)

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Which states (m, d_s) correlate highly with one of the known states (k, d_s) under the process."""
        return self.process.resemble(states, known, least)

    def similarity(self, points: Tensor, chosen: Tensor) -> Tensor:
        """How much a reward at each chosen point (q, d) already says about each point (p, d): (p, q)."""
        return self.process.similarity(points, chosen)

    @property
    def batches_look_ahead(self) -> bool:
        """True, because the process computes many look-aheads at once."""
        return True

    def even_actions(self, actions: Tensor) -> Tensor:
        """Actions (p, d_x), some of them moved; the moved ones are evenly spread after the process's input warping."""
        return self.process.even_actions(actions)

    def action_search(self, space: Space, actions: Tensor) -> "TransformedSearch":
        """A search over actions that starts from a pool (p, d_x)."""
        return TransformedSearch(self, self.process.action_search(space, actions))

    def look_ahead_lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> "TransformedLines":
        """Look-ahead lines mean + slope z of actions (k, m, q, d_x) in states (k, m, d_s), for candidates (k, d)."""
        k, m, q, _ = actions.shape
        points = torch.cat([states[:, :, None].expand(k, m, q, -1), actions], -1).flatten(0, 2)
        mean, slopes = self.mean(points).reshape(k, m, q), self._slopes(points).reshape(k, m, q)
        return TransformedLines(mean, slopes, self.process.look_ahead_lines(candidates, states, actions))

    def look_ahead_slopes(self, candidates: Tensor, points: Tensor) -> Tensor:
        """Slopes σ̃ (c, p) of the look-ahead means at points (p, d), for every candidate (c, d)."""
        return self.process.look_ahead_slopes(candidates, points) * self._slopes(points)

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> "TransformedPaths":
        """n functions drawn from the posterior: the expected rewards of functions drawn from the process."""
        return TransformedPaths(self, self.process.draw_paths(n, generator, features))

    def record(self) -> dict[str, Any]:
        """The record of the process, with the map."""
        return {**self.process.record(), "output": self.output.record()}

    def page_record(self, space: Space) -> dict[str, Any] | None:
        """The page's record of the process, with the map."""
        record = self.process.page_record(space)
        return None if record is None else {**record, "output": output_record(self.output, self.process.noise)}

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> "TransformedPosterior":
        """The same hyperparameters and map with other observations."""
        values, variances = self.output.values(rewards, noise)
        return replace(self, process=self.process.conditioned_on(points, values, variances))

    def _moments(self, points: Tensor) -> tuple[Tensor, Tensor]:
        process = self.process
        return self.output.moments(process.mean(points), process.variance(points), process.noise_at(points))

    def _slopes(self, points: Tensor) -> Tensor:
        """Factors (n,) that convert deviations of z at points (n, d) to deviations of the expected reward."""
        process = self.process
        return self.output.slope(process.mean(points), process.variance(points), process.noise_at(points))

    def _with_gradients(
        self, points: Tensor, function: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]
    ) -> list[tuple[Tensor, Tensor]]:
        """Results (n,) of a function of mean, variance and noise of the process at points (n, d), with gradients."""
        inner, process = self.process.moments(points), self.process
        gradients = inner.mean_gradient, inner.variance_gradient, process.noise_gradient(points)
        with torch.enable_grad():
            inputs = [v.clone().requires_grad_(True) for v in (inner.mean, inner.variance, process.noise_at(points))]
            results = function(*inputs)
            slopes = [
                torch.autograd.grad(one.sum(), inputs, retain_graph=True, materialize_grads=True) for one in results
            ]
        chains = [torch.stack([s[:, None] * g for s, g in zip(own, gradients, strict=True)]).sum(0) for own in slopes]
        return [(one.detach(), chain) for one, chain in zip(results, chains, strict=True)]


@dataclass(frozen=True)
class TransformedSearch:
    """A search over actions that starts from the best actions of the process."""

    posterior: TransformedPosterior
    search: ExactSearch

    @property
    def actions(self) -> Tensor:
        """The pool (p, d_x), in the unit cube."""
        return self.search.actions

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        """Search for the actions with the highest expected reward in states (m, d_s), from maxima of the process."""
        hints = self.search

        def ends(chunk: Tensor) -> Tensor:
            return hints.best(chunk, starts, steps).basins

        return best_by_mean(self.posterior, hints.space, states, ends, starts)

    def gains(self, rule: GainRule) -> "TransformedGains":
        """Expected gains of states: the gains of the process, converted to rewards."""
        return TransformedGains(self.posterior, self.search.gains(rule))


@dataclass(frozen=True)
class TransformedGains:
    """Gains in reward, converted from gains of the process."""

    posterior: TransformedPosterior
    process: ExactGains

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Prepare shared states (m, d_s); the result is a function from candidates (r, d) to rough values (r, m)."""
        function, before = self.process.rough(states), self.process.policy(states).mean
        return lambda candidates: self._worth(before, function(candidates))[0]

    def at(self, states: Tensor) -> "Callable[[Tensor, Tensor], WorthOfGains]":
        """Prepare sets of states (r, m, d_s); the result maps candidates (k, d) and indices of their sets to gains."""
        function = self.process.at(states)

        def gains(candidates: Tensor, rows: Tensor) -> WorthOfGains:
            inner = function(candidates, rows)
            return WorthOfGains(*self._worth(inner.lines.mean.amax(-1), inner.values), inner)

        return gains

    def _worth(self, before: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
        """Convert gains of the process to gains in reward, in states with best means `before`, with derivatives."""
        noise = gain.new_full((), self.posterior.process.usual_noise)
        return self.posterior.output.gain(before.expand_as(gain), gain, noise.expand_as(gain))


@dataclass(frozen=True)
class WorthOfGains:
    """Gains in reward (k, m), with their derivatives with respect to the gains of the process."""

    values: Tensor  # (k, m)
    derivative: Tensor  # (k, m)
    process: LineGains

    def gradient(self, weights: Tensor) -> Tensor:
        """Gradient (k, d) of Σ_i weights[:, i] values[:, i] with respect to the candidates, for fixed best means."""
        return self.process.gradient(weights * self.derivative)


@dataclass(frozen=True)
class TransformedLines:
    """The look-ahead lines mean + slope z of expected rewards, with the slope of the map held fixed."""

    mean: Tensor  # (k, m, q)
    slopes: Tensor  # (k, m, q), E[dy/dz]
    lines: LookAheadLines  # of the process

    @property
    def slope(self) -> Tensor:
        """Slopes (k, m, q) of the lines."""
        return self.slopes * self.lines.slope

    def gradient(self, pull: Tensor) -> Tensor:
        """Gradient (k, d) of Σ pull · slope with respect to the candidates, for pull (k, m, q) and fixed points."""
        return self.lines.gradient(pull * self.slopes)


@dataclass(frozen=True)
class TransformedPaths:
    """Expected rewards of functions drawn from the process."""

    posterior: TransformedPosterior
    paths: Paths

    @property
    def n(self) -> int:
        """Number of functions."""
        return self.paths.n

    def __call__(self, points: Tensor) -> Tensor:
        """All draws at points (p, d): (p, n)."""
        noise = self.posterior.process.noise_at(points)
        return self.posterior.output.expected(self.paths(points), noise[:, None])

    def along(self, points: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Values (p,) and gradients (p, d) at points (p, d), with the noise fixed; point i uses draw `draws[i]`."""
        values, gradients = self.paths.along(points, draws)
        noise, output = self.posterior.process.noise_at(points), self.posterior.output
        return output.expected(values, noise), output.expected_slope(values, noise)[:, None] * gradients
