"""Correlations φ between two sets of points, and weighted sums of correlations.

φ is one of the profiles of `loops.profiles`. Coordinates of points are scaled by the lengthscales, so that the
Euclidean distance between points is the argument of φ.
"""

from math import sqrt

from conbo.loops.compiling import Array, fast
from conbo.loops.exponential import exp_of_minus


@fast("void(f8[::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1])")
def correlation(
    profile: Array,  # (4,), coefficients of φ
    here: Array,  # (batches, p, features), first points
    there: Array,  # (batches, features, q), second points
    result: Array,  # (batches, p, q), zero; out
) -> None:
    """Fill `result` (batches, p, q) with correlations between p points `here` and q points `there` of each batch."""
    batches, points, q = result.shape
    a, b, c = profile[0], profile[1], profile[2]
    for batch in range(batches):
        for p in range(points):
            point, row = here[batch, p], result[batch, p]
            for d in range(len(point)):
                for j in range(q):
                    away = point[d] - there[batch, d, j]
                    row[j] += away * away
            for j in range(q):
                square = row[j]
                linear = a * sqrt(square)
                row[j] = (1.0 + linear + c * square) * exp_of_minus(linear + b * square)


@fast("void(f8[:,:,::1], f8[:,:,:,::1], f8[:,:,::1], f8[:,::1])")
def weighted_sums(
    weights: Array,  # (k, m, q)
    correlation: Array,  # (k, m, q, n)
    scale: Array,  # (k, m, n)
    result: Array,  # (k, n), zero; out
) -> None:
    """Fill `result` (k, n) with weighted sums of correlations, for k candidates and n observed points.

    The entry of candidate c and point i is Σ_s scale[c, s, i] Σ_j weights[c, s, j] correlation[c, s, j, i],
    where s runs over m states and j over q actions.
    """
    k, m, q, n = correlation.shape
    for c in range(k):
        total = result[c]
        for s in range(m):
            own = scale[c, s]
            for j in range(q):
                weight, row = weights[c, s, j], correlation[c, s, j]
                for i in range(n):
                    total[i] += weight * own[i] * row[i]
