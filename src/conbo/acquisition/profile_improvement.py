"""Profile expected improvement (PEI): the expected improvement of a point over the best prediction in its own state.

    PEI(s, x)  = E[(f(s,x) - max_x' μ(s,x'))⁺]
    PEQI(s, x) = E[(q⁺(s,x) - max_x' q(s,x'))⁺],   q = μ + ζ σ,   ζ = Φ⁻¹(quantile)

PEQI is the same for a posterior quantile q: q⁺ is this quantile after one more observation at (s, x).  Before the
observation is made, q⁺ is Gaussian, with

    mean  μ + ζ √(τ² σ² / (σ² + τ²)),   standard deviation  σ² / √(σ² + τ²)

=========  =======================  ====================================================================
symbol     here                     meaning
=========  =======================  ====================================================================
Φ(ζ)       ``quantile``             a quantile below one half is cautious, one above is optimistic
ζ          ``level``                0 for PEI
τ²         ``noise``                variance of a reward's noise; set to zero for PEI
max_x' q   ``threshold``            found by a search in every state; its gradient is that of q at the maximizer
=========  =======================  ====================================================================

References: Ginsbourger, Baccou, Chevalier, Perales, Garland & Monerie (2014) for PEI; Picheny, Ginsbourger,
Richet & Caplin (2013) for quantile improvement.  Local searches maximize log values, as for EI.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.acquisition.improvement import log_improvement
from conbo.ascent import BatchedFunction, ascend
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.distinct_best import distinct_best
from conbo.models.posterior import Moments
from conbo.models.snapping import masked
from conbo.search.action_candidates import action_candidates

POOL = 64  # number of quasi-random actions from which the search for a state's best quantile starts
STARTS, APART = 3, 0.2  # number of local searches per state, and the least distance of their starts in the unit cube
INNER_ITERATIONS = 10  # largest number of iterations of these local searches
LEAST_VARIANCE = 1e-18  # variances are raised to at least this value, so that quotients stay finite


@dataclass(frozen=True)
class ProfileImprovement:
    """A recipe for profile expected improvement (PEI): improvement over the best posterior mean in the same state."""

    def build(self, belief: Belief, generator: torch.Generator) -> "ProfileAcquisition":
        """Build the acquisition function from a belief, which is what is known so far."""
        return ProfileAcquisition(belief, action_candidates(belief, POOL, generator), level=0.0, noisy=False)


@dataclass(frozen=True)
class ProfileQuantileImprovement:
    """A recipe for profile expected quantile improvement (PEQI): improvement over the best quantile in the same state.

    One more observation at a point changes its posterior quantile.  The improvement is the amount by which this new
    quantile exceeds the highest current quantile of any action in the same state.
    """

    quantile: float = 0.75  # probability of the posterior quantile that is improved, as in the ConBO paper

    def __post_init__(self) -> None:
        if not 0 < self.quantile < 1:
            raise SettingError(f"`0 < quantile < 1` must hold, but got quantile={self.quantile}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "ProfileAcquisition":
        """Build the acquisition function from a belief, which is what is known so far."""
        level = float(torch.special.ndtri(torch.tensor(self.quantile, dtype=torch.float64)))
        actions = action_candidates(belief, POOL, generator)
        return ProfileAcquisition(belief, actions, level, noisy=True)


class ProfileAcquisition:
    """The acquisition function PEI (profile expected improvement) or PEQI (profile expected quantile improvement)."""

    climbs_logarithm = True

    def __init__(self, belief: Belief, actions: Tensor, level: float, noisy: bool) -> None:
        self._posterior, self._d_s = belief.posterior, belief.n_state_dims
        self._profile, self._level, self._noisy = StateProfile(belief, actions, level), level, noisy

    def screen(self, points: Tensor) -> Tensor:
        """Return the values (c,) of the profile expected improvement, or quantile improvement, at points (c, d).

        These values are cheap enough for screening.
        """
        return self(points)

    def __call__(self, points: Tensor) -> Tensor:
        """Return the values (c,) of the profile expected improvement, or quantile improvement, at points (c, d)."""
        return self.log_value(points)[0].exp()

    def local(self, starts: Tensor) -> BatchedFunction:
        """Return the function that local searches maximize, for any `starts`, with values and gradients.

        It is the logarithm of the profile expected improvement, or of the profile expected quantile improvement.
        """

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            return self.log_value(points)

        return function

    def log_value(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logarithm (c,) of the acquisition function at points (c, d), and its gradients (c, d).

        The acquisition function is the profile expected improvement or the profile expected quantile improvement.
        """
        threshold, threshold_gradient = self._profile.best(points[:, : self._d_s])
        posterior = self._posterior
        noise = posterior.noise_at(points) if self._noisy else torch.zeros_like(points[:, 0])
        noise_gradient = posterior.noise_gradient(points) if self._noisy else torch.zeros_like(points)
        mean, mean_gradient, sd, sd_gradient = after_observing(
            posterior.moments(points), self._level, noise, noise_gradient
        )
        u = (mean - threshold) / sd
        value, slope = log_improvement(u)
        rise = (mean_gradient - threshold_gradient) / sd[:, None]
        widen = sd_gradient / sd[:, None]
        return sd.log() + value, slope[:, None] * rise + (1 - slope * u)[:, None] * widen


