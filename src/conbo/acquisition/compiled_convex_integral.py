"""Calls the compiled loop that computes the same estimates as `ConvexIntegral`, much faster than torch.

Names are as in `convex_integral.py`, whose torch code is the reference.
"""

import numpy as np
import torch
from torch import Tensor

from conbo.loops import convex_integral
from conbo.loops.compiling import Array


def gains(
    nodes: Tensor,
    cubic: Tensor,
    chord: Tensor,
    tails: Tensor,
    intercepts: Array,
    slopes: Array,
    similarity: Array,
    corner: float,
    smooth: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best estimates (...), the lower bounds (...), and the derivatives (..., q) of the best estimates.

    The derivatives are with respect to the slopes.  The lines (..., q) are given by `intercepts` and `slopes`,
    `similarity` is (..., q-1), and the first four arguments are attributes of `ConvexIntegral`.  Between two nodes, V
    is taken to have a corner if the similarity is below `corner`, and to be smooth if it is above `smooth`.
    """
    shape = slopes.shape if intercepts.shape == slopes.shape else np.broadcast_shapes(intercepts.shape, slopes.shape)
    *rows, q = shape
    smoothness = np.clip((similarity - corner) / (smooth - corner), 0.0, 1.0)
    best, lower, derivative = np.empty(rows), np.empty(rows), np.empty(shape)
    convex_integral.gains(
        *(np.ascontiguousarray(tensor.numpy()) for tensor in (nodes, cubic, chord, tails)),
        _broadcast(intercepts, shape),
        _broadcast(slopes, shape),
        _broadcast(smoothness, (*rows, q - 1)),
        best.reshape(-1),
        lower.reshape(-1),
        derivative.reshape(-1, q),
        np.empty((6, q)),
    )
    return torch.from_numpy(best), torch.from_numpy(lower), torch.from_numpy(derivative)


def _broadcast(array: Array, shape: tuple[int, ...]) -> Array:
    """Broadcast an array to this shape, flatten it to rows, and return it as a contiguous, writable array."""
    whole = array if array.shape == shape else np.array(np.broadcast_to(array, shape), order="C")
    return np.ascontiguousarray(whole).reshape(-1, shape[-1])
