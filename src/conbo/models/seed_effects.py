"""The effects of a simulator's random seeds on its rewards, and the posterior of the reward without these effects.

    reward = f(s, x) + b_r + g_r(s, x) + noise

Every seed r adds a constant b_r and a smooth function g_r; together, they are its effect.  Rewards with the same seed
share its effect, so actions are best compared under the same seed (common random numbers).  Policies maximize f.

=================  ===================  ==============================================================================
symbol             in `SeedEffect`      meaning
=================  ===================  ==============================================================================
σ_b²               ``constant``         variance of the constants
σ_g² M_S M_X       ``function``         covariance of g_r; M_S and M_X are correlations of states and of actions
τ(r, r')           ``shared``           1 for equal seeds; for different ones 0, or -1/(N-1) if there are only N seeds
=================  ===================  ==============================================================================

    cov(reward, reward') = k⁰ + τ(r, r') (σ_b² + σ_g² M_S M_X) + noise

Here k⁰ is the kernel of f.  If there are only N seeds, their effects add up to zero, so f is the mean reward over these
N seeds.  For inference about f, the effects are correlated noise: they change only the covariance of the rewards, and
the look-ahead for a reward with a known seed.

Reference: Pearce, Poloczek & Branke (2019), Bayesian optimization allowing for common random numbers.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any, Self

import torch
from torch import Tensor

from conbo.models.columns import Features
from conbo.models.conditioned import LookAhead
from conbo.models.exact import ExactPosterior, variances_at
from conbo.models.factorization import cholesky, cholesky_solved
from conbo.models.kernels import Kernel, ProductKernel
from conbo.models.pathwise import DrawnPaths
from conbo.models.prior_draws import random_normals
from conbo.spaces import Space

NEW_SEED = -1  # stands for any seed that has no reward yet


@dataclass(frozen=True)
class SeedEffect:
    """The prior covariance of the effects of simulator seeds; an effect is what a seed adds to the rewards."""

    constant: float  # σ_b²
    function: ProductKernel | None  # σ_g² M_S M_X; None if a seed adds only a constant
    between: float = 0.0  # τ of two different seeds

    @property
    def n_seeds(self) -> float:
        """Number N of seeds that exist, which follows from the correlation `between` of two different seeds' effects.

        N is infinite if `between` is 0. Otherwise it is the N for which `between` is -1/(N-1).
        """
        return round(1 - 1 / self.between) if self.between else inf

    @property
    def variance(self) -> float:
        """Prior variance of what a seed adds to one reward."""
        return self.constant + (0.0 if self.function is None else self.function.outputscale)

    def scaled(self, points: Tensor) -> Features:
        """Return points (n, d) as scaled inputs of `function`, the kernel of the functions that seeds add to rewards.

        If `function` is None, because seeds add only constants, the results are two tensors (n, 0).
        """
        if self.function is None:
            return points[..., :0], points[..., :0]
        return self.function.scaled(points)

    def covariance(self, a: Features, b: Features) -> Tensor:
        """Return the covariances (p, q) of one seed's effect at p points a and q points b, given as scaled inputs."""
        if self.function is None:
            return a[0].new_full((len(a[0]), len(b[0])), self.constant)
        return self.constant + self.function.covariance(a, b)

    def shared(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the correlations (p, q) of the effects of seeds a (p,) and b (q,).

        They are 1 for equal seeds and `between` for different ones. NEW_SEED stands for any seed without a reward, so
        it counts as different from all seeds, even from another NEW_SEED.
        """
        same = (a[:, None] == b) & (b != NEW_SEED)
        return torch.where(same, 1.0, self.between).to(torch.float64)

    def next_seed(self, seeds: Tensor) -> Tensor:
        """Return the seed (1,) of a new reward, given the seeds (n,) of n observed rewards.

        It is NEW_SEED, which stands for any seed without a reward. If all N existing seeds have rewards, it is the seed
        with the fewest rewards instead, because the effect of one more seed would make the covariance indefinite.
        """
        used, times = seeds.unique(return_counts=True)
        return seeds.new_tensor([NEW_SEED]) if len(used) < self.n_seeds else used[times.argmin()][None]

    def page_record(self) -> dict[str, Any]:
        """Return the covariance of the effects as plain values, for the report's web page."""
        function = None
        if self.function is not None:
            states, actions = self.function.states, self.function.actions
            unit = actions.profile.unit
            function = {
                "variance": self.function.outputscale,
                "stateScales": (unit / states.lengthscales).tolist(),
                "actionScales": (unit / actions.lengthscales).tolist(),
            }
        return {"constant": self.constant, "between": self.between, "function": function}

    def record(self) -> dict[str, Any]:
        """Return the covariance of the effects as plain values, for a saved policy."""
        function = None if self.function is None else self.function.record()
        return {"constant": self.constant, "function": function, "between": self.between}


@dataclass(frozen=True)
class SeededLookAhead(LookAhead):
    """What is needed to predict how one more reward, simulated with a given seed, would change posterior means."""

    effect_features: Features  # the c candidates as scaled inputs of the effect's function


@dataclass(frozen=True)
class SeededPosterior(ExactPosterior):
    """The posterior of the reward without the effects of simulator seeds, given rewards with known seeds.

    How one more reward would change the posterior depends on the seed of this reward.
    """

    effect: SeedEffect
    within: float  # variance of the noise among rewards of one seed; `noise` is the variance for new seeds
    seeds: Tensor  # (n,), whole numbers
    effect_features: Features  # the n observed points as scaled inputs of the effect's function
    next_seeds: Tensor  # seeds of new rewards: (1,) for all candidates, or (c,), one for each

    def __str__(self) -> str:
        """Describe the chosen model, for the log."""
        parts = ("a constant", self.effect.constant > 0), ("a function", self.effect.function is not None)
        plain = replace(self, noise=self.within)  # noise without the effects of seeds, which are described below
        return f"{ExactPosterior.__str__(plain)}, {' and '.join(name for name, there in parts if there)} of every seed"

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The distinct simulator seeds of the observed rewards, the most frequent first."""
        seeds, counts = self.seeds.unique(return_counts=True)
        return tuple(seeds[counts.argsort(descending=True, stable=True)].tolist())

    def for_seeds(self, seeds: Tensor) -> Self:
        """Return this posterior with a look-ahead for new rewards that are simulated with the given seeds.

        `seeds` is (1,), one seed for all candidates, or (c,), one seed for each of c candidates.
        """
        return replace(self, next_seeds=seeds.to(self.seeds))

    def of_rows(self, rows: Tensor) -> Self:
        """Return this posterior with a look-ahead for only those candidates whose indices are `rows`.

        If each candidate has its own seed, only the seeds of these candidates are kept.
        """
        return self if len(self.next_seeds) == 1 else replace(self, next_seeds=self.next_seeds[rows])

    def imagined(self, points: Tensor, seeds: Tensor) -> Self:
        """Return the posterior given hypothetical rewards at points (k, d) with simulator seeds (k,).

        Each reward equals its posterior mean, so only variances change.
        """
        here, features = self.kernel.scaled(points), self.effect.scaled(points)
        known = self.kernel.covariance(here, self.observed)
        known = known + self.effect.shared(seeds, self.seeds) * self.effect.covariance(features, self.effect_features)
        own = self.kernel.covariance(here, here)
        own = own + self.effect.shared(seeds, seeds) * self.effect.covariance(features, features)
        own.diagonal().add_(self.within)
        covariance = self.factor @ self.factor.mT
        covariance = torch.cat([torch.cat([covariance, known.mT], 1), torch.cat([known, own], 1)])
        return replace(
            self,
            states=torch.cat([self.states, here[0]]),
            actions=torch.cat([self.actions, here[1]]),
            factor=cholesky(covariance),
            weights=torch.cat([self.weights, self.weights.new_zeros(len(points))]),
            seeds=torch.cat([self.seeds, seeds]),
            effect_features=(
                torch.cat([self.effect_features[0], features[0]]),
                torch.cat([self.effect_features[1], features[1]]),
            ),
        )

    @cached_property
    def _shared(self) -> Tensor:
        """Correlations between the seed effects in new rewards and those in the n observed rewards.

        The correlations are (1, n) if new rewards have the same seed at all candidates, and (c, n) if each of c
        candidates has its own seed.
        """
        return self.effect.shared(self.next_seeds, self.seeds)

    def look_ahead(self, candidates: Tensor) -> LookAhead:
        """Prepare predictions of how one more reward at each candidate (c, d) would change the posterior mean.

        The new rewards are simulated with the seeds `next_seeds`.
        """
        if not bool(self._shared.any()):
            return super().look_ahead(candidates)  # the effects of new seeds are only noise
        here, features = self.kernel.scaled(candidates), self.effect.scaled(candidates)
        cross = self.kernel.covariance(here, self.observed)  # (c, n)
        cross = cross + self._shared * self.effect.covariance(features, self.effect_features)
        weights = self.solve(cross.mT).mT
        prior = self.kernel.variance(here[0]) + self.effect.variance
        variance = (prior - (cross * weights).sum(-1)).clamp_min(0)
        sd = (variance + self.within).sqrt()
        return SeededLookAhead(here[0], here[1], weights, sd, self.noise_gradient(candidates), features)

    def reward_gradient(self, ahead: LookAhead, weights: Tensor) -> Tensor:
        """Return the gradients (c, d) of Σ_i weights[:, i] cov(new reward, reward i) with respect to the c candidates.

        The new rewards are at the candidates that `ahead` describes. The sum, with `weights` (c, n), is over the n
        observed rewards. cov is the prior covariance, effects of seeds included.
        """
        gradient = super().reward_gradient(ahead, weights)
        if self.effect.function is None or not isinstance(ahead, SeededLookAhead):
            return gradient
        of_effect = weights * self._shared
        return gradient + self.effect.function.gradient(ahead.effect_features, self.effect_features, of_effect)

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> DrawnPaths:
        """Draw n functions from the posterior of the reward without effects of seeds.

        `features` is the number of random features that approximate the prior.
        """
        prior = self.kernel.draw_prior(n, features, generator)
        effects = self.effect.shared(self.seeds, self.seeds)
        effects = effects * self.effect.covariance(self.effect_features, self.effect_features)
        effects.diagonal().add_((self.observed_noise - self.effect.variance).clamp_min(0))
        errors = cholesky(effects) @ random_normals(generator, self.n_observations, n).to(self.weights)
        noisy = prior.values(self.observed) + errors
        return DrawnPaths(self, prior, self.weights[:, None] - self.solve(noisy))

    def record(self) -> dict[str, Any]:
        """Return kernel, prior mean, noise variance and effects of seeds as plain values, for a saved policy."""
        return {**super().record(), "noise": self.within, "seed_effect": self.effect.record()}

    def page_record(self, space: Space) -> dict[str, Any] | None:
        """Return the values from which the report's web page computes the posterior; None if the page cannot do so.

        The entry `seedEffect` describes the effects of seeds.
        """
        record = super().page_record(space)
        if record is None:
            return None
        within = (self.observed_noise - self.effect.variance).clamp_min(0)
        # seeds are renumbered, because the page cannot hold large integers exactly
        seeds = self.seeds.unique(return_inverse=True)[1].double()
        return {**record, "noise": within, "seedEffect": {**self.effect.page_record(), "seeds": seeds}}

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> "SeededPosterior":
        """Return the posterior given these observations instead of its own, with the same hyperparameters.

        The observations are `rewards` (n,) at `points` (n, d). `noise` (n,) holds the variances of the rewards' noise
        if they are known. Without `seeds` (n,), every observation is assumed to have its own simulator seed.
        """
        own = torch.arange(len(points), device=points.device) if seeds is None else seeds
        known = self.within if noise is None else noise
        return condition_with_seeds(self.kernel, self.constant, known, self.effect, points, rewards, own, self.within)


def condition_with_seeds(
    kernel: Kernel,
    constant: float,
    noise: Tensor | float,
    effect: SeedEffect,
    points: Tensor,
    rewards: Tensor,
    seeds: Tensor,
    within: float | None = None,
) -> SeededPosterior:
    """Condition a prior on rewards (n,) at points (n, d) that were simulated with seeds (n,).

    `constant` is the prior mean, and `effect` the prior covariance of what seeds add to the rewards. `noise` is the
    variance of the noise that remains when the seed is known: one number, or one for each reward (n,). `within` is this
    variance for new rewards; by default, it is `noise`, or the mean of `noise` if that is a tensor.
    """
    if within is None:
        within = float(noise.mean()) if isinstance(noise, Tensor) else noise
    here, features = kernel.scaled(points), effect.scaled(points)
    covariance = kernel.covariance(here, here)
    covariance = covariance + effect.shared(seeds, seeds) * effect.covariance(features, features)
    covariance.diagonal().add_(variances_at(points, noise))
    factor = cholesky(covariance)
    weights = cholesky_solved(factor, (rewards - constant)[:, None])[:, 0]
    new_noise, next_seed = effect.variance + within, effect.next_seed(seeds)
    return SeededPosterior(
        kernel, constant, new_noise, *here, factor, weights, effect, within, seeds, features, next_seed
    )
