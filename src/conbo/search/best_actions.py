"""The best action of each of many states under the posterior mean: batched multi-start search.

The pool is scored for all states by one matrix product; for every state the best pool actions that are not each
other's neighbours start a Newton ascent.  All states and starts climb in one batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from conbo.ascent import ascend
from conbo.belief import Belief
from conbo.loops import distinct_rows
from conbo.models import compiled
from conbo.models.action_functions import ActionFunctions, state_functions
from conbo.models.botorch_posterior import BotorchPosterior
from conbo.models.posterior import Posterior
from conbo.search.action_candidates import ActionPool
from conbo.spaces import Integer

ALIKE = 0.8  # κ above which two pool actions count as one start
CHUNK = 2048  # states a pass
AUTOGRAD_CHUNK = 256  # the same for a BoTorch model, which sees every state with every action of the pool


@dataclass(frozen=True)
class BestActions:
    """For each of m states the best action found, its mean, and the ends of all k climbs (other local maxima)."""

    actions: Tensor  # (m, d_x), unit cube
    mean: Tensor  # (m,)
    basins: Tensor  # (m, k, d_x), unit cube

    def select(self, rows: Tensor) -> "BestActions":
        """Some of the states."""
        return BestActions(self.actions[rows], self.mean[rows], self.basins[rows])


def best_actions(
    belief: Belief, pool: ActionPool | Tensor, states: Tensor, starts: int = 4, steps: int = 10
) -> BestActions:
    """argmax over actions of the posterior mean for states (m, d_s)."""
    posterior = belief.posterior
    if isinstance(posterior, BotorchPosterior):
        actions = pool.actions if isinstance(pool, ActionPool) else pool
        chunks = states.split(AUTOGRAD_CHUNK)
        parts = [_by_autograd(belief, posterior, actions, chunk, starts) for chunk in chunks]
    else:
        assert isinstance(pool, ActionPool)  # built for the posterior at hand
        parts = [_by_newton(belief, posterior, pool, chunk, starts, steps) for chunk in states.split(CHUNK)]
    return _joined(parts)


def _joined(parts: Sequence[BestActions]) -> BestActions:
    return BestActions(
        torch.cat([p.actions for p in parts]),
        torch.cat([p.mean for p in parts]),
        torch.cat([p.basins for p in parts]),
    )


class BestActionsOnce:
    """`best_actions` that remembers: a state that was asked for before costs nothing."""

    def __init__(self, belief: Belief, pool: ActionPool, starts: int) -> None:
        self._belief, self._pool, self._starts = belief, pool, starts
        self._rows: dict[tuple[float, ...], int] = {}  # of a state, in what is known
        self._known: list[BestActions] = []

    def __call__(self, states: Tensor) -> BestActions:
        """For states (m, d_s)."""
        keys = [tuple(state) for state in states.tolist()]
        new = {key: row for row, key in enumerate(keys) if key not in self._rows}
        if new or not self._known:
            found = best_actions(self._belief, self._pool, states[list(new.values())], self._starts)
            self._rows |= zip(new, range(len(self._rows), len(self._rows) + len(new)), strict=True)
            self._known = [_joined([*self._known, found])]
        return self._known[0].select(torch.tensor([self._rows[key] for key in keys], device=states.device))


def _by_newton(
    belief: Belief, posterior: Posterior, pool: ActionPool, states: Tensor, starts: int, steps: int
) -> BestActions:
    functions = state_functions(posterior, states)
    scores = functions.mean_constant[:, None] + functions.mean_weights @ pool.correlation
    chosen = distinct_best(scores, pool.likeness, starts)  # (m, k)
    maxima = functions.maximize(pool.features[chosen], states.new_zeros(1), steps)
    features, mean = maxima.actions, maxima.mean
    actions = posterior.kernel.actions.unscaled(features)
    if belief.has_integers:
        actions, mean = polish_integers(belief, functions, actions)
    best = mean.argmax(-1, keepdim=True)
    return BestActions(
        actions.gather(1, best[..., None].expand(-1, -1, actions.shape[-1]))[:, 0],
        mean.gather(1, best)[:, 0],
        actions,
    )


def distinct_best(scores: Tensor, likeness: Tensor, k: int) -> Tensor:
    """For each row of scores (m, p) the best k columns that are not alike: (m, k).

    Rows where everything else is alike go on with the first column: a harmless repeat.
    """
    k = min(k, scores.shape[-1])
    if compiled.AVAILABLE and scores.device.type == "cpu":
        indices = np.empty((len(scores), k), dtype=np.int64)
        distinct_rows.distinct_best(
            np.ascontiguousarray(scores.numpy()), np.ascontiguousarray(likeness.numpy()), ALIKE, indices
        )
        return torch.from_numpy(indices)
    scores = scores.clone()
    chosen = []
    for _ in range(k):
        best = scores.argmax(-1)
        chosen.append(best)
        scores.masked_fill_(likeness[best] > ALIKE, -torch.inf)
        scores.scatter_(1, best[:, None], -torch.inf)
    return torch.stack(chosen, -1)


def polish_integers(belief: Belief, functions: ActionFunctions, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Snap actions (m, k, d_x) to the space, then step every integer down and up where that helps."""

    def mean_at(points: Tensor) -> Tensor:
        return functions.at(functions.factor.scaled(points))[0]

    actions = belief.snap_actions(actions)
    mean = mean_at(actions)
    for column, parameter in enumerate(belief.space.actions.values()):
        if not isinstance(parameter, Integer):
            continue
        for direction in (-1, 1):
            moved = actions.clone()
            moved[..., column] = _neighbour(parameter, moved[..., column], direction)
            there = mean_at(moved)
            better = there > mean
            actions = torch.where(better[..., None], moved, actions)
            mean = torch.where(better, there, mean)
    return actions, mean


