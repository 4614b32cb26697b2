"""What is known now: the space, how states are distributed, what was observed, and what the model makes of it."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import torch
from torch import Tensor

from conbo.bound_states import StateDistribution
from conbo.gaussian_process import GaussianProcess
from conbo.models.botorch_posterior import BotorchPosterior, ModelFactory, fit_botorch
from conbo.models.fit import announce, fit
from conbo.models.posterior import Posterior
from conbo.observations import Observations
from conbo.spaces import Space

LEAST_NOISE = 1e-7  # variance of a standardised reward, as for noise that is learned


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
    announce(*points.shape)
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
    return None if observations.noise is None else (observations.noise / scale / scale).clamp_min(LEAST_NOISE)


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
