"""Whole functions drawn from the posterior: evaluated anywhere, with gradients, without a joint covariance.

    f = f⁰ + k⁰(·, X̃) K⁻¹ (Y - f⁰(X̃) - ε),   f⁰ = μ⁰ + Σ_j w_j a_j cos(ω_jᵀ x + b_j(s)),   w ~ N(0, I)

==============  =================  ==========================================================================
symbol          here               meaning
==============  =================  ==========================================================================
ω, b            ``frequencies``,   random Fourier features: frequencies of the actions, drawn from the
                ``phase``          spectral density of κ, and phases that depend on the state
a_j             ``amplitude``      √(2 σ² / number of features), σ² of the term and the state
w               ``weights``        one column for each draw
K⁻¹(…)          ``corrections``    what the observations make of the prior draw: exact, whatever the features
==============  =================  ==========================================================================

The phase is linear in the numbers of a state, b(s) = b + ω_sᵀ s; where categories share nothing (δ_ss'), each
of them adds random phases of its own.

References: Rahimi & Recht (2007); Wilson, Borovitskiy, Terenin, Mostowsky & Deisenroth (2020).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import pi, sqrt

import torch
from torch import Tensor

from conbo.errors import SettingError
from conbo.models.kernels import CategoryKernel, Columns, Factor, Kernel, ProductKernel, Trend
from conbo.models.posterior import Posterior, covariance_gradient

CHUNK = 1024  # points a pass


@dataclass(frozen=True)
class FourierFeatures:
    """j features amplitude(s) · cos(ω_xᵀ x + phase(s)) of scaled state and action features."""

    amplitude: Callable[[Tensor], Tensor]  # scaled state features (..., f) → (..., j)
    frequencies: Tensor  # (action features, j)
    phase: Callable[[Tensor], Tensor]  # scaled state features (..., f) → (..., j)
    state_frequencies: Tensor  # (state features, j): gradient of the phase; zero for categories

    def angles(self, states: Tensor, actions: Tensor) -> Tensor:
        """Arguments (..., j) of the cosines."""
        return actions @ self.frequencies + self.phase(states)

    def values(self, states: Tensor, actions: Tensor) -> Tensor:
        """All features (..., j)."""
        return self.amplitude(states) * torch.cos(self.angles(states, actions))


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
            prior = features.values(*here) @ self.weights
            cross = posterior.prior_covariance(here, (posterior.states, posterior.actions))
            parts.append(posterior.constant + prior + cross @ self.corrections)
        return torch.cat(parts)

    def along(self, points: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Values (p,) and gradients (p, d) at points (p, d), each of its own draw (p,)."""
        posterior, features = self.posterior, self.features
        here, observed = posterior.scaled(points), (posterior.states, posterior.actions)
        angles = features.angles(*here)
        weights, corrections = self.weights[:, draws].mT, self.corrections[:, draws].mT
        weighted = weights * features.amplitude(here[0])
        cross = posterior.prior_covariance(here, observed)
        value = posterior.constant + (weighted * torch.cos(angles)).sum(-1) + (cross * corrections).sum(-1)
        falling = -weighted * torch.sin(angles)
        prior = torch.cat(
            [
                posterior.kernel.states.in_unit_cube(falling @ features.state_frequencies.mT, here[0]),
                posterior.kernel.actions.in_unit_cube(falling @ features.frequencies.mT, here[1]),
            ],
            -1,
        )
        return value, prior + covariance_gradient(posterior.kernel, here, observed, corrections)


def draw_paths(posterior: Posterior, n: int, generator: torch.Generator, features: int = 1024) -> Paths:
    """n independent draws, each the sum of so many random features for every term of the kernel."""
    fourier = fourier_features(posterior.kernel, features, generator)
    weights = _normal(generator, fourier.frequencies.shape[1], n).to(posterior.weights)
    observed = posterior.states, posterior.actions
    prior = fourier.values(*observed) @ weights  # (n_observations, n)
    # the variances of the observed rewards' noise are what the factor has beyond the kernel
    noise = (posterior.factor.square().sum(-1) - posterior.kernel.variance(posterior.states)).clamp_min(0)
    errors = noise.sqrt()[:, None] * _normal(generator, posterior.n_observations, n).to(posterior.weights)
    corrections = posterior.weights[:, None] - posterior.solve(prior + errors)
    return Paths(posterior, fourier, weights, corrections)


