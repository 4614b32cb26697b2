"""Multi-task Thompson sampling (MTS): draw a function, and evaluate where it improves most on the policy's action.

The next point is chosen from sampled states s_i and actions x, where π(s_i) is the policy's action in state s_i:

    (s, x) = argmax over s_i and x of [f(s_i, x) - f(s_i, π(s_i))],   f ~ posterior

====================  ====================  ==================================================================
paper (supplement)    here                  meaning
====================  ====================  ==================================================================
n_disc = 3000         ``points``            number of points (s_i, x) at which f is drawn
n_s                                         ⌈n_disc^(d_s / (d_s + d_x))⌉ uniform states, or all if there are fewer
n_x                   ``n_actions``         ⌈n_disc / n_s⌉ actions for each state, of three kinds:
40                    ``NEAR_POLICY``       the policy's action and random actions near it
10, 4                 ``NEAREST``, ``BEST`` the best 4 actions of the 10 observations with the nearest states, and
                                            random actions near them
(the others)                                uniform actions
====================  ====================  ==================================================================

If n_x is small, there are fewer actions of every kind.  A joint draw needs the Cholesky factor of the covariance of all
points.  With `draw="pathwise"`, functions are drawn by random Fourier features instead, at a cost that is linear in the
number of points, so there may be many more points.  A batch of n points comes from n independent draws.  With
`weighted=True`, the improvements are weighted by P[s], which the paper does not do.  Points where evaluations probably
fail are left out as long as there are others.

Reference: Char et al. (2019), with the settings of the ConBO paper's supplement.
"""

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.columns import Columns, squared_distances
from conbo.models.factorization import cholesky
from conbo.proposals import Suggestion
from conbo.search.action_candidates import action_candidates

NEAR_POLICY = 40  # number of actions of a state near the policy's action, which is one of them
NEAREST, BEST = 10, 4  # number of observations with the nearest states, and how many of them, the best, are used
REACH = 0.1  # standard deviation of nearby actions in every column of the unit cube
JITTER = 1e-8  # fraction of the mean variance that is added to the diagonal of the joint covariance


@dataclass(frozen=True)
class MultiTaskThompson:
    """Proposes the points where functions drawn from the posterior improve most on the policy's actions."""

    points: int = 3000  # number of points at which functions are drawn
    draw: str = "joint"  # "joint" (by a Cholesky factor) or "pathwise" (by random Fourier features)
    weighted: bool = False  # whether improvements are weighted by P[s]

    def __post_init__(self) -> None:
        if self.points < 1:
            raise SettingError(f"`points` must be at least 1, but got points={self.points}.")
        if self.draw not in ("joint", "pathwise"):
            raise SettingError(f"`draw` must be 'joint' or 'pathwise', but got {self.draw!r}.")

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose n points (n, d) to evaluate next, one for each of n functions drawn from the posterior.

        If a state (d_s,) is given, all points are in this state.
        """
        points = discretization(belief, self.points, generator, state)  # (n_s, n_x, d)
        flat = points.flatten(0, 1)
        drawn = joint_draws if self.draw == "joint" else pathwise_draws
        values = drawn(belief, flat, n, generator).unflatten(0, points.shape[:2])  # (n_s, n_x, n)
        improvement = values - values[:, :1]
        if self.weighted:
            weights = belief.states.density(points[:, 0, : belief.n_state_dims].cpu()).to(points)
            improvement = improvement * weights[:, None, None]
        improvement, succeed = improvement.flatten(0, 1), belief.without_failures(flat)
        if bool(succeed.any()):
            flat, improvement = flat[succeed], improvement[succeed]
        return Suggestion(distinct_argmax(flat, improvement))


def discretization(belief: Belief, size: int, generator: torch.Generator, state: Tensor | None = None) -> Tensor:
    """Return about `size` points (n_s, n_x, d) at which functions are drawn: n_x actions in each of n_s states.

    The first action of each state is the policy's.  If a state (d_s,) is given, there are no other states.
    """
    d_s, d_x = belief.n_state_dims, belief.space.n_action_dims
    if state is None:
        states = uniform_states(belief, ceil(size ** (d_s / (d_s + d_x))), generator)
    else:
        # if states are modeled as actions, `d_s` is zero and the fixed state columns come first among the actions
        states = state[None, :d_s]
    n_actions = ceil(size / len(states))
    near_policy, near_best = min(NEAR_POLICY, -(-3 * n_actions // 4)), min(2 * BEST, n_actions // 6)
    policy = belief.search(action_candidates(belief, 64, generator)).best(states).actions
    actions = torch.cat(
        [
            with_neighbors(policy[:, None], near_policy, generator),
            with_neighbors(best_of_nearest(belief, states), near_best, generator),
            uniform_actions(belief, states, n_actions - near_policy - near_best, generator),
        ],
        1,
    )
    points = belief.snap(torch.cat([states[:, None].expand(-1, n_actions, -1), actions], -1))
    if state is not None:
        points[..., : len(state)] = state
    return points


def uniform_actions(belief: Belief, states: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw n uniform feasible actions (m, n, d_x) for each of m states (m, d_s)."""
    m, d_s = states.shape
    drawn = _uniform(m, n, belief.space.n_action_dims, generator=generator).to(states)
    if belief.space.feasible_set is None:
        return drawn
    points = torch.cat([states[:, None].expand(m, n, -1), drawn], -1)
    return belief.spread(points.flatten(0, 1))[:, d_s:].unflatten(0, (m, n))


