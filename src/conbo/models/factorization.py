"""Cholesky factorizations that notice what is not finite, on every platform.

LAPACK's own routine reports a NaN on the diagonal as a failure; others, such as OpenBLAS on aarch64, go on with it.
"""

from math import inf

import torch
from torch import Tensor

from conbo.errors import ConboError


def factorize(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Lower Cholesky factors of matrices (..., n, n), and which of them there are none of (...,).

    Only lower triangles are read; one with an infinite or undefined entry has no factor.

    The diagonal of L tells, for n finite numbers on it leave no room for another one that is not finite:
    L_ii² = a_ii - Σ_j L_ij², where no square makes up for an infinite or undefined one, so every L_ij is finite;
    and L_ij = (a_ij - Σ_k L_ik L_jk) / L_jj is so only if a_ij is.
    """
    factors, info = torch.linalg.cholesky_ex(matrices)
    finite = factors.diagonal(dim1=-2, dim2=-1).isfinite().all(-1)
    return factors, (info != 0) | ~finite


def cholesky(matrix: Tensor) -> Tensor:
    """Lower factor; rounding that makes the matrix indefinite is met with the least jitter that helps."""
    factor, failed = factorize(matrix)
    jitter = max(1e-10 * float(matrix.diagonal().mean()), 1e-300)
    while failed.item():
        if not (jitter < inf and matrix.isfinite().all()):
            raise ConboError("a covariance matrix must be finite, but got infinite or undefined entries.")
        eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        factor, failed = factorize(matrix + jitter * eye)
        jitter *= 10
    return factor
