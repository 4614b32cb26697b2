"""What every acquisition function offers: the protocols that the maximizer relies on."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from conbo.ascent import BatchedFunction
from conbo.belief import Belief


class Acquisition(Protocol):
    """A function of the point (state, action) in the unit cube, to be maximized.

    Values are not negative, except that noisy estimates of small values may be.
    """

    @property
    def climbs_logarithm(self) -> bool:
        """Whether the functions that `local` returns give the logarithms of the values, not the values."""

    def screen(self, points: Tensor) -> Tensor:
        """Return rough, cheap values (c,) of points (c, d)."""

    def local(self, starts: Tensor) -> BatchedFunction:
        """Return a smooth function for local searches from starts (r, d), with values and gradients.

        It is called with points (k, d) and the indices (k,) of the starts that they come from.
        """

    def __call__(self, points: Tensor) -> Tensor:
        """Return accurate values (c,) of points (c, d)."""


@runtime_checkable
class SeedsMatter(Protocol):
    """An acquisition function whose values depend on the seed with which the simulator makes the new evaluation."""

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The seeds of the observations; empty if the values do not depend on seeds."""

    def for_seeds(self, seeds: Tensor) -> Acquisition:
        """Return the acquisition function of c points, where point i is evaluated with the seed `seeds[i]`."""


class AcquisitionRecipe(Protocol):
    """A recipe for an acquisition function: a frozen dataclass of settings, with the method `build`."""

    def build(self, belief: Belief, generator: torch.Generator) -> Acquisition:
        """Build the acquisition function for one belief."""
