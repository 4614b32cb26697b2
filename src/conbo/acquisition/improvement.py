"""Expected improvement over the best posterior mean among the observed points, in logarithms.

    EI(p) = σ h(u),   h(u) = φ(u) + u Φ(u),   u = (μ - best) / σ

Reference: Jones, Schonlau & Welch (1998). The logarithm follows Ament et al. (2023); it keeps gradients useful where EI
underflows.  The incumbent is a posterior mean, not a lucky observation, which accounts for noise.
"""

from dataclasses import dataclass
from math import log, pi, sqrt

import torch
from torch import Tensor

from conbo.ascent import BatchedFunction
from conbo.belief import Belief
from conbo.models.posterior import Predicts


def log_improvement(u: Tensor) -> tuple[Tensor, Tensor]:
    """log h(u) and its derivative Φ(u) / h(u), accurate for u down to -1e5."""
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
    """A recipe for EI over the best posterior mean among all observed points, of any state."""

    def build(self, belief: Belief, generator: torch.Generator) -> "ImprovementAcquisition":
        """Build the function that this recipe describes, for one belief."""
        return ImprovementAcquisition(belief.posterior, belief.best_mean(belief.observations.points))


@dataclass(frozen=True)
class ImprovementAcquisition:
    """The acquisition function EI (expected improvement) under one belief."""

    posterior: Predicts
    incumbent: float
    of_reward: bool = False  # whether the incumbent is compared with the next reward, noise included, not with its mean
    climbs_logarithm = True

    def screen(self, points: Tensor) -> Tensor:
        """EI itself, which is cheap."""
        return self(points)

    def __call__(self, points: Tensor) -> Tensor:
        """EI (c,) of points (c, d)."""
        return self.log_value(points)[0].exp()

    def local(self, starts: Tensor) -> BatchedFunction:
        """A function that gives log EI and its gradient; the logarithm is easier to maximize than EI."""

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            return self.log_value(points)

        return function

    def log_value(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """log EI (c,) of points (c, d), and its gradient (c, d)."""
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
