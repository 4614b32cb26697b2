"""The posterior of rewards y under output warping: a Gaussian process models z = g(y) (see output_maps.py).

Means and variances of the expected reward are exact up to quadrature.  Covariances are approximate: the covariance
of z at two points is multiplied by one factor for each point.  The factor is the standard deviation of the expected
reward divided by that of z, so the variance at every point is right.

Knowledge gradients are approximate, too.  The process has a knowledge gradient of its own, in units of z: the expected
rise of the highest posterior mean of z in a state.  The knowledge gradient in units of the reward is the rise of the
expected reward if z rises from this highest mean by this amount.  The uncertainty of z is neglected here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from conbo.models.exact import ExactPosterior, ExactSearch
from conbo.models.exact_gains import ExactGains
from conbo.models.gains import GainRule, LineGains, LookAheadLines
from conbo.models.mean_search import best_by_mean
from conbo.models.output_maps import OutputMap
from conbo.models.page_record import output_record
from conbo.models.posterior import BestActions, Moments, Paths
from conbo.spaces import Space


@dataclass(frozen=True)
class TransformedPosterior:
    """The posterior of the expected reward if a Gaussian process models mapped rewards (output warping)."""

    process: ExactPosterior  # the posterior of the mapped rewards z
    output: OutputMap  # the map g

    def __str__(self) -> str:
        """Describe the Gaussian process and the map from rewards to its values, for the log."""
        return f"{self.process}, mapped rewards ({type(self.output).__name__})"

    @property
    def n_state_dims(self) -> int:
        """Number of state columns, which come first in a point."""
        return self.process.n_state_dims

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean (n,) of the expected reward at points (n, d)."""
        return self._moments(points)[0]

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance (n,) of the expected reward at points (n, d)."""
        return self._moments(points)[1]

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance (p, q) of the expected rewards at points a (p, d) and b (q, d), approximately."""
        return self._slopes(a)[:, None] * self.process.covariance(a, b) * self._slopes(b)

    def prior_variance(self, states: Tensor) -> Tensor:
        """Return the prior variance (c,) of the noise-free mapped reward in states (c, d_s)."""
        return self.process.prior_variance(states)

    def joint(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (c, p) and approximate covariance (c, p, p) of each of c sets of p points (c, p, d)."""
        _, covariance = self.process.joint(points)
        flat = points.flatten(0, 1)
        slopes = self._slopes(flat).unflatten(0, points.shape[:2])
        return self.mean(flat).unflatten(0, points.shape[:2]), slopes[..., None] * covariance * slopes[:, None]

    def moments(self, points: Tensor) -> Moments:
        """Posterior mean, variance and their gradients at points (n, d); the gradients follow by the chain rule."""
        (mean, in_mean), (variance, in_variance) = self._with_gradients(points, self.output.moments)
        return Moments(mean, variance, in_mean, in_variance)

    def mean_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (n,) at points (n, d), and its gradient (n, d) with respect to them."""
        moments = self.moments(points)
        return moments.mean, moments.mean_gradient

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances (n,) of the noise of new rewards at points (n, d), to first order in the noise."""
        return self._slopes(points).square() * self.process.noise_at(points)

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Gradients (n, d) of `noise_at` with respect to the points (n, d)."""

        def noise(mean: Tensor, variance: Tensor, noise: Tensor) -> tuple[Tensor]:
            return (self.output.slope(mean, variance, noise).square() * noise,)

        return self._with_gradients(points, noise)[0][1]

    def leave_one_out(self) -> tuple[Tensor, Tensor] | None:
        """Return leave-one-out residuals (n,) of the observed rewards, and predictive standard deviations (n,).

        The standard deviations include noise. The result is None if the posterior is approximated by inducing points.
        """
        found = self.process.leave_one_out()
        if found is None or len(found[0]) != self.process.n_observations:
            return None
        residuals, deviations = found
        noise, values = self.process.reward_noise, self.process.observed_values
        without = values - residuals, (deviations.square() - noise).clamp_min(0), noise
        mean, variance = self.output.moments(*without)
        own_noise = self.output.slope(*without).square() * noise
        return self.output.rewards(values) - mean, (variance + own_noise).sqrt()

    @property
    def state_lengthscales(self) -> Tensor:
        """Lengthscales (d_s,) of the state columns, in the unit cube."""
        return self.process.state_lengthscales

    def state_features(self, states: Tensor) -> Tensor:
        """Return states (..., d_s) as feature vectors; the closer two vectors, the more similar the states."""
        return self.process.state_features(states)

    def state_correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """Return correlations (p, q) of states: how similarly their rewards depend on the action.

        `a` holds p states and `b` holds q states, as feature vectors from `state_features`.
        """
        return self.process.state_correlation(a, b)

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Return flags (m,): which states (m, d_s) have a correlation >= `least` with any `known` state (k, d_s)."""
        return self.process.resemble(states, known, least)

    def similarity(self, points: Tensor, chosen: Tensor) -> Tensor:
        """Return similarities (p, q) in [0, 1] between points (p, d) and `chosen` points (q, d).

        A similarity says how much a reward at the chosen point tells about the reward at the other point.
        """
        return self.process.similarity(points, chosen)

    @property
    def batches_look_ahead(self) -> bool:
        """True: `look_ahead_slopes` is fast for thousands of points, because it is made of matrix products."""
        return True

    def even_actions(self, actions: Tensor) -> Tensor:
        """Return the pool `actions` (p, d_x) with the inverse input warping applied to every second action.

        The given actions are evenly spread in the unit cube; the changed ones are evenly spread after warping.
        """
        return self.process.even_actions(actions)

    def action_search(self, space: Space, actions: Tensor) -> "TransformedSearch":
        """Return an object that searches for the best action of a state, starting from a pool of actions (p, d_x)."""
        return TransformedSearch(self, self.process.action_search(space, actions))

    def look_ahead_lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> "TransformedLines":
        """Return the posterior means of q actions in each of m states, as functions of one more reward at a candidate.

        Each of the k `candidates` (k, d) has its own m `states` (k, m, d_s), and each of these its own q `actions`
        (k, m, q, d_x). If the new reward is z standard deviations above its prediction, the posterior mean of an action
        is approximately the line mean + slope z (see `TransformedLines`).
        """
        k, m, q, _ = actions.shape
        points = torch.cat([states[:, :, None].expand(k, m, q, -1), actions], -1).flatten(0, 2)
        mean, slopes = self.mean(points).reshape(k, m, q), self._slopes(points).reshape(k, m, q)
        return TransformedLines(mean, slopes, self.process.look_ahead_lines(candidates, states, actions))

    def look_ahead_slopes(self, candidates: Tensor, points: Tensor) -> Tensor:
        """Return how strongly the posterior means at points (p, d) react to one more reward at candidates (c, d).

        If the reward at a candidate is z standard deviations above its prediction, the mean at a point rises by σ̃ z.
        The results are these slopes σ̃ (c, p).
        """
        return self.process.look_ahead_slopes(candidates, points) * self._slopes(points)

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> "TransformedPaths":
        """Draw n functions from the posterior of the expected reward, by mapping draws from the Gaussian process.

        `features` is the number of random features that approximate the prior.
        """
        return TransformedPaths(self, self.process.draw_paths(n, generator, features))

    def record(self) -> dict[str, Any]:
        """Return the Gaussian process and the output map (entry `output`) as plain values, for a saved policy."""
        return {**self.process.record(), "output": self.output.record()}

    def page_record(self, space: Space) -> dict[str, Any] | None:
        """Return the values from which the report's web page computes the posterior; None if the page cannot do so.

        The map g from rewards to values of the Gaussian process is in the entry `output`.
        """
        record = self.process.page_record(space)
        return None if record is None else {**record, "output": output_record(self.output, self.process.noise)}

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> "TransformedPosterior":
        """Return the posterior given these observations instead of its own.

        The hyperparameters and the output map stay the same. The observations are `rewards` (n,) at `points` (n, d).
        `noise` (n,) holds the variances of the rewards' noise if they are known. Simulator seeds are ignored, because
        models with an output map have no effects of seeds.
        """
        values, variances = self.output.values(rewards, noise)
        return replace(self, process=self.process.conditioned_on(points, values, variances))

    def _moments(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (n,) and variance (n,) of the expected reward at points (n, d)."""
        process = self.process
        return self.output.moments(process.mean(points), process.variance(points), process.noise_at(points))

    def _slopes(self, points: Tensor) -> Tensor:
        """Return factors (n,) that convert deviations of the Gaussian process at points (n, d) to those of rewards.

        A factor is the standard deviation of the expected reward divided by that of the process.
        """
        process = self.process
        return self.output.slope(process.mean(points), process.variance(points), process.noise_at(points))

    def _with_gradients(
        self, points: Tensor, function: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]
    ) -> list[tuple[Tensor, Tensor]]:
        """Evaluate a function of the Gaussian process's mean, variance and noise variance at points (n, d).

        Return each of its results (n,) together with its gradient (n, d) with respect to the points, by the chain rule.
        """
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
    """A search for the actions with the highest expected reward under output warping, in given states."""

    posterior: TransformedPosterior
    search: ExactSearch

    @property
    def actions(self) -> Tensor:
        """The pool of actions (p, d_x) from which searches start, in the unit cube."""
        return self.search.actions

    def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
        """Search for the actions with the highest expected reward in states (m, d_s).

        The search has two stages in each state. First, local searches look for maxima of the Gaussian process's mean;
        `starts` is their number, and `steps` the largest number of steps of each. Then local searches for the highest
        expected reward begin at the actions that the first stage found.
        """
        hints = self.search

        def ends(chunk: Tensor) -> Tensor:
            return hints.best(chunk, starts, steps).basins

        return best_by_mean(self.posterior, hints.space, states, ends, starts)

    def gains(self, rule: GainRule) -> "TransformedGains":
        """Return the object that computes knowledge gradients of candidates in states, in units of the reward.

        `rule` says how a knowledge gradient is estimated from posterior means after a new reward.
        """
        return TransformedGains(self.posterior, self.search.gains(rule))


