"""Compiled form of `acquisition.convex_integral`: estimates of E[V(Z)] - V(0) for convex functions V.

Each row is one function V, known by its tangents at q nodes z, of which the middle one is zero. The torch
implementation in `acquisition.convex_integral` is the reference, and explains the formulas.
"""

from math import erfc, exp, pi, sqrt

from conbo.loops.compiling import Array, exact, inlined


@exact(
    "void(f8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,::1],"
    " f8[::1], f8[::1], f8[:,::1], f8[:,::1])"
)
def gains(
    z: Array,  # (q,), nodes
    cubic: Array,  # (4, q-1), weights of values and slopes in the integral of the cubic of each interval
    chord: Array,  # (2, q-1), weights of values in the integral of the chord of each interval
    tails: Array,  # (3, 2), integrals of 1, t and t² beyond the first and the last node; t is the distance from it
    intercepts: Array,  # (rows, q), intercepts of the tangents at the nodes
    slopes: Array,  # (rows, q), slopes of these tangents
    smooth: Array,  # (rows, q-1), weight of the cubic in each interval; the two tangents have one minus this weight
    best: Array,  # (rows,), out: best estimates
    lower: Array,  # (rows,), out: lower bounds
    derivative: Array,  # (rows, q), out: derivatives of `best` with respect to the slopes, at fixed intercepts
    scratch: Array,  # (6, q)
) -> None:
    """Estimate E[V(Z)] - V(0), Z ~ N(0, 1), of convex functions V, one per row, from their tangents at q nodes.

    The best estimates, lower bounds, and derivatives of the best estimates with respect to the slopes of the tangents
    are written to `best`, `lower` and `derivative`.
    """
    q = len(z)
    middle = q // 2
    gain, slope, by_gain, by_slope, density, beyond = (
        scratch[0], scratch[1], scratch[2], scratch[3], scratch[4], scratch[5],
    )  # fmt: skip
    for j in range(q):
        density[j], beyond[j] = _density(z[j]), _beyond(z[j])
    for row in range(len(best)):
        for j in range(q):
            slope[j] = slopes[row, j] - slopes[row, middle]
            gain[j] = intercepts[row, j] - intercepts[row, middle] + slope[j] * z[j]
            if gain[j] < 0.0:
                gain[j] = 0.0
            by_gain[j], by_slope[j] = 0.0, 0.0
        total, total_tangent = 0.0, 0.0

        for i in range(q - 1):
            k = i + 1
            corner = z[i]
            slope_change = slope[k] - slope[i]
            if slope_change > 0.0:
                corner = (gain[i] - gain[k] + slope[k] * z[k] - slope[i] * z[i]) / slope_change
                corner = z[i] if corner < z[i] else corner
                corner = z[k] if corner > z[k] else corner
            at_corner, beyond_corner = _density(corner), _beyond(corner)
            l0 = _probability(z[i], corner, beyond[i], beyond_corner)
            r0 = _probability(corner, z[k], beyond_corner, beyond[k])
            l1, r1 = density[i] - at_corner - z[i] * l0, at_corner - density[k] - z[k] * r0
            tangent = l0 * gain[i] + l1 * slope[i] + r0 * gain[k] + r1 * slope[k]
            curve = cubic[0, i] * gain[i] + cubic[1, i] * slope[i] + cubic[2, i] * gain[k] + cubic[3, i] * slope[k]
            on_chord = chord[0, i] * gain[i] + chord[1, i] * gain[k]
            share = smooth[row, i]
            inside = share * curve + (1.0 - share) * tangent
            if inside > on_chord:
                inside = on_chord
                by_gain[i] += chord[0, i]
                by_gain[k] += chord[1, i]
            else:
                if inside < tangent:
                    inside, share = (tangent if tangent < on_chord else on_chord), 0.0
                by_gain[i] += share * cubic[0, i] + (1.0 - share) * l0
                by_slope[i] += share * cubic[1, i] + (1.0 - share) * l1
                by_gain[k] += share * cubic[2, i] + (1.0 - share) * r0
                by_slope[k] += share * cubic[3, i] + (1.0 - share) * r1
            total += inside
            total_tangent += tangent

        for side in range(2):
            outer, inner, end, sign = 0, 1, 0, 1.0
            if side == 1:
                outer, inner, end, sign = q - 1, q - 2, q - 2, -1.0
            h = abs(z[inner] - z[outer])
            curvature = (
                6.0 * (gain[inner] - gain[outer]) / (h * h) - sign * (4.0 * slope[outer] + 2.0 * slope[inner]) / h
            )
            scale = 0.5 * smooth[row, end] * tails[2, side] if curvature > 0.0 else 0.0
            line = gain[outer] * tails[0, side] + abs(slope[outer]) * tails[1, side]
            total += line + scale * curvature
            total_tangent += line
            by_gain[outer] += tails[0, side] - 6.0 / (h * h) * scale
            by_gain[inner] += 6.0 / (h * h) * scale
            by_slope[outer] -= sign * (tails[1, side] + 4.0 / h * scale)
            by_slope[inner] -= sign * 2.0 / h * scale

        best[row], lower[row] = total, total_tangent
        others = 0.0
        for j in range(q):
            derivative[row, j] = by_gain[j] * z[j] + by_slope[j]
            if j != middle:
                others += derivative[row, j]
        derivative[row, middle] = -others


@inlined
def _density(z: float) -> float:
    """Return the standard normal density φ(z)."""
    return exp(-0.5 * z * z) / sqrt(2.0 * pi)


@inlined
def _beyond(z: float) -> float:
    """Return the standard normal tail probability Φ(-|z|)."""
    return 0.5 * erfc(abs(z) / sqrt(2.0))


@inlined
def _probability(start: float, end: float, beyond_start: float, beyond_end: float) -> float:
    """Return Φ(end) - Φ(start) from the tail probabilities Φ(-|start|) and Φ(-|end|).

    Φ is the standard normal distribution function. Both ends must be on the same side of zero.
    """
    return beyond_start - beyond_end if start >= 0.0 else beyond_end - beyond_start
