"""Where to evaluate next: every proposal turns a belief into points."""

from typing import Protocol

import torch
from torch import Tensor

from conbo.belief import Belief


class Proposal(Protocol):
    """A way to choose points; implementations are frozen dataclasses of settings."""

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Tensor:
        """n valid points (n, d) of the unit cube, states first; `state` (d_s,) fixes the first columns.

        Where all columns are actions, `belief.n_state_dims` is 0 and d_s is still the length of `state`.
        """
