"""Every family of kernels with a space that it is for, and rewards to fit."""

from torch import Tensor, sin

from conbo.models.category_families import MultiTaskFamily, TrendFamily
from conbo.models.columns import Columns
from conbo.models.kernel_families import KernelFamily, ProductFamily
from conbo.models.main_effects import MainEffectsFamily
from conbo.models.profiles import MATERN52, SQUARED_EXPONENTIAL
from conbo.models.relative_family import RelativeFamily
from conbo.models.warped_family import WarpedFamily
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import points_in, reals, uniform

MIXED = Space(
    states={"s": Real(0, 1), "k": Categorical([*"ab"])},
    actions={"x": Real(0, 1), "n": Integer(1, 6), "c": Categorical([*"uvw"])},
)
CATEGORIES = Space(states={"k": Categorical([*"abc"])}, actions={"x": Real(0, 1), "y": Real(0, 1)})


TWO_KINDS = Space(
    states={"k": Categorical([*"ab"]), "s": Real(0, 1), "l": Categorical([1, 2, 3])}, actions={"x": Real(0, 1)}
)


def columns(space: Space, coded: bool = False) -> tuple[Columns, Columns]:
    return Columns(space.state_categories, coded), Columns(space.action_categories)


FAMILIES: dict[str, tuple[Space, KernelFamily]] = {
    "matern": (reals(1, 2), ProductFamily(*columns(reals(1, 2)))),
    "squared exponential": (reals(1, 2), ProductFamily(*columns(reals(1, 2)), SQUARED_EXPONENTIAL)),
    "no states": (reals(0, 2), ProductFamily(*columns(reals(0, 2)))),
    "mixed": (MIXED, ProductFamily(*columns(MIXED))),
    "trend": (CATEGORIES, TrendFamily(*columns(CATEGORIES, True))),
    "trend squared exponential": (CATEGORIES, TrendFamily(*columns(CATEGORIES, True), SQUARED_EXPONENTIAL)),
    "mixed trend": (TWO_KINDS, TrendFamily(*columns(TWO_KINDS, True))),
    "multi-task": (CATEGORIES, MultiTaskFamily(*columns(CATEGORIES, True))),
    "mixed multi-task": (TWO_KINDS, MultiTaskFamily(*columns(TWO_KINDS, True), rank=1)),
    "main effects": (reals(2, 1), MainEffectsFamily(ProductFamily(*columns(reals(2, 1))), MATERN52)),
    "main effects mixed": (
        MIXED,
        MainEffectsFamily(ProductFamily(*columns(MIXED), SQUARED_EXPONENTIAL), SQUARED_EXPONENTIAL),
    ),
    "main effects trend": (TWO_KINDS, MainEffectsFamily(TrendFamily(*columns(TWO_KINDS, True)), MATERN52)),
    "main effects with wide variances": (
        reals(1, 1),
        MainEffectsFamily(ProductFamily(*columns(reals(1, 1)), MATERN52, wide_variances=True), MATERN52),
    ),
    "trend with wide variances": (CATEGORIES, TrendFamily(*columns(CATEGORIES, True), wide_variances=True)),
    "warped main effects": (
        reals(1, 2),
        WarpedFamily(MainEffectsFamily(ProductFamily(*columns(reals(1, 2))), MATERN52)),
    ),
    "relative": (reals(2, 2), RelativeFamily(ProductFamily(*columns(reals(2, 2))))),
    "relative main effects": (
        reals(2, 1),
        RelativeFamily(MainEffectsFamily(ProductFamily(*columns(reals(2, 1))), MATERN52)),
    ),
    "relative mixed": (MIXED, RelativeFamily(ProductFamily(*columns(MIXED), SQUARED_EXPONENTIAL))),
    "relative trend": (TWO_KINDS, RelativeFamily(TrendFamily(*columns(TWO_KINDS, True)))),
    "warped": (reals(1, 2), WarpedFamily(ProductFamily(*columns(reals(1, 2))))),
    "warped mixed": (MIXED, WarpedFamily(ProductFamily(*columns(MIXED), SQUARED_EXPONENTIAL))),
    "warped multi-task": (CATEGORIES, WarpedFamily(MultiTaskFamily(*columns(CATEGORIES, True)))),
}


def data(space: Space, n: int = 25, seed: int = 0) -> tuple[Tensor, Tensor]:
    points = points_in(space, n, seed)
    rewards = sin(4 * points.sum(-1)) + points[:, -1] + 0.1 * uniform(n, seed=seed + 1)
    return points, (rewards - rewards.mean()) / rewards.std()
