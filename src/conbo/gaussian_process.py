"""The settings of the built-in models, as plain values; torch is imported only when a model is fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from conbo.errors import SettingError
from conbo.former_names import input_warping_of, state_kernel_of

if TYPE_CHECKING:
    from conbo.models.fit import Fit
    from conbo.models.fit_memory import FitMemory
    from conbo.models.kernel_families import KernelFamily
    from conbo.models.posterior import Posterior
    from conbo.models.profiles import Profile
    from conbo.models.structures import Structures
    from conbo.observations import Observations, Seeds
    from conbo.spaces import Space

TRIED_PROFILES = ("squared-exponential", "matern52")  # profiles that "auto" tries, the smoothest first
STATE_KERNELS = ("auto", "product", "trend", "multi-task")

StateKernel: TypeAlias = "Callable[[Space, Profile], KernelFamily]"


@dataclass(frozen=True)
class GaussianProcess:
    """The built-in models: Gaussian processes with a kernel over actions, combined with one over states.

    The rewards decide the settings that are "auto", except `state_kernel`, which depends on the space. If several
    models are probable, they are averaged, each weighted by its evidence.

    ==============  =============================================================================================
    `state_kernel`  how two states are compared
    ==============  =============================================================================================
    "product"       by distance, for any states: σ² k_S k_X, with correlations k_S of states and k_X of actions
    "trend"         all categories share a trend, and each deviates from it, with the same variance for all
    "multi-task"    by a learned covariance of the categories: W Wᵀ + diag(v), where W has `rank` columns
    "auto"          "trend" if some state parameter is categorical, otherwise "product"
    a function      your own, from (space, profile) to a family of kernels
    ==============  =============================================================================================

    If some state parameters are categorical and some are numeric, "trend" and "multi-task" are multiplied by a
    correlation of the numeric ones.

    Parameters
    ----------
    profile
        The smoothness of the rewards: "matern52" (twice differentiable), "squared-exponential" (infinitely
        differentiable), "auto" (both are tried), or your own `Profile`.
    state_kernel
        How states are compared, from the table above.
    rank
        Number of columns of W, for ``state_kernel="multi-task"``.
    noise
        The prior on the noise variance, if it is not told with the rewards. "small" expects nearly exact rewards unless
        many rewards show otherwise. "auto" expects anything from small to large noise, and makes the noise
        heteroscedastic if that is clearly more probable.
    input_warping
        "auto" warps an action parameter if rewards clearly change faster in one part of its range; "none" does not.
    relative_actions
        "auto" replaces the action x by x - W s in a state s, with a learned W, if the best action clearly follows the
        state, as the best stock follows the demand. In spaces with limits, it never does; neither does "none".
    main_effects
        "auto" also tries kernels with an effect of the action that is the same in all states, and an effect of the
        state that is the same for all actions; "none" does not.
    output_warping
        "auto" compresses a long tail of bad rewards by a learned power or logarithm if that is clearly more probable.
        If evaluations are nearly exact and the worst rewards are equal, it treats these as clipped at a floor. "none"
        does neither.
    members
        Largest number of models that are averaged; 1 keeps the most probable one.
    actions
        The former name of `input_warping`, where "straight" meant "none". Deprecated; it is removed in 0.5.
    states
        The former name of `state_kernel`. Deprecated; it is removed in 0.5.

    Raises
    ------
    SettingError
        If a setting is unknown or out of range.

    Examples
    --------
    >>> study = conbo.Study(space, model=conbo.GaussianProcess(profile="matern52", members=1))
    """

    profile: str | Profile = "auto"
    state_kernel: str | StateKernel = "auto"
    rank: int = 2
    noise: str = "auto"
    input_warping: str = "auto"
    relative_actions: str = "auto"
    main_effects: str = "auto"
    output_warping: str = "auto"
    members: int = 6
    actions: InitVar[str | None] = None
    states: InitVar[str | StateKernel | None] = None

    wide_variances: ClassVar[bool] = False  # whether the prior of the variances has heavy tails

    def __post_init__(self, actions: str | None, states: str | StateKernel | None) -> None:
        if actions is not None:
            object.__setattr__(self, "input_warping", input_warping_of(actions))
        if states is not None:
            object.__setattr__(self, "state_kernel", state_kernel_of(states))
        if isinstance(self.profile, str):
            if self.profile not in ("auto", *TRIED_PROFILES):
                allowed = ", ".join(("auto", *sorted(TRIED_PROFILES)))
                raise SettingError(f"`profile` must be one of {allowed}, or a Profile, but got {self.profile!r}.")
        elif not hasattr(self.profile, "tables"):
            raise SettingError(f"`profile` must be a name or a Profile, but got {self.profile!r}.")
        elif self.profile.name in TRIED_PROFILES and not self.profile.built_in:
            raise SettingError(f"`profile` must not have the name of a built-in one, but got {self.profile.name!r}.")
        if not callable(self.state_kernel) and self.state_kernel not in STATE_KERNELS:
            allowed = "auto, product, trend, multi-task or a function"
            raise SettingError(f"`state_kernel` must be {allowed}, but got {self.state_kernel!r}.")
        if not isinstance(self.rank, int) or self.rank < 1:
            raise SettingError(f"`rank` must be an integer of at least 1, but got rank={self.rank!r}.")
        if self.noise not in ("auto", "small"):
            raise SettingError(f"`noise` must be auto or small, but got {self.noise!r}.")
        for name in ("input_warping", "relative_actions", "main_effects", "output_warping"):
            if (value := getattr(self, name)) not in ("auto", "none"):
                raise SettingError(f"`{name}` must be auto or none, but got {value!r}.")
        if not isinstance(self.members, int) or self.members < 1:
            raise SettingError(f"`members` must be an integer of at least 1, but got members={self.members!r}.")

    def structures(self, space: Space, seeds: Seeds | None = None) -> Structures:
        """Return the kernel families to try; with simulator `seeds`, also some in which rewards depend on the seed."""
        from conbo.models.main_effects import MainEffectsFamily, effect_columns
        from conbo.models.profiles import profile_of
        from conbo.models.seeded_family import SeededFamily
        from conbo.models.seeded_modes import PARTS
        from conbo.models.structures import Structures

        names = TRIED_PROFILES if self.profile == "auto" else (self.profile,)
        profiles = [profile_of(name) for name in names]
        plain = tuple(self._family(space, profile) for profile in profiles)
        pairs = list(zip(plain, profiles, strict=True))
        tried = self.main_effects != "none" and effect_columns(plain[0].states)
        effects = tuple(MainEffectsFamily(*pair) for pair in pairs) if tried else ()
        relative = self.relative_actions == "auto" and space.feasible_set is None
        if seeds is None:
            return Structures(plain, effects, relative=relative)
        pairs += [(effect, effect.profile) for effect in effects]
        seeded = tuple(SeededFamily(*pair, *parts, seeds.between) for pair in pairs for parts in PARTS)
        return Structures(plain, effects, seeded, relative)

    def _family(self, space: Space, profile: Profile) -> KernelFamily:
        from conbo.models.category_families import MultiTaskFamily, TrendFamily
        from conbo.models.columns import Columns
        from conbo.models.kernel_families import ProductFamily

        if callable(self.state_kernel):
            return self.state_kernel(space, profile)
        categories, actions = space.state_categories, Columns(space.action_categories)
        kernel = self.state_kernel
        if kernel == "auto":
            kernel = "trend" if any(categories) else "product"
        if kernel == "product":
            return ProductFamily(Columns(categories), actions, profile, self.wide_variances)
        if not any(categories):
            raise SettingError(f"`state_kernel={kernel!r}` needs a state that is categorical: use 'product' instead.")
        coded = Columns(categories, coded=True)
        if kernel == "trend":
            return TrendFamily(coded, actions, profile, self.wide_variances)
        return MultiTaskFamily(coded, actions, profile, self.rank, self.wide_variances)

    def fitted_rewards(self, n: int) -> int:
        """Return m: hyperparameters are fitted to the first m of n rewards, or to 500 of these if m is larger.

        Up to a few hundred rewards, m equals n.  Beyond that, m grows in steps, so that most new rewards need no new
        fit.
        """
        from conbo.models.schedule import fitted_rewards

        return fitted_rewards(n)

    def begins_with(self, n: int) -> int:
        """Return m: a fit to n rewards tries only those models that are probable given the first m rewards.

        The fit tries all models if m equals n, or if none of these models can be fitted.
        """
        from conbo.models.schedule import begins_with

        return n if self.members == 1 else begins_with(n)

    def fit(
        self,
        space: Space,
        observations: Observations,
        memory: FitMemory | None = None,
        before: Observations | None = None,
    ) -> Posterior:
        """Fit the model to standardized rewards, and return the average of the most probable posteriors.

        Posteriors are weighted by their evidence. A `memory` of earlier fits saves time and does not change the result.
        `before` holds the earliest observations, with rewards that are standardized by their own mean and variance. If
        it is given, only models that are probable for these observations are tried, or all if none of them can be
        fitted.
        """
        return self.fit_and_average(space, observations, memory, before)[0]

    def fit_and_average(
        self,
        space: Space,
        observations: Observations,
        memory: FitMemory | None = None,
        before: Observations | None = None,
    ) -> tuple[Posterior, Callable[[], Posterior] | None]:
        """Fit the model as `fit` does; return the posterior, and a function that averages it over hyperparameters.

        When called, the function returns the averaged posterior, which is used for predictions. The second result is
        None with common random numbers, or if there are so many rewards that averaging would change little.
        """
        from conbo.models.fit import probabilities
        from conbo.models.fit_memory import FitMemory
        from conbo.models.hyperparameter_average import MOST_REWARDS, averaged
        from conbo.models.mixture import Mixture
        from conbo.models.schedule import MOST_FITTED

        remembered = memory or FitMemory()
        first = observations.first(self.fitted_rewards(len(observations))).evenly(MOST_FITTED)
        earlier = [] if before is None else self._fits(space, before, remembered, [])
        fits = self._fits(space, first, remembered, earlier)
        seeds = None if observations.seeds is None else observations.seeds.values
        known = observations.noise, observations.limits, seeds
        members = tuple(one.posterior(observations.points, observations.rewards, *known) for one in fits)
        posterior = members[0] if len(members) == 1 else Mixture(members, probabilities(fits).to(observations.points))
        if seeds is not None or len(observations) > MOST_REWARDS:
            return posterior, None
        given = fits, self.structures(space), first, observations, self.noise == "small"
        # with heavy tails in the prior, the normal approximation from which hyperparameters are drawn is poor
        return posterior, partial(averaged, *given, weighted=self.wide_variances)

    def _fits(self, space: Space, observations: Observations, memory: FitMemory, earlier: Sequence[Fit]) -> list[Fit]:
        """Fit models to the observations, and return the most probable ones.

        If there are `earlier` fits, only their models are tried, or all models if these cannot be fitted. Results that
        are in the memory are not computed again.
        """
        import torch

        from conbo.models.fit import announce, fit, restored
        from conbo.models.fit_memory import fit_key
        from conbo.models.schedule import EVERY_REWARD
        from conbo.threads import threads_for

        structures, small = self.structures(space, observations.seeds), self.noise == "small"
        points, rewards, noise = observations.points, observations.rewards, observations.noise
        with_seeds = [] if observations.seeds is None else [observations.seeds.between]
        if observations.seeds is not None:
            points = torch.cat([points, observations.seeds.column.to(points)], -1)

        def make() -> list[Fit]:
            announce(*points.shape)
            with threads_for(len(points)):
                return fit(
                    structures,
                    points,
                    rewards,
                    noise,
                    small_noise=small,
                    warp=self.input_warping == "auto",
                    map_rewards=self.output_warping == "auto",
                    members=self.members,
                    earlier=earlier,
                )

        settings = [self, space.state_categories, space.action_categories, len(earlier), *with_seeds]
        key = fit_key(settings, points, rewards, noise)
        # a fit with the user's own function is not shared between processes, because its name does not identify it
        plain = (
            isinstance(self.profile, str) and isinstance(self.state_kernel, str) and len(observations) >= EVERY_REWARD
        )
        return memory.recall(
            key,
            make,
            lambda made: [one.record for one in made],
            lambda records: [restored(record, structures, points, noise, small) for record in records],
            plain,
        )
