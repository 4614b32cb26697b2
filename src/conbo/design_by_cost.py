"""The initial design of a study that knows what evaluations cost: points that are less dense where they cost more.

Each Sobol point is kept with a probability in inverse proportion to its cost, for which the points have one more
coordinate, so regions of equal probability get points of equal total cost instead of equally many points.  Costs below
a low quantile count as this quantile, so that the points are not all in the one corner where evaluations cost next to
nothing.  No probability is below a quarter, so that expensive regions are not left out.
"""

import numpy as np

from conbo.bound_states import StateDistribution
from conbo.cost_rules import KnownCost, known_cost
from conbo.quasi_random import sobol_points
from conbo.spaces import Array, Point, Space

FIRST = 64  # number of Sobol points whose costs determine the quantile
CHEAP_SHARE = 0.1  # share of the points that are so cheap that all of them are kept
LEAST_DENSITY = 0.25  # density of the points where evaluations cost most, relative to where they cost least


def design_points_by_cost(
    space: Space, states: StateDistribution, cost: KnownCost, seed: int, first: int, n: int, state: Point | None = None
) -> Array:
    """Return n points (n, d) of the initial design, in the unit cube, beginning with the point of index `first`.

    `cost` is the user's cost function.  If a `state` is given, all points are in this state, and only their actions
    come from the design.
    """
    d_s, d = space.n_state_dims, space.n_state_dims + space.n_action_dims
    kept, done, count, cheap = np.empty((0, d)), 0, FIRST, None
    while len(kept) < first + n:
        u = sobol_points(count, d + 1, seed)[done:]
        rows = states.transform(u[:, :d_s])
        if state is not None:
            rows = np.repeat(space.encode_states([state]), len(u), axis=0)
        points = space.spread(np.concatenate([rows, u[:, d_s:d]], axis=1))
        pairs = zip(space.decode_states(points[:, :d_s]), space.decode_actions(points[:, d_s:]), strict=True)
        costs = np.array([known_cost(cost, *pair) for pair in pairs])
        cheap = np.quantile(costs, CHEAP_SHARE) if cheap is None else cheap
        kept = np.concatenate([kept, points[u[:, d] * costs <= np.maximum(cheap, LEAST_DENSITY * costs)]])
        done, count = count, 2 * count
    return kept[first : first + n]