def _neighbour(parameter: Integer, values: Tensor, direction: int) -> Tensor:
    """The next integer up or down; there may be far too many to list them."""
    here = np.floor(parameter.scale.from_unit(values.cpu().numpy()) + 0.5)
    there = np.clip(here + direction, parameter.low, parameter.high)
    return torch.from_numpy(parameter.encode(there)).to(values)


def _by_autograd(belief: Belief, posterior: BotorchPosterior, pool: Tensor, states: Tensor, starts: int) -> BestActions:
    """The same for a BoTorch model: score the pool state by state, then climb by autograd."""
    m, p, d_x = len(states), len(pool), pool.shape[-1]
    joint = torch.cat([states[:, None].expand(m, p, -1), pool.expand(m, p, d_x)], -1)
    with torch.no_grad():
        # a batch of single points: of one long list GPyTorch would form the joint covariance
        scores = posterior.mean(joint.flatten(0, 1)[:, None])[:, 0].unflatten(0, (m, p))
    k = min(starts, p)
    chosen = scores.topk(k, -1).indices
    first = pool[chosen].flatten(0, 1)  # (m·k, d_x)
    rows = states.repeat_interleave(k, 0)

    def function(x: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            variable = x.detach().requires_grad_(True)
            mean = posterior.mean(torch.cat([rows[which], variable], -1)[:, None])[:, 0]
            (gradient,) = torch.autograd.grad(mean.sum(), variable)
        return mean.detach(), gradient

    lower, upper = action_box(belief, first)
    lower_rows = ascend(function, first, lower, upper, iterations=20)
    actions = belief.snap_actions(lower_rows.points)
    with torch.no_grad():
        mean = posterior.mean(torch.cat([rows, actions], -1)[:, None])[:, 0].unflatten(0, (m, k))
    actions = actions.unflatten(0, (m, k))
    best = mean.argmax(-1, keepdim=True)
    return BestActions(
        actions.gather(1, best[..., None].expand(-1, -1, d_x))[:, 0], mean.gather(1, best)[:, 0], actions
    )


def action_box(belief: Belief, like: Tensor) -> tuple[Tensor, Tensor]:
    """Ends of the action box, the unit cube."""
    d_x = belief.space.n_action_dims
    return like.new_zeros(d_x), like.new_ones(d_x)
