"""Covariances over (state, action), all of the form  k = A(s, s') κ(x, x') + B(s, s').

Only κ depends on the action.  Whatever the states do, a posterior mean as a function of the action is therefore
a weighted sum of κ, and one fast path serves every kernel of this module.

=============  ======================  =====================================================
paper          here                    meaning
=============  ======================  =====================================================
k_X, M(x,x')   ``actions`` (Factor)    κ, correlation between actions
σ₀² k_S(s,s')  ``scale``               A, how strongly two states share their shape
σ₃² δ_ss'      ``offset``              B, what two states share whatever the action
l              ``lengthscales``        one for every parameter, in units of the unit cube
=============  ======================  =====================================================

A factor is a function of a Euclidean distance r between scaled features.  Its profile gives three numbers,
φ = value, ψ = -φ'/r and χ = -ψ'/r, from which follow the gradient -ψ (a-b) and the Hessian -ψ I + χ (a-b)(a-b)ᵀ.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Protocol

import torch
from torch import Tensor

Profile = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


def matern52(squared_distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """φ, ψ, χ of the Matérn-5/2 correlation, with r = √5 |a-b| / l."""
    r = squared_distance.sqrt()
    decay = torch.exp(-r)
    third = decay / 3
    return (1 + r + squared_distance / 3) * decay, (1 + r) * third, third


def squared_exponential(squared_distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """φ, ψ, χ of the squared-exponential correlation, with r = |a-b| / l: all three are the same."""
    value = torch.exp(-squared_distance / 2)
    return value, value, value


PROFILES: dict[str, tuple[Profile, float]] = {
    # name: (profile, r at a distance of one lengthscale)
    "matern52": (matern52, sqrt(5.0)),
    "squared-exponential": (squared_exponential, 1.0),
}


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """|a_i - b_j|² for a (..., p, d) and b (..., q, d), by one matrix product."""
    cross = a @ b.mT
    result = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :] - 2 * cross
    return result.clamp_min_(0)


@dataclass(frozen=True)
class Columns:
    """How the columns of one block (states or actions) enter a kernel: numbers as they are, categories one-hot."""

    categories: tuple[int, ...]  # number of choices of each column, 0 for a number

    @property
    def width(self) -> int:
        """Number of features."""
        return sum(max(count, 1) for count in self.categories)

    @property
    def owner(self) -> tuple[int, ...]:
        """The column that each feature belongs to."""
        return tuple(c for c, count in enumerate(self.categories) for _ in range(max(count, 1)))

    @property
    def numeric(self) -> tuple[int, ...]:
        """The columns that are numbers."""
        return tuple(c for c, count in enumerate(self.categories) if count == 0)

    @property
    def numeric_features(self) -> tuple[int, ...]:
        """The features of those columns, in the same order."""
        return tuple(f for f, c in enumerate(self.owner) if self.categories[c] == 0)

    def features(self, points: Tensor) -> Tensor:
        """Unit-cube points (..., d) as features (..., width)."""
        if not any(self.categories):
            return points
        parts = []
        for column, count in enumerate(self.categories):
            values = points[..., column]
            if count:
                choice = (values * count).long().clamp(0, count - 1)
                parts.append(torch.nn.functional.one_hot(choice, count).to(points.dtype) / sqrt(2.0))
            else:
                parts.append(values[..., None])
        return torch.cat(parts, -1)

    def points(self, features: Tensor) -> Tensor:
        """The inverse of `features`."""
        if not any(self.categories):
            return features
        parts, start = [], 0
        for count in self.categories:
            if count:
                choice = features[..., start : start + count].argmax(-1)
                parts.append((choice.to(features.dtype) + 0.5) / count)
            else:
                parts.append(features[..., start])
            start += max(count, 1)
        return torch.stack(parts, -1)


@dataclass(frozen=True)
class Factor:
    """A stationary correlation over one block of columns: 1 at distance zero."""

    columns: Columns
    lengthscales: Tensor  # (d,)
    profile: str = "matern52"

    @property
    def feature_scales(self) -> Tensor:
        """What features are multiplied by, so that profiles see plain distances: (width,)."""
        unit = PROFILES[self.profile][1]
        return unit / self.lengthscales[list(self.columns.owner)]

    def scaled(self, points: Tensor) -> Tensor:
        """Unit-cube points (..., d) as scaled features (..., width)."""
        return self.columns.features(points) * self.feature_scales

    def tables(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """φ, ψ, χ between scaled features a (..., p, width) and b (..., q, width)."""
        return PROFILES[self.profile][0](squared_distances(a, b))

    def correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """φ between scaled features."""
        return self.tables(a, b)[0]


class Kernel(Protocol):
    """A covariance A(s, s') κ(x, x') + B(s, s'); states and actions come as scaled features."""

    @property
    def actions(self) -> Factor:
        """κ."""

    @property
    def states(self) -> Factor:
        """How states are turned into features."""

    def scale(self, a: Tensor, b: Tensor) -> Tensor:
        """A between states a (..., p, width) and b (..., q, width)."""

    def scale_slope(self, a: Tensor, b: Tensor) -> Tensor:
        """ψ of A: the gradient of A in a is -ψ (a-b)."""

    def offset(self, a: Tensor, b: Tensor) -> Tensor | None:
        """B, or None where there is none."""

    @property
    def variance(self) -> float:
        """k of any point with itself."""


@dataclass(frozen=True)
class ProductKernel:
    """σ² k_S(s, s') k_X(x, x')."""

    states: Factor
    actions: Factor
    outputscale: float = 1.0

    def scale(self, a: Tensor, b: Tensor) -> Tensor:
        """σ² k_S."""
        return self.outputscale * self.states.correlation(a, b)

    def scale_slope(self, a: Tensor, b: Tensor) -> Tensor:
        """σ² ψ_S."""
        return self.outputscale * self.states.tables(a, b)[1]

    def offset(self, a: Tensor, b: Tensor) -> Tensor | None:
        """No state has an offset of its own."""
        return None

    @property
    def variance(self) -> float:
        """σ²."""
        return self.outputscale


@dataclass(frozen=True)
class TrendKernel:
    """σ₀² M(x,x') + δ_ss' (σ₁² M(x,x') + σ₃²): a common trend, and how each state differs from it."""

    states: Factor
    actions: Factor
    trend: float
    difference: float
    constant: float

    def same(self, a: Tensor, b: Tensor) -> Tensor:
        """δ between states."""
        return (squared_distances(a, b) < 1e-9).to(a.dtype)

    def scale(self, a: Tensor, b: Tensor) -> Tensor:
        """σ₀² + δ σ₁²."""
        return self.trend + self.difference * self.same(a, b)

    def scale_slope(self, a: Tensor, b: Tensor) -> Tensor:
        """Categories have no slope."""
        return torch.zeros_like(squared_distances(a, b))

    def offset(self, a: Tensor, b: Tensor) -> Tensor | None:
        """δ σ₃²."""
        return self.constant * self.same(a, b)

    @property
    def variance(self) -> float:
        """σ₀² + σ₁² + σ₃²."""
        return self.trend + self.difference + self.constant
