"""Gain per cost: any acquisition function, divided by the expected cost of an evaluation at its point.

Costs are in units of a typical cost, so values have the same magnitude as without costs.  Local searches divide by a
smooth model of the costs.  If costs are a known function, screening and the final ranking divide by that function.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.acquisition.acquisition_function import Acquisition, AcquisitionRecipe, SeedsMatter
from conbo.ascent import BatchedFunction
from conbo.belief import Belief
from conbo.cost_model import CostModel


@dataclass(frozen=True)
class PerCost:
    """A recipe that divides the acquisition function of another recipe by the expected costs.

    Without a model of costs in the belief, it returns this acquisition function unchanged.
    """

    recipe: AcquisitionRecipe

    def build(self, belief: Belief, generator: torch.Generator) -> Acquisition:
        """Build the acquisition function for one belief."""
        acquisition = self.recipe.build(belief, generator)
        return acquisition if belief.cost is None else AcquisitionPerCost(acquisition, belief.cost)


@dataclass(frozen=True)
class AcquisitionPerCost:
    """An acquisition function, divided by the expected costs of evaluations in units of a typical cost."""

    acquisition: Acquisition
    cost: CostModel

    @property
    def climbs_logarithm(self) -> bool:
        """Whether the functions that `local` returns give the logarithms of the values, not the values."""
        return self.acquisition.climbs_logarithm

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The seeds of the observations; empty if the values do not depend on seeds."""
        return self.acquisition.seen_seeds if isinstance(self.acquisition, SeedsMatter) else ()

    def for_seeds(self, seeds: Tensor) -> "AcquisitionPerCost":
        """Return the acquisition function of c points, where point i is evaluated with the seed `seeds[i]`."""
        assert isinstance(self.acquisition, SeedsMatter)
        return AcquisitionPerCost(self.acquisition.for_seeds(seeds), self.cost)

    def screen(self, points: Tensor) -> Tensor:
        """Return rough, cheap values (c,) of points (c, d), divided by the expected costs."""
        return self.acquisition.screen(points) / self.cost.relative(points)

    def __call__(self, points: Tensor) -> Tensor:
        """Return accurate values (c,) of points (c, d), divided by the expected costs."""
        return self.acquisition(points) / self.cost.relative(points)

    def local(self, starts: Tensor) -> BatchedFunction:
        """Return a function for local searches from starts (r, d), with values and gradients of the quotient.

        It is called with points (k, d) and the indices (k,) of the starts that they come from.
        """
        inner, log = self.acquisition.local(starts), self.climbs_logarithm

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            value, gradient = inner(points, rows)
            log_cost, slope = self.cost.log_relative(points)
            if log:
                return value - log_cost, gradient - slope
            share = (-log_cost).exp()
            return value * share, (gradient - value[:, None] * slope) * share[:, None]

        return function
