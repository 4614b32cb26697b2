"""Computes E[max_i (a_i + b_i Z)], Z ~ N(0, 1), by a compiled loop; the torch code is in `expected_max.py`."""

import numpy as np
import torch
from torch import Tensor

from conbo.loops.expected_max import walk


def integrate(a: Tensor, b: Tensor, only_gain: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gains E[max (a + b Z)] - max a, Z ~ N(0, 1), of n lines a + b z, with derivatives.

    The lines have intercepts a and slopes b (..., n), and the gains are (...).  The second and third results are the
    derivatives (..., n) of E[max (a + b Z)] with respect to a and b.  With `only_gain`, they are empty tensors instead.
    """
    n, shape = a.shape[-1], (0, a.shape[-1]) if only_gain else a.shape
    gain, probability, density = np.zeros(a.shape[:-1]), np.zeros(shape), np.zeros(shape)
    walk(
        np.ascontiguousarray(a.numpy()).reshape(-1, n),
        np.ascontiguousarray(b.numpy()).reshape(-1, n),
        gain.reshape(-1),
        probability.reshape(-1, n),
        density.reshape(-1, n),
    )
    return torch.from_numpy(gain), torch.from_numpy(probability), torch.from_numpy(density)
