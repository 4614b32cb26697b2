"""Fast estimation of E[V(Z)] - V(0), Z ~ N(0, 1), for convex functions V, by a compiled loop.

The torch code in `convex_integral.py` is slower. It is the reference, and explains the method and the variables.
"""

import numpy as np
import torch
from torch import Tensor

from conbo.loops import convex_integral
from conbo.loops.compiling import Array


def tables(nodes: Tensor, cubic: Tensor, chord: Tensor, tails: Tensor) -> tuple[Array, ...]:
    """Return the first arguments of the compiled loop `loops.convex_integral.gains`, which depend on the nodes alone.

    The parameters are the attributes of `ConvexIntegral` with the same names. `nodes` holds the values of Z ~ N(0, 1)
    at which a convex function is known. `cubic`, `chord` and `tails` hold the weights with which this function is
    integrated between the nodes and beyond the outer nodes.
    """
    z, (mass, first, second) = nodes.numpy(), tails.numpy()
    left, right = z[1] - z[0], z[-1] - z[-2]
    curvatures = np.array([
        [-6 / left**2, -4 / left, 6 / left**2, -2 / left],
        [6 / right**2, 2 / right, -6 / right**2, 4 / right],
    ])  # fmt: skip
    return (
        np.ascontiguousarray(z),
        np.ascontiguousarray(cubic.numpy()),
        np.stack([chord[0].numpy(), np.zeros(len(z) - 1), chord[1].numpy(), np.zeros(len(z) - 1)]),
        np.stack([mass, first], -1),
        0.5 * second[:, None] * curvatures,
    )


def gains(
    tables: tuple[Array, ...],
    intercepts: Array,
    slopes: Array,
    similarity: Array,
    corner: float,
    smooth: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Estimate E[V(Z)] - V(0), Z ~ N(0, 1), for convex functions V that are given by their tangents at q nodes.

    V(z) is the highest posterior mean over actions if the new observation is z standard deviations above its
    expectation.  Return estimates (...), lower bounds (...), and the derivatives (..., q) of the estimates with respect
    to the slopes.

    Parameters
    ----------
    tables
        Result of `tables` for the nodes, the values of Z at which V is known.
    intercepts, slopes
        Intercepts and slopes (..., q) of the tangents of V at the nodes.
    similarity
        Similarities (..., q-1), from 0 to 1, of the best actions at neighboring nodes.
    corner, smooth
        V is assumed to have a corner between two nodes if the similarity is below `corner`, and to be smooth if it is
        above `smooth`; in between, the estimates for these two cases are blended.
    """
    shape = slopes.shape if intercepts.shape == slopes.shape else np.broadcast_shapes(intercepts.shape, slopes.shape)
    *rows, q = shape
    smoothness = np.clip((similarity - corner) / (smooth - corner), 0.0, 1.0)
    best, lower, derivative = np.empty(rows), np.empty(rows), np.empty(shape)
    convex_integral.gains(
        *tables,
        _broadcast(intercepts, shape),
        _broadcast(slopes, shape),
        _broadcast(smoothness, (*rows, q - 1)),
        best.reshape(-1),
        lower.reshape(-1),
        derivative.reshape(-1, q),
        np.empty((5, 2 * q)),
    )
    return torch.from_numpy(best), torch.from_numpy(lower), torch.from_numpy(derivative)


def _broadcast(array: Array, shape: tuple[int, ...]) -> Array:
    """Broadcast an array to `shape`, then flatten all dimensions but the last into rows."""
    whole = array if array.shape == shape else np.array(np.broadcast_to(array, shape), order="C")
    return np.ascontiguousarray(whole).reshape(-1, shape[-1])
