"""Counts which action is the best of each drawn function of a state, after the draw was moved to a value of Z.

Z is the standardized observation at a candidate. A draw f_j of the state's function, with the value z_j of Z that was
drawn together with it, becomes f_j + σ̃ (z - z_j) if Z is z. On a CPU with Numba, a compiled loop counts.
"""

import numpy as np
import torch
from torch import Tensor

from conbo.loops.moved_draws import BLOCK, count_best
from conbo.models import compiled

PAIRS = 2  # pairs of a candidate and a state whose draws are moved in one pass


def best_counts(values: Tensor, slope: Tensor, outcomes: Tensor, nodes: Tensor) -> Tensor:
    """Count how often each of p actions is the best of N draws that are moved to Z = z, for each of m values z.

    There are c pairs of a candidate and a state. `values` (c, p, N) are the draws, `slope` (c, p) is σ̃, `outcomes`
    (c, N) are the values z_j of Z, and `nodes` (m,) the values z. The counts are (c, m, 2, p), for each half of the
    draws.
    """
    if compiled.AVAILABLE and values.device.type == "cpu":
        counts = np.zeros((len(values), len(nodes), 2, values.shape[1]))
        arrays = (np.ascontiguousarray(t.numpy()) for t in (values, slope, outcomes, nodes))
        count_best(*arrays, counts, np.empty(BLOCK), np.empty(BLOCK, dtype=np.int64))
        return torch.from_numpy(counts)
    return _best_counts(values, slope, outcomes, nodes)


def _best_counts(values: Tensor, slope: Tensor, outcomes: Tensor, nodes: Tensor) -> Tensor:
    """The same as `best_counts`, for any device."""
    c, p, n = values.shape
    half = torch.arange(n, device=values.device) * 2 // n
    counts = values.new_zeros(c, len(nodes), 2 * p)
    for first in range(0, c, PAIRS):
        some = slice(first, first + PAIRS)
        for node, z in enumerate(nodes):
            moved = torch.addcmul(values[some], (z - outcomes[some])[:, None], slope[some, :, None])  # (few, p, N)
            row = half * p + moved.max(1).indices  # not argmax, which is far slower along this dimension
            counts[some, node].scatter_add_(1, row, torch.ones_like(outcomes[some]))
    return counts.unflatten(-1, (2, p))
