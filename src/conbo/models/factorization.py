"""Cholesky factorizations that notice what is not finite, on every platform.

LAPACK's own routine reports a NaN on the diagonal as a failure; others, such as OpenBLAS on aarch64, go on with it.
"""

import torch
from torch import Tensor


def factorize(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Lower Cholesky factors of matrices (..., n, n), and which of them there are none of (...,).

    Only lower triangles are read; one with an infinite or undefined entry has no factor.

    The diagonal of L shows it. Suppose that all L_ii are finite. Since L_ii² = a_ii - Σ_j L_ij², and no square makes
    up for one that is infinite or undefined, every L_ij is finite. Since L_ij = (a_ij - Σ_k L_ik L_jk) / L_jj, so is
    every a_ij.
    """
    factors, info = torch.linalg.cholesky_ex(matrices)
    trace = factors.diagonal(dim1=-2, dim2=-1).sum(-1)  # square roots of doubles do not overflow it
    return factors, info + (trace - trace) != 0  # x - x is zero where x is finite, undefined elsewhere
