"""Correlations between states or between actions, and weighted sums of them, by compiled loops.

Searches need them in many small batches, and torch would need a dozen calls for each batch.
"""

from math import prod

import numpy as np
import torch
from torch import Tensor

from conbo.loops import correlation as loops
from conbo.loops.profiles import coefficients
from conbo.models import compiled
from conbo.models.profiles import Profile

POINTS_PER_PARTNER = 4  # ratio p / q above which the innermost loop runs over the p points instead of the q partners


def handles(profile: Profile, a: Tensor, b: Tensor) -> bool:
    """Return whether `correlation` can be used for this profile and for the points a and b.

    Numba must be installed, and the profile must be built in. The points must be on the CPU and not tracked by
    autograd. Their batch dimensions must be the same, unless b has none.
    """
    return (
        compiled.handles(profile)
        and a.device.type == "cpu"
        and not (a.requires_grad or b.requires_grad)
        and (b.dim() == 2 or a.shape[:-2] == b.shape[:-2])
    )


def correlation(profile: str, a: Tensor, b: Tensor) -> Tensor:
    """Return the correlations (..., p, q) of p points a and q points b, under the named profile.

    Points are scaled inputs: `a` is (..., p, width), and `b` is (..., q, width), or (q, width) if every batch uses the
    same q points b.
    """
    if b.dim() == 2 and a.dim() > 2:  # all batches have the same partners
        return correlation(profile, a.flatten(0, -2), b).unflatten(0, a.shape[:-1])
    *batches, p, width = a.shape
    q = b.shape[-2]
    if POINTS_PER_PARTNER * q < p:
        return correlation(profile, b, a).mT
    count = prod(batches)
    result = np.zeros((count, p, q))
    loops.correlation(
        coefficients(profile),
        np.ascontiguousarray(a.numpy()).reshape(count, p, width),
        np.ascontiguousarray(b.numpy().swapaxes(-1, -2)).reshape(count, width, q),
        result,
    )
    return torch.from_numpy(result.reshape(*batches, p, q))


def weighted_sums(pull: Tensor, correlations: Tensor, scale: Tensor) -> Tensor:
    """Return Σ_m scale[k, m, n] Σ_q pull[k, m, q] φ[k, m, q, n], a tensor (k, n); φ are the `correlations`.

    The dimensions are k candidates, m states, q actions in each state, and n observed actions.
    """
    k, _, n = scale.shape
    result = np.zeros((k, n))
    arrays = (np.ascontiguousarray(tensor.numpy()) for tensor in (pull, correlations, scale))
    loops.weighted_sums(*arrays, result)
    return torch.from_numpy(result)
