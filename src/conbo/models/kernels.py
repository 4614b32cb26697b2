"""Covariances over (state, action), all of the form  k = A(s, s') κ(x, x') + B(s, s').

Only κ depends on the action.  Whatever the states do, a posterior mean as a function of the action is therefore
a weighted sum of κ, and one fast path serves every kernel of this module.

===============  ==========================  =====================================================
paper            here                        meaning
===============  ==========================  =====================================================
k_X, M(x,x')     ``actions`` (Factor)        κ, correlation between actions
σ₀² k_S(s,s')    ``scale``                   A, how strongly two states share their shape
σ₃² δ_ss'        ``offset``                  B, what two states share whatever the action
σ₀² + δ_ss' σ₁²  ``Trend``                   A of categories: a common trend, and differences from it
W Wᵀ + diag(v)   ``MultiTask``               A of categories: low rank, and what each has of its own
l                ``lengthscales``            one for every parameter, in units of the unit cube
===============  ==========================  =====================================================

A factor is a function of a Euclidean distance r between scaled features.  Its profile gives three numbers,
φ = value, ψ = -φ'/r and χ = -ψ'/r, from which follow the gradient -ψ (a-b) and the Hessian -ψ I + χ (a-b)(a-b)ᵀ.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import Protocol

import torch
from torch import Tensor

from conbo.models.warp import Warp

Profile = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


def matern52(squared_distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """φ, ψ, χ of the Matérn-5/2 correlation, with r = √5 |a-b| / l."""
    r = squared_distance.sqrt()
    decay = torch.exp(-r)
    third = decay / 3
    return (1 + r + squared_distance / 3) * decay, (1 + r) * third, third


def matern52_alone(squared_distance: Tensor) -> Tensor:
    """φ of `matern52` by itself, in the memory of its argument: most calls want no more."""
    r = squared_distance.sqrt()
    polynomial = squared_distance.div_(3).add_(r).add_(1)
    return r.neg_().exp_().mul_(polynomial)


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
    """How the columns of one block (states or actions) enter a kernel: numbers as they are, categories one-hot.

    For a kernel that looks categories up they are `coded` instead: one feature each, the number of the choice.
    """

    categories: tuple[int, ...]  # number of choices of each column, 0 for a number
    coded: bool = False

    def _width(self, count: int) -> int:
        return 1 if self.coded else max(count, 1)

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.owner)

    @property
    def owner(self) -> tuple[int, ...]:
        """The column that each feature belongs to."""
        return tuple(c for c, count in enumerate(self.categories) for _ in range(self._width(count)))

    @property
    def numeric(self) -> tuple[int, ...]:
        """The columns that are numbers."""
        return tuple(c for c, count in enumerate(self.categories) if count == 0)

    @property
    def categorical(self) -> tuple[int, ...]:
        """The columns that are categories."""
        return tuple(c for c, count in enumerate(self.categories) if count)

    @property
    def numeric_features(self) -> tuple[int, ...]:
        """The features of the numbers, in the same order."""
        return tuple(f for f, c in enumerate(self.owner) if self.categories[c] == 0)

    def choices(self, points: Tensor) -> Tensor:
        """The numbers of the choices (..., categorical columns) of unit-cube points (..., d)."""
        columns = list(self.categorical)
        counts = torch.tensor([self.categories[c] for c in columns], dtype=torch.long, device=points.device)
        return (points[..., columns] * counts).long().clamp_min(0).minimum(counts - 1)

    def features(self, points: Tensor) -> Tensor:
        """Unit-cube points (..., d) as features (..., width)."""
        if not any(self.categories):
            return points
        choices = self.choices(points)
        if self.coded:
            features = points.clone()
            features[..., list(self.categorical)] = choices.to(points.dtype)
            return features
        parts = [points[..., column, None] for column in range(len(self.categories))]
        for place, column in enumerate(self.categorical):
            one_hot = torch.nn.functional.one_hot(choices[..., place], self.categories[column])
            parts[column] = one_hot.to(points.dtype) / sqrt(2.0)
        return torch.cat(parts, -1)

    def points(self, features: Tensor) -> Tensor:
        """The inverse of `features`."""
        if not any(self.categories):
            return features
        parts, start = [], 0
        for count in self.categories:
            own = features[..., start : start + self._width(count)]
            if count:
                choice = own[..., 0] if self.coded else own.argmax(-1).to(features.dtype)
                parts.append((choice + 0.5) / count)
            else:
                parts.append(own[..., 0])
            start += self._width(count)
        return torch.stack(parts, -1)


@dataclass(frozen=True)
class Factor:
    """A correlation over one block of columns, a function of their distance after the warp: 1 at distance zero."""

    columns: Columns
    lengthscales: Tensor  # (d,)
    profile: str = "matern52"
    warp: Warp | None = None

    @cached_property
    def feature_scales(self) -> Tensor:
        """What features are multiplied by, so that profiles see plain distances: (width,)."""
        unit = PROFILES[self.profile][1]
        return unit / self.lengthscales[list(self.columns.owner)]

    @cached_property
    def box(self) -> tuple[Tensor, Tensor, Tensor]:
        """Lower and upper end of every scaled feature, and whether it may move: (width,) each."""
        upper = self.feature_scales
        free = torch.zeros(len(upper), dtype=torch.bool, device=upper.device)
        free[list(self.columns.numeric_features)] = True
        return torch.zeros_like(upper), upper, free

    def scaled(self, points: Tensor) -> Tensor:
        """Unit-cube points (..., d) as scaled features (..., width)."""
        bent = points if self.warp is None else self.warp(points)
        return self.columns.features(bent) * self.feature_scales

    def unscaled(self, features: Tensor) -> Tensor:
        """The inverse of `scaled`; features beyond the box come from its edge."""
        bent = self.columns.points(features / self.feature_scales).clamp(0, 1)
        return bent if self.warp is None else self.warp.inverse(bent)

    def in_unit_cube(self, gradient: Tensor, features: Tensor) -> Tensor:
        """A gradient in scaled features (..., width), at these, as one in points (..., d); categories do not move."""
        gradient = gradient * self.feature_scales
        if self.columns.categorical:
            by_column = gradient.new_zeros(*gradient.shape[:-1], len(self.columns.categories))
            by_column[..., list(self.columns.numeric)] = gradient[..., list(self.columns.numeric_features)]
            gradient = by_column
        return gradient if self.warp is None else gradient * self.warp.slope(self.unscaled(features))

    def tables(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """φ, ψ, χ between scaled features a (..., p, width) and b (..., q, width)."""
        return PROFILES[self.profile][0](squared_distances(a, b))

    def correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """φ between scaled features."""
        squared = squared_distances(a, b)
        if self.profile == "matern52" and not squared.requires_grad:
            return matern52_alone(squared)
        return PROFILES[self.profile][0](squared)[0]

    def to(self, device: torch.device) -> "Factor":
        """The same on another device."""
        warp = None if self.warp is None else self.warp.to(device)
        return replace(self, lengthscales=self.lengthscales.to(device), warp=warp)


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
        """ψ of A: the gradient of A in the numbers of a is -ψ (a-b)."""

    def offset(self, a: Tensor, b: Tensor) -> Tensor | None:
        """B, or None where there is none."""

    def offset_slope(self, a: Tensor, b: Tensor) -> Tensor | None:
        """ψ of B."""

    def variance(self, states: Tensor) -> Tensor:
        """k (...) of points with these states (..., width) with themselves; moving a number does not change it."""

    def bent(self, warp: Warp) -> "Kernel":
        """The same with actions that are bent."""

    def to(self, device: torch.device) -> "Kernel":
        """The same on another device."""


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

    def offset_slope(self, a: Tensor, b: Tensor) -> Tensor | None:
        """Nor a slope of it."""
        return None

    def variance(self, states: Tensor) -> Tensor:
        """σ²."""
        return states.new_full(states.shape[:-1], self.outputscale)

    def bent(self, warp: Warp) -> "ProductKernel":
        """The same with actions that are bent."""
        return replace(self, actions=replace(self.actions, warp=warp))

    def to(self, device: torch.device) -> "ProductKernel":
        """The same on another device."""
        return replace(self, states=self.states.to(device), actions=self.actions.to(device))


def same_choices(a: Tensor, b: Tensor) -> Tensor:
    """δ between the choices a (..., p, columns) and b (..., q, columns): whether they agree in every column."""
    return (a[..., :, None, :] == b[..., None, :, :]).all(-1).to(torch.float64)


@dataclass(frozen=True)
class Trend:
    """σ₀² + δ σ₁² between categories: what all states share, and how each differs from it."""

    trend: float
    difference: float

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Between choices a (..., p, columns) and b (..., q, columns)."""
        return same_choices(a, b).mul_(self.difference).add_(self.trend)

    def variance(self, choices: Tensor) -> Tensor:
        """Of choices (..., columns) with themselves."""
        total = self.trend + self.difference
        return torch.full(choices.shape[:-1], total, dtype=torch.float64, device=choices.device)

    def to(self, device: torch.device) -> "Trend":
        """It holds no tensors."""
        return self


