"""The estimates of `convex_integral` by one compiled loop over rows of lines.

A row has a handful of nodes and takes a fraction of a microsecond; as torch calls it took a sixth of the time of a
local search.  Names are as in `ConvexIntegral`, whose torch form is the reference.
"""

import numpy as np
import torch
from torch import Tensor

from conbo.loops import convex_integral
from conbo.loops.compiling import Array


def gains(
    nodes: Tensor, cubic: Tensor, chord: Tensor, tails: Tensor, intercepts: Tensor, slopes: Tensor, smooth: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Best and lower estimates (...), and the derivative (..., q) of the best estimate in the slopes."""
    *shape, q = slopes.shape
    best, lower, derivative = np.empty(shape), np.empty(shape), np.empty(slopes.shape)
    convex_integral.gains(
        _contiguous(nodes),
        _contiguous(cubic),
        _contiguous(chord),
        _contiguous(tails),
        _contiguous(intercepts.reshape(-1, q)),
        _contiguous(slopes.reshape(-1, q)),
        _contiguous(smooth.reshape(-1, q - 1)),
        best.reshape(-1),
        lower.reshape(-1),
        derivative.reshape(-1, q),
        np.empty((6, q)),
    )
    return torch.from_numpy(best), torch.from_numpy(lower), torch.from_numpy(derivative)


def _contiguous(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.numpy())
