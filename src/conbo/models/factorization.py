"""Cholesky factorizations that report NaN and infinity as failures on every platform.

LAPACK's reference routine reports a NaN on the diagonal.  Other implementations, such as OpenBLAS on aarch64, do not.
"""

from math import inf

import torch
from torch import Tensor

from conbo.errors import ConboError


def factorize(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lower Cholesky factors of n × n matrices (..., n, n), and which of the factorizations failed (...,).

    Only lower triangles are read. A factorization also counts as failed if its matrix has an infinite or NaN entry.
    """
    factors, info = torch.linalg.cholesky_ex(matrices)
    trace = factors.diagonal(dim1=-2, dim2=-1).sum(-1)  # square roots of doubles are too small for the sum to overflow
    return factors, info + (trace - trace) != 0  # x - x is zero if x is finite, and NaN otherwise


def cholesky_solved(factors: Tensor, columns: Tensor) -> Tensor:
    """Return the products K⁻¹ `columns` (..., n, c), where `factors` (..., n, n) are the lower Cholesky factors of K.

    For few columns this is several times faster than `torch.cholesky_solve`, which copies the factors. Unlike that
    function, it can be captured in a CUDA graph.
    """
    half = torch.linalg.solve_triangular(factors, columns, upper=False)
    return torch.linalg.solve_triangular(factors.mT, half, upper=True)


def cholesky(matrix: Tensor) -> Tensor:
    """Return the lower Cholesky factor of a matrix (n, n).

    If rounding made the matrix indefinite, a small jitter is added to its diagonal. The jitter is multiplied by ten
    until the factor exists. Raises ConboError if the matrix has an infinite or NaN entry.
    """
    factor, failed = factorize(matrix)
    jitter = max(1e-10 * float(matrix.diagonal().mean()), 1e-300)
    while failed.item():
        if not (jitter < inf and matrix.isfinite().all()):
            raise ConboError("a covariance matrix must be finite, but got infinite or undefined entries.")
        eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        factor, failed = factorize(matrix + jitter * eye)
        jitter *= 10
    return factor
