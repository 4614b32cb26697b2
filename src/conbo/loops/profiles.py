"""Profiles (stationary correlations as functions of a distance) as the compiled loops compute them.

Let r be the distance between two points in scaled inputs, and E = e^-(a r + b r²). Every profile has

    the correlation φ = (1 + a r + c r²) E,    ψ = -φ'/r = g (1 + a r) E,    χ = -ψ'/r = g E.

The four coefficients (a, b, c, g) of each profile are in `PROFILES`. Scaled inputs are coordinates divided by the
lengthscales and multiplied by the profile's unit, such as √5. `models.profiles` defines the same functions in torch.
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
