"""Kernels for states with categories, in which the covariance between two choices is learned.

Every `Kernel` has the form k = A(s, s') κ(x, x') + B(s, s') for states s, s' and actions x, x', where κ is a
correlation.  In this file, A is one of two functions of the categories, and B is the same in both cases:

===================  =============  ================================================================================
term                 here           meaning
===================  =============  ================================================================================
A = σ₀² + δ_ss' σ₁²  ``Trend``      a trend that all categories share, and differences from it
A = W Wᵀ + diag(v)   ``MultiTask``  a covariance of low rank, and a variance for each choice
B = σ₃² δ_ss'        ``constant``   covariance of the part that does not depend on the action
===================  =============  ================================================================================

δ_ss' is 1 if all categories of s and s' are equal, else 0.  If states also have numeric columns, A and B are multiplied
by a correlation of these.  Without numeric columns, the kernel with `Trend` is that of Pearce, Klaise & Groves,
"Practical Bayesian Optimization of Objectives with Conditioning Variables".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from math import sqrt
from typing import Any, Protocol

import torch
from torch import Tensor

from conbo.models.columns import same_choices
from conbo.models.kernels import Factor, Kernel, factors_record
from conbo.models.prior_draws import FourierFeatures, FourierTerms, PriorDraws, random_phases


@dataclass(frozen=True)
class CategoryTerm:
    """One term of a covariance between the categories of two states s and s': a(s) a(s').

    The amplitude a is a function of a state's categories. If some columns are marked in `own`, the term is zero unless
    both states have the same choices in these columns.
    """

    amplitude: Callable[[Tensor], Tensor]  # indices of choices (..., columns) → a (...)
    own: tuple[bool, ...]  # for each categorical column, whether both states must have the same choice


class CategoryTable(Protocol):
    """The covariance of two states as a function of their categories: the factor T of a `CategoryKernel`.

    Categories are given as choices: the index of the chosen value in each categorical column.
    """

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the covariances (..., p, q) between p states with categories a and q states with categories b.

        The categories of a state are the indices of its choices in the categorical columns: a is (..., p, columns), and
        b is (..., q, columns).
        """

    def variance(self, choices: Tensor) -> Tensor:
        """Return the covariance of each state with itself, as a tensor (...).

        `choices` (..., columns) has the index of the state's choice in every categorical column.
        """

    def terms(self, columns: int) -> list[CategoryTerm]:
        """Return the terms that add up to this covariance, for the given number of categorical columns."""

    def record(self) -> dict[str, Any]:
        """Return the parameters of the covariance and its name (`type`) as plain values, for a saved policy."""

    def to(self, device: torch.device) -> "CategoryTable":
        """Return a copy with its tensors on another device."""


