"""Covariances of a `ProductFamily` and their gradients, by compiled loops over pairs of points.

With a hundred rewards, the arithmetic of a likelihood takes a few tenths of a millisecond, and torch calls on whole
matrices take several times as long.
"""

import numpy as np
import torch
from torch import Tensor

from conbo.loops import product_family
from conbo.loops.compiling import Array
from conbo.loops.profiles import coefficients


def covariance(profile: str, n_states: int, features: Array, outputscale: Tensor) -> Tensor:
    """Return covariances (r, n, n) for r kernels: σ² times a correlation of states times a correlation of actions.

    `features` (r, width, n) are the scaled inputs of n points, and the first `n_states` inputs of each point are those
    of its state. `outputscale` is σ² (r,).
    """
    r, _, n = features.shape
    matrix, scales = np.empty((r, n, n)), np.ascontiguousarray(outputscale.numpy())
    product_family.covariance(coefficients(profile), n_states, features, scales, matrix, np.empty((2, n)))
    return torch.from_numpy(matrix)


def pullback(profile: str, n_states: int, features: Array, matrix: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Convert gradients with respect to covariances of n points into those with respect to parameters of r kernels.

    `gradient` (r, n, n) is symmetric, and taken with respect to the covariances `matrix` (r, n, n) that `covariance`
    returns for the same `features`. The results are gradients with respect to the log-lengthscales (r, width), one for
    each scaled input, and with respect to the logarithms (r,) of the kernels' variances.
    """
    r, width, n = features.shape
    of_lengthscales, of_variance = np.zeros((r, width)), np.zeros(r)
    product_family.pull_back(
        coefficients(profile),
        n_states,
        features,
        matrix.numpy(),
        np.ascontiguousarray(gradient.numpy()),
        of_lengthscales,
        of_variance,
        np.empty((2, n)),
    )
    return torch.from_numpy(of_lengthscales), torch.from_numpy(of_variance)
