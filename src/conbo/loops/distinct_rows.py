"""Compiled form of `models.distinct_best`: chooses high-scoring columns that are not similar to each other."""

import numpy as np

from conbo.loops.compiling import Array, exact


@exact("void(f8[:,::1], f8[:,::1], f8, int64[:,::1])")
def distinct_best(scores: Array, similarity: Array, alike: float, chosen: Array) -> None:
    """Choose, for every row of `scores` (rows, p), k of p columns with high scores that are not similar to each other.

    Columns are chosen from the highest score down, and a column that is similar to one already chosen is skipped.
    Columns i and j are similar if `similarity[i, j]` exceeds `alike`. The indices of the chosen columns are written to
    `chosen` (rows, k). If fewer than k columns can be chosen, the remaining entries are 0.
    """
    rows, columns = scores.shape
    for row in range(rows):
        for place in range(len(chosen[row])):
            best, highest = 0, -np.inf
            for j in range(columns):
                if scores[row, j] > highest:  # saves most comparisons with the columns chosen before
                    new = True
                    for before in range(place):
                        i = chosen[row, before]
                        new = new and i != j and not similarity[i, j] > alike
                    if new:
                        best, highest = j, scores[row, j]
            chosen[row, place] = best