@dataclass(frozen=True)
class Trend:
    """The covariance σ₀² + δ σ₁² of two states: a shared trend, and a deviation for each combination of categories.

    σ₀² is the variance of the trend, and σ₁² that of the deviations. δ is 1 if all categories of the two states are
    equal, and 0 otherwise.
    """

    trend: float  # σ₀²
    difference: float  # σ₁²

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the covariances (..., p, q) between p states with categories a and q states with categories b.

        The categories of a state are the indices of its choices in the categorical columns: a is (..., p, columns), and
        b is (..., q, columns).
        """
        return same_choices(a, b).mul_(self.difference).add_(self.trend)

    def variance(self, choices: Tensor) -> Tensor:
        """Return the covariance of each state with itself, as a tensor (...).

        `choices` (..., columns) has the index of the state's choice in every categorical column.
        """
        total = self.trend + self.difference
        return torch.full(choices.shape[:-1], total, dtype=torch.float64, device=choices.device)

    def terms(self, columns: int) -> list[CategoryTerm]:
        """Return two terms: one that all states share, and one that only states with equal categories share."""
        kinds = ((self.trend, False), (self.difference, True))
        return [CategoryTerm(_constant(variance), (own,) * columns) for variance, own in kinds]

    def record(self) -> dict[str, Any]:
        """Return the two variances and the name of the covariance (`type`) as plain values, for a saved policy."""
        return {"type": "trend", "trend": self.trend, "difference": self.difference}

    def to(self, device: torch.device) -> "Trend":
        """Return the object itself, because it holds no tensors."""
        return self


@dataclass(frozen=True)
class MultiTask:
    """The covariance W Wᵀ + diag(v) between the choices of a categorical column (intrinsic coregionalization).

    W has a row for each choice and few columns. v holds a variance for each choice. With several categorical columns,
    their covariances are multiplied. The number of parameters then grows with the total number of choices, not with
    the number of combinations. An unseen combination is predicted from observed ones with equal or correlated choices.
    """

    loadings: tuple[Tensor, ...]  # W of each column, (choices, rank)
    own: tuple[Tensor, ...]  # v of each column, (choices,)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the covariances (..., p, q) between p states with categories a and q states with categories b.

        The categories of a state are the indices of its choices in the categorical columns: a is (..., p, columns), and
        b is (..., q, columns).
        """
        parts = []
        for column, (loadings, own) in enumerate(zip(self.loadings, self.own, strict=True)):
            mine, other = a[..., column], b[..., column]
            own_part = same_choices(mine[..., None], other[..., None]) * own[mine][..., None]
            parts.append(loadings[mine] @ loadings[other].mT + own_part)
        return _product(parts)

    def variance(self, choices: Tensor) -> Tensor:
        """Return the covariance of each state with itself, as a tensor (...).

        `choices` (..., columns) has the index of the state's choice in every categorical column.
        """
        columns = zip(self.loadings, self.own, choices.unbind(-1), strict=True)
        return _product([loadings[choice].square().sum(-1) + own[choice] for loadings, own, choice in columns])

    def terms(self, columns: int) -> list[CategoryTerm]:
        """Return the terms that add up to the product of W Wᵀ + diag(v) over the given number of categorical columns.

        Each factor W Wᵀ + diag(v) has one term for each column of W, and one term for v. The product has one term for
        every way to pick a term from each factor.
        """
        tables = [torch.cat([w, v.sqrt()[:, None]], -1) for w, v in zip(self.loadings, self.own, strict=True)]
        ranks = [w.shape[1] for w in self.loadings]
        picks = product(*(range(rank + 1) for rank in ranks))
        return [
            CategoryTerm(_picked(tables, pick), tuple(p == rank for p, rank in zip(pick, ranks, strict=True)))
            for pick in picks
        ]

    def record(self) -> dict[str, Any]:
        """Return W and v of every categorical column as plain values, for a saved policy.

        The covariance of a column's choices is W Wᵀ + diag(v). The name of this covariance is included as `type`.
        """
        loadings, own = ([tensor.tolist() for tensor in part] for part in (self.loadings, self.own))
        return {"type": "multi-task", "loadings": loadings, "own": own}

    def to(self, device: torch.device) -> "MultiTask":
        """Return a copy with its tensors on another device."""
        return MultiTask(tuple(w.to(device) for w in self.loadings), tuple(v.to(device) for v in self.own))


