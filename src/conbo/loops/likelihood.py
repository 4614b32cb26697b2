"""Cholesky factors and inverses of the covariances of up to a few hundred rewards, and log-likelihoods from them.

All functions work on r covariance matrices, one for each set of hyperparameters. Several rows and columns are computed
at a time, which reads less memory. If a matrix is not positive definite, no error is raised, but the diagonal of its
factor has NaN, infinity or zero.
"""

from math import log, sqrt

from conbo.loops.compiling import MAY_FAIL, Array, fast, inlined


@fast("void(f8[:,:,::1], f8[:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,::1])", fastmath=MAY_FAIL)
def factorize_and_invert(
    matrices: Array,  # (r, n, n), symmetric
    noise: Array,  # (r, n), added to the diagonals
    factors: Array,  # (r, n, n), out
    inverses: Array,  # (r, n, n), out
    roots: Array,  # scratch (n, n), for the inverse of a factor
) -> None:
    """Compute lower Cholesky factors and inverses of covariance matrices, after adding `noise` to their diagonals.

    For r covariance matrices (r, n, n) of n rewards, they are written to `factors` and `inverses`. These two arrays and
    `roots`, which is scratch, must be zero before.
    """
    n = matrices.shape[1]
    for r in range(len(matrices)):
        factor, inverse = factors[r], inverses[r]
        matrix = matrices[r]
        for i in range(0, n, 2):  # two rows of the factor at a time; an odd last one is computed twice
            h = i + 1 if i + 1 < n else i
            fours = i // 4 * 4
            for j in range(0, fours, 4):  # four columns at a time
                i0, i1, i2, i3, h0, h1, h2, h3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                for k in range(j):
                    a, b = factor[i, k], factor[h, k]
                    i0 += a * factor[j, k]
                    i1 += a * factor[j + 1, k]
                    i2 += a * factor[j + 2, k]
                    i3 += a * factor[j + 3, k]
                    h0 += b * factor[j, k]
                    h1 += b * factor[j + 1, k]
                    h2 += b * factor[j + 2, k]
                    h3 += b * factor[j + 3, k]
                _fill_four(matrix[i], factor, j, factor[i], i0, i1, i2, i3)
                _fill_four(matrix[h], factor, j, factor[h], h0, h1, h2, h3)
            for row in range(i, h + 1):
                for j in range(fours, row):
                    total = 0.0
                    for k in range(j):
                        total += factor[row, k] * factor[j, k]
                    factor[row, j] = (matrix[row, j] - total) / factor[j, j]
                total = 0.0
                for k in range(row):
                    total += factor[row, k] * factor[row, k]
                factor[row, row] = sqrt(matrix[row, row] + noise[r, row] - total)
        for i in range(n):  # row i of the inverse of the factor, from the rows above it
            for j in range(i):
                roots[i, j] = 0.0
            fours = i // 4 * 4
            for k in range(0, fours, 4):
                a, b, c, d = factor[i, k], factor[i, k + 1], factor[i, k + 2], factor[i, k + 3]
                for j in range(k + 4):
                    roots[i, j] -= a * roots[k, j] + b * roots[k + 1, j] + c * roots[k + 2, j] + d * roots[k + 3, j]
            for k in range(fours, i):
                for j in range(k + 1):
                    roots[i, j] -= factor[i, k] * roots[k, j]
            share = 1.0 / factor[i, i]
            for j in range(i):
                roots[i, j] *= share
            roots[i, i] = share
        fours = n // 4 * 4
        for k in range(0, fours, 4):
            for i in range(k + 4):
                a, b, c, d = roots[k, i], roots[k + 1, i], roots[k + 2, i], roots[k + 3, i]
                for j in range(i + 1):
                    inverse[i, j] += a * roots[k, j] + b * roots[k + 1, j] + c * roots[k + 2, j] + d * roots[k + 3, j]
        for k in range(fours, n):
            for i in range(k + 1):
                for j in range(i + 1):
                    inverse[i, j] += roots[k, i] * roots[k, j]
        for i in range(n):
            for j in range(i):
                inverse[j, i] = inverse[i, j]


@inlined
def _fill_four(matrix: Array, factor: Array, j: int, row: Array, t0: float, t1: float, t2: float, t3: float) -> None:
    """Write columns j to j + 3 of one row of a Cholesky factor, given their sums over the columns before j.

    `matrix` (n,) is the same row of the covariance matrix.
    """
    row[j] = (matrix[j] - t0) / factor[j, j]
    row[j + 1] = (matrix[j + 1] - t1 - row[j] * factor[j + 1, j]) / factor[j + 1, j + 1]
    t2 += row[j] * factor[j + 2, j] + row[j + 1] * factor[j + 2, j + 1]
    row[j + 2] = (matrix[j + 2] - t2) / factor[j + 2, j + 2]
    t3 += row[j] * factor[j + 3, j] + row[j + 1] * factor[j + 3, j + 1] + row[j + 2] * factor[j + 3, j + 2]
    row[j + 3] = (matrix[j + 3] - t3) / factor[j + 3, j + 3]


@fast("void(f8[:,:,::1], f8[:,:,::1], f8[::1], f8[::1], f8[::1], f8[:,:,::1], f8[:,::1])", fastmath=MAY_FAIL)
def log_likelihoods(
    factors: Array,  # (r, n, n)
    inverses: Array,  # (r, n, n)
    rewards: Array,  # (n,)
    values: Array,  # (r,), out: log-likelihoods without the constant -½ n log 2π
    means: Array,  # (r,), out: constant means of the process that maximize the log-likelihoods
    gradients: Array,  # (r, n, n), out: gradients of the log-likelihoods with respect to the covariance matrices
    scratch: Array,  # (2, n)
) -> None:
    """Compute Gaussian log-likelihoods of the rewards, for r covariance matrices, with the best constant means.

    The gradient with respect to a covariance matrix K is ½(ααᵀ - K⁻¹), with α = K⁻¹(rewards - mean). The results are
    written to `values`, `means` and `gradients`.
    """
    n = len(rewards)
    sums, solved = scratch[0], scratch[1]
    for r in range(len(values)):
        total, weighted = 0.0, 0.0
        for i in range(n):
            along, row = 0.0, 0.0
            for j in range(n):
                along += inverses[r, i, j] * rewards[j]
                row += inverses[r, i, j]
            sums[i], solved[i] = row, along
            total += row
            weighted += row * rewards[i]
        mean = weighted / total
        misfit, log_determinant = 0.0, 0.0
        for i in range(n):
            solved[i] -= mean * sums[i]
            misfit += (rewards[i] - mean) * solved[i]
            log_determinant += log(factors[r, i, i])
        means[r], values[r] = mean, -0.5 * misfit - log_determinant
        for i in range(n):
            for j in range(n):
                gradients[r, i, j] = 0.5 * (solved[i] * solved[j] - inverses[r, i, j])
