"""Expected improvement (EI) over the best posterior mean among the observed points, and its logarithm.

    EI(p) = σ h(u),   h(u) = φ(u) + u Φ(u),   u = (μ - best) / σ

Here, μ and σ are the posterior mean and standard deviation at the point p, and `best` is the incumbent.  Rewards are
noisy, so the incumbent is the best posterior mean, not the best reward.  Local searches maximize the logarithm (Ament
et al., 2023), which has useful gradients even where EI underflows.  Reference: Jones, Schonlau & Welch (1998).
"""

from dataclasses import dataclass
from math import log, pi, sqrt

import torch
from torch import Tensor

from conbo.ascent import BatchedFunction
from conbo.belief import Belief
from conbo.models.posterior import Predicts


def log_improvement(u: Tensor) -> tuple[Tensor, Tensor]:
    """Return log h(u), where h(u) = φ(u) + u Φ(u), and its derivative Φ(u) / h(u).

    h(u) is the expected improvement in units of the posterior standard deviation σ.  Here, u is the posterior mean
    minus the incumbent, divided by σ, and φ and Φ are the standard normal density and distribution function.  The
    result is accurate for u > -1e5.
    """
    density = -0.5 * u.square() - 0.5 * log(2 * pi)  # log φ
    mills = sqrt(pi / 2) * torch.special.erfcx(-u.clamp_max(5.0) / sqrt(2))  # Φ(u) / φ(u)
    far = u < -1e4
    ratio = torch.where(far, 1 / u.clamp_max(-1).square(), (1 + u * mills))  # h / φ, for moderate u
    ratio = ratio.clamp_min(1e-300)
    small = density + ratio.log()
    large = torch.exp(density) + u * torch.special.ndtr(u)
    direct = u > 0
    value = torch.where(direct, torch.where(direct, large, 1.0).log(), small)
    slope = torch.where(direct, torch.special.ndtr(u) / torch.where(direct, large, 1.0), mills / ratio)
    return value, slope


@dataclass(frozen=True)
class ExpectedImprovement:
    """A recipe for expected improvement over the best posterior mean of all observed points, whatever their states."""

    def build(self, belief: Belief, generator: torch.Generator) -> "ImprovementAcquisition":
        """Build the acquisition function from a belief, which is what is known so far."""
        return ImprovementAcquisition(belief.posterior, belief.best_mean(belief.observations.points))


@dataclass(frozen=True)
class ImprovementAcquisition:
    """Expected improvement (EI) over a given reward, the incumbent, as an acquisition function."""

    posterior: Predicts
    incumbent: float  # standardized reward that is to be improved on
    # whether EI is that of the next noisy reward; otherwise, it is that of the noise-free expected reward
    of_reward: bool = False
    climbs_logarithm = True

    def screen(self, points: Tensor) -> Tensor:
        """Return the expected improvement (c,) at points (c, d); it is cheap enough for screening."""
        return self(points)

    def __call__(self, points: Tensor) -> Tensor:
        """Return the expected improvement (c,) at points (c, d)."""
        return self.log_value(points)[0].exp()

    def local(self, starts: Tensor) -> BatchedFunction:
        """Return the function that local searches maximize, for any `starts`: log EI, with its gradient."""

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            return self.log_value(points)

        return function

    def log_value(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logarithm (c,) of the expected improvement at points (c, d), and its gradients (c, d)."""
        moments = self.posterior.moments(points)
        variance, variance_gradient = moments.variance, moments.variance_gradient
        if self.of_reward:
            variance = variance + self.posterior.noise_at(points)
            variance_gradient = variance_gradient + self.posterior.noise_gradient(points)
        sd = variance.clamp_min(1e-18).sqrt()
        u = (moments.mean - self.incumbent) / sd
        value, slope = log_improvement(u)
        sd_gradient = variance_gradient / (2 * sd[:, None])
        u_gradient = (moments.mean_gradient - u[:, None] * sd_gradient) / sd[:, None]
        return sd.log() + value, slope[:, None] * u_gradient + sd_gradient / sd[:, None]
