"""Gradients of weighted sums of a `ProductKernel`'s covariances between few points, by a compiled loop.

A local search needs them at a handful of candidates at a time: microseconds of arithmetic, far less than the torch
calls for it would take.
"""

from math import prod

import numpy as np
import torch
from torch import Tensor

from conbo.loops import product_kernel
from conbo.loops.compiling import Array
from conbo.loops.profiles import coefficients
from conbo.models import compiled
from conbo.models.profiles import Profile

Features = tuple[Tensor, Tensor]  # scaled features of states and of actions


def handles(profiles: tuple[Profile, Profile], *tensors: Tensor) -> bool:
    """Whether there is a compiled loop for factors of these profiles and for these tensors."""
    return all(compiled.handles(profile) for profile in profiles) and all(
        tensor.device.type == "cpu" and not tensor.requires_grad for tensor in tensors
    )


def weighted_gradient(
    profiles: tuple[str, str], outputscale: float, here: Features, there: Features, weights: Tensor
) -> Features:
    """Gradients of Σ_m weights[..., p, m] k(point p, there m) with respect to the features of each point p.

    They are shaped like `here`, which holds the features (p, ·) of states and of actions; `there` holds (m, ·), or
    (p, m, ·) if every point has its own partners.
    """
    *lead, p, m = weights.shape
    batches = np.ascontiguousarray(weights.reshape(prod(lead), p, m).numpy())
    points, partners, n_states = _rows(here), _partners(there), here[0].shape[-1]
    result = np.empty((len(batches), *points.shape))
    product_kernel.weighted_gradient(
        coefficients(*profiles),
        n_states,
        outputscale,
        points,
        partners if partners.ndim == 3 else partners[None],
        batches,
        result,
        *_scratch(m),
    )
    gradient = torch.from_numpy(result.reshape(*lead, *points.shape))
    return gradient[..., :n_states], gradient[..., n_states:]


def _scratch(m: int) -> tuple[Array, Array]:
    memory = np.empty((7, m))
    return memory, memory.view(np.int64)


def _rows(features: Features) -> Array:
    """States and actions side by side, (p, ·)."""
    return np.concatenate([block.numpy() for block in features], axis=-1)


def _partners(features: Features) -> Array:
    """States and actions side by side, transposed to (..., ·, m), because the innermost loops run over partners."""
    return np.concatenate([block.numpy().swapaxes(-1, -2) for block in features], axis=-2)
