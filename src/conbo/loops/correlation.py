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
    result: Array,  # (batches, p, q)
) -> None:
    """Fill `result` (batches, p, q) with correlations between p points `here` and q points `there` of each batch."""
    batches, points, q = result.shape
    a, b, c = profile[0], profile[1], profile[2]
    for batch in range(batches):
        for p in range(points):
            point, row = here[batch, p], result[batch, p]
            for j in range(q):
                row[j] = 0.0
            for d in range(len(point)):
                for j in range(q):
                    away = point[d] - there[batch, d, j]
                    row[j] += away * away
            for j in range(q):
                linear = a * sqrt(row[j])
                row[j] = (1.0 + linear + c * row[j]) * exp_of_minus(linear + b * row[j])


@fast("void(f8[:,:,::1], f8[:,:,:,::1], f8[:,:,::1], f8[:,::1], f8[::1])")
def weighted_sums(
    weights: Array,  # (k, m, q)
    correlation: Array,  # (k, m, q, n)
    scale: Array,  # (k, m, n)
    result: Array,  # (k, n)
    along: Array,  # scratch (n,)
) -> None:
    """Fill `result` (k, n) with weighted sums of correlations, for k candidates and n observed points.

    The entry of candidate c and point i is Σ_s scale[c, s, i] Σ_j weights[c, s, j] correlation[c, s, j, i], over m
    states s and q actions j.
    """
    k, m, q, n = correlation.shape
    for c in range(k):
        for i in range(n):
            result[c, i] = 0.0
        for s in range(m):
            for i in range(n):
                along[i] = 0.0
            for j in range(q):
                for i in range(n):
                    along[i] += weights[c, s, j] * correlation[c, s, j, i]
            for i in range(n):
                result[c, i] += scale[c, s, i] * along[i]
