"""The cache of the default policy (`gp_argmax.py`): its actions by state, and the local maxima that searches found.

It is the lookup table of the ConBO paper.
"""

from collections.abc import Callable

import torch
from torch import Tensor

MOST_ANSWERS = 100_000  # number of cached actions above which the cache is wiped
# number of fully searched states that are kept; comparing a new state with more of them would cost more than a search
MOST_SEARCHED = 512
CHUNK = 10_000  # largest number of states in one search, which limits its memory


class PolicyCache:
    """A cache of actions (d_x,) by state (d_s,); its tensors are on the same device as the tensor `like`."""

    def __init__(self, like: Tensor, d_s: int, d_x: int) -> None:
        self._no_states, self._no_actions = like.new_empty(0, d_s), like.new_empty(0, d_x)
        self.wipe()

    def wipe(self) -> None:
        """Forget all cached actions, and all local maxima that searches have found."""
        # Row of each state's action, and all actions. They are replaced together, so that a thread or an interrupt
        # never sees one without the other.
        self._answers: tuple[dict[bytes, int], Tensor] = {}, self._no_actions
        # States that were searched in full, and all local maxima found there, because the second-best maximum of a
        # state may be the best one of a similar state.
        self.searched: tuple[Tensor, Tensor] = self._no_states, self._no_actions

    def actions(self, states: Tensor, search: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the actions (m, d_x) for states (m, d_s).

        For states that are not in the cache, `search` finds the actions, which are then cached.
        """
        if len(self._answers[0]) > MOST_ANSWERS:
            self.wipe()
        keys = [row.tobytes() for row in states.cpu().numpy()]
        rows, answers = self._answers
        if new := {key: row for row, key in enumerate(keys) if key not in rows}:
            found = [search(chunk) for chunk in states[list(new.values())].split(CHUNK)]
            rows = rows | {key: row for row, key in enumerate(new, start=len(answers))}
            answers = torch.cat([answers, *found])
            self._answers = rows, answers
        return answers[[rows[key] for key in keys]]
