"""What was evaluated, and what is being evaluated now: an immutable table in the unit cube."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Observations:
    """n observed points with their rewards (to be maximized), and p points whose reward is still awaited.

    Other measured outcomes of the trials are not here, because no model uses them.
    """

    points: Tensor  # (n, d), states first
    rewards: Tensor  # (n,)
    pending: Tensor  # (p, d)
    noise: Tensor | None = None  # (n,), variances of the rewards where they are known

    def __len__(self) -> int:
        return len(self.rewards)

    def with_pending(self, points: Tensor) -> "Observations":
        """The same table with more points awaited."""
        return Observations(self.points, self.rewards, torch.cat([self.pending, points]), self.noise)

    def to(self, device: torch.device) -> "Observations":
        """The same table on another device."""
        noise = None if self.noise is None else self.noise.to(device)
        return Observations(self.points.to(device), self.rewards.to(device), self.pending.to(device), noise)
