"""A base class for a user's own families of kernels, whose gradients for the fit come from autograd.

The built-in families have closed-form gradients, which are several times faster.
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
    """A kernel with free hyperparameters, which are fitted with gradients from autograd.

    Derive from this class and implement `n_variances` and `kernel`; docs/extending.md shows an example.

    Parameters
    ----------
    states, actions
        How the columns of states and actions become features of the kernel.
    profile
        The correlation as a function of the distance between scaled inputs.

    Examples
    --------
    >>> from conbo.models.autograd_family import AutogradFamily
    >>> sorted(AutogradFamily.__abstractmethods__)
    ['kernel', 'n_variances']
    """

    states: Columns
    actions: Columns
    profile: Profile = MATERN52

    @property
    def n_lengthscales(self) -> int:
        """Number of parameters that are logarithms of lengthscales; by default one for each column."""
        return len(self.states.categories) + len(self.actions.categories)

    @property
    @abstractmethod
    def n_variances(self) -> int:
        """Number of parameters that are logarithms of variances."""

    @property
    def typical_loadings(self) -> tuple[float, ...]:
        """Prior means of the loadings, which are the last parameters and may be negative; by default there are none."""
        return ()

    @property
    def largest_loadings(self) -> tuple[float, ...]:
        """Largest allowed absolute values of the loadings, the last parameters; by default there are no loadings."""
        return ()

    @property
    def wide_variances(self) -> bool:
        """Whether the prior of the variances has heavy tails; by default it does not."""
        return False

    @abstractmethod
    def kernel(self, parameters: Tensor) -> Kernel:
        """Create the kernel with these parameters; it must keep them as tensors, so that autograd can follow them.

        Parameters
        ----------
        parameters
            The p parameters (p,): logarithms of lengthscales, logarithms of variances, then loadings, which may be
            negative.

        Returns
        -------
        Kernel
            The kernel.
        """

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """Compute covariances of points, and their pullback to the parameters (a vector-Jacobian product).

        Parameters
        ----------
        parameters
            Parameters (r, p) of r kernels.
        points
            Points (n, d) in the unit cube.

        Returns
        -------
        tuple
            Covariances (r, n, n) of the points under each kernel, and the pullback. The pullback takes the gradient of
            a quantity with respect to the covariances (r, n, n). It returns a list with one tensor (r, p), the gradient
            of this quantity with respect to the parameters.
        """
        with torch.enable_grad():
            variable = parameters.detach().clone().requires_grad_(True)
            matrix = torch.stack([_covariance(self.kernel(row), points) for row in variable])

        def pullback(gradient: Tensor) -> list[Tensor]:
            return [torch.autograd.grad(matrix, variable, gradient, retain_graph=True)[0]]

        return matrix.detach(), pullback


def _covariance(kernel: Kernel, points: Tensor) -> Tensor:
    here = kernel.scaled(points)
    return kernel.covariance(here, here)
