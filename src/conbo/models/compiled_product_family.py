"""Covariances of `ProductFamily`, and their gradients in lengthscales, by the compiled loops over pairs of points.

A likelihood of a hundred rewards is a few tenths of a millisecond of arithmetic; as torch calls on whole matrices
it took several times that.
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
        _by_feature(states, actions),
        states.shape[-1],
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
    features, n_states = _by_feature(states, actions), states.shape[-1]
    of_features, of_variance = np.zeros(features.shape[:2]), np.zeros(len(matrix))
    product_family.pull_back(
        coefficients(profile),
        features,
        n_states,
        np.ascontiguousarray(matrix.numpy()),
        np.ascontiguousarray(gradient.numpy()),
        of_features,
        of_variance,
        np.empty(states.shape[1]),
        np.empty(states.shape[1]),
    )
    both = torch.from_numpy(of_features)
    return both[:, :n_states], both[:, n_states:], torch.from_numpy(of_variance)


def _by_feature(states: Tensor, actions: Tensor) -> Array:
    """(r, width, n): the innermost loops run over points."""
    return np.concatenate([states.mT.numpy(), actions.mT.numpy()], axis=1)
