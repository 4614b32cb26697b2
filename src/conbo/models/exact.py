"""The exact posterior of a Gaussian process with one of conbo's own kernels, as a `Posterior`."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from conbo.models.conditioned import Conditioned
from conbo.models.exact_gains import ExactGains, ExactLines, lines_at
from conbo.models.exact_search import ActionPool
from conbo.models.factored import Factored, factored
from conbo.models.factorization import cholesky_solved
from conbo.models.gains import GainRule
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.kernels import Kernel
from conbo.models.page_record import page_record
from conbo.models.pathwise import DrawnPaths, draw_paths
from conbo.spaces import Space

# Cap on state lengthscales in `resemble`: the best action may change with the state even if rewards barely change.
LARGEST_LENGTHSCALE = 1.0


class ExactSearch(ActionPool):
    """A search for the actions with the highest posterior mean in given states, by Newton's method."""

    def gains(self, rule: GainRule) -> ExactGains:
        """Return the object that computes knowledge gradients of candidates in states.

        `rule` says how a knowledge gradient is estimated from posterior means after a new reward.
        """
        return ExactGains(self, rule)


@dataclass(frozen=True)
class ExactPosterior(Conditioned):
    """A Gaussian process conditioned on n observations exactly; implements the `Posterior` protocol."""

    def __str__(self) -> str:
        """Describe the type of the kernel, the profile, the noise and any input warping, for the log."""
        kernel, noise = self.kernel, self.noise
        level = f"noise variance {noise:.2g}" if isinstance(noise, float) else "heteroscedastic noise"
        warped = ", warped actions" if kernel.actions.warp is not None else ""
        return f"{type(kernel).__name__}, {kernel.actions.profile.name}, {level}{warped}"

    @property
    def batches_look_ahead(self) -> bool:
        """Whether `look_ahead_slopes` is fast for thousands of points: True, as it consists of matrix products."""
        return True

    @property
    def state_lengthscales(self) -> Tensor:
        """Lengthscales (d_s,) of the state columns, in the unit cube."""
        return self.kernel.states.lengthscales

    def state_features(self, states: Tensor) -> Tensor:
        """Return states (..., d_s) as the kernel's scaled inputs (..., width), which `state_correlation` compares."""
        return self.kernel.states.scaled(states)

    def state_correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """Return prior correlations (p, q) of p states a and q states b, given as `state_features` returns them.

        They are correlations of the part of the reward that depends on the action: A(s, s') / √(A(s, s) A(s', s')) for
        states s and s'. Here A is a factor of the kernel A(s, s') κ(x, x') + B(s, s'), and κ is the correlation of
        actions x and x'.
        """
        own = [self.kernel.scale(each[:, None], each[:, None])[:, 0, 0].sqrt() for each in (a, b)]
        return self.kernel.scale(a, b) / own[0][:, None] / own[1]

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Return flags (m,): whether each state (m, d_s) has a correlation of at least `least` with any known state.

        The known states are `known` (k, d_s). The correlation is that of the kernel over states, except that
        lengthscales are at most LARGEST_LENGTHSCALE, because the best action may change faster with the state than the
        rewards do.
        """
        factor = self.kernel.states
        factor = replace(factor, lengthscales=factor.lengthscales.clamp_max(LARGEST_LENGTHSCALE))
        return factor.correlation(factor.scaled(states), factor.scaled(known)).amax(-1) >= least

    def similarity(self, points: Tensor, chosen: Tensor) -> Tensor:
        """Return similarities (p, q) in [0, 1]: how much rewards at `chosen` points (q, d) tell about `points` (p, d).

        A similarity is k⁰(point, chosen) / k⁰(chosen, chosen), clamped to [0, 1], where k⁰ is the prior covariance.
        """
        there = self.kernel.scaled(chosen)
        # the few chosen points come first, because the inner loop is faster over many points
        share = self.kernel.covariance(there, self.kernel.scaled(points)).mT / self.kernel.variance(there[0])
        return share.clamp(0, 1)  # covariances of tasks may be negative or larger than a variance

    def even_actions(self, actions: Tensor) -> Tensor:
        """Return the pool `actions` (p, d_x) with the inverse input warping applied to every second action.

        The given actions are evenly spread; the moved ones are evenly spread after warping. Without input warping,
        nothing moves.
        """
        warp = self.kernel.actions.warp
        if warp is None:
            return actions
        moved = actions.clone()
        moved[1::2] = warp.inverse(moved[1::2])
        return moved

    def action_search(self, space: Space, actions: Tensor) -> ExactSearch:
        """Return a search for the best actions of given states, which starts from a pool of actions (p, d_x)."""
        return ExactSearch(self, space, actions)

    def look_ahead_lines(self, candidates: Tensor, states: Tensor, actions: Tensor) -> ExactLines:
        """Return the posterior means of q actions in each of m states, after one more reward at one of k candidates.

        The m states and their q actions may differ between candidates: `candidates` are (k, d), `states` (k, m, d_s),
        and `actions` (k, m, q, d_x). If the new reward is z standard deviations above its prediction, the posterior
        mean of an action becomes `mean` + `slope` z, a line in z.
        """
        return lines_at(self, candidates, states, actions)

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> DrawnPaths:
        """Draw n functions from the posterior.

        `features` is the number of random features that approximate the prior.
        """
        return draw_paths(self, n, generator, features)

    def record(self) -> dict[str, Any]:
        """Return kernel, prior mean and noise as plain values, for a saved policy."""
        noise = self.noise
        learned = noise if isinstance(noise, float) else {"log_level": noise.log_level, "slopes": noise.slopes.tolist()}
        return {"kernel": self.kernel.record(), "constant": self.constant, "noise": learned}

    def page_record(self, space: Space) -> dict[str, Any] | None:
        """Return the values from which the report's web page computes the posterior; None if the page cannot do so."""
        return page_record(self, space)

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> "ExactPosterior":
        """Return the posterior given other observations, with the same hyperparameters.

        The given `rewards` (n,) at `points` (n, d) replace the observations of this posterior. `noise` (n,) holds the
        variances of their noise; if it is None, the noise of this posterior is used. The simulator `seeds` are ignored,
        because this model has no effects of seeds.
        """
        known = self.noise if noise is None else noise
        return condition(self.kernel, self.constant, known, points, rewards, self.noise)


