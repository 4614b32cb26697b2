"""Where to evaluate next: every proposal turns a belief into a suggestion."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from conbo.belief import Belief


@dataclass(frozen=True)
class Suggestion:
    """Points to evaluate next, and what their proposal knows of them."""

    points: Tensor  # (n, d), valid points of the unit cube, states first
    expected_gain: float | None = None  # of one evaluation, in rewards, where the proposal can say
    expected_costs: Tensor | None = None  # (n,) of the points, where evaluations have prices
    seeds: Sequence[int | None] | None = None  # n seeds, None for a new one; by default all are new


class Proposal(Protocol):
    """A way to choose points; implementations are frozen dataclasses of settings.

    One whose suggestions have an `expected_gain` says so by a class attribute `knows_gains = True`.
    """

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """n points to evaluate; `state` (d_s,) fixes the first columns.

        Where all columns are actions, `belief.n_state_dims` is 0 and d_s is still the length of `state`.
        """
