"""Cached answers: the answers of a policy by state, and the maxima found at states that were searched in full.

The cache is the lookup table of the paper. The default policy, in `gp_argmax.py`, uses it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

MOST_ANSWERS = 100_000  # size of the cache: when it is exceeded, the cache is wiped
MOST_SEARCHED = 512  # searched states to compare with; with more, comparing would cost more than searching
CHUNK = 10_000  # states per search, which limits the memory for comparing them


class PolicyCache:
    """Actions (d_x,) by state (d_s,), on the device of the tensor `like`."""

    def __init__(self, like: Tensor, d_s: int, d_x: int) -> None:
        self._no_states, self._no_actions = like.new_empty(0, d_s), like.new_empty(0, d_x)
        self.wipe()

    def wipe(self) -> None:
        """Forget all answers and all searched states."""
        # rows of the answers by state, and the answers: replaced as one pair, so that threads and interrupts cannot
        # separate them
        self._answers: tuple[dict[bytes, int], Tensor] = {}, self._no_actions
        # states that were searched in full, and all maxima found there: the second-best one of a state may be the best
        # one of its neighbor
        self.searched: tuple[Tensor, Tensor] = self._no_states, self._no_actions

    def actions(self, states: Tensor, search: Callable[[Tensor], Tensor]) -> Tensor:
        """The actions (m, d_x) for states (m, d_s); actions that are not cached are searched for, and then cached."""
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