def condition(
    kernel: Kernel,
    constant: float,
    noise: Tensor | float | HeteroscedasticNoise,
    points: Tensor,
    rewards: Tensor,
    new_noise: float | HeteroscedasticNoise | None = None,
) -> ExactPosterior:
    """Condition a prior with the given kernel and constant mean on points (n, d) and rewards (n,).

    `noise` is one variance for all observations, a variance (n,) for each, or a function of the point. `new_noise` is
    the variance of the noise of further rewards. By default it is `noise`, or the mean of `noise` if each observation
    has its own variance.
    """
    if new_noise is None:
        new_noise = float(noise.mean()) if isinstance(noise, Tensor) else noise
    return solved(kernel, constant, new_noise, factored(kernel, points, variances_at(points, noise)), rewards)


def variances_at(points: Tensor, noise: Tensor | float | HeteroscedasticNoise) -> Tensor:
    """Return the noise variances (n,) at points (n, d), given one number, variances (n,) or a function of the point."""
    known = noise.at(points) if isinstance(noise, HeteroscedasticNoise) else noise
    return torch.as_tensor(known, dtype=points.dtype, device=points.device).expand(len(points))


def solved(
    kernel: Kernel, constant: float, new_noise: float | HeteroscedasticNoise, known: Factored, rewards: Tensor
) -> ExactPosterior:
    """Return the posterior given rewards (n,), whose points and factorized covariance are in `known`.

    `constant` is the prior mean, and `new_noise` the variance of the noise of further rewards.
    """
    weights = cholesky_solved(known.factor, (rewards - constant)[:, None])[:, 0]
    return ExactPosterior(kernel, constant, new_noise, *kernel.scaled(known.points), known.factor, weights)
