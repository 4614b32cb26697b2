"""Selects good actions as starting points of local searches, skipping those similar to one already selected."""

import numpy as np
import torch
from torch import Tensor

from conbo.loops import distinct_rows
from conbo.models import compiled

ALIKE = 0.8  # similarity above which two actions count as the same start


def distinct_best(scores: Tensor, similarity: Tensor, k: int) -> Tensor:
    """Return the indices (m, k) of k of p actions in each of m states, with high scores and not similar to each other.

    Actions are chosen from the highest of the `scores` (m, p) of a state down. An action is skipped if its `similarity`
    (p, p) to one already chosen is above ALIKE. If fewer than k actions can be chosen, the remaining indices are 0.
    This does no harm, because callers only start local searches from these actions. If k exceeds p, only p indices are
    returned.
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
