"""Compiled form of `RoughGains._reactions`: how one more reward changes the posterior means at the best actions.

The torch code in `models.exact_rough_gains` is the reference, and explains the formulas. The innermost loops run over
the m states, so features come before states in all arrays.
"""

from math import sqrt

from conbo.loops.compiling import Array, fast
from conbo.loops.exponential import exp_of_minus


@fast(
    "void(f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,:,::1], f8[:,::1], f8[::1], f8[:,::1], f8[:,:,::1], f8,"
    " f8[:,:,::1], f8[:,::1], f8[:,::1], int64[:,::1])"
)
def reactions(
    profile: Array,  # (1, 4), coefficients of κ
    actions: Array,  # (r, f), of the candidates, in scaled features
    basins: Array,  # (f, m · k), k basins of each state
    best: Array,  # (f, m), best action of each state
    whitening: Array,  # (f, f, m), lower triangular
    new_scale: Array,  # (r, m), A between the candidates' states and the m states
    sd: Array,  # (r,), standard deviations of the new rewards
    old: Array,  # (r, m · k), the part of the basins' covariances that is already known
    old_gradient: Array,  # (r, f, m), the same part of the gradients at the best actions
    unit_gain: float,  # largest gain from a line of slope one
    slopes: Array,  # (r, m, at least k), out: look-ahead slopes at the basins
    gain: Array,  # (r, m), out: gain from curvature
    scratch: Array,  # (4, m · k)
    bits: Array,  # the same memory as integers
) -> None:
    """Fill the look-ahead slopes at the basins, and the gain ½ V''(0), capped, of all candidates and states."""
    f, m = best.shape
    k = basins.shape[1] // m
    a, b, c, g = profile[0, 0], profile[0, 1], profile[0, 2], profile[0, 3]
    square, decay, whole, whole_bits, factor = scratch[0], scratch[1], scratch[2], bits[2], scratch[3]
    for r in range(len(actions)):
        for j in range(m * k):
            square[j] = 0.0
        for d in range(f):
            for j in range(m * k):
                away = actions[r, d] - basins[d, j]
                square[j] += away * away
        for j in range(m * k):
            linear = a * sqrt(square[j])
            factor[j] = 1.0 + linear + c * square[j]
            square[j] = linear + b * square[j]
        exp_of_minus(square, decay, whole, whole_bits)
        share = 1.0 / sd[r]
        for i in range(m):
            for j in range(k):
                place = i * k + j
                slopes[r, i, j] = (new_scale[r, i] * factor[place] * decay[place] - old[r, place]) * share

        for j in range(m):
            square[j] = 0.0
        for d in range(f):
            for j in range(m):
                away = actions[r, d] - best[d, j]
                square[j] += away * away
        for j in range(m):
            linear = a * sqrt(square[j])
            factor[j] = g * (1.0 + linear) * new_scale[r, j]
            square[j] = linear + b * square[j]
            gain[r, j] = 0.0
        exp_of_minus(square[:m], decay[:m], whole[:m], whole_bits[:m])
        for j in range(m):
            factor[j] *= decay[j]
        for d in range(f):
            for j in range(m):
                square[j] = 0.0
            for e in range(d + 1):
                for j in range(m):
                    along = (actions[r, e] - best[e, j]) * factor[j] - old_gradient[r, e, j]
                    square[j] += whitening[d, e, j] * along
            for j in range(m):
                gain[r, j] += square[j] * square[j]
        for j in range(m):
            own = 0.5 * gain[r, j] * share * share
            most = unit_gain * abs(new_scale[r, j]) * share
            gain[r, j] = own if own < most else most
