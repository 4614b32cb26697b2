"""Compiled Newton ascent for `models.action_functions`: maximizes h(x; z) = mean(x) + z slope(x) over the action x.

The torch implementation in that module takes the same steps and explains the functions. h is the posterior mean of a
state after a new observation z. There is one function h for each row; the loop works on one row and one z at a time.
`mean` and `slope` are weighted sums of the correlation κ between x and the n observed points, which all rows share;
`slope` has one more term, for the row's own new point. Coordinates of points are scaled by the lengthscales, so that
the Euclidean distance between points is the argument of κ.
"""

from math import exp, sqrt

from conbo.loops.bowls import factorize_bowl, missing_curvature, shortened, solve_bowl
from conbo.loops.compiling import Array, Function, exact_helper, fast, inlined
from conbo.loops.exponential import exp_of_minus
from conbo.loops.limits import into_limits, limited_step

SHORTEST_STEP = 1e-6  # in scaled coordinates: a shorter Newton step changes the value by rounding errors alone

SIGNATURE = (
    "void(int64, int64, f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[::1],"
    " int64[::1], int64, f8, f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1],"
    " f8[:,:,::1], f8[:,::1], f8[:,::1], f8[:,:,::1],"
    " f8[:,::1], int64[:,::1], f8[:,::1], boolean[::1], f8[:,::1], f8[::1], boolean[::1])"
)


def _ascent(name: str, limited: bool) -> Function:
    """Return the Python function of the loop `ascend_rows`; `limited` adds the code for linear limits on the action."""

    def ascend_rows(
        first: int,
        last: int,
        profile: Array,  # (1, 4), coefficients of κ: see `loops.profiles`
        points: Array,  # (features, n)
        mean_weights: Array,  # (rows, n)
        slope_weights: Array,  # (rows, n)
        new_points: Array,  # (rows, features)
        new_weights: Array,  # (rows,), weights of the new points in the slope
        z: Array,  # (rows, q)
        lower: Array,  # (features,), bounds of x
        upper: Array,
        free: Array,  # indices of the features that may move
        steps: int,
        first_radius: float,  # first radius of the trust region
        coefficients: Array,  # (J, free), of J linear limits: see `loops.limits`, also for the next three arrays
        room: Array,  # (rows, J)
        edges: Array,  # (2, J)
        shapes: Array,  # (6, free)
        x: Array,  # (rows, q, features), in: starting points; out: maximizers
        mean: Array,  # (rows, q), out, like the next two arrays
        slope: Array,  # (rows, q)
        correlation: Array,  # (rows, q, n), between maximizers and points; (rows, q, 0) if it is not wanted
        scratch: Array,  # (7 + features, n)
        bits: Array,  # the same memory as integers
        small: Array,  # (4 + 3 features, features)
        stuck: Array,  # (features,)
        limit_scratch: Array,  # (J + free + 2, free)
        gaps: Array,  # (J,)
        binding: Array,  # (J + 2 free,)
    ) -> None:
        """Maximize mean(x) + z slope(x) over x, for every z of rows `first` to `last` - 1.

        Each row is one function, with q values z. The maximizers replace the starting points in `x`; their means and
        slopes are written to `mean` and `slope`.
        """
        features, n = points.shape
        f = len(free)
        kappa, new_kappa, weights, pull, curve = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
        whole, whole_bits, linear, away = scratch[5], bits[5], scratch[6], scratch[7:]
        there, gradient, new_gradient, step = small[0], small[1], small[2], small[3]
        hessian, new_hessian, factor = small[4 : 4 + f], small[4 + f : 4 + 2 * f], small[4 + 2 * f :]
        for row in range(first, last):
            for j in range(z.shape[1]):
                here = x[row, j]
                own_weight = z[row, j] * new_weights[row]
                for m in range(n):
                    weights[m] = mean_weights[row, m] + z[row, j] * slope_weights[row, m]
                for d in range(features):
                    there[d] = here[d]
                value, own, length, radius, inside = 0.0, 0.0, 0.0, first_radius, True
                for k in range(steps + 1):  # evaluate the new point, move to it if it is better, take the next step
                    if limited:
                        inside = into_limits(
                            there, lower, upper, free, coefficients, room[row], edges, shapes, limit_scratch
                        )
                    new_own = _evaluate(
                        profile[0], there, points, new_points[row], weights, own_weight, free, k < steps,
                        new_kappa, pull, curve, away, whole, whole_bits, linear, new_gradient, new_hessian,
                    )  # fmt: skip
                    new_value = own_weight * new_own
                    for m in range(n):
                        new_value += weights[m] * new_kappa[m]
                    if k == 0 or (inside and new_value > value):
                        value, own = new_value, new_own
                        kappa, new_kappa = new_kappa, kappa
                        gradient, new_gradient = new_gradient, gradient
                        hessian, new_hessian = new_hessian, hessian
                        for d in range(features):
                            here[d] = there[d]
                        if k > 0 and length >= 0.99 * radius:
                            radius *= 2
                    else:
                        radius = length / 4
                    if k < steps:
                        if limited:
                            length = limited_step(
                                here, gradient, hessian, lower, upper, free, radius, step, factor, stuck,
                                coefficients, room[row], edges, shapes, limit_scratch, gaps, binding,
                            )  # fmt: skip
                        else:
                            length = _newton_step(
                                here, gradient, hessian, lower, upper, free, radius, step, factor, stuck
                            )
                        if length < SHORTEST_STEP:
                            break
                        for i in range(f):
                            d = free[i]
                            moved = here[d] + step[i]
                            moved = lower[d] if moved < lower[d] else moved
                            there[d] = upper[d] if moved > upper[d] else moved
                total, total_slope = 0.0, new_weights[row] * own
                for m in range(n):
                    total += mean_weights[row, m] * kappa[m]
                    total_slope += slope_weights[row, m] * kappa[m]
                mean[row, j], slope[row, j] = total, total_slope
                for m in range(correlation.shape[2]):
                    correlation[row, j, m] = kappa[m]

    ascend_rows.__qualname__ = name
    return ascend_rows


