"""Gradients of Σ_m weights[p, m] k(p, m), a weighted sum of the covariances between a point p and other points m.

k = σ² φ_S φ_X is a product kernel, with a correlation φ_S of the states and φ_X of the actions. The gradient is with
respect to the coordinates of p. The product φ_S φ_X needs only one exponential, of the sum of both exponents.
Coordinates are scaled by the lengthscales. The `n_states` coordinates of the state come first, then those of the
action.
"""

from math import sqrt

from conbo.loops.compiling import Array, fast
from conbo.loops.exponential import exp_of_minus


@fast("void(f8[::1], int64, f8, f8[:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,::1])")
def weighted_gradient(
    profiles: Array,  # (8,), coefficients of φ_S and of φ_X
    n_states: int,
    outputscale: float,  # σ²
    here: Array,  # (p, width), points
    there: Array,  # other points: (1, width, m), or (p, width, m) if they differ from point to point
    weights: Array,  # (batches, p, m)
    result: Array,  # (batches, p, width)
    scratch: Array,  # (2, m)
) -> None:
    """Fill `result` with the gradients, with respect to each point p of `here`, of Σ_m weights[p, m] k(p, m).

    k(p, m) is the covariance between point p and point m of `there`. `weights` holds several batches of such
    weights, and `result` the gradients for each batch.
    """
    points, width = here.shape
    a_s, a_x = profiles[0], profiles[4]
    b_s, b_x = profiles[1], profiles[5]
    c_s, c_x = profiles[2], profiles[6]
    g_s, g_x = profiles[3], profiles[7]
    of_states, of_actions = scratch[0], scratch[1]
    for p in range(points):
        point, partners = here[p], there[p if len(there) > 1 else 0]
        for j in range(len(of_states)):
            of_states[j] = 0.0
            of_actions[j] = 0.0
        for d in range(width):
            square = of_states if d < n_states else of_actions
            for j in range(len(square)):
                away = point[d] - partners[d, j]
                square[j] += away * away
        for j in range(len(of_states)):  # from squared distances to σ² ψ_S φ_X and σ² φ_S ψ_X
            s, x = of_states[j], of_actions[j]
            linear_s, linear_x = a_s * sqrt(s), a_x * sqrt(x)
            decay = outputscale * exp_of_minus(linear_s + linear_x + b_s * s + b_x * x)
            of_states[j] = decay * g_s * (1.0 + linear_s) * (1.0 + linear_x + c_x * x)
            of_actions[j] = decay * g_x * (1.0 + linear_x) * (1.0 + linear_s + c_s * s)
        for batch in range(len(weights)):
            own = weights[batch, p]
            for d in range(width):
                slope, total = of_states if d < n_states else of_actions, 0.0
                for j in range(len(slope)):
                    total += own[j] * slope[j] * (partners[d, j] - point[d])
                result[batch, p, d] = total
