"""Profiles (stationary correlations as functions of a distance) in the form in which the compiled loops compute them.

All have one form and differ in four coefficients (a, b, c, g), the entries of `PROFILES`. With r the distance between
points whose coordinates are scaled by the lengthscales, and E = e^-(a r + b r²),

    φ = (1 + a r + c r²) E,    ψ = g (1 + a r) E,    χ = g E

are the functions of `models.profiles`: the correlation φ, ψ = -φ'/r and χ = -ψ'/r.
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
    """Return the coefficients (a, b, c, g) of the profiles with these names, such as "matern52", in one array."""
    return np.array([PROFILES[name] for name in names]).flatten()
