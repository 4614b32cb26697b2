"""Input warping: a monotone transformation of each action, so that rewards change equally fast over its range.

    w(x) = 1 - (1 - x^a)^b,   a, b > 0

This is the Kumaraswamy distribution function, applied to each numeric action in the unit cube; a = b = 1 is the
identity.  It stretches the parts of a range where rewards change fast, and shrinks those where they are flat.

Reference: Snoek, Swersky, Zemel & Adams (2014), input warping for Bayesian optimization of non-stationary functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

EDGE = 1e-6  # slopes are computed no closer to 0 and 1 than this, because they may be infinite at the ends


@dataclass(frozen=True)
class Warp:
    """The input warping w(x) = 1 - (1 - x^a)^b of d columns; categorical columns have a = b = 1, the identity."""

    log_a: Tensor  # (d,)
    log_b: Tensor  # (d,)

    def __call__(self, points: Tensor) -> Tensor:
        """Return the warped points w(x) = 1 - (1 - x^a)^b for points x (..., d)."""
        return 1 - (1 - points.clamp(0, 1) ** self.log_a.exp()) ** self.log_b.exp()

    def inverse(self, warped: Tensor) -> Tensor:
        """Return the points x (..., d) whose warped points are `warped` (..., d)."""
        return (1 - (1 - warped.clamp(0, 1)) ** (-self.log_b).exp()) ** (-self.log_a).exp()

    def slope(self, points: Tensor) -> Tensor:
        """Return the derivatives w'(x) of the warping at points x (..., d), one for each column: (..., d)."""
        x, a, b = points.clamp(EDGE, 1 - EDGE), self.log_a.exp(), self.log_b.exp()
        return a * b * x ** (a - 1) * (1 - x**a) ** (b - 1)

    def slopes_in_exponents(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivatives of w(x) = 1 - (1 - x^a)^b with respect to log a and log b at points x (..., d).

        Both are (..., d), because every column has its own a and b.
        """
        x, a, b = points.clamp(EDGE, 1 - EDGE), self.log_a.exp(), self.log_b.exp()
        left = 1 - x**a
        slopes = b * left ** (b - 1) * x**a * x.log() * a, -(left**b) * left.log() * b
        inside = (points > 0) & (points < 1)  # w(0) = 0 and w(1) = 1 for all exponents
        in_log_a, in_log_b = (torch.where(inside, slope, 0.0) for slope in slopes)
        return in_log_a, in_log_b

    def to(self, device: torch.device) -> "Warp":
        """Return a copy of the warping on another device."""
        return Warp(self.log_a.to(device), self.log_b.to(device))


def read_warp(record: Mapping[str, Any] | None) -> Warp | None:
    """Read an input warping from plain values.

    Parameters
    ----------
    record
        The entry "warp" of `Factor.record`, or None.

    Returns
    -------
    Warp or None
        The input warping; None if `record` is None.

    Examples
    --------
    >>> from conbo.models.warp import read_warp
    >>> read_warp(None) is None
    True
    """
    if record is None:
        return None
    log_a, log_b = (torch.tensor(record[name], dtype=torch.float64) for name in ("log_a", "log_b"))
    return Warp(log_a, log_b)
