"""Compares the best actions of a state after different outcomes of one new reward, to compute knowledge gradients.

A node z_j is an outcome: a reward z_j standard deviations above its prediction.  At each node, a search finds the
action with the highest posterior mean after that reward (the maximizer), and V(z) is this mean.  As a function of z,
the mean of one action is a line.  The maximizer found at one node may have the highest line at another node, too; it
then replaces the one that the search found there.

Between two neighboring nodes, the maximizer either moves continuously, and V is smooth, or it jumps to another local
maximum, and V has a corner.  A jump is assumed if the kernel gives the two maximizers a low correlation, or if the
maximizer moves many times faster with z than in the intervals on either side.

The torch code is the reference implementation; on a CPU with Numba, compiled loops replace it.
"""

import numpy as np
import torch
from torch import Tensor

from conbo.loops import neighboring_nodes as loops
from conbo.loops.neighboring_nodes import JUMP, ROUNDING, SLOW, STEADY
from conbo.loops.profiles import coefficients
from conbo.models import compiled
from conbo.models.action_functions import ActionFunctions, Maxima


def shared_between_nodes(maxima: Maxima, nodes: Tensor) -> Maxima:
    """At each node z, replace the best action found there by one found at another node, if that one is better at z.

    A node is a value of z: the new reward is z standard deviations above its prediction. The posterior mean of an
    action is then a line mean + slope z. `maxima` holds the best action found at each node, with its line. Of all these
    lines, each node gets the one that is highest there. The tensors of `maxima` may be overwritten.
    """
    if compiled.AVAILABLE and nodes.device.type == "cpu":
        winner = np.empty(maxima.mean.shape, dtype=np.int64)
        changed = loops.winners(*(np.ascontiguousarray(t.numpy()) for t in (maxima.mean, maxima.slope, nodes)), winner)
        if changed:
            rows, places = np.nonzero(winner != np.arange(len(nodes)))
            lines = winner[rows, places]
            for part in (maxima.actions, maxima.mean, maxima.slope, maxima.correlation):
                array = part.numpy()
                array[rows, places] = array[rows, lines]
        return maxima
    values = maxima.mean[:, None] + nodes[:, None] * maxima.slope[:, None]  # (rows, node, line)
    own = values.diagonal(dim1=-2, dim2=-1)
    best, highest = values.max(-1)
    better = best > own + ROUNDING * own.abs()
    if nodes.device.type == "cpu" and not bool(better.any()):  # a GPU would have to be waited for
        return maxima
    return maxima.take(torch.where(better, highest, torch.arange(len(nodes), device=nodes.device)))


def neighbor_similarity(functions: ActionFunctions, actions: Tensor, nodes: Tensor) -> Tensor:
    """Return similarities (..., q-1) of the best actions at neighboring nodes: 1 if they are equal, down to 0.

    A node z stands for a new reward that is z standard deviations above its prediction. For each of q `nodes`,
    `actions` (..., q, width) holds the action with the highest posterior mean after that reward, as scaled inputs.

    The similarity is the correlation of the two actions under the kernel of actions in `functions`. It is reduced, down
    to zero, if the best action moves many times faster with z between the two nodes than in the intervals on either
    side. Such a fast move is taken as a jump to another local maximum.
    """
    profile = functions.factor.profile
    if compiled.handles(profile) and actions.device.type == "cpu":
        rows = np.ascontiguousarray(actions.flatten(0, -3).numpy())
        result, scratch = np.empty((len(rows), len(nodes) - 1)), np.empty(len(nodes) + 1)
        loops.similarity(coefficients(profile.name), rows, np.ascontiguousarray(nodes.numpy()), result, scratch)
        return torch.from_numpy(result.reshape(*actions.shape[:-2], len(nodes) - 1))
    apart = (actions[..., 1:, :] - actions[..., :-1, :]).square().sum(-1)
    speed = apart.sqrt() / (nodes[1:] - nodes[:-1])
    beside = torch.nn.functional.pad(speed, (1, 1))
    usual = torch.maximum(beside[..., :-2], beside[..., 2:]).clamp_min(SLOW)
    steady = ((JUMP - speed / usual) / (JUMP - STEADY)).clamp(0, 1)
    return profile.value(apart) * steady
