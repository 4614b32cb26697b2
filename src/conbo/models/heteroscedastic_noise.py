"""Heteroscedastic noise: the variance of the noise depends on state and action.

    log σ²(u) = log σ₀² + Σ_f w_f (2 h_f(u) - 1)

Here h_f are the features of the unit-cube point u, as in a kernel: a numeric column is a feature itself, and a
categorical column becomes one-hot features, divided by √2.  The level σ₀² and the slopes w_f are fitted.  This
log-linear form is the simplest one for noise that grows with a parameter, and few rewards are enough to learn it.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import log

import torch
from torch import Tensor

from conbo.models.columns import Columns

# Least noise variance of a standardized reward. Exact rewards need a little noise, because their covariance would be
# singular at equal points. With less, rounding errors show in posterior variances; with more, the policy of an exact
# problem ends less accurate.
LEAST_NOISE = 1e-9
LOG_NOISE_BOUNDS = (log(LEAST_NOISE), log(10.0))  # bounds of log σ², for standardized rewards


@dataclass(frozen=True)
class HeteroscedasticNoise:
    """The noise variance as a log-linear function of the point; the logarithm is clamped to LOG_NOISE_BOUNDS."""

    columns: Columns  # the columns of a point, those of the state first
    log_level: float  # log σ₀²
    slopes: Tensor  # w, one slope for each feature

    def at(self, points: Tensor) -> Tensor:
        """Return the variances (...,) of the noise at points (..., d)."""
        return self._logarithms(points).clamp(*LOG_NOISE_BOUNDS).exp()

    def gradient(self, points: Tensor) -> Tensor:
        """Return the gradients (..., d) of the noise variances at points (..., d); zero in categorical columns."""
        logarithms, (low, high) = self._logarithms(points), LOG_NOISE_BOUNDS
        moving = torch.where((logarithms > low) & (logarithms < high), logarithms.exp(), 0.0)
        return moving[..., None] * self._by_column

    @cached_property
    def _by_column(self) -> Tensor:
        """The gradient (d,) of the logarithm of the noise variance; zero in categorical columns."""
        gradient = self.slopes.new_zeros(len(self.columns.categories))
        gradient[list(self.columns.numeric)] = 2 * self.slopes[list(self.columns.numeric_features)]
        return gradient

    def _logarithms(self, points: Tensor) -> Tensor:
        """Return log noise variances (...,) at points (..., d), before they are clamped to LOG_NOISE_BOUNDS."""
        return self.log_level + centered_features(self.columns, points) @ self.slopes

    def to(self, device: torch.device) -> "HeteroscedasticNoise":
        """Return a copy with its tensors on another device."""
        return replace(self, slopes=self.slopes.to(device))


def centered_features(columns: Columns, points: Tensor) -> Tensor:
    """Return 2 h - 1 (..., features), where h are the features of unit-cube points (..., d).

    Features are those of a kernel. A numeric column is a feature itself, so the result for it is in [-1, 1]. A
    categorical column becomes one-hot features, divided by √2.
    """
    return 2 * columns.features(points) - 1
