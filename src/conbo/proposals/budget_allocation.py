"""GP-C-OCBA: evaluate in the state where it is least clear which of finitely many actions is best.

Optimal computing budget allocation (OCBA) spends evaluations so that the probability of choosing a wrong action falls
as fast as possible.

=============  ===================================================================
paper          meaning
=============  ===================================================================
context        state s; all states count equally, whatever their probabilities are
alternative    action x
μ, Σ           posterior mean and variance of the expected reward
N              number of evaluations of a state and action, including pending ones
b(s)           the best action of a state: the argmax over x of μ(s, x)
=============  ===================================================================

The next state s* and the rival x* of its best action minimize

    ζ(s, x) = (μ(s, b) - μ(s, x))² / (Σ(s, b) + Σ(s, x))   for x ≠ b(s)

In s*, the best action b is evaluated if

    N(b) / Σ(b) < sum over x ≠ b of N(x) / Σ(x)

and x* otherwise.

For independent rewards with noise variance σ² and no prior knowledge, Σ = σ² / N, so N / Σ is the N² / σ² of OCBA.  The
method is meant for noisy rewards and a single best action in each state.  For equally good actions, ζ stays near zero,
so their state gets ever more evaluations.

Deviations: the paper has an independent Gaussian process over states for each action.  Here, any posterior will do, and
ζ ignores its covariances between actions.  If several pairs have the smallest ζ, the first is taken, not a random one.
The paper has no batches; here, a pending pair of state and action is not proposed again as long as there are others.
Pairs that probably violate a learned constraint are left out as long as there are others.

Reference: Cakmak, Wang, Gao & Zhou (2024), "Contextual Ranking and Selection with Gaussian Processes and Optimal
Computing Budget Allocation".
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.proposals import Suggestion
from conbo.state_arrays import grid, tensor

LEAST_VARIANCE = 1e-12  # smallest posterior variance of a standardized reward, so that quotients stay finite


@dataclass(frozen=True)
class BudgetAllocation:
    """Proposes, in states where it is least clear which action is best, the apparently best action or a rival of it.

    The apparently best action has the highest posterior mean. There must be finitely many states and actions.
    """

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose n points (n, d) to evaluate next; if a state (d_s,) is given, all points are in this state."""
        pairs = all_pairs(belief, state)
        flat, feasible = pairs.flatten(0, 1), belief.contains(pairs)  # (m * k, d), (m, k)
        if belief.constraints is not None:
            probable = feasible & (belief.constraints.probability(flat).view(feasible.shape) > 0.5)
            feasible = probable if bool(probable.any()) else feasible
        mean = belief.posterior.mean(flat).view(feasible.shape).where(feasible, -torch.inf)
        variance = belief.posterior.variance(flat).view(feasible.shape).clamp_min(LEAST_VARIANCE)
        evaluated = occurrences(flat, belief.observations.points).view(feasible.shape)
        pending = occurrences(flat, belief.observations.pending).view(feasible.shape)
        batch: list[Tensor] = []
        for _ in range(n):
            free = feasible & (pending == pending[feasible].min())
            row, column = next_pair(mean, variance, evaluated + pending, free)
            pending[row, column] += 1
            batch.append(pairs[row, column])
        return Suggestion(torch.stack(batch))


def all_pairs(belief: Belief, state: Tensor | None = None) -> Tensor:
    """Return all points (m, k, d): each of k actions in each of m states, or only in `state` (d_s,) if it is given."""
    finite = belief.states.finite()
    levels = [parameter.levels() for parameter in belief.space.actions.values() if parameter.n_levels is not None]
    if finite is None or len(levels) < belief.space.n_action_dims:
        raise SettingError("budget allocation needs finitely many states and actions: use 'conbo' for continuous ones.")
    states = finite[0].to(belief.device) if state is None else state[None]
    actions = tensor(grid(levels)).to(states)
    m, k = len(states), len(actions)
    return torch.cat([states[:, None].expand(m, k, -1), actions.expand(m, k, -1)], -1)


def occurrences(pairs: Tensor, points: Tensor) -> Tensor:
    """Return how often each of p distinct points `pairs` (p, d) occurs among `points` (n, d): counts (p,)."""
    both = torch.cat([pairs, points]).round(decimals=9)  # levels of log scales may differ by rounding errors
    _, group, size = torch.unique(both, dim=0, return_inverse=True, return_counts=True)
    return size[group[: len(pairs)]] - 1


def next_pair(mean: Tensor, variance: Tensor, evaluations: Tensor, free: Tensor) -> tuple[int, int]:
    """Return the state and the action to evaluate next, as indices.

    All arguments are (m, k), for k actions in each of m states.  `mean` and `variance` are those of the posterior, with
    a mean of -inf for infeasible actions.  `evaluations` are numbers of evaluations, including pending ones, and
    `free` says which pairs of a state and an action may be chosen.
    """
    best = mean.argmax(-1, keepdim=True)
    zeta = (mean.gather(-1, best) - mean).square() / (variance.gather(-1, best) + variance)
    # the best action is no rival of itself: it comes after all rivals, but before pairs that may not be chosen
    zeta = zeta.scatter(-1, best, torch.finfo(zeta.dtype).max).where(free, torch.inf)
    row, rival = divmod(int(zeta.argmin()), mean.shape[-1])
    leader = int(best[row])
    share = evaluations[row] / variance[row]
    behind = bool(share[leader] < share.sum() - share[leader])
    return row, leader if behind and bool(free[row, leader]) else rival
