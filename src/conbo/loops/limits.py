"""Newton steps within linear limits on the action, for `loops.ascent`: the compiled form of `constrained_steps`.

Limits are linear inequalities for the values of the action parameters, which are in the user's units. Limit j holds
where its slack is not negative:

    slack_j = room_j - Σ_i coefficient_ji value_i(x_i)

The room of a limit is its bound minus what the state contributes to the sum. A value becomes a coordinate x_i
(a scaled input) in three steps: it is mapped to [0, 1], warped, and multiplied by a factor that includes
1 / lengthscale. `free` holds the indices of the coordinates of all numeric action parameters, and `shapes` has a column
for each of them.

| row of `shapes` | meaning                                                                             |
|-----------------|-------------------------------------------------------------------------------------|
| 0, 1            | low end of the value's range, and its width                                         |
| 2               | log of the high end over the low end for a log scale; zero for a linear scale       |
| 3               | factor by which the warped value was multiplied                                     |
| 4, 5            | 1/a and 1/b of the input warping 1 - (1 - u^a)^b of u in [0, 1]; one without a warp |
| 6               | one if the coordinate may move, zero if it is held                                  |

`edges` has a column for each limit, in units of slack. Row 0 is the slack that a point gets when it is moved to satisfy
the limit. Row 1 is the largest violation that is tolerated.
"""

from math import expm1, sqrt

from conbo.constrained_steps import ROUNDS, STIFFNESS
from conbo.linear_limits import SWEEPS
from conbo.loops.bowls import factorize_bowl, missing_curvature, shortened, solve_bowl
from conbo.loops.compiling import Array, helper

EDGE = 1e-6  # distance from 0 and 1 at which slopes of a warp are taken, because they may be infinite at the ends
LEAST = 1e-300  # smallest divisor, instead of zero


@helper
def evaluate_limits(x: Array, free: Array, shapes: Array, values: Array, slopes: Array) -> None:
    """Convert a point x to the values of its action parameters in the user's units, with their derivatives.

    `free` holds the indices of f coordinates of x. Each of them belongs to one parameter, whose value is written
    to `values` (f,). The derivative of this value with respect to the coordinate is written to `slopes` (f,), or zero
    if the coordinate is held. The columns of `shapes` (7, f) describe the scales of the coordinates, as the module's
    docstring explains.
    """
    for i in range(len(free)):
        place, slope = x[free[i]] / shapes[3, i], 1.0 / shapes[3, i]
        place = 0.0 if place < 0.0 else (1.0 if place > 1.0 else place)
        a, b = shapes[4, i], shapes[5, i]
        if a != 1.0 or b != 1.0:
            inside = EDGE if place < EDGE else (1.0 - EDGE if place > 1.0 - EDGE else place)
            left = (1.0 - inside) ** b
            slope *= a * (1.0 - left) ** (a - 1.0) * b * (1.0 - inside) ** (b - 1.0)
            place = (1.0 - (1.0 - place) ** b) ** a
        low, ratio = shapes[0, i], shapes[2, i]
        if ratio > 0.0:
            values[i] = low + low * expm1(place * ratio)
            slopes[i] = slope * ratio * values[i]
        else:
            values[i] = low + shapes[1, i] * place
            slopes[i] = slope * shapes[1, i]
        slopes[i] *= shapes[6, i]


@helper
def slack_of(limit: int, f: int, coefficients: Array, room: Array, values: Array) -> float:
    """Return the slack of the limit with index `limit`, given the `values` of f action parameters.

    The slack is room - Σ coefficient · value, and is negative if the limit is violated.
    """
    total = room[limit]
    for i in range(f):
        total -= coefficients[limit, i] * values[i]
    return total


