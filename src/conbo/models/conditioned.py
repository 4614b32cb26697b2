"""A Gaussian process conditioned on n observations, as an immutable record with a cached factorization.

======================  =====================  ========================================================
paper (supplement)      here                   meaning
======================  =====================  ========================================================
X̃ⁿ                      ``states, actions``    observed points, as scaled inputs of the kernel
K = k⁰(X̃,X̃) + σ²I       ``factor``             lower Cholesky factor of K
Ỹⁿ = K⁻¹(Y - μ⁰)        ``weights``            μⁿ(s,x) = μ⁰ + k⁰(s,x,X̃) Ỹⁿ
K⁻¹k⁰(X̃, x̃ⁿ⁺¹)          ``LookAhead.weights``  weights of the observed rewards in a prediction of the new reward
σⁿ_y(x̃ⁿ⁺¹)              ``LookAhead.sd``       standard deviation of the new reward
σ̃(s,x; x̃ⁿ⁺¹)            ``look_ahead_slopes``  μⁿ⁺¹ = μⁿ + σ̃ Z, where Z is standard normal
======================  =====================  ========================================================

μ⁰ and k⁰ are the prior mean and covariance, Y are the observed rewards, and x̃ⁿ⁺¹ is the point of the new reward.
Rewards are standardized, as in the fit. Points are in the unit cube, with the state's columns first.

The paper is Pearce, Klaise & Groves, "Practical Bayesian Optimization of Objectives with Conditioning Variables".
"""

from dataclasses import dataclass
from functools import cached_property
from math import exp
from typing import Self

import torch
from torch import Tensor

from conbo.models.columns import Features
from conbo.models.factorization import cholesky_solved
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.kernels import Kernel
from conbo.models.posterior import Moments

# up to this number of observations, and on a GPU always, the factor is inverted: products are then faster than solves
MOST_INVERTED = 300
WORK_PER_SOLVE = 4 * 10**9  # most multiplications in one solve, which Ctrl-C cannot interrupt: about 0.2 s
CHUNK = 4096  # points evaluated at once, so that their covariances with the observations fit in the processor's cache


@dataclass(frozen=True)
class LookAhead:
    """What is needed to predict how one more reward at one of c candidates would change posterior means."""

    states: Tensor  # (c, ·), scaled inputs of the candidates' states
    actions: Tensor  # (c, ·), scaled inputs of the candidates' actions
    weights: Tensor  # (c, n), K⁻¹k⁰(X̃, candidate)
    sd: Tensor  # (c,), standard deviation of the new reward, noise included
    noise_gradient: Tensor  # (c, d), gradient of the new reward's noise variance with respect to the candidate


