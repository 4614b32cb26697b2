"""Families of kernels for actions relative to the state: one more parameter for each pair of a state and an action.

An action x in a state s, both in the unit cube, is replaced by x - W s.  The parameters are the entries of W (see
`shear.py`).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conbo.models.kernel_families import ExtendedFamily, KernelFamily, Pullback
from conbo.models.kernels import Kernel
from conbo.models.shear import Shear

LARGEST_WEIGHT = 2.0  # bound of |W|: an action then moves by twice its range while the state moves through its own


@dataclass(frozen=True)
class RelativeFamily(ExtendedFamily):
    """A family of kernels for actions relative to the state: numeric actions x are replaced by x - W s.

    The entries of W for numeric states and actions, row by row, count as loadings (parameters that may be negative).
    They come after the loadings of the family without them. All lengthscales of actions are in units of x.
    """

    @property
    def typical_loadings(self) -> tuple[float, ...]:
        """Prior means of the loadings (parameters that may be negative): those of W are zero."""
        return self.family.typical_loadings + (0.0,) * self.n_weights

    @property
    def largest_loadings(self) -> tuple[float, ...]:
        """Largest allowed absolute values of the loadings (parameters that may be negative)."""
        return self.family.largest_loadings + (LARGEST_WEIGHT,) * self.n_weights

    @property
    def n_weights(self) -> int:
        """Number of entries of W that are parameters: one for each pair of a numeric action and a numeric state."""
        return len(self.actions.numeric) * len(self.states.numeric)

    @property
    def n_own(self) -> int:
        """Number of parameters of the family without W, which come first."""
        return self.n_lengthscales + self.n_variances + len(self.family.typical_loadings)

    @property
    def places(self) -> slice:
        """The slice of the parameters that holds the entries of W."""
        return slice(self.n_own, self.n_own + self.n_weights)

    def with_weights(self, parameters: Tensor, weights: Tensor) -> Tensor:
        """Insert `weights`, the entries (w,) of W, into parameters (p - w,) of the family without W."""
        own, rest = parameters[: self.n_own], parameters[self.n_own :]
        return torch.cat([own, weights, rest])

    def without_weights(self, parameters: Tensor) -> Tensor:
        """Return parameters (p,) without the entries of W."""
        return torch.cat([parameters[: self.n_own], parameters[self.places.stop :]])

    def shear(self, parameters: Tensor) -> Shear:
        """Return the change of coordinates for parameters (p,)."""
        weights = parameters.new_zeros(len(self.actions.categories), len(self.states.categories))
        rows, columns = list(self.actions.numeric), list(self.states.numeric)
        weights[torch.tensor(rows)[:, None], torch.tensor(columns)] = parameters[self.places].view(len(rows), -1)
        return Shear(weights)

    def kernel(self, parameters: Tensor) -> Kernel:
        """Return the kernel of points (s, u) with parameters (p,), where u is the relative action in the unit cube."""
        kernel, span = self.family.kernel(parameters[: self.n_own]), self.shear(parameters).span
        return kernel.with_actions(replace(kernel.actions, lengthscales=kernel.actions.lengthscales / span))

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """Return covariances (r, n, n) of points (n, d) for r sets of p parameters (r, p), and their pullback.

        The covariances are computed for one set of parameters at a time, because each has coordinates of its own. The
        pullback is a vector-Jacobian product: it converts a gradient with respect to the covariances into one with
        respect to the parameters.
        """
        rows = [_Row(self, row, points) for row in parameters]

        def pullback(gradient: Tensor) -> list[Tensor]:
            return [torch.stack([row.pullback(one) for row, one in zip(rows, gradient, strict=True)])]

        return torch.stack([row.matrix for row in rows]), pullback


def shear_of(family: KernelFamily, parameters: Tensor) -> Shear | None:
    """Return the change to relative actions of a family with parameters (p,); None if the family has none."""
    return family.shear(parameters) if isinstance(family, RelativeFamily) else None


class _Row:
    """The covariances of points with relative actions for one set of parameters, with their gradients."""

    def __init__(self, relative: RelativeFamily, parameters: Tensor, points: Tensor) -> None:
        self._d_s = len(relative.states.categories)
        self._pairs = list(relative.states.numeric), [self._d_s + column for column in relative.actions.numeric]
        self._states = points[:, self._pairs[0]]
        # the kernel depends only on differences, so x - W s need not be moved and scaled to the unit cube here
        shear, own = relative.shear(parameters), parameters[: relative.n_own]
        actions = points[:, self._d_s :] - points[:, : self._d_s] @ shear.weights.mT
        moved = torch.cat([points[:, : self._d_s], actions], -1)
        self._kernel = relative.family.kernel(own)
        self._here = self._kernel.scaled(moved)
        matrix, self._pull = relative.family.covariance(own[None], moved)
        self.matrix = matrix[0]

    def pullback(self, gradient: Tensor) -> Tensor:
        """Convert a symmetric gradient ∂/∂K (n, n), where K are the covariances, to ∂/∂parameters (p,)."""
        own = torch.cat(self._pull(gradient[None]), -1)[0]
        in_actions = self._kernel.gradient(self._here, self._here, 2 * gradient)[:, self._pairs[1]]
        return torch.cat([own, -(in_actions.mT @ self._states).flatten()])
