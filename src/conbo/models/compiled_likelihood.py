"""Cholesky factors, inverses and log-likelihoods for `SolvedCovariances`, by compiled loops.

With a hundred rewards, LAPACK takes as long to invert their covariance matrix as all other computations of a likelihood
take together, and these loops are faster.  With many more rewards, LAPACK is faster.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conbo.loops import likelihood
from conbo.loops.compiling import Array
from conbo.models import compiled

MOST_REWARDS = 256  # largest number of rewards for which the compiled loops are faster than LAPACK


def handles(matrices: Tensor) -> bool:
    """Return whether the compiled loops are used for these r covariance matrices (r, n, n) of n rewards.

    They are used if Numba is available, the matrices are on the CPU, and n is at most MOST_REWARDS.
    """
    return compiled.AVAILABLE and matrices.device.type == "cpu" and matrices.shape[-1] <= MOST_REWARDS


def factorize_and_invert(matrices: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return Cholesky factors and inverses (r, n, n) of r matrices plus noise on the diagonal, and flags (r,).

    The factors are lower triangular. A flag is True if the matrix has no Cholesky factor. `noise` holds variances
    (r, n), (r, 1) or (n,).
    """
    r, n, _ = matrices.shape
    factors, inverses = np.empty((r, n, n)), np.empty((r, n, n))
    variances = np.array(np.broadcast_to(noise.numpy(), (r, n)), order="C")  # a copy, since views are read-only
    likelihood.factorize_and_invert(
        np.ascontiguousarray(matrices.numpy()), variances, factors, inverses, np.empty((4, n))
    )
    return torch.from_numpy(factors.swapaxes(1, 2)), torch.from_numpy(inverses), torch.from_numpy(failures(factors))


def failures(factors: Array) -> NDArray[np.bool_]:
    """Return flags (r,): whether the compiled loop failed to compute each of the Cholesky `factors` (r, n, n).

    After a failure, some entry on the diagonal of the factor is not finite or not positive.
    """
    diagonal = np.einsum("rnn->rn", factors)
    return ~(np.isfinite(diagonal) & (diagonal > 0.0)).all(-1)


def log_likelihoods(factors: Tensor, inverses: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-likelihoods (r,) of rewards (n,), the most likely constant means (r,), and gradients (r, n, n).

    Each of r covariance matrices is given by its lower Cholesky factor and its inverse. The log-likelihoods are without
    the constant -½ n log 2π, and their gradients are with respect to these matrices.
    """
    r, n, _ = factors.shape
    values, means, gradients = np.empty(r), np.empty(r), np.empty((r, n, n))
    arrays = (np.ascontiguousarray(tensor.numpy()) for tensor in (factors.mT, inverses, rewards))
    likelihood.log_likelihoods(*arrays, values, means, gradients, np.empty((2, n)))
    return torch.from_numpy(values), torch.from_numpy(means), torch.from_numpy(gradients)
