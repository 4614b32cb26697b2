"""The kernels' profiles, as the loops compute them: all have one form and differ in four coefficients.

With r the scaled distance, E = e^-(a r + b r²), and (a, b, c, g) a row of `PROFILES`, in the order of the columns,

    φ = (1 + a r + c r²) E,    ψ = g (1 + a r) E,    χ = g E

are the functions of `models.profiles`, where the names are explained.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

PROFILES = {
    "matern52": (1.0, 0.0, 1 / 3, 1 / 3),
    "squared-exponential": (0.0, 0.5, 0.0, 1.0),
}


@cache
def coefficients(*names: str) -> NDArray[np.float64]:
    """The rows of `PROFILES` with these names: (names, 4)."""
    return np.array([PROFILES[name] for name in names])
