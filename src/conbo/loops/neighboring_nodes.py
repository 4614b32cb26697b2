"""Comparisons of the maximizers that were found at the nodes of one look-ahead; see `models.neighboring_nodes`."""

from math import exp, sqrt

from conbo.loops.compiling import Array, exact

SLOW = 0.1  # maximizers that move less than this (scaled distance per unit of z) count as standing still
STEADY, JUMP = 4.0, 10.0  # speed relative to the intervals beside: no jump up to STEADY, surely one from JUMP on
ROUNDING = 1e-12  # share of a value by which another one must be higher to replace it


@exact("boolean(f8[:,::1], f8[:,::1], f8[::1], int64[:,::1])")
def winners(mean: Array, slope: Array, nodes: Array, winner: Array) -> bool:
    """Write the index of the line that is highest at every node; return whether any is the line of another node."""
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
    """Write κ between the maximizers of neighboring nodes, reduced if they jump; `speed` (q + 1,) is scratch."""
    q = len(nodes)
    a, b, c = profile[0, 0], profile[0, 1], profile[0, 2]
    speed[0] = 0.0  # there is no interval beyond the outer nodes
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