@inlined
def _evaluate(
    profile: Array,
    x: Array,
    points: Array,
    new_point: Array,
    weights: Array,
    own_weight: float,
    free: Array,
    derivatives: bool,
    correlation: Array,
    pull: Array,
    curve: Array,
    away: Array,
    whole: Array,
    whole_bits: Array,
    linear: Array,
    gradient: Array,
    hessian: Array,
) -> float:
    """Compute the correlations between x and all points, and the derivatives of their weighted sum at x.

    Return the correlation between x and `new_point`, and write those between x and the n `points` to `correlation`. The
    sum has the weights `weights`, and `own_weight` for the new point. With `derivatives`, its first and second
    derivatives with respect to the coordinates with indices `free` are written to `gradient` and `hessian`. The arrays
    from `pull` to `linear` are scratch.
    """
    features, n = points.shape
    f = len(free)
    a, b, c, g = profile[0], profile[1], profile[2], profile[3]
    for m in range(n):
        correlation[m] = 0.0
    for d in range(features):
        for m in range(n):
            away[d, m] = x[d] - points[d, m]
            correlation[m] += away[d, m] * away[d, m]
    own_square = 0.0
    for d in range(features):
        own_away = x[d] - new_point[d]
        own_square += own_away * own_away
    for m in range(n):
        linear[m] = a * sqrt(correlation[m])
        pull[m] = linear[m] + b * correlation[m]
    exp_of_minus(pull, curve, whole, whole_bits)
    own_linear = a * sqrt(own_square)
    decay = exp(-own_linear - b * own_square)
    own, own_pull, own_curve = (1.0 + own_linear + c * own_square) * decay, g * (1.0 + own_linear) * decay, g * decay
    total_pull = own_weight * own_pull
    for m in range(n):
        decay = curve[m]
        correlation[m] = (1.0 + linear[m] + c * correlation[m]) * decay
        curve[m] = weights[m] * g * decay
        pull[m] = (1.0 + linear[m]) * curve[m]
        total_pull += pull[m]
    if not derivatives:
        return own
    # two rows and columns of the Hessian at a time, which reads less memory; an odd last one is computed twice
    for i in range(0, f, 2):
        j = i + 1 if i + 1 < f else i
        p, q = free[i], free[j]
        total, other = 0.0, 0.0
        for m in range(n):
            total += pull[m] * away[p, m]
            other += pull[m] * away[q, m]
            whole[m] = curve[m] * away[p, m]
            linear[m] = curve[m] * away[q, m]
        gradient[i], gradient[j] = -total, -other
        for k in range(0, i + 1, 2):
            h = k + 1 if k + 1 < f else k
            p, q = free[k], free[h]
            ik, ih, jk, jh = 0.0, 0.0, 0.0, 0.0
            for m in range(n):
                ik += whole[m] * away[p, m]
                ih += whole[m] * away[q, m]
                jk += linear[m] * away[p, m]
                jh += linear[m] * away[q, m]
            hessian[i, k], hessian[i, h], hessian[j, k], hessian[j, h] = ik, ih, jk, jh
    for i in range(f):
        own_p = x[free[i]] - new_point[free[i]]
        gradient[i] -= own_weight * own_pull * own_p
        for k in range(i + 1):
            hessian[i, k] += own_weight * own_curve * own_p * (x[free[k]] - new_point[free[k]])
            hessian[k, i] = hessian[i, k]
        hessian[i, i] -= total_pull
    return own


@exact_helper
def _newton_step(
    x: Array,
    gradient: Array,
    hessian: Array,
    lower: Array,
    upper: Array,
    free: Array,
    radius: float,
    step: Array,
    factor: Array,
    stuck: Array,
) -> float:
    """Write to `step` the Newton step from x to a maximum, and return its length, which is at most `radius`.

    Only the coordinates with indices `free` move, and only within the bounds. `factor` and `stuck` are scratch.
    `models.action_functions.newton_step` is the same in torch. This helper is not compiled as `fast`, because
    vectorized sums of a few terms are slower than plain ones.
    """
    f = len(free)
    for i in range(f):
        d = free[i]
        stuck[i] = (x[d] <= lower[d] and gradient[i] < 0) or (x[d] >= upper[d] and gradient[i] > 0)
        step[i] = 0.0 if stuck[i] else gradient[i]
    shift = 0.0
    for attempt in range(2):
        if factorize_bowl(hessian, len(free), stuck, shift, factor):
            break
        if attempt == 1:  # the Hessian is not finite: stay
            for i in range(f):
                step[i] = 0.0
            return 0.0
        shift = missing_curvature(hessian, f, stuck)
    solve_bowl(factor, f, step)
    return shortened(step, f, radius)


# Compiled with Numba's rewrites, which remove the branches that depend on `limited`.
ascend_rows = fast(SIGNATURE, no_rewrites=False)(_ascent("ascend_rows", limited=False))
ascend_rows_within_limits = fast(SIGNATURE, on_demand=True, no_rewrites=False)(
    _ascent("ascend_rows_within_limits", limited=True)
)
