"""π(s) = argmax over x of the posterior mean, with the paper's lookup table of earlier answers.

=========================================  =======================================================
state                                      work
=========================================  =======================================================
asked before                               none
highly correlated with a remembered state  climb from the best of the remembered actions
any other                                  full multi-start search; the state and all maxima found are remembered
=========================================  =======================================================
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.search.action_candidates import action_candidates

FIRST_BLOCK = 16  # unknown states searched in full before the others are compared with them
STEPS, STEPS_NEARBY = 10, 5  # of Newton's method: it converges at once from the action of a similar state
MOST_REMEMBERED = 512  # states to compare with: beyond, comparing would cost more than searching
CHUNK = 10_000  # states a pass: bounds the memory of comparing them
MOST_ANSWERS = 100_000  # kept for states that are asked again


@dataclass(frozen=True)
class GpArgmax:
    """The action with the highest posterior mean."""

    candidates: int = 256  # quasi-random actions among which a full search starts
    starts: int = 4  # climbs of a full search
    similar: float = 0.95  # correlation of states above which remembered actions are start enough

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
    """States (m, d_s) to actions (m, d_x), in the unit cube; remembers its answers."""

    def __init__(self, recipe: GpArgmax, belief: Belief, candidates: Tensor) -> None:
        self._recipe, self._belief = recipe, belief
        self._full_search = belief.search(candidates)
        self.wipe_cache()

    def wipe_cache(self) -> None:
        """Forget all answers."""
        points = self._belief.observations.points
        none = points.new_empty(0, self._belief.space.n_action_dims)
        # state → row of the answers, and these: one pair, replaced as a whole, so that threads and interrupts cannot
        # separate them
        self._known: tuple[dict[bytes, int], Tensor] = {}, none
        # states that were searched in full, and the maxima found there; second-best ones too, because where two maxima
        # change places, both are wanted
        self._remembered: tuple[Tensor, Tensor] = points.new_empty(0, self._belief.n_state_dims), none

    def __call__(self, states: Tensor) -> Tensor:
        """The best action for each state."""
        if len(self._known[0]) > MOST_ANSWERS:
            self.wipe_cache()
        keys = [row.tobytes() for row in states.cpu().numpy()]
        rows, answers = self._known
        if new := {key: row for row, key in enumerate(keys) if key not in rows}:
            found = [self._search(chunk) for chunk in states[list(new.values())].split(CHUNK)]
            rows = rows | {key: row for row, key in enumerate(new, start=len(answers))}
            answers = torch.cat([answers, *found])
            self._known = rows, answers
        return answers[[rows[key] for key in keys]]

    def _search(self, states: Tensor) -> Tensor:
        actions = states.new_empty(len(states), self._belief.space.n_action_dims)
        searched = torch.zeros(len(states), dtype=torch.bool, device=states.device)
        known, maxima = self._remembered
        unknown = torch.nonzero(~self._resemble(states, known))[:, 0]
        block = FIRST_BLOCK
        while len(unknown):
            full = len(known) >= MOST_REMEMBERED
            # every so many: neighbors in a table are often neighbors in the space
            chosen = unknown if full else unknown[:: -(-len(unknown) // block)]
            found = self._full_search.best(states[chosen], self._recipe.starts, STEPS)
            actions[chosen] = found.actions
            searched[chosen] = True
            kept = MOST_REMEMBERED - len(known)
            known = torch.cat([known, states[chosen][:kept]])
            maxima = torch.cat([maxima, found.basins[:kept].flatten(0, 1)])
            unknown = unknown[~searched[unknown]]
            unknown = unknown[~self._resemble(states[unknown], known)]
            block *= 2
        self._remembered = known, maxima
        if not searched.all():
            actions[~searched] = self._belief.search(maxima).best(states[~searched], 1, STEPS_NEARBY).actions
        return actions

    def _resemble(self, states: Tensor, known: Tensor) -> Tensor:
        """Which states (m, d_s) are highly correlated with a known one (k, d_s)."""
        if len(known) == 0:
            return torch.zeros(len(states), dtype=torch.bool, device=states.device)
        return self._belief.resemble(states, known, self._recipe.similar)
