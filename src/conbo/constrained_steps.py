"""The best step of a quadratic model within linear limits and bounds, for many problems at once.

    maximize  gᵀ t - ½ tᵀ B t   subject to   N t <= gaps,   lower <= t <= upper

The step is t.  The quadratic model has the gradient g and the negated Hessian B, and each limit is a row of N and an
entry of `gaps`.  Each limit or bound is replaced by a steep quadratic penalty on its violation, and the penalized
problem is solved by a semismooth Newton method: solve with the penalties of those limits and bounds that the current
step violates, update this set, and repeat until it no longer changes.  The result violates limits at most slightly.
Callers may shorten the step: if the zero step is feasible, a shorter step violates no limit by more than the full step
does.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STIFFNESS = 1e7  # curvature of the penalty, relative to the largest entry of B
ROUNDS = 12  # largest number of Newton iterations


def constrained_steps(
    curvature: Array, gradient: Array, normals: Array, gaps: Array, lower: Array, upper: Array
) -> Array:
    """Return the steps t (r, d) that maximize gᵀ t - ½ tᵀ B t subject to N t <= gaps and lower <= t <= upper.

    There are r such problems, each with J limits: B is `curvature` (r, d, d), g is `gradient` (r, d), N is `normals`
    (r, J, d), and `gaps` has the shape (r, J).  The bounds `lower` and `upper` have the shape (r, d).
    """
    length = np.maximum(np.sqrt((normals**2).sum(-1, keepdims=True)), 1e-300)
    d = gradient.shape[-1]
    eyes = np.broadcast_to(np.eye(d), curvature.shape)
    sides = np.concatenate([normals / length, eyes, -eyes], axis=1)  # (r, J + 2d, d)
    room = np.concatenate([gaps / length[..., 0], upper, -lower], axis=1)  # (r, J + 2d)
    stiff = STIFFNESS * np.maximum(np.abs(curvature).max((-2, -1)), 1e-300)[:, None]
    binding = np.zeros(room.shape, dtype=bool)
    step = np.zeros_like(gradient)
    rows = np.arange(len(gradient))
    for _ in range(ROUNDS):
        mine, springs = sides[rows], sides[rows] * (stiff[rows] * binding[rows])[..., None]
        matrix = curvature[rows] + springs.swapaxes(1, 2) @ mine
        force = gradient[rows] + (springs * room[rows, :, None]).sum(1)
        step[rows] = _solutions(matrix, force)
        now = (mine @ step[rows][..., None])[..., 0] > room[rows]
        changed = (now != binding[rows]).any(-1)
        binding[rows] = now
        rows = rows[changed]
        if not len(rows):
            break
    return step.clip(lower, upper)


def _solutions(matrices: Array, vectors: Array) -> Array:
    """Return the solutions (r, d) of r linear systems; those of singular ones are the shortest least-squares solutions.

    The `matrices` (r, d, d) are symmetric.  With a stiff penalty, some may be singular up to rounding errors.
    """
    columns = vectors[..., None]
    try:
        return np.asarray(np.linalg.solve(matrices, columns)[..., 0])
    except np.linalg.LinAlgError:  # one singular matrix is enough
        if len(matrices) == 1:
            return np.asarray((np.linalg.pinv(matrices, hermitian=True) @ columns)[..., 0])
        return np.concatenate([_solutions(*one) for one in zip(matrices[:, None], vectors[:, None], strict=True)])
