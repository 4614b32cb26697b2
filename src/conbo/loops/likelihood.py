"""Cholesky factors and inverses of the covariances of up to a few hundred rewards, and log-likelihoods from them.

All functions work on r covariance matrices, one for each set of hyperparameters. If a matrix is not positive definite,
no error is raised, but the diagonal of its factor contains NaN, infinity or zero.
"""

from math import log, sqrt

from conbo.loops.compiling import Array, fast


@fast("void(f8[:,:,::1], f8[:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,::1])")
def factorize_and_invert(
    matrices: Array,  # (r, n, n), symmetric
    noise: Array,  # (r, n), added to the diagonals
    factors: Array,  # (r, n, n), out
    inverses: Array,  # (r, n, n), out
    pivots: Array,  # scratch (4, n)
) -> None:
    """Compute upper Cholesky factors and inverses of covariance matrices, after adding `noise` to their diagonals.

    There are r covariance matrices of n rewards, `matrices` (r, n, n). The results are written to `factors` and
    `inverses`; `pivots` is working memory.
    """
    # One sweep for each row p of a matrix K turns -K into the inverse of K (Goodnight 1979). Let w be row p of K after
    # the earlier sweeps, divided by the square root of its entry p; from entry p on, w is row p of the factor. The
    # sweep sets row and column p of -K to zero and entry p of w to -1/w[p], and adds w wᵀ. Only the lower triangle is
    # computed. Four sweeps are added at once, which reads less memory, so each of the four rows w is first corrected
    # for those before it.
    n = len(pivots[0])
    w0, w1 = pivots[0], pivots[1]
    w2, w3 = pivots[2], pivots[3]
    for r in range(len(matrices)):
        factor, inverse = factors[r], inverses[r]
        for i in range(n):
            for j in range(i + 1):
                inverse[i, j] = -matrices[r, i, j]
            inverse[i, i] -= noise[r, i]
        for start in range(0, n, 4):
            for k in range(4):
                p, w = start + k, pivots[k]
                if p >= n:  # there are fewer than four rows left
                    for j in range(n):
                        w[j] = 0.0
                    continue
                for j in range(p):
                    w[j] = -inverse[p, j]
                    inverse[p, j] = 0.0
                for i in range(p, n):
                    w[i] = -inverse[i, p]
                    inverse[i, p] = 0.0
                for before in range(k):
                    other = pivots[before]
                    share = other[p]
                    for j in range(n):
                        w[j] -= share * other[j]
                    other[p] = 0.0
                share = 1.0 / sqrt(w[p])
                for j in range(n):
                    w[j] *= share
                    factor[p, j] = 0.0 if j < p else w[j]
                w[p] = -share
            for i in range(n):
                row = inverse[i]
                a, b = w0[i], w1[i]
                c, d = w2[i], w3[i]
                for j in range(i + 1):
                    row[j] += a * w0[j] + b * w1[j] + c * w2[j] + d * w3[j]
        for i in range(n):
            for j in range(i):
                inverse[j, i] = inverse[i, j]


@fast("void(f8[:,:,::1], f8[:,:,::1], f8[::1], f8[::1], f8[::1], f8[:,:,::1], f8[:,::1])")
def log_likelihoods(
    factors: Array,  # (r, n, n), of which only the diagonals are read
    inverses: Array,  # (r, n, n)
    rewards: Array,  # (n,)
    values: Array,  # (r,), out: log-likelihoods without the constant -½ n log 2π
    means: Array,  # (r,), out: constant means of the process that maximize the log-likelihoods
    gradients: Array,  # (r, n, n), out: gradients of the log-likelihoods with respect to the covariance matrices
    scratch: Array,  # (2, n)
) -> None:
    """Compute the Gaussian log-likelihood of the rewards for each of r covariance matrices, and its gradient.

    For each covariance matrix K, the mean of the process is the constant that maximizes the log-likelihood. The
    gradient with respect to K is ½(ααᵀ - K⁻¹), with α = K⁻¹(rewards - mean). The results are written to `values`,
    `means` and `gradients`; the values leave out the constant -½ n log 2π, for n rewards.
    """
    n = len(rewards)
    sums, solved = scratch[0], scratch[1]
    for r in range(len(values)):
        total = weighted = 0.0
        for i in range(n):
            along = row = 0.0
            for j in range(n):
                along += inverses[r, i, j] * rewards[j]
                row += inverses[r, i, j]
            sums[i], solved[i] = row, along
            total += row
            weighted += row * rewards[i]
        mean = weighted / total
        misfit = log_determinant = 0.0
        for i in range(n):
            solved[i] -= mean * sums[i]
            misfit += (rewards[i] - mean) * solved[i]
            log_determinant += log(factors[r, i, i])
        means[r], values[r] = mean, -0.5 * misfit - log_determinant
        for i in range(n):
            for j in range(n):
                gradients[r, i, j] = 0.5 * (solved[i] * solved[j] - inverses[r, i, j])
