"""Where to evaluate next: every proposal turns a belief into a suggestion."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from conbo.belief import Belief


@dataclass(frozen=True)
class Suggestion:
    """Points to evaluate next, with their expected gain and costs.

    Parameters
    ----------
    points
        Valid points (n, d) of the unit cube, states first.
    expected_gain
        How much one evaluation is expected to gain, in units of the reward; None if the proposal cannot say.
    expected_costs
        Expected costs (n,) of the points; None if evaluations have no costs.
    seeds
        Seeds of the points: a seed that was used before, None for a new one, or a negative number for a new seed that
        several points share. By default all are new. Only studies with common random numbers use them.

    Examples
    --------
    >>> import torch
    >>> from conbo.proposals import Suggestion
    >>> Suggestion(torch.rand(2, 3)).points.shape
    torch.Size([2, 3])
    """

    points: Tensor
    expected_gain: float | None = None
    expected_costs: Tensor | None = None
    seeds: Sequence[int | None] | None = None


class Proposal(Protocol):
    """A way to choose points; implementations are frozen dataclasses of settings.

    If its suggestions have an `expected_gain`, it says so by a class attribute ``knows_gains = True``.
    """

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """n points to evaluate; `state` (d_s,) fixes the first columns.

        If states are modeled as actions, `belief.n_state_dims` is 0, but `state` still has its own length d_s.
        """
