"""Lower and upper bounds on knowledge gradients, from thorough searches for the best actions.

They are too slow for choosing points. They serve to measure the errors of faster estimates.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conbo.acquisition.convex_integral import ConvexIntegral
from conbo.errors import SettingError
from conbo.models.action_functions import ActionFunctions, Maxima, look_ahead_functions, state_rows
from conbo.models.distinct_best import distinct_best
from conbo.models.exact_gains import ExactGains, snapped
from conbo.models.feature_limits import feature_limits
from conbo.models.neighboring_nodes import neighbor_similarity, shared_between_nodes

STARTS, STEPS = 6, 20  # number of starts of every maximization over actions, and Newton steps from each


@dataclass(frozen=True)
class Bounds:
    """Estimates of, and bounds on, the knowledge gradients of r candidates in m states."""

    best: Tensor  # (r, m)
    lower: Tensor  # (r, m)
    upper: Tensor  # (r, m)


def knowledge_gradient_bounds(gains: ExactGains, candidates: Tensor, states: Tensor) -> Bounds:
    """Estimate the knowledge gradients (r, m) of r candidates, each in m states of its own, with bounds on them.

    Candidates are (r, d) and states (r, m, d_s). `gains` holds the model and a pool of actions from which searches
    start; it must come from the recipe `HybridKG`, or SettingError is raised.

    The bounds hold if every search for a state's best action finds the global maximum. To make this likely, each search
    has several starts.
    """
    nodes, posterior = gains.rule.nodes, gains.posterior
    if nodes is None or float(nodes[len(nodes) // 2]) != 0.0:
        raise SettingError("bounds need nodes around z = 0: use HybridKG.")
    prepared = state_rows(posterior, states)
    limits = feature_limits(gains.pool.limit_shapes, states.flatten(0, 1))
    functions = look_ahead_functions(posterior, posterior.look_ahead(candidates), prepared)
    functions = replace(functions, limits=limits)
    basins = gains.pool.best(states.flatten(0, 1), STARTS, STEPS).basins
    maxima = snapped(gains.pool.space, functions, thorough_maxima(gains, functions, nodes, basins))
    maxima = shared_between_nodes(maxima, nodes)
    similarity = neighbor_similarity(functions, maxima.actions, nodes)
    integral, middle = ConvexIntegral(nodes), len(nodes) // 2
    slope = maxima.slope - maxima.slope[:, middle : middle + 1]
    gain = maxima.mean - maxima.mean[:, middle : middle + 1] + slope * nodes
    slopes_alone = replace(functions, mean_weights=torch.zeros_like(functions.mean_weights))
    ends = nodes.new_tensor([-1.0, 1.0])
    steepest = thorough_maxima(gains, slopes_alone, ends, basins).slope - maxima.slope[:, middle : middle + 1]
    lower = integral.lower(gain.clamp_min(0), slope)
    upper = torch.maximum(integral.upper(gain.clamp_min(0), steepest), lower)
    best = integral(maxima.mean, maxima.slope, similarity).best.clamp(lower, upper)
    return Bounds(*(value.unflatten(0, states.shape[:2]) for value in (best, lower, upper)))


def thorough_maxima(gains: ExactGains, functions: ActionFunctions, nodes: Tensor, basins: Tensor) -> Maxima:
    """Maximize mean(x) + z slope(x) over actions x, for each of q values z in `nodes` and each of r `functions`.

    A function belongs to a candidate and a state: mean(x) + z slope(x) is the posterior mean of action x in this state
    after a new reward at the candidate, if that reward is z standard deviations above its prediction. Local searches
    start from the best actions of the pool of `gains`, from the candidate's action, and from `basins` (r, k, d_x),
    which are local maxima of the current posterior mean in each state. Return the best result for each function and z.
    """
    pool = gains.pool
    mean, slope = functions.pooled(pool.correlation, pool.features)
    scores = mean[:, None] + nodes[:, None] * slope[:, None]  # (rows, q, p)
    rows, q, _ = scores.shape
    chosen = distinct_best(scores.flatten(0, 1), pool.similarity, STARTS).unflatten(0, (rows, q))
    special = torch.cat([functions.factor.scaled(basins), functions.new_points[:, None]], 1)
    starts = torch.cat([pool.features[chosen], special[:, None].expand(-1, q, -1, -1)], 2)
    k = starts.shape[2]
    maxima = functions.maximize(starts.flatten(1, 2), nodes.repeat_interleave(k), STEPS, True)
    value = (maxima.mean + nodes.repeat_interleave(k) * maxima.slope).unflatten(1, (q, k))
    best = value.argmax(-1) + torch.arange(q, device=nodes.device) * k  # (rows, q)
    return maxima.take(best)
