"""Families of kernels of one's own: say how parameters make a kernel, and autograd finds the gradients of a fit.

The built-in families write their gradients out, which is several times faster.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.models.columns import Columns
from conbo.models.kernel_families import Pullback
from conbo.models.kernels import Kernel
from conbo.models.profiles import MATERN52, Profile


@dataclass(frozen=True)
class AutogradFamily(ABC):
    """A kernel up to its hyperparameters; `kernel` must keep them as tensors, so that gradients reach them."""

    states: Columns
    actions: Columns
    profile: Profile = MATERN52

    @property
    def n_lengthscales(self) -> int:
        """Number of parameters that are logarithms of lengthscales: by default one for each column."""
        return len(self.states.categories) + len(self.actions.categories)

    @property
    @abstractmethod
    def n_variances(self) -> int:
        """Number of parameters that are logarithms of variances."""

    @property
    def typical_loadings(self) -> tuple[float, ...]:
        """The prior means of the remaining parameters, which may be negative: by default there are none."""
        return ()

    @property
    def largest_loadings(self) -> tuple[float, ...]:
        """The largest absolute value that each of them may take."""
        return ()

    @abstractmethod
    def kernel(self, parameters: Tensor) -> Kernel:
        """The kernel with these parameters (p,): logarithms of lengthscales, of variances, then loadings."""

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """Covariances (r, n, n) of points (n, d), and what turns gradients in them into ones in parameters (r, p)."""
        with torch.enable_grad():
            variable = parameters.detach().clone().requires_grad_(True)
            matrix = torch.stack([_covariance(self.kernel(row), points) for row in variable])

        def pullback(gradient: Tensor) -> list[Tensor]:
            return [torch.autograd.grad(matrix, variable, gradient, retain_graph=True)[0]]

        return matrix.detach(), pullback


def _covariance(kernel: Kernel, points: Tensor) -> Tensor:
    here = kernel.scaled(points)
    return kernel.covariance(here, here)
