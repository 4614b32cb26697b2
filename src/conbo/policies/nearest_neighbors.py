"""The policy of k nearest neighbors.

It takes the action with the highest reward among the k observations with the nearest states. It is the simplest
baseline of the ConBO paper, and uses no model. Distances are Euclidean in the unit cube, and two different categories
of a parameter have distance one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.columns import Columns, squared_distances


@dataclass(frozen=True)
class NearestNeighbors:
    """A recipe for the policy of k nearest neighbors.

    It takes the action with the highest reward among the k observations with the nearest states.
    """

    k: int = 10  # number of observations

    def __post_init__(self) -> None:
        if self.k < 1:
            raise SettingError(f"`k` must be at least 1, but got k={self.k}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "NeighborPolicy":
        """Build the policy from the belief's observations: a function from states (m, d_s) to actions (m, d_x)."""
        columns, d_s = Columns(belief.space.state_categories), belief.n_state_dims
        points = belief.observations.points
        features = columns.features(points[:, :d_s])
        return NeighborPolicy(self.k, columns, features, points[:, d_s:], belief.observations.rewards)


@dataclass(frozen=True)
class NeighborPolicy:
    """A policy that takes the action with the highest reward among the k observations with the nearest states."""

    k: int
    columns: Columns  # of the states; turns categories into numbers
    features: Tensor  # (n, features), the observed states
    actions: Tensor  # (n, d_x), the observed actions
    rewards: Tensor  # (n,), the observed rewards

    def __call__(self, states: Tensor) -> Tensor:
        """Return for each state (m, d_s) the action (m, d_x) with the highest reward among its k neighbors."""
        apart = squared_distances(self.columns.features(states), self.features)
        nearest = apart.argsort(dim=-1, stable=True)[:, : self.k]
        best = self.rewards[nearest].argmax(-1, keepdim=True)
        return self.actions[nearest.gather(1, best)[:, 0]]
