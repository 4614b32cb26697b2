"""Compiled form of `RoughGains._reactions`: how one more reward changes the posterior means at the best actions.

The torch code in `models.exact_rough_gains` is the reference, and explains the formulas. The innermost loops run over
the m states, so features come before states in all arrays.
"""

from math import sqrt

from conbo.loops.compiling import Array, fast
from conbo.loops.exponential import exp_of_minus


@fast(
    "void(f8[:,::1], f8[:,::1], f8[:,::1], f8[:,:,::1], f8[:,::1], f8[::1], f8[:,::1], f8[:,:,::1], f8,"
    " f8[:,:,::1], f8[:,::1], f8[:,::1], int64[:,::1])"
)
def reactions(
    profile: Array,  # (1, 4), coefficients of κ
    actions: Array,  # (r, f), of the candidates, as scaled inputs
    places: Array,  # (f, m · k + m), k basins of each state, then the best action of each state
    whitening: Array,  # (f, f, m), lower triangular
    new_scale: Array,  # (r, m), A between the candidates' states and the m states
    sd: Array,  # (r,), standard deviations of the new rewards
    old: Array,  # (r, m · k), the part of the basins' covariances that is already known
    old_gradient: Array,  # (r, f, m), the same part of the gradients at the best actions
    unit_gain: float,  # largest gain from a line of slope one
    slopes: Array,  # (r, m, at least k), out: look-ahead slopes at the basins
    gain: Array,  # (r, m), out: gain from curvature
    scratch: Array,  # (5, m · k + m)
    bits: Array,  # the same memory as integers
) -> None:
    """Compute how one more reward at each of r candidates changes the highest posterior mean of each of m states.

    If the reward is z standard deviations above its prediction, the mean at a basin (a local maximum) rises by
    slope · z; these slopes are written to `slopes`. The best action itself moves with z, which adds ½ V''(0), where
    V(z) is the highest mean after the reward; this gain is capped and written to `gain`.
    """
    f, n_places = places.shape
    m = new_scale.shape[1]
    n_basins = n_places - m
    k = n_basins // m
    a, b, c, g = profile[0, 0], profile[0, 1], profile[0, 2], profile[0, 3]
    square, linear, exponent, decay = scratch[0], scratch[1], scratch[2], scratch[3]
    whole, whole_bits = scratch[4], bits[4]
    for r in range(len(actions)):
        for j in range(n_places):
            square[j] = 0.0
        for d in range(f):
            for j in range(n_places):
                away = actions[r, d] - places[d, j]
                square[j] += away * away
        for j in range(n_places):
            linear[j] = a * sqrt(square[j])
            exponent[j] = linear[j] + b * square[j]
        exp_of_minus(exponent, decay, whole, whole_bits)
        share = 1.0 / sd[r]
        for i in range(m):
            for j in range(k):
                place = i * k + j
                kappa = (1.0 + linear[place] + c * square[place]) * decay[place]
                slopes[r, i, j] = (new_scale[r, i] * kappa - old[r, place]) * share
        pull, total = exponent, whole
        for j in range(m):
            pull[j] = g * (1.0 + linear[n_basins + j]) * decay[n_basins + j] * new_scale[r, j]
            gain[r, j] = 0.0
        for d in range(f):
            for j in range(m):
                total[j] = 0.0
            for e in range(d + 1):
                for j in range(m):
                    along = (actions[r, e] - places[e, n_basins + j]) * pull[j] - old_gradient[r, e, j]
                    total[j] += whitening[d, e, j] * along
            for j in range(m):
                gain[r, j] += total[j] * total[j]
        for j in range(m):
            own = 0.5 * gain[r, j] * share * share
            most = unit_gain * abs(new_scale[r, j]) * share
            gain[r, j] = own if own < most else most
