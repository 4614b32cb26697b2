"""The posterior of a Gaussian process whose rewards are clipped at a floor (censored), by expectation propagation."""

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
    """A Gaussian process of unclipped values, given n rewards of which some are clipped at a floor.

    The process is conditioned on the rewards above the floor, and on Gaussian pseudo-observations (sites) in place of
    the clipped ones. The sites are computed by truncation.py.
    """

    floor: float
    rewards: Tensor  # (n,), as observed
    noise_of_rewards: Tensor  # (n,), noise variances of the rewards, without the variances of the sites

    def __str__(self) -> str:
        """Describe the model, and say that rewards are clipped, for the log."""
        return f"{super().__str__()}, clipped rewards"

    def look_ahead(self, candidates: Tensor) -> LookAhead:
        """Prepare predictions of how one more reward at one of c candidates (c, d) would change the posterior mean.

        The reward may be clipped, which is treated as additional noise. Where rewards are almost certainly clipped,
        this noise is so large that the new reward changes almost nothing.
        """
        ahead, moments = super().look_ahead(candidates), self.moments(candidates)
        hidden, in_mean, in_variance = hidden_variance(moments.mean, moments.variance, self.floor)
        gradient = in_mean[:, None] * moments.mean_gradient + in_variance[:, None] * moments.variance_gradient
        sd = (ahead.sd.square() + hidden).sqrt()
        return replace(ahead, sd=sd, noise_gradient=ahead.noise_gradient + gradient)

    @property
    def observed_values(self) -> Tensor:
        """The observed rewards (n,), clipped ones included."""
        return self.rewards

    @property
    def reward_noise(self) -> Tensor:
        """Variances (n,) of the noise of the observed rewards.

        The variances of the pseudo-observations that replace clipped rewards are not included.
        """
        return self.noise_of_rewards

    def leave_one_out(self) -> tuple[Tensor, Tensor] | None:
        """Return leave-one-out residuals (n,) of the rewards, and predictive standard deviations (n,), noise included.

        The predictions are of unclipped values. When a reward is left out, the pseudo-observations that replace the
        other clipped rewards stay the same.
        """
        precision = torch.cholesky_inverse(self.factor).diagonal()
        without = super().observed_values - self.weights / precision
        variance = 1 / precision - self.observed_noise + self.noise_of_rewards
        return self.rewards - without, variance.clamp_min(0).sqrt()

    def record(self) -> dict[str, Any]:
        """Return kernel, prior mean, noise and floor as plain values, for a saved policy."""
        return {**super().record(), "floor": self.floor}

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> "CensoredPosterior":
        """Return the posterior given other observations, with the same hyperparameters and floor.

        The given `rewards` (n,) at `points` (n, d) replace the observations of this posterior. `noise` and `seeds` are
        ignored, because models of clipped rewards learn the noise and have no effects of simulator seeds.
        """
        return condition_censored(self.kernel, self.constant, self.noise, points, rewards, self.floor)


def condition_censored(
    kernel: Kernel,
    constant: float,
    noise: float | HeteroscedasticNoise,
    points: Tensor,
    rewards: Tensor,
    floor: float,
) -> CensoredPosterior:
    """Condition a prior on points (n, d) and rewards (n,), where some of the rewards are clipped at the floor.

    `constant` is the prior mean. `noise` is the variance of the rewards' noise: one number, or a function of the point.
    """
    of_rewards = variances_at(points, noise)
    sites = sites_of(kernel, constant, of_rewards, points, rewards, floor)
    process = condition(kernel, constant, of_rewards + sites.variances, points, sites.values, noise)
    known = process.states, process.actions, process.factor, process.weights
    return CensoredPosterior(kernel, constant, noise, *known, floor, rewards, of_rewards)
