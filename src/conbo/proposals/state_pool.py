"""PMTO (parametric multi-task optimization): visit a growing pool of states in rounds, and act optimistically in each.

The pool begins with the states of the initial design.  In each round, every state of the pool is evaluated once, the
latest first, at the action that maximizes the upper confidence bound

    μ(s, x) + β σ(s, x)

Then a new state joins the pool: the one whose best action is least certain.  A *task model* predicts best actions: for
each action parameter, an independent Gaussian process over states is fitted to the best observed action of every state
in the pool.  The new state has the highest posterior variance, averaged over the action parameters.

==========  ==========================================================
paper       meaning
==========  ==========================================================
task θ      state s
solution x  action x
μ, σ        posterior mean and standard deviation of the expected reward
β           the setting `beta`
==========  ==========================================================

Deviations: the paper evaluates each state of the first pool several times.  Its new state maximizes a determinant of
covariances, which is proportional to the posterior variance in that state if observations are noise-free.  The paper
finds the state by an evolutionary search; here, it is the best of all states that are left, or of many draws from P[s].
The paper's policy is the mean of the task model; here, the policy takes the action with the highest posterior mean
reward.  A state in which all evaluations probably fail does not join the pool.  If no state can join, the state with
the fewest evaluations is next.

Reference: Wei, Liu, Gupta, Tan & Ong (2025), "(θl, θu)-Parametric Multi-Task Optimization: Joint Search in Solution and
Infinite Task Spaces".
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conbo.acquisition.optimistic_gap import OptimisticGap
from conbo.belief import Belief, fit_belief
from conbo.bound_states import bind
from conbo.errors import SettingError
from conbo.gaussian_process import GaussianProcess
from conbo.observations import Observations
from conbo.proposals import Suggestion
from conbo.proposals.maximizer import Maximizer
from conbo.proposals.round_robin import hopeful
from conbo.spaces import Space

TASK_MODEL = GaussianProcess(
    "matern52", input_warping="none", relative_actions="none", main_effects="none", output_warping="none", members=1
)
DRAWS = 1000  # largest number of states of which one may join; this many are drawn if there are infinitely many


@dataclass(frozen=True)
class StatePool:
    """Proposes optimistic actions in a pool of states, which grows by the state whose best action is least certain."""

    beta: float = 1.0  # number of standard deviations between the mean and the upper confidence bound

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise SettingError(f"`beta` must be positive, but got beta={self.beta}.")

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose n points (n, d) to evaluate next, in the next states of the pool or in a given state (d_s,).

        The pool is visited in rounds, and a new state joins it after each round.
        """
        # within a state, the gap is the upper bound minus a constant
        optimist = Maximizer(OptimisticGap(self.beta))
        batch: list[Tensor] = []
        for _ in range(n):
            there = next_state(belief, generator) if state is None else state
            point = optimist.propose(belief, 1, generator, there).points
            belief = replace(belief, observations=belief.observations.with_pending(point))
            batch.append(point)
        return Suggestion(torch.cat(batch))


def next_state(belief: Belief, generator: torch.Generator) -> Tensor:
    """Return the state (d_s,) to evaluate next: the newest state of the pool that was not evaluated in this round.

    The pool consists of all states with evaluations, including pending ones.  A round begins with the first evaluation
    of the state that joined the pool last.  If all states of the pool were evaluated in this round, a new state joins
    the pool and is returned.  If no state can join, the state with the fewest evaluations is returned.
    """
    visits = torch.cat([belief.observations.points, belief.observations.pending])[:, : belief.n_state_dims]
    pool, visited = numbered(visits)
    latest = len(pool) - 1
    begin = int((visited == latest).nonzero()[0])
    waiting = set(range(len(pool))) - set(visited[begin:].tolist())
    if waiting:
        return pool[max(waiting)]
    candidates = other_states(belief, pool, generator)
    if len(candidates):
        order = uncertainty(belief, candidates).argsort(descending=True, stable=True)
        candidates = hopeful(belief, candidates[order[:DRAWS]])
    return candidates[0] if len(candidates) else pool[int(torch.bincount(visited).argmin())]


def numbered(states: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct states (k, d_s) among states (n, d_s), in the order in which they first occur.

    The second result holds the index (n,) of each given state among the distinct ones.
    """
    keys = [tuple(row) for row in states.round(decimals=9).tolist()]  # encoding may change a state by a rounding error
    firsts: dict[tuple[float, ...], int] = {}  # where each distinct state comes first
    for place, key in enumerate(keys):
        firsts.setdefault(key, place)
    numbers = {key: number for number, key in enumerate(firsts)}
    return states[list(firsts.values())], torch.tensor([numbers[key] for key in keys], device=states.device)


def other_states(belief: Belief, pool: Tensor, generator: torch.Generator) -> Tensor:
    """Return all states (m, d_s) outside the pool (k, d_s), or draws from P[s] if there are too many to list."""
    finite = belief.states.finite()
    states = belief.states.sample(DRAWS, generator) if finite is None else finite[0]
    states = states.to(pool)
    _, number = numbered(torch.cat([pool, states]))
    return states[number[len(pool) :] >= len(pool)]


def uncertainty(belief: Belief, states: Tensor) -> Tensor:
    """Return how uncertain the best action of each state (m, d_s) is: posterior variances (m,).

    They come from the task model: for each action parameter, a Gaussian process over states, fitted to the best
    observed action of every state in the pool.  These actions are standardized, parameter by parameter, and the
    variances are averaged over the parameters.
    """
    observations, d_s = belief.observations, belief.n_state_dims
    pool, visited = numbered(observations.points[:, :d_s])
    there = visited == torch.arange(len(pool), device=visited.device)[:, None]  # (k, n)
    best = observations.rewards.where(there, -torch.inf).argmax(-1)
    space = Space(actions=belief.space.states)
    targets = [Observations(pool, column, pool[:0]) for column in observations.points[best, d_s:].T]
    models = [fit_belief(space, bind(None, space), target, TASK_MODEL) for target in targets]
    return torch.stack([model.posterior.variance(states) for model in models]).mean(0)
