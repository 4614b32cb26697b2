"""E[max_i (a_i + b_i Z)] - max_i a_i for standard normal Z, by a walk along the upper envelope of the lines.

This is the compiled form of `acquisition.expected_max`. The walk starts at z = 0 on the highest line and goes outwards,
first to the right and then to the left. The next corner of the envelope is the nearest crossing with a line that rises
more steeply in this direction. The walk ends if there is no such crossing before |z| = 39, beyond which the density of
Z is zero in double precision. The gain is a sum over the corners, and none of its terms is negative, so nothing
cancels.
"""

from math import erfc, exp, pi, sqrt

from conbo.loops.compiling import Array, exact

OUTERMOST = 39.0  # beyond it, φ(z) is zero in double precision
PEAK = 1 / sqrt(2 * pi)  # φ(0)


@exact("void(f8[:,::1], f8[:,::1], f8[::1], f8[:,::1], f8[:,::1])")
def walk(a: Array, b: Array, gain: Array, probability: Array, density: Array) -> None:
    """Compute the gain E[max (a + b Z)] - max a, Z ~ N(0, 1), of the n lines a + b z in each row, with derivatives.

    `a` and `b` (rows, n) are the intercepts and slopes. The gains are written to `gain` (rows,). The derivatives of
    E[max (a + b Z)] with respect to a are the probabilities that each line is the highest, and are written to
    `probability` (rows, n). Those with respect to b are written to `density` (rows, n). The caller must set
    `gain`, `probability` and `density` to zero first. If `probability` has no rows, only the gains are computed.
    """
    rows, n = a.shape
    only_gain = len(probability) == 0
    for row in range(rows):
        top = 0
        for j in range(1, n):
            if a[row, j] > a[row, top]:
                top = j
        if not only_gain:
            probability[row, top] = 1.0
        for direction in range(2):
            side = 1.0 if direction == 0 else -1.0
            here, corner = top, 0.0
            while True:
                there, slope_change, nearest = here, 0.0, OUTERMOST
                for j in range(n):
                    steeper = side * (b[row, j] - b[row, here])
                    if steeper > 0.0:
                        crossing = (a[row, here] - a[row, j]) / steeper
                        # of several lines through one corner, continue on the steepest
                        if crossing < nearest or (crossing == nearest and steeper > slope_change):
                            there, slope_change, nearest = j, steeper, crossing
                if there == here:
                    break
                corner = nearest if nearest > corner else corner  # rounding may put a corner before the previous one
                height = PEAK * exp(-0.5 * corner * corner)
                beyond = 0.5 * erfc(corner / sqrt(2.0))
                excess = height - corner * beyond
                gain[row] += slope_change * (excess if excess > 0.0 else 0.0)
                if not only_gain:
                    left = probability[row, here] - beyond
                    probability[row, here] = left if left > 0.0 else 0.0
                    probability[row, there] += beyond
                    density[row, here] -= side * height
                    density[row, there] += side * height
                here = there