@dataclass(frozen=True)
class TransformedGains:
    """Knowledge gradients under output warping: those of the Gaussian process, converted to units of the reward."""

    posterior: TransformedPosterior
    process: ExactGains

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a fast function that estimates knowledge gradients (r, m) of candidates (r, d) in states (m, d_s)."""
        function, before = self.process.rough(states), self.process.policy(states).mean
        return lambda candidates: self._worth(before, function(candidates))[0]

    def at(self, states: Tensor) -> "Callable[[Tensor, Tensor], WorthOfGains]":
        """Return a function that computes knowledge gradients of candidates in r sets of m states (r, m, d_s).

        It takes k candidates (k, d) and indices (k,). The knowledge gradients of candidate i are those in the m states
        of set `indices[i]`.
        """
        function = self.process.at(states)

        def gains(candidates: Tensor, rows: Tensor) -> WorthOfGains:
            inner = function(candidates, rows)
            return WorthOfGains(*self._worth(inner.lines.mean.amax(-1), inner.values), inner)

        return gains

    def _worth(self, before: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
        """Convert knowledge gradients `gain` of the Gaussian process to units of the reward, elementwise.

        `before` holds the highest means of the process in the states. The second result is the derivative of the first
        with respect to `gain`.
        """
        noise = gain.new_full((), self.posterior.process.usual_noise)
        return self.posterior.output.gain(before.expand_as(gain), gain, noise.expand_as(gain))


@dataclass(frozen=True)
class WorthOfGains:
    """Knowledge gradients of k candidates in m states each, under output warping, in units of the reward.

    They are computed from the knowledge gradients of the Gaussian process, which models mapped rewards.
    """

    values: Tensor  # (k, m)
    derivative: Tensor  # (k, m), of the gains in reward with respect to the gains of the process
    process: LineGains  # the gains of the process

    def gradient(self, weights: Tensor) -> Tensor:
        """Return the gradients (k, d) of Σ_i weights[:, i] values[:, i] with respect to the k candidates.

        The sum, with `weights` (k, m), is over the m states, and `values` (k, m) are the knowledge gradients.
        """
        return self.process.gradient(weights * self.derivative)


@dataclass(frozen=True)
class TransformedLines:
    """The look-ahead lines mean + slope z of expected rewards under output warping.

    A line is the posterior mean of one action's expected reward if the reward at a candidate is z standard deviations
    above its prediction. Its slope is the slope of the Gaussian process's line times a factor that converts deviations
    of the process to deviations of rewards. This factor is treated as constant.
    """

    mean: Tensor  # (k, m, q)
    slopes: Tensor  # (k, m, q), slopes E[dy/dz] of the map
    lines: LookAheadLines  # of the process

    @property
    def slope(self) -> Tensor:
        """Slopes (k, m, q): how strongly posterior means react to a new reward at each of k candidates.

        The means are those of q actions in each of m states. If the new reward is z standard deviations above its
        prediction, a mean rises by slope · z.
        """
        return self.slopes * self.lines.slope

    def gradient(self, pull: Tensor) -> Tensor:
        """Return the gradients (k, d) of Σ pull · slope with respect to the k candidates.

        The sum is over q actions in each of m states, and `pull` (k, m, q) are its weights. A slope says how strongly
        the posterior mean of an action reacts to a new reward at the candidate. States, actions and weights are held
        fixed.
        """
        return self.lines.gradient(pull * self.slopes)


@dataclass(frozen=True)
class TransformedPaths:
    """Sample paths of the expected reward under output warping: mapped sample paths of the Gaussian process."""

    posterior: TransformedPosterior
    paths: Paths

    @property
    def n(self) -> int:
        """Number of drawn functions."""
        return self.paths.n

    def __call__(self, points: Tensor) -> Tensor:
        """Return the values (p, n) of all n functions at points (p, d)."""
        noise = self.posterior.process.noise_at(points)
        return self.posterior.output.expected(self.paths(points), noise[:, None])

    def along(self, points: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Return values (p,) and gradients (p, d) at points (p, d); point i uses the function with index `draws[i]`.

        The gradients treat the noise variance as constant.
        """
        values, gradients = self.paths.along(points, draws)
        noise, output = self.posterior.process.noise_at(points), self.posterior.output
        return output.expected(values, noise), output.expected_slope(values, noise)[:, None] * gradients
