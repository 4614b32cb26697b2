"""Proposals choose where to evaluate next: each turns a belief into a suggestion of points."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from conbo.belief import Belief


@dataclass(frozen=True)
class Suggestion:
    """The points to evaluate next, with their expected gain and costs.

    Parameters
    ----------
    points
        Valid points (n, d) of the unit cube, states first.
    expected_gain
        How much the evaluation of the best point is expected to gain, in units of the reward; None if the proposal does
        not compute it.
    expected_costs
        Expected costs (n,) of the points; None if evaluations have no costs.
    seeds
        The simulator's seed for each point: a seed that was used before, None for a new one, or a negative number for a
        new seed that several points share. By default all are new. Only studies with common random numbers use them.

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
    """A recipe for choosing points; implementations are frozen dataclasses of settings.

    A proposal whose suggestions have an `expected_gain` has the class attribute ``knows_gains = True``.
    """

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose n points to evaluate next; if a `state` (d_s,) is given, all points have it in their first columns.

        If the method models states as actions, `belief.n_state_dims` is 0, but `state` still has length d_s.
        """
