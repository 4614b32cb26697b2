"""Computes, in a compiled loop, how one more reward changes the posterior means at each state's best actions.

The torch code in `models.exact_rough_gains` is the reference, and explains the formulas. The innermost loops run over
the m states, so the dimension of states comes after that of features in all arrays.
"""

from math import sqrt

from conbo.loops.compiling import Array, fast
from conbo.loops.exponential import exp_of_minus


@fast(
    "void(f8[::1], f8[:,::1], f8[:,::1], f8[:,:,::1], f8[:,::1], f8[::1], f8[:,::1], f8[:,:,::1], f8,"
    " f8[:,:,::1], f8[:,::1], f8[:,::1])"
)
def reactions(
    profile: Array,  # (4,), coefficients of κ
    actions: Array,  # (r, f), of the candidates, as scaled inputs
    places: Array,  # (f, m + m · k), the best action of each state, then k basins of each state
    whitening: Array,  # (f, f, m), lower triangular
    new_scale: Array,  # (r, m), A between the candidates' states and the m states
    sd: Array,  # (r,), standard deviations of the new rewards
    old: Array,  # (r, m · k), the part of the basins' covariances that is already known
    old_gradient: Array,  # (r, f, m), the same part of the gradients at the best actions
    unit_gain: float,  # largest expected gain from an action whose mean changes by z
    slopes: Array,  # (r, m, at least k), out: look-ahead slopes at the basins
    gain: Array,  # (r, m), out: gain from curvature
    scratch: Array,  # (3, m + m · k)
) -> None:
    """Compute how one more reward at one of r candidates changes the posterior means in each of m states.

    If the reward is z standard deviations (`sd`) above its prediction, the posterior mean of an action rises by
    slope · z. The slopes at each state's basins (local maxima of the posterior mean) are written to `slopes`. The best
    action also moves with z. To second order, the expected gain from this is ½ V''(0), where V(z) is the state's
    highest mean after the reward. This gain is written to `gain`, with a cap proportional to `unit_gain`.
    """
    f, n_places = places.shape
    candidates, m = gain.shape
    k = n_places // m - 1
    a, b = profile[0], profile[1]
    c, g = profile[2], profile[3]
    kappa, pull, total = scratch[0], scratch[1], scratch[2]
    for r in range(candidates):
        action, scale, own = actions[r], new_scale[r], gain[r]
        share = 1.0 / sd[r]
        for j in range(n_places):
            kappa[j] = 0.0
        for d in range(f):
            for j in range(n_places):
                away = action[d] - places[d, j]
                kappa[j] += away * away
        for j in range(n_places):
            square = kappa[j]
            linear = a * sqrt(square)
            decay = exp_of_minus(linear + b * square)
            kappa[j] = (1.0 + linear + c * square) * decay
            pull[j] = g * (1.0 + linear) * decay
        for i in range(m):
            for j in range(k):
                slopes[r, i, j] = (scale[i] * kappa[m + i * k + j] - old[r, i * k + j]) * share
        for j in range(m):
            pull[j] *= scale[j]
            own[j] = 0.0
        for d in range(f):
            for j in range(m):
                total[j] = 0.0
            for e in range(d + 1):
                for j in range(m):
                    along = (action[e] - places[e, j]) * pull[j] - old_gradient[r, e, j]
                    total[j] += whitening[d, e, j] * along
            for j in range(m):
                own[j] += total[j] * total[j]
        for j in range(m):
            curved = 0.5 * own[j] * share * share
            most = unit_gain * abs(scale[j]) * share
            own[j] = curved if curved < most else most
