"""The built-in models by their settings, which are plain values: torch is imported when a kernel is made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from conbo.errors import SettingError

if TYPE_CHECKING:
    from conbo.models.exact import ExactPosterior
    from conbo.models.fit import Fit
    from conbo.models.fit_memory import FitMemory
    from conbo.models.kernel_families import KernelFamily
    from conbo.models.profiles import Profile
    from conbo.observations import Observations
    from conbo.spaces import Space

TRIED_PROFILES = ("squared-exponential", "matern52")  # by `profile="auto"`, the smoothest first
STRUCTURES = ("auto", "product", "trend", "multi-task")

StateStructure: TypeAlias = "Callable[[Space, Profile], KernelFamily]"


@dataclass(frozen=True)
class GaussianProcess:
    """The built-in Gaussian processes: a kernel over actions, combined with one over states.

    Parameters
    ----------
    profile
        The smoothness of the rewards: "matern52" (twice differentiable), "squared-exponential" (infinitely
        differentiable), or "auto", which uses "matern52" unless the squared exponential fits the rewards clearly
        better. It may also be your own `Profile`.
    states
        How states are compared, from the table below.
    rank
        Number of columns of W, for `states="multi-task"`.
    noise
        The prior on noise whose variance is not given. "small" expects nearly exact rewards and needs many of them to
        learn otherwise. "auto" expects moderate noise, learns its level from a few rewards, and makes it
        heteroscedastic if that fits clearly better.
    actions
        "straight" (no input warping) or "auto" (warp an action where rewards clearly change faster in one part of its
        range).

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
    actions: str = "auto"

    def __post_init__(self) -> None:
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
        if self.actions not in ("auto", "straight"):
            raise SettingError(f"`actions` must be auto or straight, but got {self.actions!r}.")

    def families(self, space: Space) -> list[KernelFamily]:
        """The kernels that are tried, up to their hyperparameters, the smoothest first."""
        from conbo.models.profiles import profile_of

        profiles = TRIED_PROFILES if self.profile == "auto" else (self.profile,)
        return [self._family(space, profile_of(profile)) for profile in profiles]

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

    def fit(self, space: Space, observations: Observations, memory: FitMemory | None = None) -> ExactPosterior:
        """The posterior of standardized rewards: hyperparameters by maximum a posteriori, then conditioning.

        A `memory` knows earlier fits; it saves time and does not change the result.
        """
        from conbo.models.fit import announce, fit, restored
        from conbo.models.fit_memory import FitMemory, fit_key
        from conbo.models.schedule import EVERY_REWARD, MOST_FITTED
        from conbo.threads import threads_for

        first = observations.first(self.fitted_rewards(len(observations))).evenly(MOST_FITTED)
        families, small = self.families(space), self.noise == "small"
        points, noise = first.points, first.noise

        def make() -> Fit:
            announce(*points.shape)
            with threads_for(len(points)):
                return fit(families, points, first.rewards, noise, small, self.actions == "auto")

        key = fit_key([self, space.state_categories, space.action_categories], points, first.rewards, noise)
        # the name of a function says nothing to another process
        plain = isinstance(self.profile, str) and isinstance(self.states, str) and len(first) >= EVERY_REWARD
        fitted = (memory or FitMemory()).recall(
            key, make, lambda made: made.record, lambda record: restored(record, families, points, noise, small), plain
        )
        return fitted.posterior(observations.points, observations.rewards, observations.noise)
