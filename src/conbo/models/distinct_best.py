"""The best few of many scored actions that are not each other's neighbors: where climbs start."""

import numpy as np
import torch
from torch import Tensor

from conbo.models import compiled

ALIKE = 0.8  # similarity above which two actions count as one start


def distinct_best(scores: Tensor, similarity: Tensor, k: int) -> Tensor:
    """For each row of scores (m, p) the best k columns that are not alike: (m, k).

    Rows where everything else is alike go on with the first column: a harmless repeat.
    """
    k = min(k, scores.shape[-1])
    if compiled.AVAILABLE and scores.device.type == "cpu":
        indices = np.empty((len(scores), k), dtype=np.int64)
        _distinct_best_rows(scores.numpy(), similarity.numpy(), indices)
        return torch.from_numpy(indices)
    scores = scores.clone()
    chosen = []
    for _ in range(k):
        best = scores.argmax(-1)
        chosen.append(best)
        scores.masked_fill_(similarity[best] > ALIKE, -torch.inf)
        scores.scatter_(1, best[:, None], -torch.inf)
    return torch.stack(chosen, -1)


@compiled.exact
def _distinct_best_rows(scores: compiled.Array, similarity: compiled.Array, chosen: compiled.Array) -> None:
    """The same row by row: few columns are ever the highest so far, and only these are compared with the chosen."""
    for row in range(len(scores)):
        for place in range(chosen.shape[1]):
            best, highest = 0, -np.inf
            for j in range(scores.shape[1]):
                if scores[row, j] > highest:
                    new = True
                    for i in chosen[row, :place]:
                        new = new and i != j and not similarity[i, j] > ALIKE
                    if new:
                        best, highest = j, scores[row, j]
            chosen[row, place] = best
