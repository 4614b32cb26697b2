"""Input warping: actions are transformed so that rewards change equally fast everywhere.

    w(x) = 1 - (1 - x^a)^b,   a, b > 0

is the distribution function of Kumaraswamy, for each number in the unit cube; a = b = 1 is the identity. It stretches
the parts of a range where rewards change fast and shrinks those where they are flat.

Reference: Snoek, Swersky, Zemel & Adams (2014), input warping for Bayesian optimization of non-stationary functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

EDGE = 1e-6  # distance from 0 and 1 at which slopes are taken, because they may be infinite at the ends


@dataclass(frozen=True)
class Warp:
    """The warping w of every column, given the logarithms of its exponents, which are zero for categories."""

    log_a: Tensor  # (d,)
    log_b: Tensor  # (d,)

    def __call__(self, points: Tensor) -> Tensor:
        """The warped points w(x) (..., d)."""
        return 1 - (1 - points.clamp(0, 1) ** self.log_a.exp()) ** self.log_b.exp()

    def inverse(self, warped: Tensor) -> Tensor:
        """The points x (..., d) whose warped points w(x) are given."""
        return (1 - (1 - warped.clamp(0, 1)) ** (-self.log_b).exp()) ** (-self.log_a).exp()

    def slope(self, points: Tensor) -> Tensor:
        """The slopes w'(x) (..., d) of the warping."""
        x, a, b = points.clamp(EDGE, 1 - EDGE), self.log_a.exp(), self.log_b.exp()
        return a * b * x ** (a - 1) * (1 - x**a) ** (b - 1)

    def slopes_in_exponents(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """The derivatives ∂w/∂ log a and ∂w/∂ log b (..., d)."""
        x, a, b = points.clamp(EDGE, 1 - EDGE), self.log_a.exp(), self.log_b.exp()
        left = 1 - x**a
        slopes = b * left ** (b - 1) * x**a * x.log() * a, -(left**b) * left.log() * b
        inside = (points > 0) & (points < 1)  # the ends stay where they are
        in_log_a, in_log_b = (torch.where(inside, slope, 0.0) for slope in slopes)
        return in_log_a, in_log_b

    def to(self, device: torch.device) -> "Warp":
        """The same warping on another device."""
        return Warp(self.log_a.to(device), self.log_b.to(device))


def read_warp(record: Mapping[str, Any] | None) -> Warp | None:
    """Read a warp from a plain record.

    Parameters
    ----------
    record
        What `Factor.record` stored as "warp", or None.

    Returns
    -------
    Warp or None
        The warp; None for None.

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
