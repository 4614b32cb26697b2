"""Families of kernels with input warping: two more parameters, log a and log b, for every numeric action.

A numeric action x in the unit interval is replaced by w(x) = 1 - (1 - x^a)^b.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.models.kernel_families import ExtendedFamily, Pullback
from conbo.models.kernels import Kernel
from conbo.models.warp import Warp

LARGEST_LOG_EXPONENT = 1.5  # bound of |log a| and |log b|: beyond it, most of the warped range may hold no reward


@dataclass(frozen=True)
class WarpedFamily(ExtendedFamily):
    """A family of kernels with input warping: numeric actions x are replaced by w(x) = 1 - (1 - x^a)^b.

    The parameters log a and log b of every numeric action count as loadings (parameters that may be negative), and come
    after the loadings of the family without warping.
    """

    @property
    def typical_loadings(self) -> tuple[float, ...]:
        """Prior means of the loadings (parameters that may be negative).

        The means for the family without warping come first, then a 0 for the logarithm of each exponent of the warping.
        """
        return self.family.typical_loadings + (0.0,) * self.n_warps

    @property
    def largest_loadings(self) -> tuple[float, ...]:
        """Largest allowed absolute values of the loadings (parameters that may be negative).

        The values for the family without warping come first, then those for the logarithms of the warping's exponents.
        """
        return self.family.largest_loadings + (LARGEST_LOG_EXPONENT,) * self.n_warps

    @property
    def n_warps(self) -> int:
        """Number of parameters of the input warping: the logarithms of two exponents for every numeric action."""
        return 2 * len(self.actions.numeric)

    @property
    def exponents(self) -> slice:
        """The slice of the parameters that holds the logarithms of the warping's exponents."""
        return slice(self.n_own, self.n_own + self.n_warps)

    @property
    def n_own(self) -> int:
        """Number of parameters of the family without warping, which come first."""
        return self.n_lengthscales + self.n_variances + len(self.family.typical_loadings)

    def kernel(self, parameters: Tensor) -> Kernel:
        """Return the kernel with parameters (p,): those of the family without warping, then log a and log b.

        a and b are the exponents of the input warping, two for each numeric action.
        """
        return self.family.kernel(parameters[: self.n_own]).warped(self._warp(parameters))

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """Return covariances (r, n, n) of points (n, d) for r sets of p parameters (r, p), and their pullback.

        The covariances are computed for one set of parameters at a time, because each set warps the points differently.
        The pullback is a vector-Jacobian product: it converts a gradient with respect to the covariances into one with
        respect to the parameters.
        """
        rows = [_Row(self, row, points) for row in parameters]

        def pullback(gradient: Tensor) -> list[Tensor]:
            return [torch.stack([row.pullback(one) for row, one in zip(rows, gradient, strict=True)])]

        return torch.stack([row.matrix for row in rows]), pullback

    def _warp(self, parameters: Tensor) -> Warp:
        """Return the input warping for parameters (p,), the last of which are the logarithms of its exponents a and b.

        Every numeric action has its own a and b. log a comes first for all these actions, then log b.
        """
        numbers = list(self.actions.numeric)
        exponents = parameters[self.n_own :].unflatten(0, (2, -1))
        logarithms = exponents.new_zeros(2, len(self.actions.categories))
        logarithms[:, numbers] = exponents
        return Warp(*logarithms)


class _Row:
    """The covariances of warped points for one set of parameters, with their gradients."""

    def __init__(self, warped: WarpedFamily, parameters: Tensor, points: Tensor) -> None:
        self._d_s, numbers = len(warped.states.categories), list(warped.actions.numeric)
        states, actions, warp = points[:, : self._d_s], points[:, self._d_s :], warped._warp(parameters)
        moved, self._kernel = warp(actions), warped.family.kernel(parameters[: warped.n_own])
        self._here = self._kernel.states.scaled(states), self._kernel.actions.scaled(moved)
        self._slopes = torch.stack(warp.slopes_in_exponents(actions))[..., numbers]
        self._numbers = numbers
        matrix, self._pull = warped.family.covariance(parameters[None, : warped.n_own], torch.cat([states, moved], -1))
        self.matrix = matrix[0]

    def pullback(self, gradient: Tensor) -> Tensor:
        """Convert a symmetric gradient ∂/∂K (n, n), where K are the covariances, to ∂/∂parameters (p,)."""
        own = torch.cat(self._pull(gradient[None]), -1)[0]
        in_warped = self._kernel.gradient(self._here, self._here, 2 * gradient)[:, self._d_s :]
        return torch.cat([own, (in_warped[:, self._numbers] * self._slopes).sum(1).flatten()])
