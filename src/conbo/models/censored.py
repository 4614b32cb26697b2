"""The posterior of a process whose rewards are clipped at a floor; see truncation.py."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from conbo.models.conditioned import LookAhead
from conbo.models.exact import ExactPosterior, condition, variances_at
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.kernels import Kernel
from conbo.models.truncation import hidden_variance, sites_of


@dataclass(frozen=True)
class CensoredPosterior(ExactPosterior):
    """A Gaussian process whose n observations stand for rewards of which some are at the floor."""

    floor: float
    rewards: Tensor  # (n,), as told
    noise_of_rewards: Tensor  # (n,), without the variances of the sites

    def __str__(self) -> str:
        """The chosen model, for the log."""
        return f"{super().__str__()}, clipped rewards"

    def look_ahead(self, candidates: Tensor) -> LookAhead:
        """Prepare the look-ahead for one more reward at each candidate (c, d), which the floor may hide.

        The floor is replaced by noise that hides as much.  So a candidate that is surely below the floor is useless.
        """
        ahead, moments = super().look_ahead(candidates), self.moments(candidates)
        hidden, in_mean, in_variance = hidden_variance(moments.mean, moments.variance, self.floor)
        gradient = in_mean[:, None] * moments.mean_gradient + in_variance[:, None] * moments.variance_gradient
        sd = (ahead.sd.square() + hidden).sqrt()
        return replace(ahead, sd=sd, noise_gradient=ahead.noise_gradient + gradient)

    @property
    def observed_values(self) -> Tensor:
        """The rewards (n,), those at the floor included."""
        return self.rewards

    @property
    def reward_noise(self) -> Tensor:
        """Variances (n,) of the noise of the rewards, without those of the sites."""
        return self.noise_of_rewards

    def leave_one_out(self) -> tuple[Tensor, Tensor] | None:
        """Leave-one-out residuals (n,) and predictive standard deviations (n,), noise included, of the rewards.

        The sites of the other rewards stay as they are.
        """
        precision = torch.cholesky_inverse(self.factor).diagonal()
        without = super().observed_values - self.weights / precision
        variance = 1 / precision - self.observed_noise + self.noise_of_rewards
        return self.rewards - without, variance.clamp_min(0).sqrt()

    def record(self) -> dict[str, Any]:
        """The record of the process, with the floor."""
        return {**super().record(), "floor": self.floor}

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> "CensoredPosterior":
        """The same hyperparameters and floor conditioned on other observations."""
        return condition_censored(self.kernel, self.constant, self.noise, points, rewards, self.floor)


def condition_censored(
    kernel: Kernel,
    constant: float,
    noise: float | HeteroscedasticNoise,
    points: Tensor,
    rewards: Tensor,
    floor: float,
) -> CensoredPosterior:
    """Condition a prior on rewards (n,) at points (n, d) that are clipped at the floor."""
    of_rewards = variances_at(points, noise)
    sites = sites_of(kernel, constant, of_rewards, points, rewards, floor)
    process = condition(kernel, constant, of_rewards + sites.variances, points, sites.values, noise)
    known = process.states, process.actions, process.factor, process.weights
    return CensoredPosterior(kernel, constant, noise, *known, floor, rewards, of_rewards)
