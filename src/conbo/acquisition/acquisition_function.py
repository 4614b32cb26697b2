"""Protocols that acquisition functions and their recipes implement, so that any of them can be built and maximized."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from conbo.ascent import BatchedFunction
from conbo.belief import Belief


class Acquisition(Protocol):
    """A function that says how useful an evaluation at a point (state, action) of the unit cube is.

    Its exact values are never negative, but noisy estimates of small values may be negative.
    """

    @property
    def climbs_logarithm(self) -> bool:
        """Whether local searches maximize the logarithm of the acquisition function instead of the function itself."""

    def screen(self, points: Tensor) -> Tensor:
        """Return cheap approximate values (c,) at points (c, d), to screen many points."""

    def local(self, starts: Tensor) -> BatchedFunction:
        """Return the smooth function that local searches from r starts (r, d) maximize.

        The function takes k points (k, d) and, for each point, the index (k,) of the start from which its search began.
        It returns values (k,) and gradients (k, d).
        """

    def __call__(self, points: Tensor) -> Tensor:
        """Return values (c,) at points (c, d), at least as accurate as those of `screen` and `local`."""


@runtime_checkable
class SeedsMatter(Protocol):
    """An acquisition function whose values may depend on the simulator seed of the next evaluation."""

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """Simulator seeds of the observations; empty if the acquisition function does not depend on the seed."""

    def for_seeds(self, seeds: Tensor) -> Acquisition:
        """Return the acquisition function for c points, where point i is evaluated with simulator seed `seeds[i]`."""


class AcquisitionRecipe(Protocol):
    """A recipe for an acquisition function: a frozen dataclass of settings, with the method `build`."""

    def build(self, belief: Belief, generator: torch.Generator) -> Acquisition:
        """Build the acquisition function from a belief, which is what is known so far."""
