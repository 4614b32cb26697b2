"""Functions drawn from the prior of a Gaussian process, which can be evaluated anywhere, with gradients.

There are two ways to draw a function f⁰.  In both, f⁰ is a weighted sum of fixed features with weights w ~ N(0, I):

==================  =======================================  ===================================================
class               f⁰(s, x)                                 use
==================  =======================================  ===================================================
`FourierFeatures`   Σ_j w_j a_j(s) cos(ω_jᵀ x + b_j(s))      state and action correlations have known spectra
`NystromFeatures`   k(·, U) L⁻ᵀ w,  L Lᵀ = k(U, U)           any kernel: exact at points U, smoother between them
==================  =======================================  ===================================================

Here s and x are a state and an action as scaled inputs, k is the kernel, and U is a set of fixed points.

The frequencies ω_j are random.  The amplitudes a_j(s) scale f⁰ to the variance of the kernel.  The phases are linear in
the state: b_j(s) = β_j + ν_jᵀ s, with random β_j and ν_j.  A kernel may have a term that is zero unless two states have
the same categories.  In the features of such a term, every category adds its own random phase to b_j(s), so that f⁰ is
independent between categories.

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

JITTER = 1e-8  # multiple of the mean variance that is added to the diagonal, because points may be close to each other


class Covariance(Protocol):
    """The methods of a kernel that `NystromFeatures` needs; points are given as scaled inputs."""

    def covariance(self, a: Features, b: Features) -> Tensor:
        """Return the covariances (..., p, q) between p points a and q points b, given as scaled inputs."""

    def weighted_gradient(self, here: Features, there: Features, weights: Tensor) -> Features:
        """Return the gradients of Σ_j weights[..., i, j] covariance(here_i, there_j) with respect to points here_i.

        `weights` are (..., p, m) for p points `here` and m points `there`. Points are given as scaled inputs, and the
        gradients are with respect to these.
        """


class PriorDraws(Protocol):
    """c sample paths: functions of state and action that are drawn from a prior of mean zero."""

    def values(self, here: Features) -> Tensor:
        """Return the values (p, c) of all c functions at p points, which are given as scaled inputs."""

    def along(self, here: Features, draws: Tensor) -> tuple[Tensor, Features]:
        """Return values (p,) and gradients at p points; point i uses the function with index `draws[i]`.

        Points are given as scaled inputs, and the gradients are with respect to these.
        """


@dataclass(frozen=True)
class FourierTerms:
    """The j random Fourier features amplitude(s) · cos(ω_xᵀ x + phase(s)) of a kernel.

    The state s and the action x are scaled inputs, and ω_x are the `frequencies` of actions.
    """

    amplitude: Callable[[Tensor], Tensor]  # scaled inputs of states (..., f) → (..., j)
    frequencies: Tensor  # (action features, j), ω_x
    phase: Callable[[Tensor], Tensor]  # scaled inputs of states (..., f) → (..., j)
    state_frequencies: Tensor  # (state features, j): gradient of the phase; zero for coded categories

    def angles(self, states: Tensor, actions: Tensor) -> Tensor:
        """Return the arguments (..., j) of the j cosines at states and actions that are given as scaled inputs."""
        return actions @ self.frequencies + self.phase(states)


@dataclass(frozen=True)
class FourierFeatures:
    """c functions drawn from a prior, each a weighted sum of j cosines with random frequencies and phases."""

    terms: FourierTerms
    weights: Tensor  # (j, c)

    @classmethod
    def drawn(cls, terms: FourierTerms, n: int, generator: torch.Generator) -> "FourierFeatures":
        """Draw n functions, which are sums of the given cosines with random weights."""
        weights = random_normals(generator, terms.frequencies.shape[1], n).to(terms.frequencies)
        return cls(terms, weights)

    def values(self, here: Features) -> Tensor:
        """Return the values (p, c) of all c functions at p points, which are given as scaled inputs."""
        return (self.terms.amplitude(here[0]) * torch.cos(self.terms.angles(*here))) @ self.weights

    def along(self, here: Features, draws: Tensor) -> tuple[Tensor, Features]:
        """Return values (p,) and gradients at p points; point i uses the function with index `draws[i]`.

        Points are given as scaled inputs, and the gradients are with respect to these.
        """
        terms, angles = self.terms, self.terms.angles(*here)
        weighted = self.weights[:, draws].mT * terms.amplitude(here[0])
        falling = -weighted * torch.sin(angles)
        gradients = falling @ terms.state_frequencies.mT, falling @ terms.frequencies.mT
        return (weighted * torch.cos(angles)).sum(-1), gradients


@dataclass(frozen=True)
class NystromFeatures:
    """c functions drawn from a prior, each a weighted sum of the covariances with m fixed points."""

    kernel: Covariance
    points: Features  # scaled inputs of the m points
    weights: Tensor  # (m, c), L⁻ᵀ w

    def values(self, here: Features) -> Tensor:
        """Return the values (p, c) of all c functions at p points, which are given as scaled inputs."""
        return self.kernel.covariance(here, self.points) @ self.weights

    def along(self, here: Features, draws: Tensor) -> tuple[Tensor, Features]:
        """Return values (p,) and gradients at p points; point i uses the function with index `draws[i]`.

        Points are given as scaled inputs, and the gradients are with respect to these.
        """
        weights = self.weights[:, draws].mT  # (p, m)
        value = (self.kernel.covariance(here, self.points) * weights).sum(-1)
        return value, self.kernel.weighted_gradient(here, self.points, weights)


def nystrom_draws(kernel: Covariance, points: Features, n: int, generator: torch.Generator) -> NystromFeatures:
    """Draw n functions from the prior by the Nyström method.

    Their distribution is exact at `points` (scaled inputs) and approximate elsewhere.
    """
    covariance = kernel.covariance(points, points)
    jitter = JITTER * covariance.diagonal().mean() * torch.eye(len(covariance)).to(covariance)
    weights = random_normals(generator, len(covariance), n).to(covariance)
    factor = cholesky(covariance + jitter)
    return NystromFeatures(kernel, points, torch.linalg.solve_triangular(factor.mT, weights, upper=True))


def random_normals(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw a tensor of the given shape with standard normal entries."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def random_phases(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw a tensor of the given shape with angles that are uniform from 0 to 2π."""
    return 2 * pi * torch.rand(*shape, generator=generator, dtype=torch.float64)
