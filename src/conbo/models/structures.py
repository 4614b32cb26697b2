"""The families of kernels that a fit tries, some of which have main effects or effects of simulator seeds."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from conbo.models.kernel_families import KernelFamily
from conbo.models.main_effects import MainEffectsFamily
from conbo.models.relative_family import RelativeFamily
from conbo.models.seeded_family import SeededFamily
from conbo.models.warped_family import WarpedFamily

# families that extend another one: with input warping, or with actions relative to the state
VARIANTS: dict[str, type[WarpedFamily | RelativeFamily]] = {"warped": WarpedFamily, "relative": RelativeFamily}


@dataclass(frozen=True)
class Structures:
    """The families of kernels that a fit tries. Those without effects of seeds may have variants (see `VARIANTS`)."""

    plain: tuple[KernelFamily, ...]  # without main effects and effects of seeds, the smoothest first
    with_main_effects: tuple[MainEffectsFamily, ...] = ()  # each extends a plain family
    # each extends one of the families above; the last column of its points is the seed
    with_seeds: tuple[SeededFamily, ...] = ()
    relative: bool = False  # whether actions relative to the state are tried

    @property
    def families(self) -> tuple[KernelFamily, ...]:
        """All families. The method `record` describes a family by its index in this tuple."""
        return (*self.plain, *self.with_main_effects, *self.with_seeds)

    def record(self, family: KernelFamily) -> dict[str, Any]:
        """Describe a family by plain values: its index in `families`, and the name of its variant if it is one."""
        if family in self.families:
            return {"family": self.families.index(family), "variant": None}
        variant = next(name for name, kind in VARIANTS.items() if isinstance(family, kind))
        known: list[KernelFamily] = [VARIANTS[variant](one) for one in self.families]
        return {"family": known.index(family), "variant": variant}

    def read(self, record: dict[str, Any]) -> KernelFamily:
        """Return the family that a dict from the method `record` describes."""
        family, variant = self.families[record["family"]], record["variant"]
        return family if variant is None else VARIANTS[variant](family)

    def seen_by(self, family: KernelFamily, points: Tensor) -> Tensor:
        """Return points (n, ·) without their last column, the simulator seed, unless the family has effects of seeds.

        If no family has such effects, points have no such column and are returned unchanged.
        """
        return points[:, :-1].contiguous() if self.with_seeds and self.seeded(family) is None else points

    def seeded(self, family: KernelFamily) -> SeededFamily | None:
        """Return the family itself if it has effects of simulator seeds, otherwise None."""
        return next((one for one in self.with_seeds if one == family), None)
