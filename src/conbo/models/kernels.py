"""Kernels over points (state, action), all of the form k = A(s, s') κ(x, x') + B(s, s').

Only κ depends on the action.  In a given state, the posterior mean is therefore a constant plus a weighted sum of
κ(x, observed actions), and one fast search over actions serves every kernel.

The table compares the names of this file with the symbols of a paper: Pearce, Klaise & Groves, "Practical Bayesian
Optimization of Objectives with Conditioning Variables".

===============  ====================  ===================================================================
paper            here                  meaning
===============  ====================  ===================================================================
k_X, M(x,x')     ``actions`` (Factor)  κ, correlation between actions
σ₀² k_S(s,s')    ``scale``             A, covariance of the part of the reward that depends on the action
σ₃² δ_ss'        ``offset``            B, covariance of the part that depends on the state alone
l                ``lengthscales``      one for every column, in units of the unit cube
===============  ====================  ===================================================================

Methods take states and actions as scaled inputs, which `Factor.scaled` makes from unit-cube points.  The formulas of
correlations between scaled inputs, such as Matérn-5/2 and squared-exponential, are in `profiles.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Self

import torch
from torch import Tensor

from conbo.errors import SettingError
from conbo.models import compiled_product_kernel
from conbo.models.columns import Features
from conbo.models.factor import Factor
from conbo.models.prior_draws import FourierFeatures, FourierTerms, PriorDraws, nystrom_draws, random_phases
from conbo.models.warp import Warp
from conbo.quasi_random import sobol

__all__ = ["Factor", "Kernel", "ProductKernel", "factors_record", "pulled"]


class Kernel(ABC):
    """A covariance A(s, s') κ(x, x') + B(s, s') of two points with states s, s' and actions x, x'.

    κ is a correlation of actions. To add a kernel, write a frozen dataclass with two fields of type `Factor`, `states`
    (which scales the states) and `actions` (which is κ), and implement the abstract methods. A kernel with an offset B
    overrides both `offset` and `offset_slope`. To save policies that use the kernel, override `record`, too. The other
    methods work for every kernel of this form. A and B may depend on the numeric columns of two states only through the
    distance between their scaled inputs.

    Examples
    --------
    >>> from conbo.models.kernels import Kernel
    >>> sorted(Kernel.__abstractmethods__)
    ['scale', 'scale_slope', 'variance']
    """

    states: Factor  # turns states into scaled inputs
    actions: Factor  # κ

    @abstractmethod
    def scale(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute A, the function of two states that multiplies the correlation κ of actions in the kernel A κ + B.

        Parameters
        ----------
        a, b
            Scaled inputs of p and q states: (..., p, width) and (..., q, width).

        Returns
        -------
        Tensor
            A (..., p, q).
        """

    @abstractmethod
    def scale_slope(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute ψ: the gradient of `scale` with respect to the numeric columns of `a` is -ψ (a - b).

        Parameters
        ----------
        a, b
            Scaled inputs of p and q states: (..., p, width) and (..., q, width).

        Returns
        -------
        Tensor
            ψ (..., p, q).
        """

    @abstractmethod
    def variance(self, states: Tensor) -> Tensor:
        """Compute the prior variances k(point, point).

        They may depend on the categories of the state, but not on its numeric columns, and not on the action.

        Parameters
        ----------
        states
            Scaled inputs of states (..., width).

        Returns
        -------
        Tensor
            Variances (...).
        """

    def offset(self, a: Tensor, b: Tensor) -> Tensor | None:
        """Compute B, the part of the kernel A κ + B that depends only on the states; κ is the correlation of actions.

        Parameters
        ----------
        a, b
            Scaled inputs of p and q states: (..., p, width) and (..., q, width).

        Returns
        -------
        Tensor or None
            B (..., p, q); None if there is no offset.
        """
        return None

    def offset_slope(self, a: Tensor, b: Tensor) -> Tensor | None:
        """Compute ψ: the gradient of `offset` with respect to the numeric columns of `a` is -ψ (a - b).

        Parameters
        ----------
        a, b
            Scaled inputs of p and q states: (..., p, width) and (..., q, width).

        Returns
        -------
        Tensor or None
            ψ (..., p, q); None if there is no offset.
        """
        return None

    def scaled(self, points: Tensor) -> Features:
        """Turn points (..., d) into scaled inputs: one tensor for the states and one for the actions."""
        d_s = len(self.states.columns.categories)
        return self.states.scaled(points[..., :d_s]), self.actions.scaled(points[..., d_s:])

    def covariance(self, a: Features, b: Features) -> Tensor:
        """Return the covariances (..., p, q) between p points a and q points b, given as scaled inputs."""
        covariance = self.scale(a[0], b[0]) * self.actions.correlation(a[1], b[1])
        offset = self.offset(a[0], b[0])
        return covariance if offset is None else covariance + offset

    def weighted_gradient(self, here: Features, there: Features, weights: Tensor) -> Features:
        """Return the gradients of Σ_j weights[..., i, j] k(here_i, there_j) with respect to each of p points here_i.

        k is the kernel. Points are given as scaled inputs, one tensor for the states and one for the actions: `here` is
        (p, ·), and `there` is (m, ·), or (p, m, ·) if each here_i has m points of its own. `weights` are (..., p, m).
        The gradients (..., p, ·) are with respect to the scaled inputs, also one tensor for states and one for actions.
        """
        own_partners = there[0].dim() == 3
        states, actions = (t[:, None] for t in here) if own_partners else here

        def table(values: Tensor) -> Tensor:
            return values[:, 0] if own_partners else values  # (p, m)

        value, slope, _ = (table(t) for t in self.actions.tables(actions, there[1]))
        in_actions = pulled(weights * table(self.scale(states, there[0])) * slope, here[1], there[1])
        if not self.states.columns.numeric:
            return in_actions.new_zeros(*in_actions.shape[:-1], here[0].shape[-1]), in_actions
        state_slope = table(self.scale_slope(states, there[0])) * value
        offset_slope = self.offset_slope(states, there[0])
        if offset_slope is not None:
            state_slope = state_slope + table(offset_slope)
        return pulled(weights * state_slope, here[0], there[0]), in_actions

    def gradient(self, here: Features, there: Features, weights: Tensor) -> Tensor:
        """Return the gradients (..., p, d) of Σ_j weights[..., i, j] k(here_i, there_j) in unit-cube coordinates.

        Gradient i is with respect to the unit-cube point whose scaled inputs are here_i. k is the kernel. The arguments
        are those of `weighted_gradient`: p points `here` and m points `there`, both as scaled inputs, and `weights`
        (..., p, m).
        """
        in_states, in_actions = self.weighted_gradient(here, there, weights)
        return self.in_unit_cube((in_states, in_actions), here)

    def in_unit_cube(self, gradients: Features, here: Features) -> Tensor:
        """Convert gradients with respect to scaled inputs into gradients with respect to unit-cube points (..., d).

        `here` are the scaled inputs at which the gradients were taken.
        """
        blocks = zip((self.states, self.actions), gradients, here, strict=True)
        return torch.cat([factor.in_unit_cube(gradient, features) for factor, gradient, features in blocks], -1)

    def draw_prior(self, n: int, features: int, generator: torch.Generator) -> PriorDraws:
        """Draw n functions from the prior of mean zero, by the Nyström method.

        `features` is the number of quasi-random points that the method uses.
        """
        like = self.actions.lengthscales
        d = len(self.states.columns.categories) + len(self.actions.columns.categories)
        seed = int(torch.randint(2**31, (1,), generator=generator))
        return nystrom_draws(self, self.scaled(sobol(features, d, seed).to(like)), n, generator)

    def record(self) -> dict[str, Any]:
        """Describe the kernel by plain values, for a saved policy.

        Returns
        -------
        dict
            Plain values from which the kernel can be rebuilt. `conbo.load_policy` passes them to its argument `kernel`,
            a function that rebuilds the kernel.

        Raises
        ------
        SettingError
            Unless the kernel overrides this method.
        """
        raise SettingError(f"a kernel must have a method `record` to be saved, but {type(self).__name__} has none.")

    def page_columns(self) -> tuple[int, ...] | None:
        """Return the indices of the categorical state columns whose choices the report's web page looks up in tables.

        The tables hold A and B of the kernel A κ + B for all pairs of choices, where κ is the correlation of actions.
        The page computes the effect of the other state columns from scaled distances. The result is None if the page
        cannot compute this kernel; the page then shows a table of the policy. The tables do not include main effects,
        which `page_main_effects` describes.
        """
        return None

    def without_main_effects(self) -> "Kernel":
        """Return the kernel without its main effects, which is the kernel itself if it has none."""
        return self

    def page_main_effects(self) -> dict[str, Any] | None:
        """Return the values from which the report's web page computes the main effects; None if the kernel has none."""
        return None

    def with_actions(self, actions: Factor) -> Self:
        """Return a copy of the kernel with another correlation of actions."""
        return replace(self, actions=actions)  # type: ignore[type-var]

    def warped(self, warp: Warp) -> Self:
        """Return a copy of the kernel with input warping of the actions."""
        return self.with_actions(replace(self.actions, warp=warp))

    def to(self, device: torch.device) -> Self:
        """Return a copy of the kernel on another device."""
        return replace(self, states=self.states.to(device), actions=self.actions.to(device))  # type: ignore[type-var]


def pulled(table: Tensor, here: Tensor, there: Tensor) -> Tensor:
    """Return the sums -Σ_j table[..., i, j] (here_i - there_j) for p points here_i: (..., p, width).

    `table` is (..., p, m), and `here` is (p, width). `there` is (m, width), or (p, m, width) if each here_i has m
    points of its own. If the table holds weights times the slopes ψ of a correlation φ, the results are the gradients
    of the weighted sums of φ with respect to `here`, because the gradient of φ(a, b) with respect to a is -ψ (a-b).
    """
    towards = (table @ there) if there.dim() == 2 else torch.einsum("...pm,pmf->...pf", table, there)
    return towards - table.sum(-1, keepdim=True) * here


@dataclass(frozen=True)
class ProductKernel(Kernel):
    """The kernel σ² k_S(s, s') k_X(x, x'): a variance times a correlation of states and a correlation of actions.

    It is the covariance of two points with states s, s' and actions x, x'.
    """

    states: Factor
    actions: Factor
    outputscale: float = 1.0  # σ²

    def scale(self, a: Tensor, b: Tensor) -> Tensor:
        """Return A (..., p, q), which is multiplied by the correlation κ of actions in the kernel A κ + B.

        A = σ² k_S, where σ² is the variance, and k_S the correlation of p states a and q states b, given as scaled
        inputs.
        """
        return self.outputscale * self.states.correlation(a, b)

    def scale_slope(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ψ (..., p, q): the gradient of `scale` with respect to the numeric columns of `a` is -ψ (a - b).

        `a` and `b` are p and q states as scaled inputs.
        """
        return self.outputscale * self.states.tables(a, b)[1]

    def variance(self, states: Tensor) -> Tensor:
        """Return the prior variances (...) of points with states (..., width), given as scaled inputs: all are σ²."""
        return states.new_full(states.shape[:-1], self.outputscale)

    def weighted_gradient(self, here: Features, there: Features, weights: Tensor) -> Features:
        """Return the gradients of Σ_j weights[..., i, j] k(here_i, there_j) with respect to each of p points here_i.

        k is the kernel. Arguments and results are as in `Kernel.weighted_gradient`. A compiled loop is used if Numba is
        available, both profiles are built in, and all tensors are on the CPU and not tracked by autograd.
        """
        profiles = self.states.profile, self.actions.profile
        if compiled_product_kernel.handles(profiles, *here, *there, weights):
            names = self.states.profile.name, self.actions.profile.name
            return compiled_product_kernel.weighted_gradient(names, self.outputscale, here, there, weights)
        return super().weighted_gradient(here, there, weights)

    def draw_prior(self, n: int, features: int, generator: torch.Generator) -> PriorDraws:
        """Draw n functions from the prior of mean zero, each a weighted sum of random Fourier features.

        `features` is the number of these Fourier features. If the profile of states or that of actions has no spectrum,
        the Nyström method of `Kernel.draw_prior` is used instead.
        """
        if self.states.profile.spectrum is None or self.actions.profile.spectrum is None:
            return super().draw_prior(n, features, generator)
        like = self.actions.lengthscales
        frequencies = self.actions.profile.frequencies(self.actions.columns.width, features, generator).to(like)
        of_states = self.states.profile.frequencies(self.states.columns.width, features, generator).to(like)
        start = random_phases(generator, features).to(like)
        amplitude = torch.full_like(start, sqrt(2 * self.outputscale / features))
        terms = FourierTerms(lambda s: amplitude, frequencies, lambda s: s @ of_states + start, of_states)
        return FourierFeatures.drawn(terms, n, generator)

    def record(self) -> dict[str, Any]:
        """Return profile, lengthscales, input warping and variance as plain values, for a saved policy."""
        return {"type": "product", **factors_record(self), "outputscale": self.outputscale}

    def page_columns(self) -> tuple[int, ...] | None:
        """Return an empty tuple: the report's web page computes this kernel from distances and needs no tables."""
        return ()


def factors_record(kernel: Kernel) -> dict[str, Any]:
    """Describe a kernel's two factors, that of states and that of actions, by plain values.

    Parameters
    ----------
    kernel
        The kernel.

    Returns
    -------
    dict
        The lengthscales of both factors, and the profile and input warping of actions, for the kernel's own `record`.

    Examples
    --------
    >>> import torch
    >>> from conbo.models.columns import Columns
    >>> from conbo.models.kernels import Factor, ProductKernel, factors_record
    >>> factor = Factor(Columns((0,)), torch.ones(1, dtype=torch.float64))
    >>> factors_record(ProductKernel(factor, factor))["action_lengthscales"]
    [1.0]
    """
    states, actions = kernel.states.record(), kernel.actions.record()
    warp: Mapping[str, Any] = {"warp": actions["warp"]} if "warp" in actions else {}
    return {
        "profile": kernel.actions.profile.name,
        "state_lengthscales": states["lengthscales"],
        "action_lengthscales": actions["lengthscales"],
        **warp,
    }
