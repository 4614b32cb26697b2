"""What was evaluated, and what is being evaluated now: an immutable table in the unit cube."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Observations:
    """n observed points with their outcomes, and p pending points, whose outcomes are not known yet.

    The built-in models look at the rewards alone; a model of the user's own may use what else was measured.
    """

    points: Tensor  # (n, d), states first
    rewards: Tensor  # (n,), to be maximized
    pending: Tensor  # (p, d)
    noise: Tensor | None = None  # (n,), variances of the rewards where they are known
    measured: Mapping[str, Tensor] = field(default_factory=dict)  # (n,) each; NaN where a trial has none

    def __len__(self) -> int:
        return len(self.rewards)

    def first(self, n: int) -> "Observations":
        """The first n observations, with the same pending points."""
        noise = None if self.noise is None else self.noise[:n]
        measured = {name: values[:n] for name, values in self.measured.items()}
        return Observations(self.points[:n], self.rewards[:n], self.pending, noise, measured)

    def with_pending(self, points: Tensor) -> "Observations":
        """The same table with more pending points."""
        return replace(self, pending=torch.cat([self.pending, points]))

    def to(self, device: torch.device) -> "Observations":
        """The same table on another device."""
        noise = None if self.noise is None else self.noise.to(device)
        measured = {name: values.to(device) for name, values in self.measured.items()}
        points = self.points.to(device), self.rewards.to(device), self.pending.to(device)
        return Observations(*points, noise, measured)
