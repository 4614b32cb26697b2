"""Compiled Newton ascent for `models.action_functions`: maximizes h(x; z) = mean(x) + z slope(x) over the action x.

The torch implementation in that module takes the same steps and explains the functions. h is the posterior mean in a
state after a new reward that is z standard deviations above its prediction. In arrays, each row belongs to one such
function, with its own new reward and state. The loop works on one row and one z at a time.
`mean` and `slope` are weighted sums of the correlations κ between x and each of the n observed points. All rows share
these points. `slope` has one more term, for the row's own new point. Coordinates of points are scaled by the
lengthscales, so that the Euclidean distance between points is the argument of κ.
"""

from math import sqrt
from typing import Any

from conbo.loops.bowls import factorize_bowl, missing_curvature, shortened, solve_bowl
from conbo.loops.compiling import Array, Function, fast, helper, inlined
from conbo.loops.exponential import exp_of_minus
from conbo.loops.limits import into_limits, limited_step

SHORTEST_STEP = 1e-6  # in scaled coordinates: a shorter Newton step changes the value by rounding errors alone

SIGNATURE = (
    "void(int64, int64, f8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[::1],"
    " int64[::1], int64, f8, f8[:,:,::1], f8[:,::1], f8[:,::1], f8[:,:,::1],"
    " f8[:,::1], f8[:,:,::1], f8[:,::1], boolean[::1], {limits})"
)
LIMITS = "Tuple((f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[::1], boolean[::1]))"


