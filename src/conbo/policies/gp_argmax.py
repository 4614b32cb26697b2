"""The default policy: π(s) = argmax over x of the posterior mean. `cached_answers.py` keeps its answers.

=========================================  =======================================================
state                                      work
=========================================  =======================================================
asked before                               none
highly correlated with a searched state    local search from the best of the maxima found so far
any other                                  full multi-start search; the state and all maxima found are kept
=========================================  =======================================================
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.policies.cached_answers import MOST_SEARCHED, PolicyCache
from conbo.search.action_candidates import action_candidates

FIRST_BLOCK = 16  # number of new states that are searched in full before the others are compared with them
STEPS, STEPS_NEARBY = 10, 5  # steps of Newton's method; few are needed from the action of a similar state


@dataclass(frozen=True)
class GpArgmax:
    """A recipe for the policy that takes the action with the highest posterior mean."""

    candidates: int = 256  # Sobol actions among which a full search starts
    starts: int = 4  # local searches of a full search
    similar: float = 0.95  # correlation of states above which cached actions are good enough starts

    def __post_init__(self) -> None:
        if self.candidates < 1 or self.starts < 1:
            given = f"candidates={self.candidates}, starts={self.starts}"
            raise SettingError(f"`candidates >= 1` and `starts >= 1` must hold, but got {given}.")
        if not 0 < self.similar <= 1:
            raise SettingError(f"`0 < similar <= 1` must hold, but got similar={self.similar}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "ArgmaxPolicy":
        """The function from states (m, d_s) to actions (m, d_x)."""
        return ArgmaxPolicy(self, belief, action_candidates(belief, self.candidates, generator))


class ArgmaxPolicy:
    """The policy from states (m, d_s) to actions (m, d_x) in the unit cube, with its cache."""

    def __init__(self, recipe: GpArgmax, belief: Belief, candidates: Tensor) -> None:
        self._recipe, self._belief = recipe, belief
        self._full_search = belief.search(candidates)
        self._cache = PolicyCache(belief.observations.points, belief.n_state_dims, belief.space.n_action_dims)

    def wipe_cache(self) -> None:
        """Forget all cached answers."""
        self._cache.wipe()

    def __call__(self, states: Tensor) -> Tensor:
        """The best action for each state."""
        return self._cache.actions(states, self._search)

    def _search(self, states: Tensor) -> Tensor:
        actions = states.new_empty(len(states), self._belief.space.n_action_dims)
        searched = torch.zeros(len(states), dtype=torch.bool, device=states.device)
        known, maxima = self._cache.searched
        unknown = torch.nonzero(~self._resemble(states, known))[:, 0]
        block = FIRST_BLOCK
        while len(unknown):
            full = len(known) >= MOST_SEARCHED
            # evenly spaced, because neighbors in a table are often neighbors in the space
            chosen = unknown if full else unknown[:: -(-len(unknown) // block)]
            found = self._full_search.best(states[chosen], self._recipe.starts, STEPS)
            actions[chosen] = found.actions
            searched[chosen] = True
            kept = MOST_SEARCHED - len(known)
            known = torch.cat([known, states[chosen][:kept]])
            maxima = torch.cat([maxima, found.basins[:kept].flatten(0, 1)])
            unknown = unknown[~searched[unknown]]
            unknown = unknown[~self._resemble(states[unknown], known)]
            block *= 2
        self._cache.searched = known, maxima
        if not searched.all():
            actions[~searched] = self._belief.search(maxima).best(states[~searched], 1, STEPS_NEARBY).actions
        return actions

    def _resemble(self, states: Tensor, known: Tensor) -> Tensor:
        """Whether each state (m, d_s) is highly correlated with one of the known states (k, d_s)."""
        if len(known) == 0:
            return torch.zeros(len(states), dtype=torch.bool, device=states.device)
        return self._belief.resemble(states, known, self._recipe.similar)
