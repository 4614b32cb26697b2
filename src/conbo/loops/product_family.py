"""Covariances K = σ² φ_S φ_X of all pairs of n points, for several sets of hyperparameters at once, with gradients.

φ_S is the correlation of the states and φ_X that of the actions. A gradient G with respect to K is converted to one
with respect to the logarithm of each lengthscale l_d, where d is a coordinate:

    ∂/∂ log l_d  Σ_ij G_ij K_ij  =  Σ_ij G_ij K_ij ρ_ij (f_i - f_j)_d²

Here, f_i are the coordinates of point i, scaled by the lengthscales, and ρ_ij = ψ/φ. If d is a coordinate of the state,
φ is the correlation between the states of the points i and j; otherwise, that between their actions. ψ is -φ'(r)/r,
where r is the distance between these states or actions (see `loops.profiles`). In ρ_ij, the exponentials of ψ and φ
cancel. The `n_states` coordinates of states come first, then those of actions.
"""

from math import sqrt

from conbo.loops.compiling import Array, fast, inlined
from conbo.loops.exponential import exp_of_minus


@fast("void(f8[::1], int64, f8[:,:,::1], f8[::1], f8[:,:,::1], f8[:,::1])")
def covariance(
    profile: Array,  # (4,), coefficients of φ
    n_states: int,
    features: Array,  # (r, width, n), coordinates of n points
    outputscale: Array,  # (r,), the variance σ²
    matrix: Array,  # (r, n, n), out
    scratch: Array,  # (2, n)
) -> None:
    """Fill `matrix` with the covariances of all pairs of n points, without noise, for r sets of hyperparameters.

    The coordinates in `features` are scaled by the lengthscales.
    """
    n = len(scratch[0])
    a, b, c = profile[0], profile[1], profile[2]
    of_states, of_actions = scratch[0], scratch[1]
    for r in range(len(matrix)):
        for i in range(n):
            _squared_distances(features[r], n_states, i, scratch)
            row = matrix[r, i]
            for j in range(i):
                s, x = of_states[j], of_actions[j]
                linear_s, linear_x = a * sqrt(s), a * sqrt(x)
                decay = outputscale[r] * exp_of_minus(linear_s + linear_x + b * (s + x))
                row[j] = (1.0 + linear_s + c * s) * (1.0 + linear_x + c * x) * decay
            row[i] = outputscale[r]
        for i in range(n):
            for j in range(i):
                matrix[r, j, i] = matrix[r, i, j]


@fast("void(f8[::1], int64, f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,::1], f8[::1], f8[:,::1])")
def pull_back(
    profile: Array,  # (4,), coefficients of φ
    n_states: int,
    features: Array,  # (r, width, n), coordinates of n points
    matrix: Array,  # (r, n, n), K as `covariance` filled it
    gradient: Array,  # (r, n, n), G: the gradient with respect to K, symmetric
    of_lengthscales: Array,  # (r, width), zero; out: gradient with respect to the log-lengthscales
    of_variance: Array,  # (r,), zero; out: gradient with respect to log σ²
    scratch: Array,  # (2, n)
) -> None:
    """Convert a gradient with respect to covariance matrices to one with respect to hyperparameters (chain rule).

    The gradients with respect to the logarithms of the lengthscales and of the variance σ² are added to
    `of_lengthscales` and `of_variance`.
    """
    width, n = len(features[0]), len(scratch[0])
    a, c, g = profile[0], profile[2], profile[3]
    for r in range(len(matrix)):
        for i in range(n):
            _squared_distances(features[r], n_states, i, scratch)
            slope, row = gradient[r, i], matrix[r, i]
            of_variance[r] += row[i] * slope[i]
            for d in range(width):
                weights, total = scratch[0 if d < n_states else 1], 0.0
                if d == 0 or d == n_states:
                    for j in range(i):
                        square = weights[j]
                        linear = a * sqrt(square)
                        weights[j] = 2.0 * g * row[j] * slope[j] * (1.0 + linear) / (1.0 + linear + c * square)
                for j in range(i):
                    away = features[r, d, i] - features[r, d, j]
                    total += weights[j] * away * away
                of_lengthscales[r, d] += total
            total = 0.0
            for j in range(i):
                total += row[j] * slope[j]
            of_variance[r] += 2.0 * total


@inlined
def _squared_distances(features: Array, n_states: int, i: int, result: Array) -> None:
    """Write to `result` the squared distances between point i and all points j < i.

    Row 0 holds the distances between their states, and row 1 those between their actions. Columns of `features` are
    points.
    """
    for part in range(2):
        for j in range(i):
            result[part, j] = 0.0
    for d in range(len(features)):
        square = result[0 if d < n_states else 1]
        for j in range(i):
            away = features[d, i] - features[d, j]
            square[j] += away * away