@dataclass(frozen=True)
class MultiTask:
    """W Wᵀ + diag(v) between the choices of a column (the intrinsic coregionalisation model).

    Several columns are multiplied: parameters grow with the sum of their numbers of choices, not with the number
    of combinations, and a combination that was never seen is judged by what its choices did elsewhere.
    """

    loadings: tuple[Tensor, ...]  # W of each column, (choices, rank)
    own: tuple[Tensor, ...]  # v of each column, (choices,)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Between choices a (..., p, columns) and b (..., q, columns)."""
        parts = []
        for column, (loadings, own) in enumerate(zip(self.loadings, self.own, strict=True)):
            mine, other = a[..., column], b[..., column]
            own_part = same_choices(mine[..., None], other[..., None]) * own[mine][..., None]
            parts.append(loadings[mine] @ loadings[other].mT + own_part)
        return _product(parts)

    def variance(self, choices: Tensor) -> Tensor:
        """Of choices (..., columns) with themselves."""
        columns = zip(self.loadings, self.own, choices.unbind(-1), strict=True)
        return _product([loadings[choice].square().sum(-1) + own[choice] for loadings, own, choice in columns])

    def to(self, device: torch.device) -> "MultiTask":
        """The same on another device."""
        return MultiTask(tuple(w.to(device) for w in self.loadings), tuple(v.to(device) for v in self.own))


