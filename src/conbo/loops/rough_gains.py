"""How the local maxima of shared states change with candidates; `models.exact_rough_gains` is the reference.

Features of the maxima are transposed, so that the innermost loops run over the maxima of all states.
"""

from math import sqrt

from conbo.loops.compiling import Array, fast
from conbo.loops.exponential import exp_of_minus

STEEPEST = 0.4  # E[Z⁺], rounded: the largest gain of a line of slope one


@fast(
    "void(f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,:,::1], f8[:,::1], f8[::1], f8[:,::1], f8[:,::1],"
    " f8[:,:,::1], f8[:,::1], f8[:,::1], int64[:,::1])"
)
def reactions(
    profile: Array,  # (1, 4)
    candidates: Array,  # (r, features), the actions
    basins: Array,  # (features, m·k)
    best: Array,  # (features, m)
    whitening: Array,  # (m, features, features), lower triangular
    new_scale: Array,  # (r, m)
    sd: Array,  # (r,)
    old: Array,  # (r, m·k), the observations' share of the covariances with the basins
    old_gradient: Array,  # (r, m·features), gradient of the same share for the best actions
    slopes: Array,  # (r, m, k), out
    curvature: Array,  # (r, m), out
    scratch: Array,  # (5, m·k)
    bits: Array,  # the same memory as integers
) -> None:
    """Fill the slopes of the basins' lines, and half of V''(0), capped at what the steepest line could gain."""
    r, m, k = slopes.shape
    features = len(basins)
    a, b, c, g = profile[0, 0], profile[0, 1], profile[0, 2], profile[0, 3]
    exponent, value, decay, whole, whole_bits, step = (
        scratch[0],
        scratch[1],
        scratch[2],
        scratch[3],
        bits[3],
        scratch[4],
    )
    for row in range(r):
        share = 1.0 / sd[row]
        for i in range(m * k):
            exponent[i] = 0.0
        for d in range(features):
            for i in range(m * k):
                away = candidates[row, d] - basins[d, i]
                exponent[i] += away * away
        for i in range(m * k):
            linear = a * sqrt(exponent[i])
            value[i] = 1.0 + linear + c * exponent[i]
            exponent[i] = linear + b * exponent[i]
        exp_of_minus(exponent, decay, whole, whole_bits)
        for s in range(m):
            for i in range(k):
                new = new_scale[row, s] * value[s * k + i] * decay[s * k + i]
                slopes[row, s, i] = (new - old[row, s * k + i]) * share
        for s in range(m):
            exponent[s] = 0.0
        for d in range(features):
            for s in range(m):
                away = candidates[row, d] - best[d, s]
                exponent[s] += away * away
        for s in range(m):
            linear = a * sqrt(exponent[s])
            value[s] = g * (1.0 + linear)
            exponent[s] = linear + b * exponent[s]
        exp_of_minus(exponent[:m], decay[:m], whole[:m], whole_bits[:m])
        for s in range(m):
            pull = new_scale[row, s] * value[s] * decay[s]
            total = 0.0
            for d in range(features):
                step[d] = pull * (candidates[row, d] - best[d, s]) - old_gradient[row, s * features + d]
                along = 0.0
                for e in range(d + 1):
                    along += whitening[s, d, e] * step[e]
                total += along * along
            half, most = 0.5 * total * share * share, STEEPEST * abs(new_scale[row, s]) * share
            curvature[row, s] = half if half < most else most
