"""Protocols of acquisition functions and their recipes: the methods that the maximizer calls."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from conbo.ascent import BatchedFunction
from conbo.belief import Belief


class Acquisition(Protocol):
    """An acquisition function: says how useful an evaluation at a point (state, action) of the unit cube is.

    Values are not negative, except for noisy estimates of small values.
    """

    @property
    def climbs_logarithm(self) -> bool:
        """Whether local searches maximize the logarithm of the acquisition function."""

    def screen(self, points: Tensor) -> Tensor:
        """Return cheap approximate values (c,) at points (c, d), to screen many points."""

    def local(self, starts: Tensor) -> BatchedFunction:
        """Return the smooth function that local searches from starts (r, d) maximize.

        There are r starts.  The function takes k points (k, d) and the indices (k,) of their starts, and returns values
        (k,) and gradients (k, d).
        """

    def __call__(self, points: Tensor) -> Tensor:
        """Return accurate values (c,) at points (c, d)."""


@runtime_checkable
class SeedsMatter(Protocol):
    """An acquisition function that depends on the random seed of the simulator in the next evaluation."""

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """Simulator seeds of the observations; empty if the values do not depend on the seed."""

    def for_seeds(self, seeds: Tensor) -> Acquisition:
        """Return the acquisition function for c points, if point i is evaluated with the simulator seed `seeds[i]`."""


class AcquisitionRecipe(Protocol):
    """A recipe for an acquisition function: a frozen dataclass of settings, with the method `build`."""

    def build(self, belief: Belief, generator: torch.Generator) -> Acquisition:
        """Build the acquisition function from a belief, which is what is known so far."""
