"""Cholesky factors and inverses of the covariances of up to a few hundred rewards, and log-likelihoods from them.

All functions work on r covariance matrices, one for each set of hyperparameters. The inverses are summed up four rows
at a time, which reads less memory. If a matrix is not positive definite, no error is raised, but the diagonal of its
factor has NaN, infinity or zero.
"""

from math import log, sqrt

from conbo.loops.compiling import MAY_FAIL, Array, fast


@fast("void(f8[:,:,::1], f8[:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,::1])", fastmath=MAY_FAIL)
def factorize_and_invert(
    matrices: Array,  # (r, n, n), symmetric
    noise: Array,  # (r, n), added to the diagonals
    factors: Array,  # (r, n, n), out
    inverses: Array,  # (r, n, n), out
    roots: Array,  # scratch (n, n), for the inverse of a factor
) -> None:
    """Compute lower Cholesky factors and inverses of covariance matrices, after adding `noise` to their diagonals.

    For r matrices (r, n, n), they are written to `factors` and `inverses`. These two arrays and `roots`, which is
    scratch, must be zero before.
    """
    n = matrices.shape[1]
    for r in range(len(matrices)):
        factor, inverse = factors[r], inverses[r]
        for i in range(n):
            for j in range(i):
                total = 0.0
                for k in range(j):
                    total += factor[i, k] * factor[j, k]
                factor[i, j] = (matrices[r, i, j] - total) / factor[j, j]
            total = 0.0
            for k in range(i):
                total += factor[i, k] * factor[i, k]
            factor[i, i] = sqrt(matrices[r, i, i] + noise[r, i] - total)
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
