"""The data that models are fitted to: points of the unit cube with their outcomes, and pending points."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

import torch
from torch import Tensor


@dataclass(frozen=True)
class Seeds:
    """The random seeds with which a simulator produced n rewards."""

    values: Tensor  # (n,), integers
    total: int | None = None  # number of seeds that the study lists; None if it has no list

    @property
    def between(self) -> float:
        """The correlation between the effects of two different seeds on rewards.

        It is zero if the study does not list its seeds. Otherwise it is -1 / (number of listed seeds - 1), because the
        effects of all listed seeds add up to zero.
        """
        return 0.0 if self.total is None else -1 / (self.total - 1)

    @property
    def column(self) -> Tensor:
        """The n seeds as a column (n, 1) for models: each is replaced by its rank, from 0, among the distinct seeds."""
        return torch.unique(self.values, return_inverse=True)[1][:, None].to(torch.float64)


@dataclass(frozen=True)
class Observations:
    """The data for a model: n points with their rewards, and p pending points, whose rewards are not known yet.

    The field `measured` holds other outcomes of the n evaluations, by name. Built-in models of the reward do not use
    these; your own model may.
    """

    points: Tensor  # (n, d), in the unit cube, states first
    rewards: Tensor  # (n,), to be maximized
    pending: Tensor  # (p, d), in the unit cube
    noise: Tensor | None = None  # (n,), noise variances of the rewards; None if they are not known
    # outcomes besides the reward, by name: (n,) each, with NaN for trials without the outcome
    measured: Mapping[str, Tensor] = field(default_factory=dict)
    limits: tuple[float, float] | None = None  # known limits of the expected reward; None if there are none
    seeds: Seeds | None = None  # seeds of the rewards; None unless the study has common random numbers

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def unused_seeds(self) -> float:
        """Number of simulator seeds without an observed reward; infinite if the study does not list its seeds."""
        seeds = self.seeds
        return inf if seeds is None or seeds.total is None else seeds.total - len(seeds.values.unique())

    @property
    def seeds_are_used_up(self) -> bool:
        """Whether the study lists its simulator seeds, and each of them has at least one observed reward."""
        return self.unused_seeds <= 0

    def first(self, n: int) -> "Observations":
        """Return the first n observations, with all pending points."""
        return self.rows(slice(n))

    def evenly(self, n: int) -> "Observations":
        """Return n of the observations, at evenly spaced indices, or all if there are at most n."""
        if len(self) <= n:
            return self
        return self.rows(torch.linspace(0, len(self) - 1, n, device=self.rewards.device).long())

    def rows(self, rows: slice | Tensor) -> "Observations":
        """Return the observations with the given indices, with all pending points."""
        noise = None if self.noise is None else self.noise[rows]
        measured = {name: values[rows] for name, values in self.measured.items()}
        seeds = None if self.seeds is None else replace(self.seeds, values=self.seeds.values[rows])
        points, rewards = self.points[rows], self.rewards[rows]
        return replace(self, points=points, rewards=rewards, noise=noise, measured=measured, seeds=seeds)

    def with_pending(self, points: Tensor) -> "Observations":
        """Return the same observations with more pending points (k, d)."""
        return replace(self, pending=torch.cat([self.pending, points]))

    def to(self, device: torch.device) -> "Observations":
        """Return the same observations with their tensors on another torch device."""
        noise = None if self.noise is None else self.noise.to(device)
        measured = {name: values.to(device) for name, values in self.measured.items()}
        seeds = None if self.seeds is None else replace(self.seeds, values=self.seeds.values.to(device))
        points = self.points.to(device), self.rewards.to(device), self.pending.to(device)
        return Observations(*points, noise, measured, self.limits, seeds)
