"""Families of kernels: kernels whose hyperparameters are still free, with the gradients that a fit needs.

A family makes covariance matrices from parameters, and converts gradients with respect to these matrices into gradients
with respect to the parameters (the pullback).  Parameters come in three kinds, in this order: logarithms of
lengthscales, logarithms of variances, and loadings.  Loadings are parameters that may be negative, such as the factor
loadings of a multi-task kernel.  `covariance` handles r sets of parameters at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from conbo.loops.compiling import Array
from conbo.models import compiled, compiled_product_family
from conbo.models.columns import Columns, squared_distances
from conbo.models.kernels import Factor, Kernel, ProductKernel
from conbo.models.product_terms import ProductTerm, TermBlock
from conbo.models.profiles import MATERN52, Profile

Pullback = Callable[[Tensor], list[Tensor]]  # from ∂/∂K (r, n, n) to parts of ∂/∂parameters, together (r, p)


class KernelFamily(Protocol):
    """A kernel with free hyperparameters, here called parameters, which a fit optimizes."""

    @property
    def states(self) -> Columns:
        """The columns of the state, and how they become features of the kernel."""

    @property
    def actions(self) -> Columns:
        """The columns of the action, and how they become features of the kernel."""

    @property
    def n_lengthscales(self) -> int:
        """Number of parameters that are logarithms of lengthscales; they come first."""

    @property
    def n_variances(self) -> int:
        """Number of parameters that are logarithms of variances; they come after the lengthscales."""

    @property
    def typical_loadings(self) -> tuple[float, ...]:
        """Prior means of the loadings, which come after the logarithms of lengthscales and variances.

        Loadings are parameters that may be negative, such as the factor loadings of a multi-task kernel.
        """

    @property
    def largest_loadings(self) -> tuple[float, ...]:
        """Largest allowed absolute value of each loading, a parameter that may be negative."""

    @property
    def wide_variances(self) -> bool:
        """Whether the prior of the variances has heavy tails."""

    def kernel(self, parameters: Tensor) -> Kernel:
        """Return the kernel with parameters (p,): log-lengthscales, log-variances, then loadings.

        Loadings are parameters that may be negative.
        """

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """Return covariances K (r, n, n) of points (n, d) for r sets of p parameters (r, p), and their pullback.

        The pullback is a vector-Jacobian product. It converts a gradient ∂/∂K (r, n, n) to the gradient ∂/∂parameters
        (r, p), which it returns as a list of blocks of columns.
        """


@dataclass(frozen=True)
class ExtendedFamily:
    """A base class for kernel families that extend another family, `family`, and have its properties by default."""

    family: KernelFamily

    @property
    def states(self) -> Columns:
        """The columns of the state, and how they become features of the kernel."""
        return self.family.states

    @property
    def actions(self) -> Columns:
        """The columns of the action, and how they become features of the kernel."""
        return self.family.actions

    @property
    def n_lengthscales(self) -> int:
        """Number of parameters that are logarithms of lengthscales."""
        return self.family.n_lengthscales

    @property
    def n_variances(self) -> int:
        """Number of parameters that are logarithms of variances."""
        return self.family.n_variances

    @property
    def typical_loadings(self) -> tuple[float, ...]:
        """Prior means of the loadings, which are parameters that may be negative."""
        return self.family.typical_loadings

    @property
    def largest_loadings(self) -> tuple[float, ...]:
        """Largest allowed absolute value of each loading, a parameter that may be negative."""
        return self.family.largest_loadings

    @property
    def wide_variances(self) -> bool:
        """Whether the prior of the variances has heavy tails."""
        return self.family.wide_variances


@dataclass(frozen=True)
class ProductFamily:
    """The family of kernels σ² k_S(s, s') k_X(x, x'), with a lengthscale for every column of states and actions.

    For two points (s, x) and (s', x'), k_S is the correlation of states, and k_X that of actions. σ² is the variance.
    """

    states: Columns
    actions: Columns
    profile: Profile = MATERN52
    wide_variances: bool = False

    @property
    def n_lengthscales(self) -> int:
        """Number of lengthscales: one for each column of state and action."""
        return len(self.states.categories) + len(self.actions.categories)

    @property
    def n_variances(self) -> int:
        """Number of variances: one, the factor σ² of the kernel."""
        return 1

    @property
    def typical_loadings(self) -> tuple[float, ...]:
        """Prior means of the loadings, which are parameters that may be negative; empty, as this family has none."""
        return ()

    @property
    def largest_loadings(self) -> tuple[float, ...]:
        """Largest allowed absolute values of loadings, which are parameters that may be negative.

        Empty, because this family has no loadings.
        """
        return ()

    @property
    def terms(self) -> tuple[ProductTerm, ...]:
        """The terms whose sum is the covariance: only one, the product σ² k_S k_X itself.

        Empty for subclasses, because their covariance may have another form.
        """
        if type(self) is not ProductFamily:
            return ()
        d_s, d = len(self.states.categories), self.n_lengthscales
        of_states, of_actions = tuple(range(d_s)), tuple(range(d_s, d))
        states, actions = TermBlock(self.states, of_states, of_states), TermBlock(self.actions, of_actions, of_actions)
        return (ProductTerm(self.profile, states, actions, d),)

    def kernel(self, parameters: Tensor) -> ProductKernel:
        """Return the kernel with parameters (p,): logarithms of the lengthscales, then of the variance σ²."""
        d_s, values = len(self.states.categories), parameters.exp()
        return ProductKernel(
            Factor(self.states, values[:d_s], self.profile),
            Factor(self.actions, values[d_s : self.n_lengthscales], self.profile),
            float(values[self.n_lengthscales]),
        )

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """Return covariances K = σ² φ_S φ_X of points (n, d) for r sets of p parameters (r, p), and their pullback.

        K is (r, n, n), σ² is the variance, and φ_S and φ_X are the correlations of states and of actions. The pullback
        converts a gradient ∂/∂K to the gradient ∂/∂parameters (a vector-Jacobian product).
        """
        d_s, d = len(self.states.categories), self.n_lengthscales
        s = Features(self.states, self.profile, points[:, :d_s], parameters[:, :d_s])
        x = Features(self.actions, self.profile, points[:, d_s:], parameters[:, d_s:d])
        outputscale = parameters[:, d].exp()
        if compiled.handles(self.profile) and points.device.type == "cpu":
            n_states, features = s.by_feature.shape[1], np.concatenate([s.by_feature, x.by_feature], 1)
            matrix = compiled_product_family.covariance(self.profile.name, n_states, features, outputscale)

            def compiled_pullback(gradient: Tensor) -> list[Tensor]:
                in_features, in_variance = compiled_product_family.pullback(
                    self.profile.name, n_states, features, matrix, gradient
                )
                in_states, in_actions = in_features[:, :n_states], in_features[:, n_states:]
                return [s.by_column(in_states), x.by_column(in_actions), in_variance[:, None]]

            return matrix, compiled_pullback
        of_states, of_actions = Block(s, self.profile), Block(x, self.profile)
        matrix = outputscale[:, None, None] * of_states.value * of_actions.value

        def pullback(gradient: Tensor) -> list[Tensor]:
            weighted = outputscale[:, None, None] * gradient
            return [
                of_states.pullback(weighted * of_states.slope * of_actions.value),
                of_actions.pullback(weighted * of_states.value * of_actions.slope),
                (gradient * matrix).sum((-2, -1))[:, None],
            ]

        return matrix, pullback


class Features:
    """The scaled inputs of the states, or of the actions, of n points, for each of r sets of lengthscales."""

    def __init__(self, columns: Columns, profile: Profile, points: Tensor, log_lengthscales: Tensor) -> None:
        self._width = len(columns.categories)
        self._owner: Tensor | None = None  # column of each feature; None if every column is one feature
        scales = profile.unit * (-log_lengthscales).exp()
        if any(columns.categories):
            self._owner = torch.tensor(columns.owner, dtype=torch.long, device=points.device)
            scales = scales[:, self._owner]
        self._features, self._scales = columns.features(points), scales

    @cached_property
    def scaled(self) -> Tensor:
        """The scaled inputs (r, n, features) of n points, for r sets of lengthscales."""
        return self._features * self._scales[:, None, :]

    @cached_property
    def by_feature(self) -> Array:
        """The scaled inputs of n points in the layout that compiled loops need: (r, features, n)."""
        return np.multiply(self._features.numpy().T, self._scales.numpy()[..., None], order="C")

    def by_column(self, table: Tensor) -> Tensor:
        """Sum a table (r, features) over the features that belong to each of d columns: (r, d)."""
        if self._owner is None:
            return table
        return table.new_zeros(len(table), self._width).index_add_(1, self._owner, table)


class Block:
    """The correlation φ between the states, or between the actions, of all pairs of n points.

    `value` holds φ, and `slope` the factor ψ of its gradient: with respect to the scaled inputs a, the gradient of
    φ(a, b) is -ψ (a-b). Both are tables (r, n, n), for r sets of lengthscales.
    """

    def __init__(self, features: Features, profile: Profile) -> None:
        self._features = features
        self.value, self.slope, _ = profile.tables(squared_distances(features.scaled, features.scaled))

    def pullback(self, table: Tensor) -> Tensor:
        """Return the gradients (r, d) of an objective with respect to r sets of log-lengthscales of d columns.

        `table` (r, n, n) is the elementwise product of two matrices: the gradient of the objective with respect to the
        correlations φ between n points, and ψ, where the gradient of φ(a, b) with respect to the scaled inputs a is
        -ψ (a-b). The product must be symmetric. The result for a column is Σ_ij table_ij |f_i - f_j|², where f_i are
        the scaled inputs of point i that belong to this column.
        """
        f = self._features.scaled
        sums = 2 * ((table.sum(-1)[:, None] @ f.square())[:, 0] - (f * (table @ f)).sum(-2))
        return self._features.by_column(sums)


class Term:
    """The covariance (r, n, n) that a main effect adds between n points, for r sets of parameters.

    It is σ² φ, where σ² is a variance, and φ a correlation of states, or of actions.
    """

    def __init__(
        self, columns: Columns, profile: Profile, points: Tensor, log_lengthscales: Tensor, variance: Tensor
    ) -> None:
        self._features, self._profile = Features(columns, profile, points, log_lengthscales), profile
        self._compiled = compiled.handles(profile) and points.device.type == "cpu"
        if self._compiled:
            # a product whose block of states is empty
            self.matrix = compiled_product_family.covariance(profile.name, 0, self._features.by_feature, variance)
        else:
            self._block = Block(self._features, profile)
            self.matrix = variance[:, None, None] * self._block.value  # (r, n, n)
            self._slope = variance[:, None, None] * self._block.slope

    def pullback(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Convert a gradient (r, n, n) with respect to the covariances of n points to one with respect to parameters.

        For r sets of parameters, the results are the gradients (r, d) with respect to the log-lengthscales of d
        columns, and the gradients (r,) with respect to the logarithm of the variance σ².
        """
        if self._compiled:
            in_features, in_variance = compiled_product_family.pullback(
                self._profile.name, 0, self._features.by_feature, self.matrix, gradient
            )
            return self._features.by_column(in_features), in_variance
        return self._block.pullback(gradient * self._slope), (gradient * self.matrix).sum((-2, -1))
