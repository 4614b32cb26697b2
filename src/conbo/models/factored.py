"""The Cholesky factor of the rewards' covariance, built block by block, so that one more reward costs n², not n³.

The blocks come from `schedule.block_ends`, a pure function of n.  A factor that is made from scratch and one that
extends an earlier factor go through the same blocks, so they are equal to the last bit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from conbo.errors import ConboError
from conbo.models.factorization import factorize
from conbo.models.kernels import Kernel
from conbo.models.schedule import block_ends, shared_rows

# from indices a and b to the rows a to b - 1 of a symmetric matrix, columns 0 to b - 1: (b - a, b)
Rows = Callable[[int, int], Tensor]


@dataclass(frozen=True)
class Factored:
    """The Cholesky factor of the covariance of n rewards, with the points and noise variances that it belongs to.

    The covariance is kernel(points, points) + diag(variances).
    """

    points: Tensor  # (n, d)
    variances: Tensor  # (n,), of the noise
    factor: Tensor  # (n, n), lower triangular
    jitter: float  # added to the diagonal besides the noise; zero unless rounding made the matrix indefinite

    def shared_blocks(self, points: Tensor, variances: Tensor) -> int:
        """Return how many leading rows of this factor can be reused for other points (m, d) and noise variances (m,).

        This factor and the one for the other points are built in blocks of rows. Leading blocks that end at the same
        rows in both can be reused. The result is 0 if any point or noise variance in these blocks differs, or if this
        factor needed jitter on the diagonal.
        """
        if self.jitter > 0:
            return 0  # a factor of other rows may not need the jitter
        same = shared_rows(len(self.points), len(points))
        equal = torch.equal(self.points[:same], points[:same]) and torch.equal(self.variances[:same], variances[:same])
        return same if equal else 0


def factored(kernel: Kernel, points: Tensor, variances: Tensor, earlier: Factored | None = None) -> Factored:
    """Factorize the covariance of rewards at points (n, d) with noise variances (n,).

    `earlier` is a factorization with the same kernel, for example the one without the latest reward. Leading rows that
    both factorizations share are copied from it, not computed again.
    """
    states, actions = kernel.scaled(points)

    def rows(first: int, last: int) -> Tensor:
        here, there = (states[first:last], actions[first:last]), (states[:last], actions[:last])
        block = kernel.covariance(here, there)
        block[:, first:].diagonal().add_(variances[first:last])
        return block

    ends, shared, known = block_ends(len(points)), 0, points[:0, :0]
    if earlier is not None:
        shared = earlier.shared_blocks(points, variances)
        known = earlier.factor[:shared, :shared]
    jitter = 0.0
    factor = _grown(rows, [end for end in ends if end > shared], known, jitter)
    while factor is None:  # rounding made the matrix indefinite: find the least jitter that helps
        jitter = 10 * jitter if jitter > 0 else max(1e-10 * float((kernel.variance(states) + variances).mean()), 1e-300)
        if not (jitter < inf and _finite(rows, ends)):
            raise ConboError("a covariance matrix must be finite, but got infinite or undefined entries.")
        factor = _grown(rows, ends, points[:0, :0], jitter)
    return Factored(points, variances, factor, jitter)


def _grown(rows: Rows, ends: list[int], known: Tensor, jitter: float) -> Tensor | None:
    """Extend `known`, the Cholesky factor of a matrix's leading rows, to the whole matrix.

    The function `rows` computes the remaining rows of the matrix, in blocks that end at the row numbers `ends`.
    `jitter` is added to the diagonal entries of these rows. The result is None if the matrix is not positive definite.
    """
    if not ends:
        return known  # in its own memory layout, because solutions with another one may round differently
    first, n = len(known), ends[-1]
    if first == 0 and ends == [n]:
        return _block(rows(0, n), jitter)
    factor = known.new_zeros(n, n)
    factor[:first, :first] = known
    for last in ends:
        block = rows(first, last)
        left = torch.linalg.solve_triangular(factor[:first, :first], block[:, :first].mT, upper=False).mT
        corner = _block(block[:, first:] - left @ left.mT, jitter)
        if corner is None:
            return None
        factor[first:last, :first], factor[first:last, first:last] = left, corner
        first = last
    return factor


def _block(matrix: Tensor, jitter: float) -> Tensor | None:
    """Add jitter to the diagonal of a matrix in place, and return the Cholesky factor of the sum.

    The result is None if the sum is not positive definite.
    """
    if jitter > 0:
        matrix.diagonal().add_(jitter)
    factor, failed = factorize(matrix)
    return None if bool(failed) else factor


def _finite(rows: Rows, ends: list[int]) -> bool:
    """Return whether all entries of a matrix are finite.

    The function `rows` computes the matrix, in blocks of rows that end at the row numbers `ends`.
    """
    return all(bool(rows(first, last).isfinite().all()) for first, last in zip([0, *ends], ends, strict=False))
