"""What the maximisers found at the nodes z_j of one look-ahead say about each other.

A line found at one node may be the highest at another; and two neighbours that are alike, and move no faster than
those beside them, lie on one hill, between which V is smooth.  Plain torch is the reference; on a CPU where Numba
is installed, loops over rows of a handful of nodes take its place.
"""

from math import exp, sqrt

import numpy as np
import torch
from torch import Tensor

from conbo.models import compiled
from conbo.models.action_functions import ActionFunctions, Maxima
from conbo.models.compiled import Array, exact

SLOW = 0.1  # maximisers that move less than this (scaled distance per unit of z) stand still
STEADY, JUMP = 4.0, 10.0  # times faster than beside: still smooth; surely a jump
ROUNDING = 1e-12  # share of a value by which another must be higher


def shared_between_nodes(maxima: Maxima, nodes: Tensor) -> Maxima:
    """Let every node take the best line that any node found: the lines are then tangent to one convex function."""
    if compiled.AVAILABLE and nodes.device.type == "cpu":
        winner = np.empty(maxima.mean.shape, dtype=np.int64)
        changed = _winners(maxima.mean.numpy(), maxima.slope.numpy(), nodes.numpy(), winner)
        return maxima.take(torch.from_numpy(winner)) if changed else maxima
    values = maxima.mean[:, None] + nodes[:, None] * maxima.slope[:, None]  # (rows, node, line)
    own = values.diagonal(dim1=-2, dim2=-1)
    best, highest = values.max(-1)
    better = best > own + ROUNDING * own.abs()
    if not bool(better.any()):
        return maxima
    return maxima.take(torch.where(better, highest, torch.arange(len(nodes), device=nodes.device)))


def neighbour_likeness(functions: ActionFunctions, actions: Tensor, nodes: Tensor) -> Tensor:
    """κ between the maximisers (..., q, features) of neighbouring nodes, less where they jump: (..., q-1).

    A maximiser that moves many times faster than between the nodes beside has jumped to another hill, near as it
    may be: V has a corner there.
    """
    profile = functions.factor.profile
    if compiled.handles(profile) and actions.device.type == "cpu":
        rows = actions.flatten(0, -3).numpy()
        result = np.empty((len(rows), len(nodes) - 1))
        _likeness(profile.name == "matern52", rows, nodes.numpy(), result)
        return torch.from_numpy(result.reshape(*actions.shape[:-2], len(nodes) - 1))
    apart = (actions[..., 1:, :] - actions[..., :-1, :]).square().sum(-1)
    speed = apart.sqrt() / (nodes[1:] - nodes[:-1])
    beside = torch.nn.functional.pad(speed, (1, 1))
    usual = torch.maximum(beside[..., :-2], beside[..., 2:]).clamp_min(SLOW)
    steady = ((JUMP - speed / usual) / (JUMP - STEADY)).clamp(0, 1)
    return profile.value(apart) * steady


@exact
def _winners(mean: Array, slope: Array, nodes: Array, winner: Array) -> bool:
    """Write the line that every node takes, and say whether any takes another's."""
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


@exact
def _likeness(is_matern: bool, actions: Array, nodes: Array, result: Array) -> None:
    q = len(nodes)
    speed = np.zeros(q + 1)  # none beyond the outer nodes
    for row in range(len(actions)):
        for i in range(q - 1):
            apart = 0.0
            for d in range(actions.shape[2]):
                apart += (actions[row, i + 1, d] - actions[row, i, d]) ** 2
            r = sqrt(apart)
            speed[i + 1] = r / (nodes[i + 1] - nodes[i])
            result[row, i] = (1.0 + r + apart / 3.0) * exp(-r) if is_matern else exp(-0.5 * apart)
        for i in range(q - 1):
            usual = max(SLOW, speed[i], speed[i + 2])
            result[row, i] *= min(max((JUMP - speed[i + 1] / usual) / (JUMP - STEADY), 0.0), 1.0)