def fourier_features(kernel: Kernel, n: int, generator: torch.Generator) -> FourierFeatures:
    """n features for every term of the kernel."""
    if isinstance(kernel, CategoryKernel):
        return category_features(kernel, n, generator)
    assert isinstance(kernel, ProductKernel)  # there are no others
    actions = spectral_frequencies(kernel.actions, n, generator)
    states, start = spectral_frequencies(kernel.states, n, generator), _phases(generator, n).to(actions)
    amplitude = torch.full_like(start, sqrt(2 * kernel.outputscale / n))
    return FourierFeatures(lambda s: amplitude, actions, lambda s: s @ states + start, states)


def category_features(kernel: CategoryKernel, n: int, generator: torch.Generator) -> FourierFeatures:
    """The same where states have categories, whose likeness is a sum of terms, the offset being the last."""
    columns, terms = kernel.states.columns, category_terms(kernel)
    j, numeric = n * len(terms), list(columns.numeric)
    frequencies = spectral_frequencies(kernel.actions, j, generator)
    frequencies[:, -n:] = 0.0  # an offset does not depend on the action
    numbers = Factor(Columns((0,) * len(numeric)), kernel.states.lengthscales[numeric], kernel.states.profile)
    state_frequencies = frequencies.new_zeros(columns.width, j)
    state_frequencies[numeric] = spectral_frequencies(numbers, j, generator)
    start = _phases(generator, j).to(frequencies)
    own = torch.tensor([term.own for term in terms]).to(frequencies).repeat_interleave(n, 0)  # (j, columns)
    counts = [columns.categories[column] for column in columns.categorical]
    phases = [_phases(generator, count, j).to(frequencies) * mine for count, mine in zip(counts, own.T, strict=True)]

    def amplitude(states: Tensor) -> Tensor:
        choices = kernel.choices(states)
        scales = torch.stack([term.amplitude(choices) for term in terms], -1)
        return (sqrt(2 / n) * scales).repeat_interleave(n, -1)

    def phase(states: Tensor) -> Tensor:
        total = states @ state_frequencies + start
        for table, choice in zip(phases, kernel.choices(states).unbind(-1), strict=True):
            total = total + table[choice]
        return total

    return FourierFeatures(amplitude, frequencies, phase, state_frequencies)


@dataclass(frozen=True)
class CategoryTerm:
    """a(s) a(s'), times δ of every column that is `own`."""

    amplitude: Callable[[Tensor], Tensor]  # choices (..., columns) → a (...)
    own: tuple[bool, ...]


def category_terms(kernel: CategoryKernel) -> list[CategoryTerm]:
    """The terms whose sum is the likeness of categories, and last the offset."""
    likeness, count = kernel.categories, len(kernel.states.columns.categorical)
    common, own = (False,) * count, (True,) * count
    if isinstance(likeness, Trend):
        kinds = ((likeness.trend, common), (likeness.difference, own), (kernel.constant, own))
        return [CategoryTerm(_constant(variance), columns) for variance, columns in kinds]
    # W Wᵀ + diag(v) is a sum over the columns of (W, √v); a product of sums is a sum over all ways to pick from each
    tables = [torch.cat([w, v.sqrt()[:, None]], -1) for w, v in zip(likeness.loadings, likeness.own, strict=True)]
    ranks = [w.shape[1] for w in likeness.loadings]
    picks = product(*(range(rank + 1) for rank in ranks))
    terms = [
        CategoryTerm(_picked(tables, pick), tuple(p == rank for p, rank in zip(pick, ranks, strict=True)))
        for pick in picks
    ]
    return [*terms, CategoryTerm(_constant(kernel.constant), own)]


def _constant(variance: float) -> Callable[[Tensor], Tensor]:
    return lambda choices: torch.full_like(choices[..., 0], sqrt(variance), dtype=torch.float64)


def _picked(tables: list[Tensor], pick: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    columns = [table[:, place] for table, place in zip(tables, pick, strict=True)]

    def amplitude(choices: Tensor) -> Tensor:
        parts = [column[choice] for column, choice in zip(columns, choices.unbind(-1), strict=True)]
        return torch.stack(parts).prod(0)

    return amplitude


def spectral_frequencies(factor: Factor, n: int, generator: torch.Generator) -> Tensor:
    """n draws (features, n) from the spectral density of a correlation, for scaled features."""
    normal = _normal(generator, factor.columns.width, n).to(factor.lengthscales)
    if factor.profile == "matern52":  # Student's t with five degrees of freedom
        return normal / _normal(generator, 5, n).to(normal).square().sum(0).sqrt()
    if factor.profile != "squared-exponential":
        raise SettingError(f"functions can be drawn if the spectrum is known, but it is not for {factor.profile!r}.")
    return normal


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _phases(generator: torch.Generator, *shape: int) -> Tensor:
    return 2 * pi * torch.rand(*shape, generator=generator, dtype=torch.float64)
