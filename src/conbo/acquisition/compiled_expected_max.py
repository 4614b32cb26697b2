"""Calls the compiled loop for E[max_i (a_i + b_i Z)]; `expected_max.py` explains the terms."""

import numpy as np
import torch
from torch import Tensor

from conbo.loops.expected_max import walk


def integrate(a: Tensor, b: Tensor, only_gain: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gain (...), the probability (..., n) and the density (..., n) of lines a + b z; see `ExpectedMax`.

    With `only_gain`, the other two are empty.
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