def _ascent(name: str, limited: bool) -> Function:
    """Return the function `ascend_rows`, not compiled yet, and set its qualified name to `name`.

    If `limited`, its local searches respect linear limits on the action.
    """

    def ascend_rows(
        first: int,
        last: int,
        profile: Array,  # (4,), coefficients of κ: see `loops.profiles`
        points: Array,  # (features, n + 1), the observed points; the last column is scratch, for the new points
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
        x: Array,  # (rows, q, features), in: starting points; out: maximizers
        mean: Array,  # (rows, q), out, like the next two arrays
        slope: Array,  # (rows, q)
        correlation: Array,  # (rows, q, n), between maximizers and points; (rows, q, 0) if it is not wanted
        scratch: Array,  # (features + 5, n + 1)
        derivatives: Array,  # scratch (2, features + 1, features)
        small: Array,  # scratch (features + 2, features)
        stuck: Array,  # (features,)
        limits: Any,  # if `limited`, the arrays of `models.compiled_ascent`, which says their shapes; None otherwise
    ) -> None:
        """Maximize mean(x) + z slope(x) over the action x, for rows `first` to `last` - 1 and every z of a row.

        Each row belongs to one function of the action: the posterior mean in one state after a new reward that is z
        standard deviations above its prediction. Each row has q values of z. The maximizers replace the starting points
        in `x`. The means and slopes at the maximizers are written to `mean` and `slope`. Each search takes at most
        `steps` Newton steps, within a trust region whose first radius is `first_radius`.
        """
        features, f, n = len(points), len(free), len(points[0]) - 1
        if limited:
            coefficients, room, edges, shapes, limit_scratch, gaps, binding = limits
        weights, there, step = scratch[features + 4], small[features], small[features + 1]
        for row in range(first, last):
            for d in range(features):
                points[d, n] = new_points[row, d]
            for j in range(z.shape[1]):
                here = x[row, j]
                weights[n] = z[row, j] * new_weights[row]
                for m in range(n):
                    weights[m] = mean_weights[row, m] + z[row, j] * slope_weights[row, m]
                for d in range(features):
                    there[d] = here[d]
                value = length = 0.0
                radius, inside = first_radius, True
                now = 0  # index of the correlations and derivatives at `here`
                for k in range(steps + 1):  # evaluate the new point, move to it if it is better, take the next step
                    if limited:
                        inside = into_limits(
                            there, lower, upper, free, coefficients, room[row], edges, shapes, limit_scratch
                        )
                    new_value = _evaluate(
                        profile, there, points, free, k < steps, scratch, features + 1 - now, derivatives[1 - now]
                    )
                    if k == 0 or (inside and new_value > value):
                        value, now = new_value, 1 - now
                        for d in range(features):
                            here[d] = there[d]
                        if length >= 0.99 * radius:
                            radius *= 2
                    else:
                        radius = length / 4
                    if k < steps:
                        hessian, gradient = derivatives[now], derivatives[now, features]
                        if limited:
                            length = limited_step(
                                here, gradient, hessian, lower, upper, free, radius, step, small, stuck,
                                coefficients, room[row], edges, shapes, limit_scratch, gaps, binding,
                            )  # fmt: skip
                        else:
                            length = _newton_step(
                                here, gradient, hessian, lower, upper, free, radius, step, small, stuck
                            )
                        if length < SHORTEST_STEP:
                            break
                        for i in range(f):
                            d = free[i]
                            moved = here[d] + step[i]
                            moved = lower[d] if moved < lower[d] else moved
                            there[d] = upper[d] if moved > upper[d] else moved
                kappa = scratch[features + now]
                total, total_slope = 0.0, new_weights[row] * kappa[n]
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
    free: Array,
    with_derivatives: bool,
    scratch: Array,
    place: int,
    derivatives: Array,
) -> float:
    """Return the weighted sum of the correlations between x and all points.

    The weights are the last row of `scratch`, and the correlations are written to row `place` of `scratch`. If
    `with_derivatives`, the second derivatives of the sum with respect to the coordinates with indices `free` are
    written to the first rows of `derivatives`, and the first derivatives to its last row.
    """
    features, columns = points.shape
    correlation, weights = scratch[place], scratch[features + 4]
    pull, curve = scratch[features + 2], scratch[features + 3]
    a, b = profile[0], profile[1]
    c, g = profile[2], profile[3]
    for m in range(columns):
        correlation[m] = 0.0
    for d in range(features):
        for m in range(columns):
            away = x[d] - points[d, m]
            scratch[d, m] = away
            correlation[m] += away * away
    value = total_pull = 0.0
    for m in range(columns):
        square, weight = correlation[m], weights[m]
        linear = a * sqrt(square)
        decay = exp_of_minus(linear + b * square)
        kappa, bend = (1.0 + linear + c * square) * decay, g * weight * decay
        value += weight * kappa
        total_pull += (1.0 + linear) * bend
        correlation[m], curve[m] = kappa, bend
        pull[m] = (1.0 + linear) * bend
    if with_derivatives:
        f = len(free)
        for i in range(0, f, 2):  # two rows and columns at a time, which reads less memory; an odd last one is repeated
            j = i + 1 if i + 1 < f else i
            at_i, at_j = scratch[free[i]], scratch[free[j]]
            for k in range(0, i + 1, 2):
                h = k + 1 if k + 1 < f else k
                at_k, at_h = scratch[free[k]], scratch[free[h]]
                ik = ih = jk = jh = 0.0
                for m in range(columns):
                    by_k, by_h = curve[m] * at_k[m], curve[m] * at_h[m]
                    ik += at_i[m] * by_k
                    ih += at_i[m] * by_h
                    jk += at_j[m] * by_k
                    jh += at_j[m] * by_h
                derivatives[i, k], derivatives[i, h] = ik, ih
                derivatives[j, k], derivatives[j, h] = jk, jh
        for i in range(f):
            along, total = scratch[free[i]], 0.0
            for m in range(columns):
                total -= pull[m] * along[m]
            derivatives[features, i] = total
            derivatives[i, i] -= total_pull
            for k in range(i):
                derivatives[k, i] = derivatives[i, k]
    return value


@helper
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
    """Write to `step` the Newton step from x towards a maximum, and return its length, which is at most `radius`.

    Only the coordinates with indices `free` move. Of these, a coordinate stays at its bound if the gradient points
    outwards there. The caller clips the step where it crosses a bound. `factor` and `stuck` are scratch.
    `models.action_functions.newton_step` is the same in torch. The compiler is not allowed to reorder the sums here,
    because it would vectorize them, which is slower for sums of a few terms.
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
ascend_rows = fast(SIGNATURE.format(limits="none"), no_rewrites=False)(_ascent("ascend_rows", limited=False))
ascend_rows_within_limits = fast(SIGNATURE.format(limits=LIMITS), on_demand=True, no_rewrites=False)(
    _ascent("ascend_rows_within_limits", limited=True)
)
