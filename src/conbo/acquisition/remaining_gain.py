"""How much one more evaluation in a state could still gain there: the highest knowledge gradient of its actions.

Plots and the summary of a study use it, to show in which states there is still something to learn.
"""

import torch
from torch import Tensor

from conbo.acquisition.knowledge_gradient import HybridKG
from conbo.belief import Belief
from conbo.search.action_candidates import action_candidates
from conbo.threads import threads_for

CANDIDATES = 24  # number of actions that are tried in every state, the same for all states
NEARBY, REACH = 8, 0.1  # number of actions tried near the policy's action, and their standard deviation around it
FINALISTS = 3  # number of the tried actions of each state whose gain is computed accurately


def best_gains(belief: Belief, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for each of m states (m, d_s), the highest gain (m,) of one more evaluation there.

    Also return the points (m, d) that have these gains.  A gain is the expected rise of the best posterior mean of the
    same state, in units of the reward.  The search tries actions near the policy's `actions` (m, d_x), evenly spread
    ones, and observed ones.
    """
    m = len(states)
    generator = torch.Generator().manual_seed(0)
    shared = action_candidates(belief, CANDIDATES, generator)
    noise = torch.randn(m, NEARBY, shared.shape[1], generator=generator, dtype=torch.float64)
    near = belief.snap_actions((actions[:, None] + REACH * noise).clamp(0, 1))
    tried = torch.cat([shared.expand(m, -1, -1), near], 1)  # (m, candidates, d_x)
    points = torch.cat([states[:, None].expand(-1, tried.shape[1], -1), tried], -1)
    if belief.space.feasible_set is not None:
        points = belief.snap(points)
    with threads_for(len(belief.observations)), torch.no_grad():
        gradient = HybridKG().build(belief, generator)
        accurate = gradient.at(states[:, None])  # prepares all states at once, also for `rough`
        rough = torch.stack([gradient.rough(s[None])(p)[:, 0] for s, p in zip(states, points, strict=True)])
        chosen = rough.topk(FINALISTS, -1).indices  # (m, finalists)
        finalists = points.gather(1, chosen[..., None].expand(-1, -1, points.shape[-1]))
        rows = torch.arange(m).repeat_interleave(FINALISTS)
        values = accurate(finalists.flatten(0, 1), rows).values[:, 0].unflatten(0, (m, FINALISTS))
    best, which = values.max(-1)
    return best * belief.scale, finalists[torch.arange(m), which]


def stateless_gains(belief: Belief, points: Tensor) -> Tensor:
    """Return the knowledge gradients (m,) of points (m, d) in a space without states, in units of the reward."""
    with threads_for(len(belief.observations)), torch.no_grad():
        gradient = HybridKG().build(belief, torch.Generator().manual_seed(0))
        nowhere = points.new_empty(len(points), 1, 0)
        values = gradient.at(nowhere)(points, torch.arange(len(points))).values[:, 0]
    return values * belief.scale
