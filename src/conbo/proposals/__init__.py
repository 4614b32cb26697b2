"""Proposals choose where to evaluate next, given a belief (what is known so far)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from conbo.belief import Belief


@dataclass(frozen=True)
class Suggestion:
    """Points to evaluate next, with the expected gain of the best one and the expected cost of each.

    Parameters
    ----------
    points
        Valid points (n, d) of the unit cube, with the columns of the state before those of the action.
    expected_gain
        Expected gain of evaluating the best point, in units of the reward; None if the proposal does not compute it.
    expected_costs
        Expected costs (n,) of evaluating the points; None if evaluations have no costs.
    seeds
        The simulator's random seed for each point: a seed that was used before, None for a new seed of this point
        alone, or a negative number for a new seed that all points with this number share. By default, every point gets
        a new seed. Only studies with common random numbers use them.

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
    """Chooses the points to evaluate next; implementations are frozen dataclasses of settings.

    A class whose suggestions have an `expected_gain` must set the class attribute ``knows_gains = True``; otherwise the
    gain is ignored.
    """

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose n points (n, d) to evaluate next; if a state (d_s,) is given, all points are in this state.

        `generator` is the source of all randomness.  Some methods model states as if they were actions.  Then
        `belief.n_state_dims` is 0, but a given `state` still has all columns of the problem's states, and it belongs
        in the first columns of the points.
        """
