"""Multiplies any acquisition function by the probability that the point satisfies the learned constraints.

For expected improvement, this is the constrained expected improvement of Gardner et al. (2014).  The constrained
knowledge gradient already includes the constraints on outcomes, so it is multiplied only by the probability that the
evaluation succeeds: an evaluation that violates a constraint still gives information, but a failed one gives hardly
any.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.acquisition.acquisition_function import Acquisition, AcquisitionRecipe, SeedsMatter
from conbo.ascent import BatchedFunction
from conbo.belief import Belief
from conbo.learned_constraints import LearnedConstraint, log_probability_and_gradient


@dataclass(frozen=True)
class WhereFeasible:
    """A recipe that multiplies an acquisition function by the probability that the learned constraints are satisfied.

    If the acquisition function already includes the constraints on outcomes, it is multiplied only by the probability
    that the evaluation succeeds.  Without learned constraints, the acquisition function stays unchanged.
    """

    recipe: AcquisitionRecipe

    def build(self, belief: Belief, generator: torch.Generator) -> Acquisition:
        """Build the acquisition function from a belief, which is what is known so far."""
        acquisition, learned = self.recipe.build(belief, generator), belief.constraints
        if learned is None:
            return acquisition
        constraints = learned.all
        if getattr(acquisition, "includes_constraints", False):
            constraints = () if learned.success is None else (learned.success,)
        return FeasibleAcquisition(acquisition, constraints) if constraints else acquisition


@dataclass(frozen=True)
class FeasibleAcquisition:
    """An acquisition function, multiplied by the probability that the point satisfies the given learned constraints."""

    acquisition: Acquisition
    constraints: tuple[LearnedConstraint, ...]

    @property
    def climbs_logarithm(self) -> bool:
        """Whether local searches maximize the logarithm of the acquisition function instead of the function itself."""
        return self.acquisition.climbs_logarithm

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """Simulator seeds of the observations; empty if the acquisition function does not depend on the seed."""
        return self.acquisition.seen_seeds if isinstance(self.acquisition, SeedsMatter) else ()

    def for_seeds(self, seeds: Tensor) -> "FeasibleAcquisition":
        """Return the acquisition function for c points, where point i is evaluated with simulator seed `seeds[i]`.

        The probabilities of feasibility do not depend on the seeds.
        """
        assert isinstance(self.acquisition, SeedsMatter)
        return FeasibleAcquisition(self.acquisition.for_seeds(seeds), self.constraints)

    def screen(self, points: Tensor) -> Tensor:
        """Return cheap approximate values (c,) at points (c, d), times the probabilities of feasibility.

        A point is feasible if it satisfies the constraints.
        """
        return self.acquisition.screen(points) * self._probability(points)

    def __call__(self, points: Tensor) -> Tensor:
        """Return the values (c,) of the acquisition function at points (c, d), times the probabilities of feasibility.

        A point is feasible if it satisfies the constraints.
        """
        return self.acquisition(points) * self._probability(points)

    def local(self, starts: Tensor) -> BatchedFunction:
        """Return the function that local searches from r starts (r, d) maximize.

        It is the acquisition function times the probability that the constraints are satisfied or, with
        `climbs_logarithm`, the logarithm of this product.  The function takes k points (k, d) and, for each point, the
        index (k,) of the start from which its search began.  It returns values (k,) and gradients (k, d).
        """
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
