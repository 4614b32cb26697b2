"""Gain per cost: divides any acquisition function by the expected cost of the evaluation.

Costs are in units of a typical cost, so values have about the same magnitude as without costs. Local searches divide by
a smooth model of the costs. If costs are a known function, screening and the final ranking divide by that function
instead.
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
    """A recipe that divides an acquisition function by the expected cost of the evaluation.

    If the belief has no model of costs, the acquisition function stays unchanged.
    """

    recipe: AcquisitionRecipe

    def build(self, belief: Belief, generator: torch.Generator) -> Acquisition:
        """Build the acquisition function from a belief, which is what is known so far."""
        acquisition = self.recipe.build(belief, generator)
        return acquisition if belief.cost is None else AcquisitionPerCost(acquisition, belief.cost)


@dataclass(frozen=True)
class AcquisitionPerCost:
    """An acquisition function, divided by the expected cost of the evaluation in units of a typical cost."""

    acquisition: Acquisition
    cost: CostModel

    @property
    def climbs_logarithm(self) -> bool:
        """Whether local searches maximize the logarithm of the acquisition function instead of the function itself."""
        return self.acquisition.climbs_logarithm

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """Simulator seeds of the observations; empty if the acquisition function does not depend on the seed."""
        return self.acquisition.seen_seeds if isinstance(self.acquisition, SeedsMatter) else ()

    def for_seeds(self, seeds: Tensor) -> "AcquisitionPerCost":
        """Return the acquisition function for c points, where point i is evaluated with simulator seed `seeds[i]`."""
        assert isinstance(self.acquisition, SeedsMatter)
        return AcquisitionPerCost(self.acquisition.for_seeds(seeds), self.cost)

    def screen(self, points: Tensor) -> Tensor:
        """Return cheap approximate values (c,) at points (c, d), divided by expected costs, to screen many points."""
        return self.acquisition.screen(points) / self.cost.relative(points)

    def __call__(self, points: Tensor) -> Tensor:
        """Return the values (c,) of the acquisition function at points (c, d), divided by expected costs."""
        return self.acquisition(points) / self.cost.relative(points)

    def local(self, starts: Tensor) -> BatchedFunction:
        """Return the function that local searches from r starts (r, d) maximize: the value per expected cost.

        With `climbs_logarithm`, it is the logarithm of this ratio. The function takes k points (k, d) and, for each
        point, the index (k,) of the start from which its search began. It returns values (k,) and gradients (k, d).
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
