"""The default policy: π(s) = argmax over x of the posterior mean, subject to learned constraints if there are any.

The cache in `policy_cache.py` avoids searches. How an action is found depends on its state:

=============================================  ======================================================================
state                                          how its action is found
=============================================  ======================================================================
was asked for before                           it is in the cache
highly correlated with a fully searched state  local search from the best of all maxima that full searches found
any other                                      full search from several starts; the state and its maxima are cached
=============================================  ======================================================================
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.policies.policy_cache import MOST_SEARCHED, PolicyCache
from conbo.search.action_candidates import action_candidates

FIRST_BLOCK = 16  # number of new states that are fully searched before the other new states are compared with them
STEPS, STEPS_NEARBY = 10, 5  # Newton steps of a full search, and of a search from the maxima of similar states


@dataclass(frozen=True)
class GpArgmax:
    """A recipe for the policy that takes the action with the highest posterior mean."""

    candidates: int = 256  # number of quasi-random actions from which the starts of a full search are chosen
    starts: int = 4  # number of local searches in a full search
    similar: float = 0.95  # least correlation with a fully searched state that makes a full search unnecessary

    def __post_init__(self) -> None:
        if self.candidates < 1 or self.starts < 1:
            given = f"candidates={self.candidates}, starts={self.starts}"
            raise SettingError(f"`candidates >= 1` and `starts >= 1` must hold, but got {given}.")
        if not 0 < self.similar <= 1:
            raise SettingError(f"`0 < similar <= 1` must hold, but got similar={self.similar}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "ArgmaxPolicy":
        """Build the policy from a belief (data and model): a function from states (m, d_s) to actions (m, d_x)."""
        return ArgmaxPolicy(self, belief, action_candidates(belief, self.candidates, generator))


class ArgmaxPolicy:
    """The policy that takes the action with the highest posterior mean, and caches it.

    It is a function from states (m, d_s) to actions (m, d_x).
    """

    def __init__(self, recipe: GpArgmax, belief: Belief, candidates: Tensor) -> None:
        self._recipe, self._belief = recipe, belief
        self._full_search = belief.search(candidates)
        self._cache = PolicyCache(belief.observations.points, belief.n_state_dims, belief.space.n_action_dims)

    def wipe_cache(self) -> None:
        """Forget all cached actions and all maxima that searches have found."""
        self._cache.wipe()

    def __call__(self, states: Tensor) -> Tensor:
        """Return the best action (m, d_x) found for each state (m, d_s)."""
        return self._cache.actions(states, self._search)

    def _search(self, states: Tensor) -> Tensor:
        actions = states.new_empty(len(states), self._belief.space.n_action_dims)
        searched = torch.zeros(len(states), dtype=torch.bool, device=states.device)
        known, maxima = self._cache.searched
        unknown = torch.nonzero(~self._resemble(states, known))[:, 0]
        block = FIRST_BLOCK
        while len(unknown):
            full = len(known) >= MOST_SEARCHED
            # every k-th state, because states that follow each other in a table are often similar
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
        """Return whether each of m states (m, d_s) is highly correlated with any of k known states (k, d_s)."""
        if len(known) == 0:
            return torch.zeros(len(states), dtype=torch.bool, device=states.device)
        return self._belief.resemble(states, known, self._recipe.similar)
