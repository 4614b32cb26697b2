"""Compiled form of `acquisition.moved_draws`: counts which action is the best of drawn functions, moved to Z = z."""

import numpy as np

from conbo.loops.compiling import Array, fast

BLOCK = 256  # number of draws that are compared at once; the working memory for them stays in the cache


@fast("void(f8[:,:,::1], f8[:,::1], f8[:,::1], f8[::1], f8[:,:,:,::1], f8[::1], int64[::1])", on_demand=True)
def count_best(
    values: Array, slopes: Array, outcomes: Array, nodes: Array, counts: Array, best: Array, which: Array
) -> None:
    """Count how often each of p actions is the best of N drawn functions, moved to each of m values z of Z.

    There are c pairs of a candidate and a state. `values` (c, p, N) are the draws, and `outcomes` (c, N) the values of
    Z that were drawn with them; `slopes` (c, p) say how the draws change with Z. `nodes` (m,) are the values z. The
    counts are added to `counts` (c, m, 2, p), separately for the first and the second half of the draws. `best` and
    `which` (BLOCK,) are working memory. Of several best actions, the first one counts.
    """
    pairs, actions, draws = values.shape
    for pair in range(pairs):
        for first in range(0, draws, BLOCK):
            size = min(BLOCK, draws - first)
            z = outcomes[pair, first : first + size]
            for node in range(len(nodes)):
                for j in range(size):
                    best[j] = -np.inf
                    which[j] = 0
                for i in range(actions):
                    slope, draw = slopes[pair, i], values[pair, i, first : first + size]
                    for j in range(size):
                        value = draw[j] + slope * (nodes[node] - z[j])
                        if value > best[j]:
                            best[j] = value
                            which[j] = i
                for j in range(size):
                    counts[pair, node, (first + j) * 2 // draws, which[j]] += 1.0
