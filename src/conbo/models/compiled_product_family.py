"""Covariances of `ProductFamily` and their gradients in lengthscales, by compiled loops over pairs of points.

The arithmetic of a likelihood of a hundred rewards takes a few tenths of a millisecond; torch calls on whole matrices
took several times that.
"""

import numpy as np
import torch
from torch import Tensor

from conbo.loops import product_family
from conbo.loops.compiling import Array
from conbo.loops.profiles import coefficients


def covariance(profile: str, states: Tensor, actions: Tensor, outputscale: Tensor) -> Tensor:
    """σ² φ_S φ_X (r, n, n) between points with scaled features (r, n, width) and variances (r,)."""
    matrix = np.empty((len(states), states.shape[1], states.shape[1]))
    scratch = np.empty((4, states.shape[1]))
    product_family.covariance(
        coefficients(profile),
        _by_feature(states),
        _by_feature(actions),
        np.ascontiguousarray(outputscale.numpy()),
        matrix,
        scratch,
        scratch.view(np.int64),
    )
    return torch.from_numpy(matrix)


def pullback(
    profile: str, states: Tensor, actions: Tensor, matrix: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in the logarithms of lengthscales of features, (r, width) and (r, width), and of the variance (r,).

    `gradient` is the symmetric one in the covariance matrix.
    """
    of_states, of_actions = np.zeros(states[:, 0].shape), np.zeros(actions[:, 0].shape)
    of_variance = np.zeros(len(matrix))
    product_family.pull_back(
        coefficients(profile),
        _by_feature(states),
        _by_feature(actions),
        np.ascontiguousarray(matrix.numpy()),
        np.ascontiguousarray(gradient.numpy()),
        of_states,
        of_actions,
        of_variance,
        np.empty(states.shape[1]),
        np.empty(states.shape[1]),
    )
    return torch.from_numpy(of_states), torch.from_numpy(of_actions), torch.from_numpy(of_variance)


def _by_feature(features: Tensor) -> Array:
    """(r, width, n): the innermost loops run over points."""
    return np.ascontiguousarray(features.mT.numpy())
