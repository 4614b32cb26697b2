"""Functions drawn from a Gaussian process before any reward, evaluated anywhere, with gradients.

Two ways to draw f⁰, both a weighted sum of fixed features with weights w ~ N(0, I):

==================  =======================================  ===================================================
here                f⁰(s, x)                                 when
==================  =======================================  ===================================================
`FourierFeatures`   Σ_j w_j a_j(s) cos(ω_jᵀ x + b_j(s))      both spectral densities are known
`NystromFeatures`   k(·, U) L⁻ᵀ w,  L Lᵀ = k(U, U)           any kernel: exact at the points U, smoother between
==================  =======================================  ===================================================

The phase is linear in the state's features, b_j(s) = β_j + ω_sᵀ s. If categories share nothing (δ_ss'), each category
adds its own random phases.

References: Rahimi & Recht (2007); Williams & Seeger (2001).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from typing import Protocol

import torch
from torch import Tensor

from conbo.models.columns import Features
from conbo.models.factorization import cholesky

JITTER = 1e-8  # share of the mean variance added to the diagonal, because points may be close to each other


class Covariance(Protocol):
    """The methods of a kernel that the draws call; points are given as scaled features."""

    def covariance(self, a: Features, b: Features) -> Tensor:
        """Covariances k (..., p, q)."""

    def weighted_gradient(self, here: Features, there: Features, weights: Tensor) -> Features:
        """Gradients of Σ_m weights[..., p, m] k(point p, there m) with respect to the features of each point p."""


class PriorDraws(Protocol):
    """c functions drawn from a prior of mean zero."""

    def values(self, here: Features) -> Tensor:
        """All draws (p, c) at points given as scaled features."""

    def along(self, here: Features, draws: Tensor) -> tuple[Tensor, Features]:
        """Values (p,) at p points, and gradients with respect to scaled features; point i uses draw `draws[i]`."""


@dataclass(frozen=True)
class FourierTerms:
    """j features amplitude(s) · cos(ω_xᵀ x + phase(s)) of scaled state and action features."""

    amplitude: Callable[[Tensor], Tensor]  # scaled state features (..., f) → (..., j)
    frequencies: Tensor  # (action features, j)
    phase: Callable[[Tensor], Tensor]  # scaled state features (..., f) → (..., j)
    state_frequencies: Tensor  # (state features, j): gradient of the phase; zero for categories that are looked up

    def angles(self, states: Tensor, actions: Tensor) -> Tensor:
        """Arguments (..., j) of the cosines."""
        return actions @ self.frequencies + self.phase(states)


@dataclass(frozen=True)
class FourierFeatures:
    """Draws as sums of random cosines."""

    terms: FourierTerms
    weights: Tensor  # (j, c)

    @classmethod
    def drawn(cls, terms: FourierTerms, n: int, generator: torch.Generator) -> "FourierFeatures":
        """n draws with random weights."""
        weights = random_normals(generator, terms.frequencies.shape[1], n).to(terms.frequencies)
        return cls(terms, weights)

    def values(self, here: Features) -> Tensor:
        """All draws (p, c) at points given as scaled features."""
        return (self.terms.amplitude(here[0]) * torch.cos(self.terms.angles(*here))) @ self.weights

    def along(self, here: Features, draws: Tensor) -> tuple[Tensor, Features]:
        """Values (p,) at p points, and gradients with respect to scaled features; point i uses draw `draws[i]`."""
        terms, angles = self.terms, self.terms.angles(*here)
        weighted = self.weights[:, draws].mT * terms.amplitude(here[0])
        falling = -weighted * torch.sin(angles)
        gradients = falling @ terms.state_frequencies.mT, falling @ terms.frequencies.mT
        return (weighted * torch.cos(angles)).sum(-1), gradients


@dataclass(frozen=True)
class NystromFeatures:
    """Draws as weighted sums of the kernel at m points."""

    kernel: Covariance
    points: Features  # scaled features of the m points
    weights: Tensor  # (m, c), L⁻ᵀ w

    def values(self, here: Features) -> Tensor:
        """All draws (p, c) at points given as scaled features."""
        return self.kernel.covariance(here, self.points) @ self.weights

    def along(self, here: Features, draws: Tensor) -> tuple[Tensor, Features]:
        """Values (p,) at p points, and gradients with respect to scaled features; point i uses draw `draws[i]`."""
        weights = self.weights[:, draws].mT  # (p, m)
        value = (self.kernel.covariance(here, self.points) * weights).sum(-1)
        return value, self.kernel.weighted_gradient(here, self.points, weights)


def nystrom_draws(kernel: Covariance, points: Features, n: int, generator: torch.Generator) -> NystromFeatures:
    """n functions drawn from the prior by the Nyström method.

    Their distribution is exact at `points` (scaled features) and approximate elsewhere.
    """
    covariance = kernel.covariance(points, points)
    jitter = JITTER * covariance.diagonal().mean() * torch.eye(len(covariance)).to(covariance)
    weights = random_normals(generator, len(covariance), n).to(covariance)
    factor = cholesky(covariance + jitter)
    return NystromFeatures(kernel, points, torch.linalg.solve_triangular(factor.mT, weights, upper=True))


def random_normals(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal numbers of the given shape."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def random_phases(generator: torch.Generator, *shape: int) -> Tensor:
    """Angles of the given shape, uniform from 0 to 2π."""
    return 2 * pi * torch.rand(*shape, generator=generator, dtype=torch.float64)