def uniform_states(belief: Belief, n: int, generator: torch.Generator) -> Tensor:
    """Draw n uniform states (n, d_s).

    If there are finitely many states, they are drawn without repetition; if there are at most n, return all of them.
    """
    finite = belief.states.finite()
    if finite is None:
        drawn = _uniform(n, belief.n_state_dims, generator=generator).numpy()
        return torch.from_numpy(belief.space.snap_states(drawn)).to(belief.device)
    chosen = torch.randperm(len(finite[0]), generator=generator)[:n]
    return finite[0][chosen if n < len(finite[0]) else slice(None)].to(belief.device)


def best_of_nearest(belief: Belief, states: Tensor) -> Tensor:
    """Return, for each of m states (m, d_s), the k best actions (m, k, d_x) observed in the states nearest to it.

    Of the `NEAREST` observations with the nearest states, those with the highest rewards are taken; k is `BEST`, or
    less if there are fewer observations.
    """
    columns, d_s = Columns(belief.space.state_categories), belief.n_state_dims
    points, rewards = belief.observations.points, belief.observations.rewards
    apart = squared_distances(columns.features(states), columns.features(points[:, :d_s]))
    nearest = apart.argsort(dim=-1, stable=True)[:, :NEAREST]
    order = rewards[nearest].argsort(dim=-1, descending=True, stable=True)[:, :BEST]
    return points[nearest.gather(1, order), d_s:]


def with_neighbors(actions: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Extend the k actions (m, k, d_x) of each of m states to n actions (m, n, d_x), by random actions near them.

    If n is less than k, the first n actions are kept.
    """
    m, k, d_x = actions.shape
    repeated = actions[:, torch.arange(n) % k]
    noise = REACH * torch.randn(m, n, d_x, generator=generator, dtype=torch.float64)
    noise[:, :k] = 0.0
    return (repeated + noise.to(actions)).clamp(0, 1)


def joint_draws(belief: Belief, points: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw n functions from the posterior by a Cholesky factor; return their values (p, n) at p points (p, d)."""
    covariance = belief.posterior.covariance(points, points)
    covariance.diagonal().add_(JITTER * covariance.diagonal().mean())
    normal = torch.randn(len(points), n, generator=generator, dtype=torch.float64).to(points)
    return belief.posterior.mean(points)[:, None] + cholesky(covariance) @ normal


def pathwise_draws(belief: Belief, points: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw n functions from the posterior by random Fourier features; return their values (p, n) at p points (p, d)."""
    return belief.draw_paths(n, generator)(points)


def distinct_argmax(points: Tensor, values: Tensor) -> Tensor:
    """Return, for each of n functions, the point at which it is highest: (n, d).

    `values` (p, n) are the functions' values at `points` (p, d).  No point is chosen twice, as long as there are
    others.
    """
    chosen: list[Tensor] = []
    free = torch.ones(len(points), dtype=torch.bool, device=points.device)
    for column in values.mT:
        best = points[int(torch.where(free, column, -torch.inf).argmax())]
        chosen.append(best)
        left = free & (points != best).any(-1)
        free = left if bool(left.any()) else free
    return torch.stack(chosen)


def _uniform(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64)