@dataclass(frozen=True)
class Conditioned:
    """A Gaussian process conditioned on n observations."""

    kernel: Kernel
    constant: float  # prior mean
    noise: float | HeteroscedasticNoise  # variance of a new observation's noise
    states: Tensor  # (n, ·), scaled inputs of the observed states
    actions: Tensor  # (n, ·), scaled inputs of the observed actions
    factor: Tensor  # (n, n), lower Cholesky factor of K, the covariance of the rewards
    weights: Tensor  # (n,), K⁻¹(Y - μ⁰)

    @property
    def n_observations(self) -> int:
        """Number n of observations."""
        return len(self.weights)

    @property
    def n_state_dims(self) -> int:
        """Number of state columns, which come first in a point."""
        return len(self.kernel.states.columns.categories)

    @property
    def observed(self) -> Features:
        """The observed states and actions, as scaled inputs of the kernel."""
        return self.states, self.actions

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances (n,) of the noise of new rewards at points (n, d)."""
        if isinstance(self.noise, HeteroscedasticNoise):
            return self.noise.at(points)
        return points.new_full(points.shape[:-1], self.noise)

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Gradients (n, d) of `noise_at` with respect to the points (n, d)."""
        return self.noise.gradient(points) if isinstance(self.noise, HeteroscedasticNoise) else torch.zeros_like(points)

    @property
    def usual_noise(self) -> float:
        """A typical variance of the noise of a new reward, for callers that need one number for all points."""
        return exp(self.noise.log_level) if isinstance(self.noise, HeteroscedasticNoise) else self.noise

    @property
    def observed_noise(self) -> Tensor:
        """Variances (n,) of the noise of the n observations: their total variances minus their prior variances.

        For a clipped reward, the variance of the pseudo-observation that replaces it is included.
        """
        return (self.factor.square().sum(-1) - self.kernel.variance(self.states)).clamp_min(0)

    @property
    def reward_noise(self) -> Tensor:
        """Variances (n,) of the noise of the observed rewards; here the same as `observed_noise`."""
        return self.observed_noise

    @property
    def observed_values(self) -> Tensor:
        """The observed rewards (n,), recomputed from the Cholesky factor of their covariance and the weights."""
        return self.constant + self.factor @ (self.factor.mT @ self.weights)

    @cached_property
    def _inverse_factor(self) -> Tensor:
        """The inverse (n, n) of the Cholesky factor of the rewards' covariance."""
        eye = torch.eye(len(self.factor), dtype=self.factor.dtype, device=self.factor.device)
        return torch.linalg.solve_triangular(self.factor, eye, upper=False)

    def solve(self, columns: Tensor) -> Tensor:
        """Return K⁻¹ times the given c columns (n, c), where K is the covariance of the observed rewards.

        Many columns are divided among several calls of the solver, so that Ctrl-C can interrupt between them.
        """
        if len(self.factor) <= MOST_INVERTED or self.factor.is_cuda:
            return self._inverse_factor.mT @ (self._inverse_factor @ columns)
        most = max(1, WORK_PER_SOLVE // max(1, len(self.factor)) ** 2)
        parts = [cholesky_solved(self.factor, part) for part in columns.split(most, -1)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean (n,) of the noise-free reward at points (n, d)."""
        parts = []
        for chunk in points.split(CHUNK):
            cross = self.kernel.covariance(self.kernel.scaled(chunk), self.observed)
            parts.append(self.constant + cross @ self.weights)
        return torch.cat(parts)

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance (n,) of the noise-free reward at points (n, d)."""
        parts = []
        for chunk in points.split(CHUNK):
            here = self.kernel.scaled(chunk)
            cross = self.kernel.covariance(here, self.observed)
            root = torch.linalg.solve_triangular(self.factor, cross.mT, upper=False)
            parts.append((self.kernel.variance(here[0]) - root.square().sum(0)).clamp_min(0))
        return torch.cat(parts)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance (p, q) of the noise-free rewards at points a (p, d) and b (q, d)."""
        a_scaled, b_scaled = self.kernel.scaled(a), self.kernel.scaled(b)
        roots = [
            torch.linalg.solve_triangular(self.factor, self.kernel.covariance(self.observed, points), upper=False)
            for points in (a_scaled, b_scaled)
        ]
        # row by row, because the intermediate tables of a large matrix would not fit into the processor's cache
        rows = max(1, CHUNK * 32 // max(1, len(b)))
        pieces = zip(*(tensor.split(rows) for tensor in (*a_scaled, roots[0].mT)), strict=True)
        return torch.cat(
            [self.kernel.covariance((state, action), b_scaled) - root @ roots[1] for state, action, root in pieces]
        )

    def prior_variance(self, states: Tensor) -> Tensor:
        """Return the prior variance (c,) of the noise-free reward in states (c, d_s).

        Callers use it to judge how large the rounding errors of posterior variances are.
        """
        return self.kernel.variance(self.kernel.states.scaled(states))

    def joint(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (c, p) and covariance (c, p, p) of each of c sets of p points (c, p, d)."""
        here = self.kernel.scaled(points)
        cross = self.kernel.covariance(here, self.observed)  # (c, p, n)
        solved = torch.linalg.solve_triangular(self.factor, cross.flatten(0, 1).mT, upper=False)
        root = solved.mT.unflatten(0, points.shape[:2])
        covariance = self.kernel.covariance(here, here) - root @ root.mT
        return self.constant + cross @ self.weights, covariance

    def moments(self, points: Tensor) -> Moments:
        """Posterior mean, variance and their gradients at points (n, d), in closed form."""
        here = self.kernel.scaled(points)
        cross = self.kernel.covariance(here, self.observed)  # (n, n_observations)
        solved = self.solve(cross.mT).mT
        pairs = torch.stack([self.weights.expand_as(solved), solved])
        mean_gradient, variance_gradient = self.kernel.gradient(here, self.observed, pairs)
        return Moments(
            self.constant + cross @ self.weights,
            (self.kernel.variance(here[0]) - (cross * solved).sum(-1)).clamp_min(0),
            mean_gradient,
            -2 * variance_gradient,
        )

    def mean_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (n,) at points (n, d), and its closed-form gradient (n, d) with respect to them."""
        here = self.kernel.scaled(points)
        mean = self.constant + self.kernel.covariance(here, self.observed) @ self.weights
        return mean, self.kernel.gradient(here, self.observed, self.weights.expand(len(points), -1))

    def leave_one_out(self) -> tuple[Tensor, Tensor] | None:
        """Return leave-one-out residuals (n,) and predictive standard deviations (n,), noise included.

        Without reward i, the residual is yᵢ - μ₋ᵢ = αᵢ / K⁻¹ᵢᵢ, and the predictive variance is σ₋ᵢ² = 1 / K⁻¹ᵢᵢ. Here K
        is the covariance of all rewards Y, noise included, and α = K⁻¹(Y - μ⁰), with the prior mean μ⁰. The
        hyperparameters stay as fitted to all rewards.
        """
        precision = torch.cholesky_inverse(self.factor).diagonal()
        return self.weights / precision, precision.rsqrt()

    def look_ahead(self, candidates: Tensor) -> LookAhead:
        """Prepare predictions of how one more reward at one of c candidates (c, d) would change the posterior mean."""
        here = self.kernel.scaled(candidates)
        cross = self.kernel.covariance(here, self.observed)  # (c, n)
        weights = self.solve(cross.mT).mT
        variance = (self.kernel.variance(here[0]) - (cross * weights).sum(-1)).clamp_min(0)
        sd = (variance + self.noise_at(candidates)).sqrt()
        return LookAhead(here[0], here[1], weights, sd, self.noise_gradient(candidates))

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The simulator seeds of the observations: empty, because this model ignores seeds."""
        return ()

    def for_seeds(self, seeds: Tensor) -> Self:
        """Return the posterior unchanged, because this model ignores simulator seeds."""
        return self

    def of_rows(self, rows: Tensor) -> Self:
        """Return the posterior unchanged, because this model ignores simulator seeds.

        A model with effects of seeds, given one seed per candidate, would keep only the seeds with indices `rows`.
        """
        return self

    def reward_gradient(self, ahead: LookAhead, weights: Tensor) -> Tensor:
        """Return the gradients (c, d) of Σ_i weights[:, i] cov(new reward, reward i) with respect to the c candidates.

        The new rewards are at the candidates that `ahead` describes. The sum, with `weights` (c, n), is over the n
        observed rewards. cov is the prior covariance.
        """
        return self.kernel.gradient((ahead.states, ahead.actions), self.observed, weights)

    def look_ahead_slopes(self, candidates: Tensor, points: Tensor) -> Tensor:
        """Return how strongly the posterior means at points (p, d) react to one more reward at candidates (c, d).

        If the reward at a candidate is z standard deviations above its prediction, the mean at a point rises by σ̃ z.
        The results are these slopes σ̃ (c, p).
        """
        ahead, here = self.look_ahead(candidates), self.kernel.scaled(points)
        own = self.kernel.covariance((ahead.states, ahead.actions), here)
        old = self.kernel.covariance(self.observed, here)
        return (own - ahead.weights @ old) / ahead.sd[:, None]
