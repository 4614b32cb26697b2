"""What is known now: the space, how states are distributed, what was observed, and what the model makes of it."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import torch
from torch import Tensor

from conbo.bound_states import StateDistribution
from conbo.errors import SettingError
from conbo.models.botorch_posterior import BotorchPosterior, ModelFactory, fit_botorch
from conbo.models.fit import fit
from conbo.models.kernel_families import KernelFamily, MultiTaskFamily, ProductFamily, TrendFamily
from conbo.models.kernels import PROFILES, Columns
from conbo.models.posterior import Posterior
from conbo.observations import Observations
from conbo.spaces import Space

TRIED_PROFILES = ("squared-exponential", "matern52")  # by `profile="auto"`, the smoothest first
LEAST_NOISE = 1e-7  # variance of a standardised reward, as for noise that is learned
MOST_NOISE = 1e12  # a reward with more says nothing, and the quotient of a large noise and a small scale overflows


@dataclass(frozen=True)
class GaussianProcess:
    """The built-in models: a kernel over actions, tied to the states in one of three ways.

    `profile` says how smooth rewards are: "matern52" (twice differentiable), "squared-exponential" (infinitely often),
    or "auto": the first, unless the other makes the rewards seen so far clearly more probable.

    ==============  =============================================================================================
    `states`        how two states are alike
    ==============  =============================================================================================
    "product"       by their distance: σ² k_S k_X, for any states
    "trend"         categories share a trend and differ from it: three variances, whatever their number
    "multi-task"    categories share what is learned that they share: W Wᵀ + diag(v), W with `rank` columns
    "auto"          "trend" where some state is a category, "product" elsewhere
    ==============  =============================================================================================

    Where some states are categories and some are numbers, "trend" and "multi-task" are multiplied by a correlation
    of the numbers.

    `noise` says what to expect of noise that is not known: "small" for rewards that are exact, or nearly so, until
    many of them say otherwise; "auto" for a moderate one, until a few of them do, and the same everywhere, unless
    they are clearly more probable if it varies with state and action.

    `actions` are taken as they are ("straight"), or ("auto") bent where rewards clearly change faster in one part of
    their range than in another.
    """

    profile: str = "auto"
    states: str = "auto"
    rank: int = 2
    noise: str = "auto"
    actions: str = "auto"

    def __post_init__(self) -> None:
        if self.profile not in ("auto", *PROFILES):
            raise SettingError(f"`profile` must be one of auto, {', '.join(PROFILES)}, but got {self.profile!r}.")
        if self.states not in ("auto", "product", "trend", "multi-task"):
            raise SettingError(f"`states` must be auto, product, trend or multi-task, but got {self.states!r}.")
        if not isinstance(self.rank, int) or self.rank < 1:
            raise SettingError(f"`rank` must be an integer of at least 1, but got rank={self.rank!r}.")
        if self.noise not in ("auto", "small"):
            raise SettingError(f"`noise` must be auto or small, but got {self.noise!r}.")
        if self.actions not in ("auto", "straight"):
            raise SettingError(f"`actions` must be auto or straight, but got {self.actions!r}.")

    def families(self, space: Space) -> list[KernelFamily]:
        """The kernels that are tried, up to their hyperparameters, the smoothest first."""
        profiles = TRIED_PROFILES if self.profile == "auto" else (self.profile,)
        return [self._family(space, profile) for profile in profiles]

    def _family(self, space: Space, profile: str) -> KernelFamily:
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


Model = GaussianProcess | ModelFactory


@dataclass(frozen=True)
class Belief:
    """Everything that a proposal or a policy may look at; posterior and values are in standardised rewards."""

    space: Space
    states: StateDistribution
    observations: Observations
    posterior: Posterior | BotorchPosterior
    shift: float
    scale: float

    @property
    def n_state_dims(self) -> int:
        """Columns of a point that are its state."""
        return self.space.n_state_dims

    @cached_property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.observations.points.device

    @cached_property
    def has_integers(self) -> bool:
        """Whether some action is an integer, so that found maxima must be snapped."""
        levels = [p.n_levels for p in self.space.actions.values()]
        return any(n and not c for n, c in zip(levels, self.space.action_categories, strict=True))

    def snap(self, points: Tensor) -> Tensor:
        """The nearest points (..., d) that the space allows."""
        return torch.from_numpy(self.space.snap(points.cpu().numpy())).to(points)

    def snap_actions(self, actions: Tensor) -> Tensor:
        """The nearest actions (..., d_x) that the space allows."""
        return torch.from_numpy(self.space.snap_actions(actions.cpu().numpy())).to(actions)

    def to_reward(self, standardised: Tensor) -> Tensor:
        """Means in the (maximised) units of the rewards."""
        return self.shift + self.scale * standardised


def believe(space: Space, states: StateDistribution, observations: Observations, model: Model) -> Belief:
    """Standardise, fit, condition."""
    shift, scale = standardisation(observations.rewards)
    rewards = (observations.rewards - shift) / scale
    noise = standardised_noise(observations, scale)
    points = observations.points
    posterior: Posterior | BotorchPosterior
    if isinstance(model, GaussianProcess):
        small, bend = model.noise == "small", model.actions == "auto"
        fitted = fit(model.families(space), points, rewards, noise, small, bend)
        posterior = fitted.posterior(points, rewards)
    else:
        categories = space.state_categories + space.action_categories
        posterior = fit_botorch(model, points, rewards, noise, categories, space.n_state_dims)
    return Belief(space, states, observations, posterior, shift, scale)


def standardised_noise(observations: Observations, scale: float) -> Tensor | None:
    """The known variances of standardised rewards; exact rewards at one point twice would have no inverse."""
    return None if observations.noise is None else (observations.noise / scale / scale).clamp(LEAST_NOISE, MOST_NOISE)


def standardisation(rewards: Tensor) -> tuple[float, float]:
    """Shift and scale that give rewards mean zero and variance one; constant rewards are only shifted."""
    largest = float(rewards.abs().max())
    unit = largest if largest > 0 else 1.0  # squares of 1e200 overflow: scale first
    scaled = rewards / unit
    shift = float(scaled.mean())
    # the variance of a sample, as BoTorch has it: its models warn about any other
    spread = sqrt(float((scaled - shift).square().sum()) / max(len(rewards) - 1, 1))
    if spread < 1e-12:  # nothing but rounding
        spread = 1.0
    return shift * unit, spread * unit
