"""Compiled form of `acquisition.convex_integral`: estimates of E[V(Z)] - V(0) for convex functions V.

Z is standard normal. Each row of the arrays describes one function V by its tangents at q nodes z, the middle one of
which is zero. The torch implementation in `acquisition.convex_integral` is the reference, and explains the formulas. An
integral over an interval between two nodes is a weighted sum of four numbers: the value and the slope at its left end,
then at its right end. Values and slopes alternate in one array, so that these four numbers are contiguous.
"""

from math import erfc, exp, pi, sqrt

from conbo.loops.compiling import Array, exact

PEAK = 1 / sqrt(2 * pi)  # φ(0)


@exact(
    "void(f8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1],"
    " f8[::1], f8[::1], f8[:,::1], f8[:,::1])"
)
def gains(
    z: Array,  # (q,), nodes
    cubic: Array,  # (4, q-1), weights in the integral of the cubic of each interval
    chord: Array,  # (4, q-1), weights in the integral of the chord of each interval
    tails: Array,  # (2, 2), integrals of 1 and t beyond the first and the last node; t is the distance from it
    bends: Array,  # (2, 4), weights in the integral of ½ t² beyond these nodes, times the curvature at them
    intercepts: Array,  # (rows, q), intercepts of the tangents at the nodes
    slopes: Array,  # (rows, q), slopes of these tangents
    smooth: Array,  # (rows, q-1), weight of the cubic in each interval; the two tangents have one minus this weight
    best: Array,  # (rows,), out: best estimates
    lower: Array,  # (rows,), out: lower bounds
    derivative: Array,  # (rows, q), out: derivatives of `best` with respect to the slopes, at fixed intercepts
    scratch: Array,  # (5, 2 q)
) -> None:
    """Estimate E[V(Z)] - V(0), Z ~ N(0, 1), of convex functions V, one per row, from their tangents at q nodes.

    The first five arguments, from `z` to `bends`, are the result of `acquisition.compiled_convex_integral.tables`. Each
    entry of `smooth` (rows, q-1) belongs to an interval between two nodes: 1 if V is smooth there, 0 if it has a
    corner, or a number in between. The best estimates, lower bounds, and derivatives of the best estimates with respect
    to the slopes of the tangents are written to `best`, `lower` and `derivative`.
    """
    rows, q = slopes.shape
    middle = q // 2
    ends, by_ends, weights = scratch[0], scratch[1], scratch[2]
    density, beyond = scratch[3], scratch[4]
    for j in range(q):  # the normal density φ(z) and the tail probability Φ(-|z|)
        density[j] = PEAK * exp(-0.5 * z[j] * z[j])
        beyond[j] = 0.5 * erfc(abs(z[j]) / sqrt(2.0))
    for row in range(rows):
        intercept, slope, share = intercepts[row], slopes[row], smooth[row]
        for j in range(q):
            change = slope[j] - slope[middle]
            gain = intercept[j] - intercept[middle] + change * z[j]
            ends[2 * j] = 0.0 if gain < 0.0 else gain
            ends[2 * j + 1] = change
            by_ends[2 * j] = 0.0
            by_ends[2 * j + 1] = 0.0
        total = total_tangent = 0.0

        for i in range(q - 1):
            left, right = z[i], z[i + 1]
            left_slope, right_slope = ends[2 * i + 1], ends[2 * i + 3]
            corner = left  # where the two tangents meet
            if right_slope > left_slope:
                apart = ends[2 * i] - ends[2 * i + 2] + right_slope * right - left_slope * left
                corner = apart / (right_slope - left_slope)
                corner = left if corner < left else corner
                corner = right if corner > right else corner
            height, tail = PEAK * exp(-0.5 * corner * corner), 0.5 * erfc(abs(corner) / sqrt(2.0))
            side = 1.0 if i >= middle else -1.0
            before, after = (
                side * (beyond[i] - tail),
                side * (tail - beyond[i + 1]),
            )  # probabilities on either side of it
            weights[0] = before
            weights[1] = density[i] - height - left * before
            weights[2] = after
            weights[3] = height - density[i + 1] - right * after
            on_tangents = on_cubic = on_chord = 0.0
            for part in range(4):
                end = ends[2 * i + part]
                on_tangents += weights[part] * end
                on_cubic += cubic[part, i] * end
                on_chord += chord[part, i] * end
            blend = share[i]
            inside = blend * on_cubic + (1.0 - blend) * on_tangents
            above = inside > on_chord
            if inside < on_tangents:
                inside, blend = on_tangents, 0.0
            total += on_chord if inside > on_chord else inside
            total_tangent += on_tangents
            for part in range(4):
                weight = blend * cubic[part, i] + (1.0 - blend) * weights[part]
                by_ends[2 * i + part] += chord[part, i] if above else weight

        for side in range(2):
            first, outer, bend = side * (2 * q - 4), side * (2 * q - 2), 0.0
            for part in range(4):
                bend += bends[side, part] * ends[first + part]
            blend = share[side * (q - 2)] if bend > 0.0 else 0.0
            for part in range(4):
                by_ends[first + part] += blend * bends[side, part]
            mass, distance = tails[side, 0], tails[side, 1]
            line = mass * ends[outer] + distance * abs(ends[outer + 1])
            total += line + blend * bend
            total_tangent += line
            by_ends[outer] += mass
            by_ends[outer + 1] += distance if side == 1 else -distance

        best[row], lower[row] = total, total_tangent
        others, by_slope = 0.0, derivative[row]
        by_ends[2 * middle + 1] = 0.0
        for j in range(q):
            by_slope[j] = by_ends[2 * j] * z[j] + by_ends[2 * j + 1]
            others += by_slope[j]
        by_slope[middle] = -others
