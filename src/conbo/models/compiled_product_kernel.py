"""Gradients of weighted sums of a `ProductKernel`'s covariances between a few points, by a compiled loop.

A local search needs these gradients at a handful of candidates at a time.  Their arithmetic takes only microseconds, so
the overhead of torch calls would dominate.
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

Features = tuple[Tensor, Tensor]  # scaled inputs of states and of actions


def handles(profiles: tuple[Profile, Profile], *tensors: Tensor) -> bool:
    """Return whether `weighted_gradient` can be used for a kernel with these profiles, and for these tensors.

    This is so if Numba is available, the `profiles` (the correlations of states and of actions as functions of a
    distance) are built in, and all tensors are on the CPU and not tracked by autograd.
    """
    return all(compiled.handles(profile) for profile in profiles) and all(
        tensor.device.type == "cpu" and not tensor.requires_grad for tensor in tensors
    )


def weighted_gradient(
    profiles: tuple[str, str], outputscale: float, here: Features, there: Features, weights: Tensor
) -> Features:
    """Return the gradients of Σ_j weights[..., i, j] k(here_i, there_j) with respect to each of p points here_i.

    k is the product of a kernel over states and a kernel over actions, times the variance `outputscale`. `profiles`
    names the function of distance of each kernel, such as "matern52". `here` and `there` are pairs of tensors: scaled
    inputs of the points' states, and scaled inputs of their actions. The tensors of `here` are (p, width), and those of
    `there` (m, width), or (p, m, width) if each here_i has m points of its own. The width of states may differ from
    that of actions. `weights` is (..., p, m). The result is a pair of gradients (..., p, width), with respect to the
    states and to the actions.
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
        np.empty((2, m)),
    )
    gradient = torch.from_numpy(result.reshape(*lead, *points.shape))
    return gradient[..., :n_states], gradient[..., n_states:]


def _rows(features: Features) -> Array:
    """Concatenate the scaled inputs of the states and of the actions of p points, with a row for each point."""
    return np.concatenate([block.numpy() for block in features], axis=-1)


def _partners(features: Features) -> Array:
    """Concatenate the scaled inputs of the states and of the actions of m points, with a column for each point."""
    return np.concatenate([block.numpy().swapaxes(-1, -2) for block in features], axis=-2)
