"""Any acquisition function, multiplied by the probability that its point satisfies the learned constraints.

For expected improvement, this is the constrained expected improvement of Gardner et al. (2014).  A gain that already
looks ahead at the constraints is multiplied only by the probability that the evaluation succeeds: an evaluation that
violates a constraint still gives information, but a failed one gives hardly any.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.acquisition.priced import Unpriced, UnpricedRecipe
from conbo.ascent import BatchedFunction
from conbo.belief import Belief
from conbo.learned_constraints import LearnedConstraint, log_probability_and_gradient


@dataclass(frozen=True)
class WhereFeasible:
    """A recipe for the values of another recipe times the probability of feasibility, if constraints are learned."""

    recipe: UnpricedRecipe

    def build(self, belief: Belief, generator: torch.Generator) -> Unpriced:
        """Build the function that this recipe describes, for one belief."""
        acquisition, learned = self.recipe.build(belief, generator), belief.constraints
        if learned is None:
            return acquisition
        constraints = learned.all
        if getattr(acquisition, "keeps_constraints", False):
            constraints = () if learned.success is None else (learned.success,)
        return FeasibleAcquisition(acquisition, constraints) if constraints else acquisition


@dataclass(frozen=True)
class FeasibleAcquisition:
    """The values of an acquisition function, times the probability of satisfying some constraints."""

    acquisition: Unpriced
    constraints: tuple[LearnedConstraint, ...]

    @property
    def climbs_logarithm(self) -> bool:
        """Whether `local` gives the logarithms of the values."""
        return self.acquisition.climbs_logarithm

    def screen(self, points: Tensor) -> Tensor:
        """Cheap values (c,) times probabilities."""
        return self.acquisition.screen(points) * self._probability(points)

    def __call__(self, points: Tensor) -> Tensor:
        """Full values (c,) times probabilities."""
        return self.acquisition(points) * self._probability(points)

    def local(self, starts: Tensor) -> BatchedFunction:
        """A function near starts (r, d) that gives values and gradients, multiplied by probabilities."""
        inner, log = self.acquisition.local(starts), self.climbs_logarithm

        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            value, gradient = inner(points, rows)
            likely, slope = log_probability_and_gradient(self.constraints, points)
            if log:
                return value + likely, gradient + slope
            share = likely.exp()
            return value * share, (gradient + value[:, None] * slope) * share[:, None]

        return function

    def _probability(self, points: Tensor) -> Tensor:
        return torch.stack([torch.special.ndtr(one.margins(points)) for one in self.constraints]).prod(0)
