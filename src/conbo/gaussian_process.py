"""The built-in models by their settings, which are plain values: torch is imported when a kernel is made of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, TypeAlias

from conbo.errors import SettingError

if TYPE_CHECKING:
    from conbo.models.fit import Fit
    from conbo.models.fit_memory import FitMemory
    from conbo.models.kernel_families import KernelFamily
    from conbo.models.posterior import Posterior
    from conbo.models.profiles import Profile
    from conbo.observations import Observations, Seeds
    from conbo.spaces import Space

TRIED_PROFILES = ("squared-exponential", "matern52")  # by `profile="auto"`, the smoothest first
STRUCTURES = ("auto", "product", "trend", "multi-task")

StateStructure: TypeAlias = "Callable[[Space, Profile], KernelFamily]"


@dataclass(frozen=True)
class GaussianProcess:
    """The built-in models: Gaussian processes with a kernel over actions, combined with one over states.

    What is "auto" is decided by the rewards. Several models may be probable; they are then averaged, each weighted by
    its evidence.

    Parameters
    ----------
    profile
        The smoothness of the rewards: "matern52" (twice differentiable), "squared-exponential" (infinitely
        differentiable), or "auto" (both are tried). It may also be your own `Profile`.
    states
        How states are compared, from the table below.
    rank
        Number of columns of W, for `states="multi-task"`.
    noise
        The prior on noise whose variance is not given. "small" expects nearly exact rewards and needs many of them to
        learn otherwise. "auto" expects anything from small to large noise, and makes it heteroscedastic if that is
        clearly more probable.
    input_warping
        "auto" (warp an action if rewards clearly change faster in one part of its range) or "none".
    main_effects
        "auto" (also try kernels with an effect of the action that all states share, and one of the state whatever the
        action) or "none".
    output_warping
        "auto" (compress a long tail of bad rewards if that is clearly more probable) or "none".
    members
        Largest number of models that are averaged; 1 keeps the most probable one.
    actions
        The former name of `input_warping`, where "straight" meant "none". Deprecated; it is removed in 0.5.

    ==============  =============================================================================================
    `states`        how two states are compared
    ==============  =============================================================================================
    "product"       by their distance: σ² k_S k_X, for any states
    "trend"         categories share a trend and differ from it: three variances, whatever their number
    "multi-task"    a learned covariance of the categories: W Wᵀ + diag(v), where W has `rank` columns
    "auto"          "trend" where some state is a category, "product" elsewhere
    a function      of your own, from (space, profile) to a family of kernels
    ==============  =============================================================================================

    Where some states are categories and some are numbers, "trend" and "multi-task" are multiplied by a correlation
    of the numbers.
    """

    profile: str | Profile = "auto"
    states: str | StateStructure = "auto"
    rank: int = 2
    noise: str = "auto"
    input_warping: str = "auto"
    main_effects: str = "auto"
    output_warping: str = "auto"
    members: int = 6
    actions: InitVar[str | None] = None

    def __post_init__(self, actions: str | None) -> None:
        if actions is not None:
            if actions not in ("auto", "straight"):
                raise SettingError(f"`actions` must be auto or straight, but got {actions!r}.")
            new = "none" if actions == "straight" else "auto"
            message = f"`actions={actions!r}` is now `input_warping={new!r}`; the old name is removed in conbo 0.5."
            warnings.warn(message, DeprecationWarning, stacklevel=3)
            object.__setattr__(self, "input_warping", new)
        if isinstance(self.profile, str):
            if self.profile not in ("auto", *TRIED_PROFILES):
                allowed = ", ".join(("auto", *sorted(TRIED_PROFILES)))
                raise SettingError(f"`profile` must be one of {allowed}, or a Profile, but got {self.profile!r}.")
        elif not hasattr(self.profile, "tables"):
            raise SettingError(f"`profile` must be a name or a Profile, but got {self.profile!r}.")
        elif self.profile.name in TRIED_PROFILES and not self.profile.built_in:
            raise SettingError(f"`profile` must not have the name of a built-in one, but got {self.profile.name!r}.")
        if not callable(self.states) and self.states not in STRUCTURES:
            allowed = "auto, product, trend, multi-task or a function"
            raise SettingError(f"`states` must be {allowed}, but got {self.states!r}.")
        if not isinstance(self.rank, int) or self.rank < 1:
            raise SettingError(f"`rank` must be an integer of at least 1, but got rank={self.rank!r}.")
        if self.noise not in ("auto", "small"):
            raise SettingError(f"`noise` must be auto or small, but got {self.noise!r}.")
        for name in ("input_warping", "main_effects", "output_warping"):
            if (value := getattr(self, name)) not in ("auto", "none"):
                raise SettingError(f"`{name}` must be auto or none, but got {value!r}.")
        if not isinstance(self.members, int) or self.members < 1:
            raise SettingError(f"`members` must be an integer of at least 1, but got members={self.members!r}.")

    def families(self, space: Space, seeds: Seeds | None = None) -> list[KernelFamily]:
        """The kernels that are tried, up to their hyperparameters, the smoothest first.

        Given the seeds of rewards, each comes also with what a seed may do.
        """
        from conbo.models.main_effects import MainEffectsFamily, effect_columns
        from conbo.models.profiles import profile_of
        from conbo.models.seeded_family import SeededFamily
        from conbo.models.seeded_modes import PARTS

        names = TRIED_PROFILES if self.profile == "auto" else (self.profile,)
        profiles = [profile_of(name) for name in names]
        families = [self._family(space, profile) for profile in profiles]
        pairs = list(zip(families, profiles, strict=True))
        if self.main_effects != "none" and effect_columns(families[0].states):
            pairs += [(MainEffectsFamily(family, profile), profile) for family, profile in pairs]
        families = [family for family, _ in pairs]
        if seeds is None:
            return families
        return families + [SeededFamily(*pair, *parts, seeds.between) for pair in pairs for parts in PARTS]

    def _family(self, space: Space, profile: Profile) -> KernelFamily:
        from conbo.models.category_families import MultiTaskFamily, TrendFamily
        from conbo.models.columns import Columns
        from conbo.models.kernel_families import ProductFamily

        if callable(self.states):
            return self.states(space, profile)
        categories, actions = space.state_categories, Columns(space.action_categories)
        states = self.states
        if states == "auto":
            states = "trend" if any(categories) else "product"
        if states == "product":
            return ProductFamily(Columns(categories), actions, profile)
        if not any(categories):
            raise SettingError(f"`states={states!r}` needs a state that is categorical: use 'product' instead.")
        coded = Columns(categories, coded=True)
        if states == "trend":
            return TrendFamily(coded, actions, profile)
        return MultiTaskFamily(coded, actions, profile, self.rank)

    def fitted_rewards(self, n: int) -> int:
        """How many of the first n rewards hyperparameters rest on; in steps, so that one fit serves many asks."""
        from conbo.models.schedule import fitted_rewards

        return fitted_rewards(n)

    def begins_with(self, n: int) -> int:
        """How many of the first n rewards a fit to n rewards begins with: it looks at the models found there."""
        from conbo.models.schedule import begins_with

        return n if self.members == 1 else begins_with(n)

    def fit(
        self,
        space: Space,
        observations: Observations,
        memory: FitMemory | None = None,
        before: Observations | None = None,
    ) -> Posterior:
        """The posterior of standardized rewards: the most probable models, weighted by their evidence.

        A `memory` knows earlier fits; it saves time and does not change the result. `before` holds the first
        observations, in units of their own, if a fit begins with them.
        """
        from conbo.models.fit import probabilities
        from conbo.models.fit_memory import FitMemory
        from conbo.models.mixture import Mixture
        from conbo.models.schedule import MOST_FITTED

        remembered = memory or FitMemory()
        first = observations.first(self.fitted_rewards(len(observations))).evenly(MOST_FITTED)
        earlier = [] if before is None else self._fits(space, before, remembered, [])
        fits = self._fits(space, first, remembered, earlier)
        seeds = None if observations.seeds is None else observations.seeds.values
        known = observations.noise, observations.limits, seeds
        members = tuple(one.posterior(observations.points, observations.rewards, *known) for one in fits)
        return members[0] if len(members) == 1 else Mixture(members, probabilities(fits).to(observations.points))

    def _fits(self, space: Space, observations: Observations, memory: FitMemory, earlier: Sequence[Fit]) -> list[Fit]:
        """The most probable models of these observations, or what is remembered of them."""
        import torch

        from conbo.models.fit import announce, fit, restored
        from conbo.models.fit_memory import fit_key
        from conbo.models.schedule import EVERY_REWARD
        from conbo.threads import threads_for

        families, small = self.families(space, observations.seeds), self.noise == "small"
        points, rewards, noise = observations.points, observations.rewards, observations.noise
        with_seeds = [] if observations.seeds is None else [observations.seeds.between]
        if observations.seeds is not None:
            points = torch.cat([points, observations.seeds.column.to(points)], -1)

        def make() -> list[Fit]:
            announce(*points.shape)
            with threads_for(len(points)):
                return fit(
                    families,
                    points,
                    rewards,
                    noise,
                    small_noise=small,
                    warp=self.input_warping == "auto",
                    map_rewards=self.output_warping == "auto",
                    members=self.members,
                    earlier=earlier,
                    with_seeds=bool(with_seeds),
                )

        settings = [self, space.state_categories, space.action_categories, len(earlier), *with_seeds]
        key = fit_key(settings, points, rewards, noise)
        # the name of a function says nothing to another process
        plain = isinstance(self.profile, str) and isinstance(self.states, str) and len(observations) >= EVERY_REWARD
        return memory.recall(
            key,
            make,
            lambda made: [one.record for one in made],
            lambda records: [restored(record, families, points, noise, small) for record in records],
            plain,
        )