class StateProfile:
    """The highest posterior quantile over all actions, as a function of the state.

    The quantile is `level` standard deviations above the posterior mean.  If `level` is zero, only actions that satisfy
    the learned constraints with the required confidence count, if any is found.  With other levels, learned constraints
    are ignored.
    """

    def __init__(self, belief: Belief, actions: Tensor, level: float) -> None:
        self._belief, self._posterior, self._d_s = belief, belief.posterior, belief.n_state_dims
        self._actions, self._level = actions, level
        self._search = belief.search(actions)

    def best(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the highest posterior quantiles (m,) over actions in m states (m, d_s), and their gradients (m, d).

        The quantile is `level` standard deviations above the posterior mean.  The highest quantile is a function of
        the state alone, so the gradients are zero in the columns of actions.
        """
        value, gradient = self.quantile(self.best_points(states))
        gradient[:, self._d_s :] = 0.0
        return value, gradient

    def quantile(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior quantiles (c,) at points (c, d), and their gradients (c, d).

        The quantile is `level` standard deviations above the posterior mean.
        """
        moments = self._posterior.moments(points)
        sd = moments.variance.clamp_min(LEAST_VARIANCE).sqrt()
        gradient = moments.mean_gradient + self._level * moments.variance_gradient / (2 * sd[:, None])
        return moments.mean + self._level * sd, gradient

    def best_points(self, states: Tensor) -> Tensor:
        """Return, for each of m states (m, d_s), the point (m, d) with the highest posterior quantile over all actions.

        The quantile is `level` standard deviations above the posterior mean.
        """
        if self._level == 0:
            return torch.cat([states, self._search.best(states).actions], -1)
        m, p = len(states), len(self._actions)
        grid = torch.cat([states.repeat_interleave(p, 0), self._actions.repeat(m, 1)], -1)
        scores = self._posterior.mean(grid) + self._level * self._posterior.variance(grid).sqrt()
        scores = masked(self._belief.space, states, self._actions, scores.unflatten(0, (m, p)))
        alike = (torch.cdist(self._actions, self._actions) < APART).to(scores)
        starts = self._actions[distinct_best(scores, alike, STARTS)].flatten(0, 1)
        repeated = states.repeat_interleave(len(starts) // max(m, 1), 0)

        def function(actions: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            value, gradient = self.quantile(torch.cat([repeated[rows], actions], -1))
            return value, gradient[:, self._d_s :]

        lower, upper = torch.zeros_like(starts[0]), torch.ones_like(starts[0])
        limits = self._belief.action_limits(repeated)
        ends = ascend(function, starts, lower, upper, INNER_ITERATIONS, limits=limits).points
        found = torch.cat([repeated, self._belief.snap_actions(ends, repeated)], -1)
        best = self.quantile(found)[0].unflatten(0, (m, -1)).argmax(-1)
        chosen: Tensor = found.unflatten(0, (m, -1))[torch.arange(m, device=best.device), best]
        return chosen


def after_observing(
    moments: Moments, level: float, noise: Tensor, noise_gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Predict, for each of c points, the posterior quantile after one more observation there.

    The new quantile depends on the observation, so its mean and standard deviation are predicted.  The quantile
    is `level` standard deviations above the posterior mean, and `noise` (c,) is the variance of the observation's
    noise, with gradients `noise_gradient` (c, d).  The result is the mean (c,), its gradients (c, d), the standard
    deviation (c,) and its gradients (c, d).
    """
    variance, variance_gradient = moments.variance.clamp_min(LEAST_VARIANCE), moments.variance_gradient
    total = variance + noise
    sd = variance / total.sqrt()
    left = (noise * variance / total).sqrt()  # standard deviation that remains
    share = 2 * left.clamp_min(LEAST_VARIANCE) * total.square()
    left_gradient = (noise**2 / share)[:, None] * variance_gradient + (variance**2 / share)[:, None] * noise_gradient
    # derivatives of `sd` in variance and noise
    sd_slopes = (variance + 2 * noise) / (2 * total**1.5), -variance / (2 * total**1.5)
    return (
        moments.mean + level * left,
        moments.mean_gradient + level * left_gradient,
        sd,
        sd_slopes[0][:, None] * variance_gradient + sd_slopes[1][:, None] * noise_gradient,
    )
