"""The families of kernels that a fit tries, and which family extends which."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from conbo.models.kernel_families import KernelFamily
from conbo.models.main_effects import MainEffectsFamily
from conbo.models.seeded_family import SeededFamily
from conbo.models.warped_family import WarpedFamily


@dataclass(frozen=True)
class Structures:
    """Families of kernels; each may also be fitted with input warping."""

    plain: tuple[KernelFamily, ...]  # the smoothest first
    with_main_effects: tuple[MainEffectsFamily, ...] = ()  # each built on a plain family
    with_seeds: tuple[
        SeededFamily, ...
    ] = ()  # each built on a family without seeds; the last column of its points is the seed

    @property
    def families(self) -> tuple[KernelFamily, ...]:
        """All families, in the order in which records number them."""
        return (*self.plain, *self.with_main_effects, *self.with_seeds)

    def record(self, family: KernelFamily) -> dict[str, Any]:
        """A family as plain values: its number, and whether it is warped."""
        known: Sequence[KernelFamily] = self.families
        if warped := family not in known:
            known = [WarpedFamily(one) for one in known]
        return {"family": known.index(family), "warped": warped}

    def read(self, record: dict[str, Any]) -> KernelFamily:
        """The family that a record describes."""
        family = self.families[record["family"]]
        return WarpedFamily(family) if record["warped"] else family

    def seen_by(self, family: KernelFamily, points: Tensor) -> Tensor:
        """The columns of points that a family uses: the last one, the seed, only if the family has effects of seeds."""
        return points[:, :-1] if self.with_seeds and self.seeded(family) is None else points

    def seeded(self, family: KernelFamily) -> SeededFamily | None:
        """The family itself if it has effects of seeds, otherwise None."""
        return next((one for one in self.with_seeds if one == family), None)
