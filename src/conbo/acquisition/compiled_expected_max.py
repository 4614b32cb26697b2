"""E[max_i (a_i + b_i Z)] as a compiled walk along the upper envelope of the lines; `expected_max` explains the terms.

The walk starts at z = 0 on the highest line and goes outwards, first to the right and then to the left: the next
corner is the nearest crossing with a line that rises more steeply that way.  It ends where the density vanishes, so
that few corners are visited, and every term of the gain is computed in its own tail: nothing cancels.
"""

from math import erfc, exp, pi, sqrt

import numpy as np
import torch
from torch import Tensor

from conbo.models.compiled import Array, exact

OUTERMOST = 39.0  # beyond it, φ(z) is zero in double precision
PEAK = 1 / sqrt(2 * pi)  # φ(0)


def integrate(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gain (...), probability and density (..., n) of lines a + b z: see `ExpectedMax`."""
    gain, probability, density = np.zeros(a.shape[:-1]), np.zeros(a.shape), np.zeros(a.shape)
    n = a.shape[-1]
    _walk(
        np.ascontiguousarray(a.numpy()).reshape(-1, n),
        np.ascontiguousarray(b.numpy()).reshape(-1, n),
        gain.reshape(-1),
        probability.reshape(-1, n),
        density.reshape(-1, n),
    )
    return torch.from_numpy(gain), torch.from_numpy(probability), torch.from_numpy(density)


@exact
def _walk(a: Array, b: Array, gain: Array, probability: Array, density: Array) -> None:
    rows, n = a.shape
    for row in range(rows):
        top = 0
        for j in range(1, n):
            if a[row, j] > a[row, top]:
                top = j
        probability[row, top] = 1.0
        for side in (1.0, -1.0):
            here, corner = top, 0.0
            while True:
                there, bend, nearest = here, 0.0, OUTERMOST
                for j in range(n):
                    steeper = side * (b[row, j] - b[row, here])
                    if steeper > 0.0:
                        crossing = (a[row, here] - a[row, j]) / steeper
                        # of lines through one corner the steepest goes on
                        if crossing < nearest or (crossing == nearest and steeper > bend):
                            there, bend, nearest = j, steeper, crossing
                if there == here:
                    break
                corner = max(corner, nearest)  # rounding may put a corner before the last
                height = PEAK * exp(-0.5 * corner * corner)
                beyond = 0.5 * erfc(corner / sqrt(2.0))
                gain[row] += bend * max(height - corner * beyond, 0.0)
                probability[row, here] = max(probability[row, here] - beyond, 0.0)
                probability[row, there] += beyond
                density[row, here] -= side * height
                density[row, there] += side * height
                here = there
