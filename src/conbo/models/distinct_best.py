"""Selects the best of many scored actions such that no two are similar: the starts of local searches."""

import numpy as np
import torch
from torch import Tensor

from conbo.loops import distinct_rows
from conbo.models import compiled

ALIKE = 0.8  # similarity above which two actions count as the same start


def distinct_best(scores: Tensor, similarity: Tensor, k: int) -> Tensor:
    """Return, for each row of scores (m, p), the indices (m, k) of its best columns, of which no two are similar.

    `similarity` (p, p) compares the columns. If a row has fewer than k dissimilar columns, the remaining indices are 0.
    This does no harm, because any column can be the start of a search.
    """
    k = min(k, scores.shape[-1])
    if compiled.AVAILABLE and scores.device.type == "cpu":
        indices = np.empty((len(scores), k), dtype=np.int64)
        contiguous = (np.ascontiguousarray(t.numpy()) for t in (scores, similarity))
        distinct_rows.distinct_best(*contiguous, ALIKE, indices)
        return torch.from_numpy(indices)
    scores = scores.clone()
    chosen = []
    for _ in range(k):
        best = scores.argmax(-1)
        chosen.append(best)
        scores.masked_fill_(similarity[best] > ALIKE, -torch.inf)
        scores.scatter_(1, best[:, None], -torch.inf)
    return torch.stack(chosen, -1)
