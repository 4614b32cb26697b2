"""Covariances K = σ² φ_S φ_X of all pairs of n points, for r sets of hyperparameters at once, and their gradients.

φ_S is the correlation of the states and φ_X that of the actions. Each pair is visited once for K, and once more for the
gradient with respect to the lengthscale l_d of coordinate d,

    ∂/∂ log l_d  Σ_ij G_ij K_ij  =  Σ_ij G_ij K_ij ρ (f_i - f_j)_d²

where f are the coordinates of the points, scaled by the lengthscales, and ρ = ψ/φ of the correlation to which
coordinate d belongs (see `loops.profiles`); ρ needs no exponential. Coordinates of states and of actions are arrays
(r, width, n).
"""

from math import sqrt

from conbo.loops.compiling import Array, fast, inlined
from conbo.loops.exponential import exp_of_minus


@fast("void(f8[:,::1], f8[:,:,::1], f8[:,:,::1], f8[::1], f8[:,:,::1], f8[:,::1], int64[:,::1])")
def covariance(
    profile: Array,  # (1, 4), coefficients of φ
    states: Array,  # (r, width, n)
    actions: Array,  # (r, width, n)
    outputscale: Array,  # (r,), the variance σ²
    matrix: Array,  # (r, n, n), out
    scratch: Array,  # (4, n)
    bits: Array,  # the same memory as integers
) -> None:
    """Fill `matrix` with the covariances of all pairs of n points, without noise, for r sets of hyperparameters.

    The coordinates in `states` and `actions` are scaled by the lengthscales.
    """
    n = matrix.shape[1]
    a, b, c = profile[0, 0], profile[0, 1], profile[0, 2]
    of_states, of_actions, decay, whole, whole_bits = scratch[0], scratch[1], scratch[2], scratch[3], bits[3]
    for r in range(len(matrix)):
        for i in range(n):
            _squared_distances(states[r], i, of_states)
            _squared_distances(actions[r], i, of_actions)
            for j in range(i):
                linear_s, linear_x = a * sqrt(of_states[j]), a * sqrt(of_actions[j])
                matrix[r, i, j] = (1.0 + linear_s + c * of_states[j]) * (1.0 + linear_x + c * of_actions[j])
                of_states[j] = linear_s + linear_x + b * (of_states[j] + of_actions[j])
            exp_of_minus(of_states[:i], decay[:i], whole[:i], whole_bits[:i])
            for j in range(i):
                matrix[r, i, j] *= outputscale[r] * decay[j]
                matrix[r, j, i] = matrix[r, i, j]
            matrix[r, i, i] = outputscale[r]


@fast(
    "void(f8[:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1],"
    " f8[:,::1], f8[:,::1], f8[::1], f8[::1], f8[::1])"
)
def pull_back(
    profile: Array,  # (1, 4), coefficients of φ
    states: Array,  # (r, width, n)
    actions: Array,  # (r, width, n)
    matrix: Array,  # (r, n, n), K as `covariance` filled it
    gradient: Array,  # (r, n, n), G: the gradient with respect to K, symmetric
    of_states: Array,  # (r, width), gradient with respect to the log-lengthscales of states
    of_actions: Array,  # (r, width), gradient with respect to the log-lengthscales of actions
    of_variance: Array,  # (r,), gradient with respect to log σ²
    in_states: Array,  # scratch (n,)
    in_actions: Array,  # scratch (n,)
) -> None:
    """Convert the gradient with respect to covariance matrices to one with respect to hyperparameters (chain rule).

    The gradients with respect to the logarithms of lengthscales of states, lengthscales of actions and the variance σ²
    are added to `of_states`, `of_actions` and `of_variance`.
    """
    n = matrix.shape[1]
    a, c, g = profile[0, 0], profile[0, 2], profile[0, 3]
    for r in range(len(matrix)):
        for i in range(n):
            total = 0.0
            _squared_distances(states[r], i, in_states)
            _squared_distances(actions[r], i, in_actions)
            for j in range(i):
                both = 2.0 * matrix[r, i, j] * gradient[r, i, j]
                total += both
                linear_s, linear_x = a * sqrt(in_states[j]), a * sqrt(in_actions[j])
                in_states[j] = both * g * (1.0 + linear_s) / (1.0 + linear_s + c * in_states[j])
                in_actions[j] = both * g * (1.0 + linear_x) / (1.0 + linear_x + c * in_actions[j])
            of_variance[r] += total + matrix[r, i, i] * gradient[r, i, i]
            _add_weighted_squares(states[r], i, in_states, of_states[r])
            _add_weighted_squares(actions[r], i, in_actions, of_actions[r])


@inlined
def _squared_distances(features: Array, i: int, result: Array) -> None:
    """Write the squared distances from point i to all points j < i to `result`; columns of `features` are points."""
    for j in range(i):
        result[j] = 0.0
    for d in range(len(features)):
        for j in range(i):
            away = features[d, i] - features[d, j]
            result[j] += away * away


@inlined
def _add_weighted_squares(features: Array, i: int, weights: Array, result: Array) -> None:
    """Add Σ_j<i weights[j] (features[d, i] - features[d, j])² to `result[d]`, for every row d of `features`."""
    for d in range(len(features)):
        total = 0.0
        for j in range(i):
            away = features[d, i] - features[d, j]
            total += weights[j] * away * away
        result[d] += total
