"""The highest columns of every row, no two of them similar to each other; see `models.distinct_best`."""

import numpy as np

from conbo.loops.compiling import Array, exact


@exact("void(f8[:,::1], f8[:,::1], f8, int64[:,::1])")
def distinct_best(scores: Array, similarity: Array, alike: float, chosen: Array) -> None:
    """Write the indices of the highest columns of every row, no two of them alike, to `chosen`.

    Only columns that are the highest so far, which are few, are compared with the columns that were chosen before.
    """
    for row in range(len(scores)):
        for place in range(chosen.shape[1]):
            best, highest = 0, -np.inf
            for j in range(scores.shape[1]):
                if scores[row, j] > highest:
                    new = True
                    for before in range(place):
                        i = chosen[row, before]
                        new = new and i != j and not similarity[i, j] > alike
                    if new:
                        best, highest = j, scores[row, j]
            chosen[row, place] = best
