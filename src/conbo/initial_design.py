"""The initial design: Sobol points whose states follow P[s], before there are enough rewards for a model."""

import numpy as np

from conbo.bound_states import StateDistribution
from conbo.quasi_random import sobol_points
from conbo.spaces import Array, Point, Space

MOST_INITIAL = 20  # largest default size of the design
MOST_INITIAL_WITH_PRIOR = 2  # smaller, because an earlier study says more than a design could


def default_size(space: Space, has_prior: bool) -> int:
    """Number of trials of the design, unless the user gives it: 2 d + 2 for d parameters, with an upper limit."""
    d = space.n_state_dims + space.n_action_dims
    return min(2 * d + 2, MOST_INITIAL_WITH_PRIOR if has_prior else MOST_INITIAL)


def design_points(
    space: Space, states: StateDistribution, seed: int, first: int, n: int, state: Point | None = None
) -> Array:
    """Points (n, d) of the design from number `first` on; a given `state` replaces the states that follow P[s]."""
    d_s, d_x = space.n_state_dims, space.n_action_dims
    u = sobol_points(first + n, d_s + d_x, seed)[first:]
    rows = states.transform(u[:, :d_s])
    if state is not None:
        rows = np.repeat(space.encode_states([state]), n, axis=0)
    return space.spread(np.concatenate([rows, u[:, d_s:]], axis=1))