@helper
def limited_step(
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
    coefficients: Array,
    room: Array,
    edges: Array,
    shapes: Array,
    scratch: Array,
    gaps: Array,
    binding: Array,
) -> float:
    """Write to `step` the Newton step from x that respects linear limits and bounds, and return its length.

    The module's docstring explains the arrays that describe the limits, from `coefficients` to `shapes`; `factor`,
    `stuck` and the last three arrays are scratch. The length is at most `radius`. A limit or bound that the step would
    violate is marked as binding. Then the step is computed again with a stiff quadratic penalty, which makes it end at
    the binding limits and bounds. This is repeated, at most ROUNDS times, until the marks no longer change.
    """
    f, n_limits = len(free), len(gaps)
    normals, pulled = scratch[:n_limits], scratch[n_limits : n_limits + f]
    values, slopes = scratch[n_limits + f], scratch[n_limits + f + 1]
    evaluate_limits(x, free, shapes, values, slopes)
    for j in range(n_limits):
        length = 0.0
        for i in range(f):
            normals[j, i] = coefficients[j, i] * slopes[i]
            length += normals[j, i] * normals[j, i]
        length = sqrt(length) if length > LEAST else LEAST
        gap = slack_of(j, f, coefficients, room, values) - edges[0, j]
        gaps[j] = (gap if gap > 0.0 else 0.0) / length
        for i in range(f):
            normals[j, i] /= length
    largest = LEAST
    for i in range(f):
        stuck[i] = shapes[6, i] == 0.0
        for k in range(f):
            largest = abs(hessian[i, k]) if abs(hessian[i, k]) > largest else largest
    for side in range(n_limits + 2 * f):
        binding[side] = False
    stiff, shift = STIFFNESS * largest, 0.0
    for _ in range(ROUNDS):
        for i in range(f):
            step[i] = 0.0 if stuck[i] else gradient[i]
            for k in range(f):
                pulled[i, k] = hessian[i, k]
        for j in range(n_limits):
            if binding[j]:
                for i in range(f):
                    step[i] += stiff * gaps[j] * normals[j, i]
                    for k in range(f):
                        pulled[i, k] -= stiff * normals[j, i] * normals[j, k]
        for i in range(f):
            d = free[i]
            if binding[n_limits + i]:
                step[i] += stiff * (upper[d] - x[d])
                pulled[i, i] -= stiff
            if binding[n_limits + f + i]:
                step[i] += stiff * (lower[d] - x[d])
                pulled[i, i] -= stiff
        if not factorize_bowl(pulled, f, stuck, shift, factor):
            if shift > 0.0:  # the Hessian is not finite: do not move
                for i in range(f):
                    step[i] = 0.0
                return 0.0
            shift = missing_curvature(hessian, f, stuck)
            continue
        solve_bowl(factor, f, step)
        changed = False
        for j in range(n_limits):
            along = 0.0
            for i in range(f):
                along += normals[j, i] * step[i]
            changed |= binding[j] != (along > gaps[j])
            binding[j] = along > gaps[j]
        for i in range(f):
            if stuck[i]:
                continue
            above, below = x[free[i]] + step[i] > upper[free[i]], x[free[i]] + step[i] < lower[free[i]]
            changed |= binding[n_limits + i] != above or binding[n_limits + f + i] != below
            binding[n_limits + i], binding[n_limits + f + i] = above, below
        if not changed:
            break
    return shortened(step, f, radius)


@helper
def into_limits(
    x: Array,
    lower: Array,
    upper: Array,
    free: Array,
    coefficients: Array,
    room: Array,
    edges: Array,
    shapes: Array,
    scratch: Array,
) -> bool:
    """Try to move x, in place, to a nearby point within linear limits and bounds; return whether all limits hold there.

    x is projected onto one limit after the other, until all of them hold, in at most SWEEPS passes over all limits. The
    module's docstring explains the other arrays; `scratch` is working memory.
    """
    f, n_limits = len(free), coefficients.shape[0]
    values, slopes = scratch[n_limits + f], scratch[n_limits + f + 1]
    holding, moved, last = 0, True, SWEEPS * n_limits
    for turn in range(last + 1):
        if moved:
            evaluate_limits(x, free, shapes, values, slopes)
        if holding == n_limits or turn == last:
            break
        j, moved = turn % n_limits, False
        missing = edges[0, j] - slack_of(j, f, coefficients, room, values)
        if missing <= (edges[0, j] / 2 if edges[0, j] > 0.0 else edges[1, j] / 2):
            holding += 1
            continue
        holding, moved, length = 0, True, 0.0
        for i in range(f):
            normal, d = coefficients[j, i] * slopes[i], free[i]
            if (normal > 0.0 and x[d] > lower[d]) or (normal < 0.0 and x[d] < upper[d]):
                length += normal * normal
        if length < LEAST:
            return False
        for i in range(f):
            normal, d = coefficients[j, i] * slopes[i], free[i]
            there = x[d] - normal * missing / length
            there = lower[d] if there < lower[d] else there
            x[d] = upper[d] if there > upper[d] else there
    kept = True
    for j in range(n_limits):
        kept = kept and slack_of(j, f, coefficients, room, values) >= -edges[1, j]
    return kept
