"""Gain per cost: any acquisition function, divided by the expected cost (the price) of an evaluation.

Costs are in units of a typical cost, so values have the same size as without costs.  Local searches use a
smooth model of the costs; screening and the final ranking use the costs themselves.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from conbo.ascent import BatchedFunction
from conbo.belief import Belief
from conbo.cost_model import CostModel


class Unpriced(Protocol):
    """An acquisition function without costs."""

    @property
    def climbs_logarithm(self) -> bool:
        """Whether `local` gives the logarithms of the values."""

    def screen(self, points: Tensor) -> Tensor:
        """Cheap values (c,) of points (c, d)."""

    def local(self, starts: Tensor) -> BatchedFunction:
        """A function that gives values and gradients near starts (r, d)."""

    def __call__(self, points: Tensor) -> Tensor:
        """Full values (c,) of points (c, d)."""


@runtime_checkable
class SeedsMatter(Protocol):
    """An acquisition whose values depend on the seed of the new observation."""

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The seeds observed so far; empty if the values do not depend on seeds."""

    def for_seeds(self, seeds: Tensor) -> Unpriced:
        """The same function for points (c, d) with these seeds (c,)."""


class UnpricedRecipe(Protocol):
    """A recipe for an acquisition function without costs."""

    def build(self, belief: Belief, generator: torch.Generator) -> Unpriced:
        """Build the function that this recipe describes, for one belief."""


@dataclass(frozen=True)
class PerCost:
    """A recipe for the gain per cost of another recipe, or for the gain itself if the belief has no costs."""

    recipe: UnpricedRecipe

    def build(self, belief: Belief, generator: torch.Generator) -> Unpriced:
        """Build the function that this recipe describes, for one belief."""
        acquisition = self.recipe.build(belief, generator)
        return acquisition if belief.cost is None else PricedAcquisition(acquisition, belief.cost)


@dataclass(frozen=True)
class PricedAcquisition:
    """The values of an acquisition, divided by costs."""

    acquisition: Unpriced
    cost: CostModel

    @property
    def climbs_logarithm(self) -> bool:
        """Whether `local` gives the logarithms of the values."""
        return self.acquisition.climbs_logarithm

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The observed seeds; empty if the values do not depend on seeds."""
        return self.acquisition.seen_seeds if isinstance(self.acquisition, SeedsMatter) else ()

    def for_seeds(self, seeds: Tensor) -> "PricedAcquisition":
        """The same function for points with these seeds (c,)."""
        assert isinstance(self.acquisition, SeedsMatter)
        return PricedAcquisition(self.acquisition.for_seeds(seeds), self.cost)

    def screen(self, points: Tensor) -> Tensor:
        """Rough values (c,) of points (c, d), which are quick to compute, divided by the expected costs."""
        return self.acquisition.screen(points) / self.cost.relative(points)

    def __call__(self, points: Tensor) -> Tensor:
        """Values (c,) of points (c, d), divided by the expected costs."""
        return self.acquisition(points) / self.cost.relative(points)

    def local(self, starts: Tensor) -> BatchedFunction:
        """A function near starts (r, d) that gives values and gradients, divided by costs."""
        inner, log = self.acquisition.local(starts), self.climbs_logarithm

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            value, gradient = inner(points, rows)
            log_cost, slope = self.cost.log_relative(points)
            if log:
                return value - log_cost, gradient - slope
            share = (-log_cost).exp()
            return value * share, (gradient - value[:, None] * slope) * share[:, None]

        return function
