"""The initial design: the first points of a study, before there are enough rewards for a model.

They are Sobol points whose states follow P[s].
"""

import numpy as np

from conbo.bound_states import StateDistribution
from conbo.quasi_random import sobol_points
from conbo.spaces import Array, Point, Space

MOST_INITIAL = 20  # largest default number of points
MOST_INITIAL_WITH_PRIOR = 2  # the same for a study with a prior, because an earlier study replaces most of the design


def default_size(space: Space, has_prior: bool) -> int:
    """Return the default size of the initial design: 2 d + 2 points for d parameters, but at most 20.

    If the study has a prior (an earlier study), the default size is 2.
    """
    d = space.n_state_dims + space.n_action_dims
    return min(2 * d + 2, MOST_INITIAL_WITH_PRIOR if has_prior else MOST_INITIAL)


def design_points(
    space: Space, states: StateDistribution, seed: int, first: int, n: int, state: Point | None = None
) -> Array:
    """Return n points (n, d) of the initial design, in the unit cube, beginning with the point of index `first`.

    If a `state` is given, all points are in this state, and only their actions come from the design.
    """
    d_s, d_x = space.n_state_dims, space.n_action_dims
    u = sobol_points(first + n, d_s + d_x, seed)[first:]
    rows = states.transform(u[:, :d_s])
    if state is not None:
        rows = np.repeat(space.encode_states([state]), n, axis=0)
    return space.spread(np.concatenate([rows, u[:, d_s:]], axis=1))
