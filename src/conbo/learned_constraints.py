"""The probability that an action satisfies the learned constraints.

Each constraint has its own Gaussian process, and constraints are assumed to be independent:

======  ==================  ==================================================================================
symbol  here                meaning
======  ==================  ==================================================================================
m, v    ``posterior``       mean and variance of the expected slack, standardized
t       ``threshold``       the standardized slack of an action that just satisfies the constraint
h       ``margins``         (m - t) / √v
P       ``probability``     Π Φ(h), the probability that expected outcomes satisfy all constraints
Φ⁻¹(P)  ``levels``          the same on the scale of one margin, for local search
======  ==================  ==================================================================================

Points are in the unit cube, states first.
"""

from dataclasses import dataclass
from math import log, pi

import torch
from torch import Tensor

from conbo.models.posterior import Posterior
from conbo.observations import Observations

LEAST_VARIANCE = 1e-12  # least variance of a standardized slack, so that margins stay finite
LOWEST, HIGHEST = 1e-280, 1 - 1e-15  # probabilities between which levels are computed
ROUNDING = 1e-9  # tolerance when a probability is compared with the confidence


@dataclass(frozen=True)
class LearnedConstraint:
    """One learned constraint, which is satisfied if the expected slack is at least the threshold."""

    name: str
    posterior: Posterior
    threshold: float
    observations: Observations  # standardized slacks as rewards, kept for records

    def margins(self, points: Tensor) -> Tensor:
        """By how many standard deviations points (n, d) are expected to satisfy the constraint: (n,)."""
        variance = self.posterior.variance(points).clamp_min(LEAST_VARIANCE)
        return (self.posterior.mean(points) - self.threshold) / variance.sqrt()

    def margins_and_gradients(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """The margins (n,) of points (n, d), with their gradients (n, d)."""
        moments = self.posterior.moments(points)
        variance = moments.variance.clamp_min(LEAST_VARIANCE)
        margin = (moments.mean - self.threshold) / variance.sqrt()
        narrower = torch.where(moments.variance > LEAST_VARIANCE, margin / (2 * variance), 0.0)
        return margin, moments.mean_gradient / variance.sqrt()[:, None] - narrower[:, None] * moments.variance_gradient


@dataclass(frozen=True)
class LearnedConstraints:
    """All learned constraints, and the confidence with which they must be satisfied."""

    outcomes: tuple[LearnedConstraint, ...]
    confidence: float
    success: LearnedConstraint | None = None  # that an evaluation succeeds; None unless failures were learned from

    @property
    def all(self) -> tuple[LearnedConstraint, ...]:
        """The constraints on outcomes and, if failures were learned from, the constraint on success."""
        return self.outcomes if self.success is None else (*self.outcomes, self.success)

    def log_probability(self, points: Tensor) -> Tensor:
        """Logarithms (n,) of the probabilities that points (n, d) satisfy all constraints."""
        return torch.stack([torch.special.log_ndtr(one.margins(points)) for one in self.all]).sum(0)

    def probability(self, points: Tensor) -> Tensor:
        """Probabilities (n,) that points (n, d) satisfy all constraints."""
        return self.log_probability(points).exp()

    def is_sure(self, log_probability: Tensor) -> Tensor:
        """Whether probabilities, given by their logarithms, are at least the confidence."""
        return log_probability >= log(self.confidence) - ROUNDING

    def levels(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Levels Φ⁻¹(P) (n,) of points (n, d), and their gradients (n, d); the confidence has the level `wanted`."""
        value, slope = log_probability_and_gradient(self.all, points)
        probability = value.exp().clamp(LOWEST, HIGHEST)
        level = torch.special.ndtri(probability)
        steepness = (value.clamp_min(log(LOWEST)) + level.square() / 2 + log(2 * pi) / 2).exp()
        return level, steepness[:, None] * slope

    @property
    def wanted(self) -> float:
        """The level of an action whose probability equals the confidence."""
        return float(torch.special.ndtri(torch.tensor(self.confidence, dtype=torch.float64)))

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Which states (m, d_s) resemble one of the known states (k, d_s) under every constraint's model."""
        return torch.stack([one.posterior.resemble(states, known, least) for one in self.all]).all(0)


def log_probability_and_gradient(constraints: tuple[LearnedConstraint, ...], points: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities (n,) that points (n, d) satisfy these constraints, and their gradients (n, d)."""
    value, gradient = points.new_zeros(len(points)), torch.zeros_like(points)
    for one in constraints:
        margin, slope = one.margins_and_gradients(points)
        log_cdf = torch.special.log_ndtr(margin)
        value = value + log_cdf
        gradient = gradient + inverse_mills(margin, log_cdf)[:, None] * slope
    return value, gradient


def inverse_mills(margin: Tensor, log_cdf: Tensor) -> Tensor:
    """φ(h) / Φ(h), the derivative of log Φ(h)."""
    return (-margin.square() / 2 - log_cdf - log(2 * pi) / 2).exp()
