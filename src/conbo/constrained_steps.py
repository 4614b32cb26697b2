"""The best step of a quadratic model inside linear limits and a box, for many rows at once.

    maximize  gᵀ t - ½ tᵀ B t   subject to   N t <= gaps,   lower <= t <= upper

A semismooth Newton method on the penalized problem: a violated limit pulls the step back like a stiff spring, and a
limit that no longer pulls is released, until the set of springs stays the same.  If the zero step is feasible, so is
every shortened step.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STIFFNESS = 1e7  # stiffness of the penalty, relative to the largest curvature
ROUNDS = 12  # iterations of the search for the active limits


def constrained_steps(bowl: Array, gradient: Array, normals: Array, gaps: Array, lower: Array, upper: Array) -> Array:
    """Best steps (r, d), given B (r, d, d), g (r, d), N (r, J, d), gaps (r, J), and bounds (r, d) of the steps."""
    length = np.maximum(np.sqrt((normals**2).sum(-1, keepdims=True)), 1e-300)
    d = gradient.shape[-1]
    eyes = np.broadcast_to(np.eye(d), bowl.shape)
    sides = np.concatenate([normals / length, eyes, -eyes], axis=1)  # (r, J + 2d, d)
    room = np.concatenate([gaps / length[..., 0], upper, -lower], axis=1)  # (r, J + 2d)
    stiff = STIFFNESS * np.maximum(np.abs(bowl).max((-2, -1)), 1e-300)[:, None]
    binding = np.zeros(room.shape, dtype=bool)
    step = np.zeros_like(gradient)
    rows = np.arange(len(gradient))
    for _ in range(ROUNDS):
        mine, springs = sides[rows], sides[rows] * (stiff[rows] * binding[rows])[..., None]
        matrix = bowl[rows] + springs.swapaxes(1, 2) @ mine
        force = gradient[rows] + (springs * room[rows, :, None]).sum(1)
        step[rows] = np.linalg.solve(matrix, force[..., None])[..., 0]
        now = (mine @ step[rows][..., None])[..., 0] > room[rows]
        changed = (now != binding[rows]).any(-1)
        binding[rows] = now
        rows = rows[changed]
        if not len(rows):
            break
    return step.clip(lower, upper)