@dataclass(frozen=True)
class CategoryKernel:
    """(T(s, s') κ(x, x') + δ_ss' σ₃²) k_C(s, s'): T and δ of the state's categories, k_C of its numbers if it has any.

    With `Trend` and without numbers this is the paper's σ₀² M(x,x') + δ_ss' (σ₁² M(x,x') + σ₃²).
    """

    states: Factor  # of coded columns; the lengthscales of categories have no meaning
    actions: Factor
    categories: Trend | MultiTask
    constant: float

    def scale(self, a: Tensor, b: Tensor) -> Tensor:
        """T k_C."""
        table = self.categories.covariance(self.choices(a), self.choices(b))
        return table * self._numbers(a, b)[0] if self.states.columns.numeric else table

    def scale_slope(self, a: Tensor, b: Tensor) -> Tensor:
        """T ψ_C."""
        return self.categories.covariance(self.choices(a), self.choices(b)) * self._numbers(a, b)[1]

    def offset(self, a: Tensor, b: Tensor) -> Tensor | None:
        """δ σ₃² k_C."""
        table = same_choices(self.choices(a), self.choices(b)).mul_(self.constant)
        return table * self._numbers(a, b)[0] if self.states.columns.numeric else table

    def offset_slope(self, a: Tensor, b: Tensor) -> Tensor | None:
        """δ σ₃² ψ_C."""
        return self.constant * same_choices(self.choices(a), self.choices(b)) * self._numbers(a, b)[1]

    def variance(self, states: Tensor) -> Tensor:
        """T(s, s) + σ₃²."""
        return self.categories.variance(self.choices(states)) + self.constant

    def bent(self, warp: Warp) -> "CategoryKernel":
        """The same with actions that are bent."""
        return replace(self, actions=replace(self.actions, warp=warp))

    def to(self, device: torch.device) -> "CategoryKernel":
        """The same on another device."""
        states, actions = self.states.to(device), self.actions.to(device)
        return replace(self, states=states, actions=actions, categories=self.categories.to(device))

    def choices(self, states: Tensor) -> Tensor:
        """The numbers of the choices (..., categorical columns) of scaled features (..., width)."""
        columns = list(self.states.columns.categorical)
        return (states[..., columns] / self.states.feature_scales[columns]).round().long()

    def _numbers(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """φ, ψ, χ between the numbers of states."""
        columns = list(self.states.columns.numeric_features)
        return self.states.tables(a[..., columns], b[..., columns])


def _product(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total * part
    return total
