"""A pool of actions, shared by all states, from which searches over actions start."""

import math

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.quasi_random import sobol

MOST_OBSERVED = 32  # number of observed actions in the pool: those with the highest rewards
MOST_COMBINATIONS = 64  # largest number of combinations of categories up to which all of them are in the pool


def action_candidates(belief: Belief, n: int, generator: torch.Generator) -> Tensor:
    """Return a pool of actions (p, d_x), in the unit cube, from which searches choose their starts.

    The pool has n quasi-random actions, and up to MOST_OBSERVED observed actions, those with the highest rewards. If
    categorical parameters have few combinations of categories, each combination occurs among the quasi-random actions,
    even if that takes more than n of them.
    """
    d_x = belief.space.n_action_dims
    seed = int(torch.randint(2**31, (1,), generator=generator))
    spread = sobol(n, d_x, seed).to(belief.device)
    spread = belief.spread_actions(belief.posterior.even_actions(spread))
    observations = belief.observations
    best = observations.rewards.argsort(descending=True, stable=True)[:MOST_OBSERVED]
    observed = observations.points[best, belief.n_state_dims :]
    return torch.cat([_every_category(belief, spread), observed])


def _every_category(belief: Belief, actions: Tensor) -> Tensor:
    """Change the categories of actions (n, d_x) so that all combinations of categories occur.

    If there are more combinations than actions, actions are repeated with different categories. If there are more than
    MOST_COMBINATIONS combinations, the actions are returned unchanged.
    """
    columns = [i for i, count in enumerate(belief.space.action_categories) if count]
    if not columns:
        return actions
    values = list(belief.space.actions.values())
    levels = [torch.from_numpy(values[i].levels()).to(actions) for i in columns]  # type: ignore[union-attr]
    if math.prod(map(len, levels)) > MOST_COMBINATIONS:
        return actions
    combinations = torch.cartesian_prod(*levels).reshape(-1, len(columns))
    repeats = -(-len(actions) // len(combinations))
    n = max(len(actions), len(combinations))
    source = actions.repeat(-(-n // len(actions)), 1)[:n].clone()
    source[:, columns] = combinations.repeat(max(repeats, 1), 1)[:n]
    return source
