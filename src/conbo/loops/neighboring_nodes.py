"""Compiled form of `models.neighboring_nodes`: compares the maximizers that were found at neighboring nodes z_j.

The knowledge gradient maximizes mean(x) + z slope(x) over the action x at every node z_j. Each row is one such function
with its q nodes. The maximizer of a node gives a line mean + z slope.
"""

from math import exp, sqrt

from conbo.loops.compiling import Array, exact

SLOW = 0.1  # lowest speed of a maximizer, in scaled distance per unit of z, that counts as moving
# speed of a maximizer, relative to the intervals on both sides: up to STEADY it does not jump, from JUMP on it surely
# does
STEADY, JUMP = 4.0, 10.0
ROUNDING = 1e-12  # relative difference by which another node's line must be higher to replace a node's own line


@exact("boolean(f8[:,::1], f8[:,::1], f8[::1], int64[:,::1])")
def winners(mean: Array, slope: Array, nodes: Array, winner: Array) -> bool:
    """Write to `winner` (rows, q) the index of the line that is the highest at each node.

    Return whether at any node the line of another node is the highest.
    """
    q = len(nodes)
    changed = False
    for row in range(len(mean)):
        for node in range(q):
            own = mean[row, node] + nodes[node] * slope[row, node]
            highest = own + ROUNDING * abs(own)
            winner[row, node] = node
            for line in range(q):
                value = mean[row, line] + nodes[node] * slope[row, line]
                if value > highest:
                    highest = value
                    winner[row, node] = line
                    changed = True
    return changed


@exact("void(f8[:,::1], f8[:,:,::1], f8[::1], f8[:,::1], f8[::1])")
def similarity(profile: Array, actions: Array, nodes: Array, result: Array, speed: Array) -> None:
    """Write the correlation κ between the maximizers of neighboring nodes, reduced where the maximizer jumps.

    `actions` (rows, q, features) are the maximizers in scaled features. The `result` (rows, q-1) has one number for
    each interval between nodes. `speed` (q + 1,) is scratch.
    """
    q = len(nodes)
    a, b, c = profile[0, 0], profile[0, 1], profile[0, 2]
    speed[0] = 0.0  # the outer intervals have a neighbor on one side only
    speed[q] = 0.0
    for row in range(len(actions)):
        for i in range(q - 1):
            apart = 0.0
            for d in range(actions.shape[2]):
                away = actions[row, i + 1, d] - actions[row, i, d]
                apart += away * away
            r = sqrt(apart)
            speed[i + 1] = r / (nodes[i + 1] - nodes[i])
            result[row, i] = (1.0 + a * r + c * apart) * exp(-a * r - b * apart)
        for i in range(q - 1):
            usual = speed[i] if speed[i] > speed[i + 2] else speed[i + 2]
            usual = usual if usual > SLOW else SLOW
            steady = (JUMP - speed[i + 1] / usual) / (JUMP - STEADY)
            if steady < 1.0:
                result[row, i] *= steady if steady > 0.0 else 0.0
