"""Gradients of weighted sums Σ_m weights[p, m] k(p, m) of a product kernel's covariances between points p and m.

k = σ² φ_S φ_X, with a correlation φ_S of the states and φ_X of the actions. The gradient is with respect to the
coordinates of p. Both correlations are computed with one exponential, of the sum of their exponents. Coordinates are
scaled by the lengthscales; the `n_states` coordinates of the state come first, then those of the action.
"""

from math import sqrt

from conbo.loops.compiling import Array, fast
from conbo.loops.exponential import exp_of_minus


@fast("void(f8[:,::1], int64, f8, f8[:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,::1], int64[:,::1])")
def weighted_gradient(
    profiles: Array,  # (2, 4), coefficients of φ_S and of φ_X
    n_states: int,
    outputscale: float,  # σ²
    here: Array,  # (p, width), points
    there: Array,  # other points: (1, width, m), or (p, width, m) if they differ from point to point
    weights: Array,  # (batches, p, m)
    result: Array,  # (batches, p, width)
    scratch: Array,  # (7, m)
    bits: Array,  # the same memory as integers
) -> None:
    """Fill `result` with the gradients, with respect to each point p of `here`, of Σ_m weights[p, m] k(p, m).

    k(p, m) is the covariance between point p and point m of `there`. There are several batches of weights, each with
    its own sums.
    """
    m, width = weights.shape[2], here.shape[1]
    value, slope, exponent = scratch[:2], scratch[2:4], scratch[4]
    decay, pull, pull_bits = scratch[5], scratch[6], bits[6]
    for p in range(len(here)):
        partners = there[p if len(there) > 1 else 0]
        for j in range(m):
            exponent[j] = 0.0
            value[0, j] = 0.0
            value[1, j] = 0.0
        for d in range(width):
            part = 0 if d < n_states else 1
            for j in range(m):
                away = here[p, d] - partners[d, j]
                value[part, j] += away * away
        for part in range(2):  # φ and ψ of both profiles, without their common factor e^-exponent
            a, b = profiles[part, 0], profiles[part, 1]
            c, g = profiles[part, 2], profiles[part, 3]
            for j in range(m):
                linear = a * sqrt(value[part, j])
                exponent[j] += linear + b * value[part, j]
                slope[part, j] = g * (1.0 + linear)
                value[part, j] = 1.0 + linear + c * value[part, j]
        exp_of_minus(exponent, decay, pull, pull_bits)
        for j in range(m):
            slope[0, j] *= outputscale * decay[j] * value[1, j]
            slope[1, j] *= outputscale * decay[j] * value[0, j]
        for batch in range(len(weights)):
            for d in range(width):
                if d == 0 or d == n_states:
                    part = 0 if d < n_states else 1
                    for j in range(m):
                        pull[j] = weights[batch, p, j] * slope[part, j]
                total = 0.0
                for j in range(m):
                    total += pull[j] * (partners[d, j] - here[p, d])
                result[batch, p, d] = total
