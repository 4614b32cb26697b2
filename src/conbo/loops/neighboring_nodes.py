"""Compiled form of `models.neighboring_nodes`: compares the best actions of a state for several values of a new reward.

If the new reward is z standard deviations above its prediction, the posterior mean of an action x becomes
mean(x) + z slope(x), which is a line as a function of z. For a knowledge gradient, a search finds the best action at
each of q values z, the nodes. The search may miss it, so each node also tries the best actions of the other nodes
(`winners`). From one node to the next, the best action may move a little or jump; `similarity` tells these cases
apart. In arrays, each row belongs to one candidate, at which the new reward is observed, and one state.
"""

from math import exp, sqrt

from conbo.loops.compiling import Array, exact

SLOW = 0.1  # lowest speed of a maximizer that counts as moving: distance in scaled coordinates per unit of z
# Speed of a maximizer in an interval between nodes, relative to the two neighboring intervals: up to STEADY it does not
# jump, from JUMP on it surely does.
STEADY, JUMP = 4.0, 10.0
ROUNDING = 1e-12  # relative difference by which another node's line must be higher to replace a node's own line


@exact("boolean(f8[:,::1], f8[:,::1], f8[::1], int64[:,::1])")
def winners(mean: Array, slope: Array, nodes: Array, winner: Array) -> bool:
    """Find, at each of q values z (`nodes`), which of q lines mean + z slope (rows, q) is the highest.

    Line j belongs to the action that a search found to be the best at node j, so it should be the highest there. The
    index of the highest line at each node is written to `winner` (rows, q). The result is True if some line j is not
    the highest at node j.
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


@exact("void(f8[::1], f8[:,:,::1], f8[::1], f8[:,::1], f8[::1])")
def similarity(profile: Array, actions: Array, nodes: Array, result: Array, speed: Array) -> None:
    """Compute how similar the best actions at neighboring nodes are, from 0 to 1.

    A node is a value z: the new reward is z standard deviations above its prediction. `actions` (rows, q, features) are
    the best actions at the q nodes, scaled by the lengthscales. The `result` (rows, q-1) is the kernel's correlation
    between neighbors, reduced where the best action jumps. `speed` (q + 1,) is scratch.
    """
    rows, q, features = actions.shape
    a, b, c = profile[0], profile[1], profile[2]
    speed[0] = 0.0  # the outer intervals have a neighbor on one side only
    speed[q] = 0.0
    for row in range(rows):
        for i in range(q - 1):
            apart = 0.0
            for d in range(features):
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
