"""Compiled form of `acquisition.moved_draws`: counts how often each action is the best one in drawn functions."""

import numpy as np

from conbo.loops.compiling import Array, fast

BLOCK = 256  # number of draws that are compared at once; the working memory for them stays in the cache


@fast("void(f8[:,:,::1], f8[:,::1], f8[:,::1], f8[::1], f8[:,:,:,::1], f8[::1], int64[::1])", on_demand=True)
def count_best(
    values: Array, slopes: Array, outcomes: Array, nodes: Array, counts: Array, best: Array, which: Array
) -> None:
    """Count in how many of N drawn functions each of p actions is the best, for m values of the observation Z.

    Z is the observation at a candidate, and there are c pairs of a candidate and a state. `values` (c, p, N) are the
    draws in the states, and `outcomes` (c, N) the values of Z that were drawn with them. For each value z in `nodes`
    (m,), every draw is moved to Z = z: its value at an action changes by slope · (z - outcome), with `slopes` (c, p).
    The counts are added to `counts` (c, m, 2, p), separately for the first and the second half of the draws. If several
    actions of a draw are equally good, the first one counts as the best. `best` and `which` (BLOCK,) are scratch.
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
