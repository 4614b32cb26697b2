"""Counts how often each action is the best one of a state, in functions drawn from the posterior given Z = z.

Z is the standardized observation at a candidate. A draw f_j of the state's function comes with a value z_j of Z that
was drawn together with it. To condition the draw on Z = z, it is moved: it becomes f_j + σ̃ (z - z_j), where σ̃ says
how the posterior mean of each action changes with Z. On a CPU with Numba, the counting is done by a compiled loop.
"""

import numpy as np
import torch
from torch import Tensor

from conbo.loops.moved_draws import BLOCK, count_best
from conbo.models import compiled

PAIRS = 2  # pairs of a candidate and a state whose draws are moved in one pass


def best_counts(values: Tensor, slope: Tensor, outcomes: Tensor, nodes: Tensor) -> Tensor:
    """Count in how many of N drawn functions each of p actions is the best, for m values of the observation Z.

    Z is the observation at a candidate, and there are c pairs of a candidate and a state. `values` (c, p, N) are the
    draws in the states, and `outcomes` (c, N) the values of Z that were drawn with them. For each value z in `nodes`
    (m,), every draw is moved to Z = z: its value at an action changes by slope · (z - outcome), with `slope` (c, p).
    The counts are (c, m, 2, p), separately for the first and the second half of the draws.
    """
    if compiled.AVAILABLE and values.device.type == "cpu":
        counts = np.zeros((len(values), len(nodes), 2, values.shape[1]))
        arrays = (np.ascontiguousarray(t.numpy()) for t in (values, slope, outcomes, nodes))
        count_best(*arrays, counts, np.empty(BLOCK), np.empty(BLOCK, dtype=np.int64))
        return torch.from_numpy(counts)
    return _best_counts(values, slope, outcomes, nodes)


def _best_counts(values: Tensor, slope: Tensor, outcomes: Tensor, nodes: Tensor) -> Tensor:
    """Count in how many drawn functions each action is the best, with torch on any device.

    Arguments and result are those of `best_counts`.
    """
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
