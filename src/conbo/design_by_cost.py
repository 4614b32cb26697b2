"""The initial design of a study that knows what evaluations cost: points that are less dense where they cost more.

Sobol points are thinned out.  Each is kept with a probability in inverse proportion to its cost, so that regions of
equal probability get points of equal total cost, instead of equally many points.  Costs below a low quantile count as
this quantile, so that the points are not all in the one corner where evaluations cost next to nothing.
"""

import numpy as np

from conbo.bound_states import StateDistribution
from conbo.cost_rules import KnownCost, known_cost
from conbo.quasi_random import sobol_points
from conbo.spaces import Array, Point, Space

FIRST = 64  # number of Sobol points whose costs determine the quantile
CHEAP = 0.1  # the quantile of costs below which all points are kept


def design_points_by_cost(
    space: Space, states: StateDistribution, cost: KnownCost, seed: int, first: int, n: int, state: Point | None = None
) -> Array:
    """Return n points (n, d) of the initial design, in the unit cube, beginning with the point of index `first`.

    `cost` is the user's cost function.  If a `state` is given, all points are in this state, and only their actions
    come from the design.
    """
    d_s, d = space.n_state_dims, space.n_state_dims + space.n_action_dims
    count = FIRST
    while True:
        u = sobol_points(count, d + 1, seed)
        rows = states.transform(u[:, :d_s])
        if state is not None:
            rows = np.repeat(space.encode_states([state]), count, axis=0)
        points = space.spread(np.concatenate([rows, u[:, d_s:d]], axis=1))
        pairs = zip(space.decode_states(points[:, :d_s]), space.decode_actions(points[:, d_s:]), strict=True)
        costs = np.array([known_cost(cost, *pair) for pair in pairs])
        kept = points[u[:, d] * costs <= np.quantile(costs[:FIRST], CHEAP)]
        if len(kept) >= first + n:
            return kept[first : first + n]
        count *= 2
