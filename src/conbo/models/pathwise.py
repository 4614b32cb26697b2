"""Whole functions drawn from the posterior: evaluated anywhere, with gradients, without a joint covariance.

    f = f⁰ + k⁰(·, X̃) K⁻¹ (Y - f⁰(X̃) - ε),   f⁰ = μ⁰ + Σ_j w_j a_j cos(ω_jᵀ x + b_j(s)),   w ~ N(0, I)

==============  =================  ==========================================================================
symbol          here               meaning
==============  =================  ==========================================================================
ω, b            ``frequencies``,   random Fourier features: frequencies of the actions, drawn from the
                ``phase``          spectral density of κ, and phases that depend on the state
a_j             ``amplitude``      √(2 σ² / number of features)
w               ``weights``        one column for each draw
K⁻¹(…)          ``corrections``    what the observations make of the prior draw: exact, whatever the features
==============  =================  ==========================================================================

In a product kernel the phase is linear in the state, b(s) = b + ω_sᵀ s; where states are categories that
share nothing (δ_ss'), every state has random phases of its own.

References: Rahimi & Recht (2007); Wilson, Borovitskiy, Terenin, Mostowsky & Deisenroth (2020).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt

import torch
from torch import Tensor

from conbo.models.kernels import Columns, Factor, Kernel, ProductKernel, TrendKernel
from conbo.models.posterior import Posterior, covariance_gradient

CHUNK = 1024  # points a pass


@dataclass(frozen=True)
class FourierFeatures:
    """j features amplitude · cos(ω_xᵀ x + phase(s)) of scaled state and action features."""

    amplitude: Tensor  # (j,)
    frequencies: Tensor  # (action features, j)
    phase: Callable[[Tensor], Tensor]  # scaled state features (..., f) → (..., j)
    state_frequencies: Tensor  # (state features, j): gradient of the phase; zero for categories

    def angles(self, states: Tensor, actions: Tensor) -> Tensor:
        """Arguments (..., j) of the cosines."""
        return actions @ self.frequencies + self.phase(states)


@dataclass(frozen=True)
class Paths:
    """c functions drawn from one posterior."""

    posterior: Posterior
    features: FourierFeatures
    weights: Tensor  # (j, c)
    corrections: Tensor  # (n, c)

    def __call__(self, points: Tensor) -> Tensor:
        """All draws at points (p, d): (p, c)."""
        parts = []
        posterior, features = self.posterior, self.features
        for chunk in points.split(CHUNK):
            here = posterior.scaled(chunk)
            prior = (features.amplitude * torch.cos(features.angles(*here))) @ self.weights
            cross = posterior.prior_covariance(here, (posterior.states, posterior.actions))
            parts.append(posterior.constant + prior + cross @ self.corrections)
        return torch.cat(parts)

    def along(self, points: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Values (p,) and gradients (p, d) at points (p, d), each of its own draw (p,)."""
        posterior, features = self.posterior, self.features
        here, observed = posterior.scaled(points), (posterior.states, posterior.actions)
        angles = features.angles(*here)
        weights, corrections = self.weights[:, draws].mT, self.corrections[:, draws].mT
        weighted = weights * features.amplitude
        cross = posterior.prior_covariance(here, observed)
        value = posterior.constant + (weighted * torch.cos(angles)).sum(-1) + (cross * corrections).sum(-1)
        falling = -weighted * torch.sin(angles)
        prior = torch.cat(
            [
                _per_column(posterior.kernel.states, falling @ features.state_frequencies.mT),
                _per_column(posterior.kernel.actions, falling @ features.frequencies.mT),
            ],
            -1,
        )
        return value, prior + covariance_gradient(posterior.kernel, here, observed, corrections)


def draw_paths(posterior: Posterior, n: int, generator: torch.Generator, features: int = 1024) -> Paths:
    """n independent draws, each the sum of so many random features for every term of the kernel."""
    fourier = fourier_features(posterior.kernel, features, generator)
    weights = _normal(generator, len(fourier.amplitude), n).to(posterior.weights)
    observed = posterior.states, posterior.actions
    prior = (fourier.amplitude * torch.cos(fourier.angles(*observed))) @ weights  # (n_observations, n)
    # the variances of the observed rewards' noise are what the factor has beyond the kernel
    noise = (posterior.factor.square().sum(-1) - posterior.kernel.variance).clamp_min(0)
    errors = noise.sqrt()[:, None] * _normal(generator, posterior.n_observations, n).to(posterior.weights)
    corrections = posterior.weights[:, None] - posterior.solve(prior + errors)
    return Paths(posterior, fourier, weights, corrections)


def fourier_features(kernel: Kernel, n: int, generator: torch.Generator) -> FourierFeatures:
    """n features for every term of the kernel."""
    device = kernel.actions.lengthscales.device

    def shift() -> Tensor:
        return (2 * pi * torch.rand(n, generator=generator, dtype=torch.float64)).to(device)

    actions = spectral_frequencies(kernel.actions, n, generator)
    if isinstance(kernel, ProductKernel):
        states, start = spectral_frequencies(kernel.states, n, generator), shift()
        amplitude = torch.full_like(start, sqrt(2 * kernel.outputscale / n))
        return FourierFeatures(amplitude, actions, lambda s: s @ states + start, states)
    assert isinstance(kernel, TrendKernel)  # there are no others
    columns = kernel.states.columns
    table = (2 * pi * torch.rand(_combinations(columns), 2 * n, generator=generator, dtype=torch.float64)).to(device)
    common = shift()

    def phase(states: Tensor) -> Tensor:
        own = table[_combination(columns, states)]
        return torch.cat([common.expand(*own.shape[:-1], n), own], -1)

    variances = torch.tensor([kernel.trend, kernel.difference, kernel.constant], dtype=torch.float64, device=device)
    amplitude = (2 * variances / n).sqrt().repeat_interleave(n)
    difference = spectral_frequencies(kernel.actions, n, generator)
    frequencies = torch.cat([actions, difference, torch.zeros_like(actions)], -1)
    return FourierFeatures(amplitude, frequencies, phase, frequencies.new_zeros(columns.width, 3 * n))


def spectral_frequencies(factor: Factor, n: int, generator: torch.Generator) -> Tensor:
    """n draws (features, n) from the spectral density of a correlation, for scaled features."""
    normal = _normal(generator, factor.columns.width, n).to(factor.lengthscales)
    if factor.profile == "matern52":  # Student's t with five degrees of freedom
        return normal / _normal(generator, 5, n).to(normal).square().sum(0).sqrt()
    return normal


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _combinations(columns: Columns) -> int:
    """How many combinations of categories there are."""
    total = 1
    for count in columns.categories:
        total *= count
    return total


def _combination(columns: Columns, states: Tensor) -> Tensor:
    """The number (...) of the combination that one-hot features (..., width) stand for."""
    number, start = torch.zeros(states.shape[:-1], dtype=torch.long, device=states.device), 0
    for count in columns.categories:
        number = number * count + states[..., start : start + count].argmax(-1)
        start += count
    return number


def _per_column(factor: Factor, gradient: Tensor) -> Tensor:
    """A gradient in scaled features (..., width) as one in the unit cube (..., d); categories do not move."""
    columns = factor.columns
    scaled = gradient * factor.feature_scales
    result = scaled.new_zeros(*scaled.shape[:-1], len(columns.categories))
    result[..., list(columns.numeric)] = scaled[..., list(columns.numeric_features)]
    return result
