"""Covariances of `ProductFamily`, and their gradients in lengthscales, as compiled loops over pairs of points.

A likelihood of a hundred rewards is a few tenths of a millisecond of arithmetic; as torch calls on whole matrices
it took several times that.  Here every pair is visited once, for K = σ² φ_S φ_X, and once more for the gradient

    ∂/∂ log l_d  Σ_ij G_ij K_ij  =  Σ_ij G_ij K_ij ρ (f_i - f_j)_d²

where f are features in units of their lengthscales, and ρ = ψ/φ of the factor that d belongs to needs no exponential.
"""

from math import sqrt

import numpy as np
import torch
from torch import Tensor

from conbo.models import compiled
from conbo.models.compiled import Array, exp_of_minus, fast, inlined
from conbo.models.profiles import Profile


def handles(profile: Profile) -> bool:
    """Whether there are compiled loops for factors of this profile."""
    return compiled.handles(profile)


def covariance(profile: str, states: Tensor, actions: Tensor, outputscale: Tensor) -> Tensor:
    """σ² φ_S φ_X (r, n, n) between points with scaled features (r, n, width) and variances (r,)."""
    matrix = np.empty((len(states), states.shape[1], states.shape[1]))
    _covariance(profile == "matern52", _by_feature(states), _by_feature(actions), outputscale.numpy(), matrix)
    return torch.from_numpy(matrix)


def pullback(
    profile: str, states: Tensor, actions: Tensor, matrix: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in the logarithms of lengthscales of features, (r, width) and (r, width), and of the variance (r,).

    `gradient` is the symmetric one in the covariance matrix.
    """
    of_states, of_actions = np.zeros(states[:, 0].shape), np.zeros(actions[:, 0].shape)
    of_variance = np.zeros(len(matrix))
    _pull_back(
        profile == "matern52",
        _by_feature(states),
        _by_feature(actions),
        matrix.numpy(),
        gradient.numpy(),
        of_states,
        of_actions,
        of_variance,
    )
    return torch.from_numpy(of_states), torch.from_numpy(of_actions), torch.from_numpy(of_variance)


def _by_feature(features: Tensor) -> Array:
    """(r, width, n): the innermost loops run over points."""
    return np.ascontiguousarray(features.mT.numpy())


@fast
def _covariance(is_matern: bool, states: Array, actions: Array, outputscale: Array, matrix: Array) -> None:
    n = matrix.shape[1]
    of_states, of_actions, decay, whole = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for r in range(len(matrix)):
        for i in range(n):
            row = matrix[r, i]
            _squared_distances(states[r], i, of_states)
            _squared_distances(actions[r], i, of_actions)
            if is_matern:
                for j in range(i):
                    r_s, r_x = sqrt(of_states[j]), sqrt(of_actions[j])
                    row[j] = (1.0 + r_s + of_states[j] / 3.0) * (1.0 + r_x + of_actions[j] / 3.0)
                    of_states[j] = r_s + r_x
            else:
                for j in range(i):
                    row[j] = 1.0
                    of_states[j] = 0.5 * (of_states[j] + of_actions[j])
            exp_of_minus(of_states[:i], decay[:i], whole[:i])
            for j in range(i):
                row[j] *= outputscale[r] * decay[j]
                matrix[r, j, i] = row[j]
            row[i] = outputscale[r]


@fast
def _pull_back(
    is_matern: bool,
    states: Array,
    actions: Array,
    matrix: Array,
    gradient: Array,
    of_states: Array,
    of_actions: Array,
    of_variance: Array,
) -> None:
    n = matrix.shape[1]
    in_states, in_actions = np.empty(n), np.empty(n)
    for r in range(len(matrix)):
        for i in range(n):
            total = 0.0
            if is_matern:
                _squared_distances(states[r], i, in_states)
                _squared_distances(actions[r], i, in_actions)
                for j in range(i):
                    weight = 2.0 * matrix[r, i, j] * gradient[r, i, j]
                    total += weight
                    r_s, r_x = sqrt(in_states[j]), sqrt(in_actions[j])
                    in_states[j] = weight * (1.0 + r_s) / (3.0 + 3.0 * r_s + in_states[j])
                    in_actions[j] = weight * (1.0 + r_x) / (3.0 + 3.0 * r_x + in_actions[j])
            else:
                for j in range(i):
                    in_states[j] = 2.0 * matrix[r, i, j] * gradient[r, i, j]
                    in_actions[j] = in_states[j]
                    total += in_states[j]
            of_variance[r] += total + matrix[r, i, i] * gradient[r, i, i]
            _add_weighted_squares(states[r], i, in_states, of_states[r])
            _add_weighted_squares(actions[r], i, in_actions, of_actions[r])


@inlined
def _squared_distances(features: Array, i: int, result: Array) -> None:
    """|f_i - f_j|² for j < i."""
    for j in range(i):
        result[j] = 0.0
    for d in range(len(features)):
        for j in range(i):
            away = features[d, i] - features[d, j]
            result[j] += away * away


@inlined
def _add_weighted_squares(features: Array, i: int, weights: Array, result: Array) -> None:
    """Add Σ_j<i weight_j (f_i - f_j)_d² for every feature d."""
    for d in range(len(features)):
        total = 0.0
        for j in range(i):
            away = features[d, i] - features[d, j]
            total += weights[j] * away * away
        result[d] += total
