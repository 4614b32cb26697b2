"""Observed points with their outcomes, and pending points: an immutable table in the unit cube."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Seeds:
    """The random seeds with which a simulator produced the rewards."""

    values: Tensor  # (n,), whole numbers
    total: int | None = None  # number of seeds that exist; None if it is not limited

    @property
    def between(self) -> float:
        """Correlation of the effects of two seeds: negative if seeds are limited, because all effects sum to zero."""
        return 0.0 if self.total is None else -1 / (self.total - 1)

    @property
    def column(self) -> Tensor:
        """The seeds as numbers (n, 1): equal numbers mean equal seeds."""
        return torch.unique(self.values, return_inverse=True)[1][:, None].to(torch.float64)


@dataclass(frozen=True)
class Observations:
    """n observed points with their outcomes, and p pending points, whose outcomes are not known yet.

    The built-in models of the reward use the rewards alone; your own model may also use the other outcomes.
    """

    points: Tensor  # (n, d), states first
    rewards: Tensor  # (n,), to be maximized
    pending: Tensor  # (p, d)
    noise: Tensor | None = None  # (n,), variances of the rewards; None if they are not known
    measured: Mapping[str, Tensor] = field(default_factory=dict)  # (n,) each; NaN if a trial does not have the outcome
    limits: tuple[float, float] | None = None  # limits of the expected reward; None if they are not known
    seeds: Seeds | None = None  # seeds of the rewards; None unless the study chooses among several

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def seeds_are_used_up(self) -> bool:
        """Whether the number of seeds is limited and every seed has a reward."""
        seeds = self.seeds
        return seeds is not None and seeds.total is not None and len(seeds.values.unique()) >= seeds.total

    def first(self, n: int) -> "Observations":
        """The first n observations, with the same pending points."""
        return self._rows(slice(n))

    def evenly(self, n: int) -> "Observations":
        """n of the observations, evenly spaced from the first to the last; all if there are at most n."""
        if len(self) <= n:
            return self
        return self._rows(torch.linspace(0, len(self) - 1, n, device=self.rewards.device).long())

    def _rows(self, rows: slice | Tensor) -> "Observations":
        noise = None if self.noise is None else self.noise[rows]
        measured = {name: values[rows] for name, values in self.measured.items()}
        seeds = None if self.seeds is None else replace(self.seeds, values=self.seeds.values[rows])
        points, rewards = self.points[rows], self.rewards[rows]
        return replace(self, points=points, rewards=rewards, noise=noise, measured=measured, seeds=seeds)

    def with_pending(self, points: Tensor) -> "Observations":
        """The same table with more pending points."""
        return replace(self, pending=torch.cat([self.pending, points]))

    def to(self, device: torch.device) -> "Observations":
        """The same table on another device."""
        noise = None if self.noise is None else self.noise.to(device)
        measured = {name: values.to(device) for name, values in self.measured.items()}
        seeds = None if self.seeds is None else replace(self.seeds, values=self.seeds.values.to(device))
        points = self.points.to(device), self.rewards.to(device), self.pending.to(device)
        return Observations(*points, noise, measured, self.limits, seeds)
