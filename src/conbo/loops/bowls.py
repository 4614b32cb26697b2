"""Newton steps to a maximum, in compiled loops: factorize shift · I - Hessian, solve with it, and shorten the step.

Near a maximum, the matrix -Hessian is positive definite: the quadratic form of a bowl. Elsewhere it may not be, and a
positive shift is added to its diagonal. Coordinates that are `stuck` at a bound do not move, so their rows and columns
are replaced by those of a diagonal matrix. f is the number of coordinates, including stuck ones.
"""

from math import inf, sqrt

from conbo.loops.compiling import Array, inlined


@inlined
def factorize_bowl(hessian: Array, f: int, stuck: Array, shift: float, factor: Array) -> bool:
    """Write the lower Cholesky factor of shift · I - Hessian (f, f) to `factor`; return False if there is none.

    Rows and columns of coordinates that are `stuck` at a bound are replaced by those of (1 + shift) · I. The diagonal
    of `factor` holds the reciprocals of the true entries, as `solve_bowl` expects.
    """
    for i in range(f):
        for k in range(i + 1):
            if stuck[i] or stuck[k]:
                total = 1.0 + shift if i == k else 0.0
            else:
                total = (shift if i == k else 0.0) - hessian[i, k]
            for m in range(k):
                total -= factor[i, m] * factor[k, m]
            if i == k:
                if not 0.0 < total < inf:
                    return False
                factor[i, i] = 1.0 / sqrt(total)
            else:
                factor[i, k] = total * factor[k, k]
    return True


@inlined
def missing_curvature(hessian: Array, f: int, stuck: Array) -> float:
    """Return a shift that makes shift · I - Hessian positive definite, by Gershgorin's bound on the eigenvalues.

    Rows and columns of coordinates that are `stuck` at a bound are left out.
    """
    shift = largest = 0.0
    for i in range(f):
        off = hessian[i, i]
        for k in range(f):
            if not stuck[i] and not stuck[k]:
                size = abs(hessian[i, k])
                largest = size if size > largest else largest
                off += size if k != i else 0.0
        shift = off if off > shift and not stuck[i] else shift
    shift += 1e-3 * largest
    return shift if shift > 1e-300 else 1e-300


@inlined
def solve_bowl(factor: Array, f: int, step: Array) -> None:
    """Solve (shift · I - Hessian) y = step for y with the factor from `factorize_bowl`; y replaces `step`."""
    for i in range(f):
        total = step[i]
        for k in range(i):
            total -= factor[i, k] * step[k]
        step[i] = total * factor[i, i]
    for i in range(f - 1, -1, -1):
        total = step[i]
        for k in range(i + 1, f):
            total -= factor[k, i] * step[k]
        step[i] = total * factor[i, i]


@inlined
def shortened(step: Array, f: int, radius: float) -> float:
    """Shorten a step (f,) in place to a length of at most `radius`, and return its length."""
    length = 0.0
    for i in range(f):
        length += step[i] * step[i]
    length = sqrt(length)
    if length > radius:
        for i in range(f):
            step[i] *= radius / length
        length = radius
    return length