@dataclass(frozen=True)
class CategoryKernel(Kernel):
    """The kernel (T(s, s') κ(x, x') + δ_ss' σ₃²) k_C(s, s') for states with categories.

    For two points with states s, s' and actions x, x', T is a covariance of the states' categories. δ is 1 if all
    categories are equal, else 0. k_C is a correlation of the states' numeric columns, and κ is a correlation of the
    actions. σ₃² is the variance of the part that does not depend on the action. With `Trend` as T and no numeric
    columns, this is the kernel σ₀² κ(x, x') + δ_ss' (σ₁² κ(x, x') + σ₃²) of Pearce, Klaise & Groves.
    """

    states: Factor  # k_C, with categories as coded columns, whose lengthscales are not used
    actions: Factor  # κ
    categories: CategoryTable  # T
    constant: float  # σ₃²

    def scale(self, a: Tensor, b: Tensor) -> Tensor:
        """Return A (..., p, q) of the kernel A κ + B, where κ is the correlation of actions.

        A = T k_C, where T is the covariance of the states' categories, and k_C the correlation of the states' numeric
        columns. B does not depend on the actions; see `offset`. `a` (..., p, width) and `b` (..., q, width) are p and q
        states as scaled inputs.
        """
        table = self.categories.covariance(self.choices(a), self.choices(b))
        return table * self._numbers(a, b)[0] if self.states.columns.numeric else table

    def scale_slope(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ψ (..., p, q), from which the gradient of `scale(a, b)` follows.

        The gradient with respect to the numeric columns of `a` is -ψ (a - b). `a` and `b` are p and q states as scaled
        inputs.
        """
        return self.categories.covariance(self.choices(a), self.choices(b)) * self._numbers(a, b)[1]

    def offset(self, a: Tensor, b: Tensor) -> Tensor | None:
        """Return B (..., p, q), the term of the kernel A κ + B that does not depend on the actions.

        κ is the correlation of actions. B = δ σ₃² k_C, where δ is 1 for states with equal categories, else 0, σ₃² is
        the variance of this term, and k_C the correlation of numeric columns. `a` and `b` are p and q states as scaled
        inputs.
        """
        table = same_choices(self.choices(a), self.choices(b)).mul_(self.constant)
        return table * self._numbers(a, b)[0] if self.states.columns.numeric else table

    def offset_slope(self, a: Tensor, b: Tensor) -> Tensor | None:
        """Return ψ (..., p, q), from which the gradient of `offset(a, b)` follows.

        The gradient with respect to the numeric columns of `a` is -ψ (a - b). `a` and `b` are p and q states as scaled
        inputs.
        """
        return self.constant * same_choices(self.choices(a), self.choices(b)) * self._numbers(a, b)[1]

    def variance(self, states: Tensor) -> Tensor:
        """Return the prior variances (...) of points with these states, given as scaled inputs (..., width).

        They depend only on the states' categories.
        """
        return self.categories.variance(self.choices(states)) + self.constant

    def to(self, device: torch.device) -> "CategoryKernel":
        """Return a copy with its tensors on another device."""
        return replace(super().to(device), categories=self.categories.to(device))

    def choices(self, states: Tensor) -> Tensor:
        """Return the index of each state's choice in every categorical column: (..., categorical columns).

        The `states` (..., width) are scaled inputs.
        """
        columns = list(self.states.columns.categorical)
        return (states[..., columns] / self.states.feature_scales[columns]).round().long()

    def _numbers(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return three tables (..., p, q) for the numeric columns of p states a and q states b, given as scaled inputs.

        The tables are the correlation φ of these columns, and ψ and χ, which give its first and second derivatives (see
        `Profile`).
        """
        columns = list(self.states.columns.numeric_features)
        return self.states.tables(a[..., columns], b[..., columns])

    def draw_prior(self, n: int, features: int, generator: torch.Generator) -> PriorDraws:
        """Draw n functions from the prior of mean zero, each a weighted sum of random Fourier features.

        `features` is the number of random features for each term of the kernel. If the profile of states or that of
        actions has no spectrum, the Nyström method of `Kernel.draw_prior` is used instead.
        """
        if self.states.profile.spectrum is None or self.actions.profile.spectrum is None:
            return super().draw_prior(n, features, generator)
        columns = self.states.columns
        everywhere_own = CategoryTerm(_constant(self.constant), (True,) * len(columns.categorical))
        terms = [*self.categories.terms(len(columns.categorical)), everywhere_own]
        j, numeric = features * len(terms), list(columns.numeric)
        like = self.actions.lengthscales
        frequencies = self.actions.profile.frequencies(self.actions.columns.width, j, generator).to(like)
        frequencies[:, -features:] = 0.0  # an offset does not depend on the action
        state_frequencies = frequencies.new_zeros(columns.width, j)
        state_frequencies[numeric] = self.states.profile.frequencies(len(numeric), j, generator).to(like)
        start = random_phases(generator, j).to(like)
        own = torch.tensor([term.own for term in terms]).to(like).repeat_interleave(features, 0)  # (j, columns)
        counts = [columns.categories[column] for column in columns.categorical]
        phases = [random_phases(generator, c, j).to(like) * mine for c, mine in zip(counts, own.T, strict=True)]

        def amplitude(states: Tensor) -> Tensor:
            choices = self.choices(states)
            scales = torch.stack([term.amplitude(choices) for term in terms], -1)
            return (sqrt(2 / features) * scales).repeat_interleave(features, -1)

        def phase(states: Tensor) -> Tensor:
            total = states @ state_frequencies + start
            for table, choice in zip(phases, self.choices(states).unbind(-1), strict=True):
                total = total + table[choice]
            return total

        return FourierFeatures.drawn(FourierTerms(amplitude, frequencies, phase, state_frequencies), n, generator)

    def record(self) -> dict[str, Any]:
        """Return the kernel as plain values, for a saved policy.

        They are the profile, the lengthscales, the input warping, the covariance of categories, and `constant`, the
        variance of the part of the reward that does not depend on the action.
        """
        return {**factors_record(self), **self.categories.record(), "constant": self.constant}

    def page_columns(self) -> tuple[int, ...] | None:
        """Return the indices of the categorical state columns, whose choices the report's web page looks up in tables.

        The tables hold covariances of the choices.
        """
        return self.states.columns.categorical


def _constant(variance: float) -> Callable[[Tensor], Tensor]:
    """Return the amplitude function of a `CategoryTerm`: √variance for all choices."""
    return lambda choices: torch.full_like(choices[..., 0], sqrt(variance), dtype=torch.float64)


def _picked(tables: list[Tensor], pick: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    """Return the amplitude function of a `CategoryTerm`: a product of one entry from each table.

    There is one table for each categorical column, with a row for each choice. The row of an entry is the state's
    choice in that column. Its column is given by `pick`, which holds one index for each table.
    """
    columns = [table[:, place] for table, place in zip(tables, pick, strict=True)]

    def amplitude(choices: Tensor) -> Tensor:
        parts = [column[choice] for column, choice in zip(columns, choices.unbind(-1), strict=True)]
        return torch.stack(parts).prod(0)

    return amplitude


def _product(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total * part
    return total
