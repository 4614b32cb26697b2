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


def covariance(profile: str, states: Array, actions: Array, outputscale: Tensor) -> Tensor:
    """Return covariances (r, n, n) for r kernels: σ² times a correlation of states times a correlation of actions.

    `states` and `actions` are the scaled inputs (r, width, n) of n points, and `outputscale` is σ² (r,).
    """
    r, _, n = states.shape
    matrix = np.empty((r, n, n))
    scratch = np.empty((4, n))
    product_family.covariance(
        coefficients(profile),
        np.ascontiguousarray(states),
        actions,
        np.ascontiguousarray(outputscale.numpy()),
        matrix,
        scratch,
        scratch.view(np.int64),
    )
    return torch.from_numpy(matrix)


def pullback(
    profile: str, states: Array, actions: Array, matrix: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Convert gradients with respect to covariances of n points into those with respect to parameters of r kernels.

    `gradient` (r, n, n) is symmetric, and taken with respect to the covariances `matrix` (r, n, n) that `covariance`
    returns for the same `states` and `actions`. The results are with respect to the log-lengthscales of states
    (r, width) and of actions (r, width), one for each scaled input, and to log σ² (r,).
    """
    of_states, of_actions = np.zeros(states.shape[:2]), np.zeros(actions.shape[:2])
    of_variance, scratch = np.zeros(len(matrix)), np.empty((2, states.shape[2]))
    product_family.pull_back(
        coefficients(profile),
        np.ascontiguousarray(states),
        actions,
        matrix.numpy(),
        np.ascontiguousarray(gradient.numpy()),
        of_states,
        of_actions,
        of_variance,
        *scratch,
    )
    return torch.from_numpy(of_states), torch.from_numpy(of_actions), torch.from_numpy(of_variance)
