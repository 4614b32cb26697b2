"""Compiled form of `models.distinct_best`: the highest scores of every row, at columns that are not similar."""

import numpy as np

from conbo.loops.compiling import Array, exact


@exact("void(f8[:,::1], f8[:,::1], f8, int64[:,::1])")
def distinct_best(scores: Array, similarity: Array, alike: float, chosen: Array) -> None:
    """Write to `chosen` (rows, k), for every row of `scores`, the columns with the highest scores that are not alike.

    Two columns are alike if their `similarity` exceeds `alike`. Where no further column is left, column 0 is written.
    To save time, a column is compared with those chosen before only if its score is the highest seen so far.
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
