"""The log posterior density of a model's hyperparameters: log marginal likelihood plus log prior, with gradients.

Rewards y have a constant mean m and the covariance matrix K.  The gradient of log p(y) with respect to K is
G = ½(ααᵀ - K⁻¹) with α = K⁻¹(y - m).  Each family of kernels converts G to the gradient with respect to its own
parameters (its pullback).  Most parameters are logarithms.  The mean m is profiled out: for given parameters, the most
likely mean has a closed form.  The priors are in `hyperparameter_prior.py`.
"""

from collections.abc import Callable
from functools import cached_property
from math import inf, log, pi, sqrt

import numpy as np
import torch
from torch import Tensor

from conbo.models import product_terms
from conbo.models.columns import Columns
from conbo.models.heteroscedastic_noise import LOG_NOISE_BOUNDS, HeteroscedasticNoise, centered_features
from conbo.models.hyperparameter_prior import SLOPE_SPREAD, Array, Expected, HyperparameterPrior
from conbo.models.kernel_families import KernelFamily
from conbo.models.kernels import Kernel
from conbo.models.peak import Peak
from conbo.models.product_terms import HasProductTerms, TermLikelihoods
from conbo.models.solved_covariances import SolvedCovariances, factorize_and_invert
from conbo.models.truncation import Sites

DIFFERENCE = 1e-3  # step of the finite differences of gradients that give second derivatives
LEAST_CURVATURE = 0.3  # least eigenvalue of H after scaling by the prior's standard deviations
MOST_WORK = 10**9  # largest r n³ in one call, where r matrices are factorized; it takes well below a second
IMAGINED = 8  # number of sets of rewards drawn from the model to estimate the curvature at a start


class LogPosterior:
    """The log posterior density of the hyperparameters of one family of kernels, with gradients.

    It is the log marginal likelihood plus the log prior. Hyperparameters are called parameters. Most methods take a
    tensor (r, p) of r sets of p parameters. `noise` holds the variances (n,) of the rewards' noise if they are known,
    and otherwise the name of the noise's prior. If rewards are clipped at a floor, the pseudo-observations `sites`
    replace them.
    """

    def __init__(
        self,
        family: KernelFamily,
        points: Tensor,
        rewards: Tensor,
        noise: Tensor | Expected,
        sites: Sites | None = None,
    ) -> None:
        self.family, self.points, self.noise, self.sites = family, points, noise, sites
        self.rewards = rewards if sites is None else sites.values
        self.columns = Columns(family.states.categories + family.actions.categories)
        self._terms = family.terms if isinstance(family, HasProductTerms) else ()
        features = centered_features(self.columns, points.cpu()) if self.varies else points[:, :0].cpu()
        self._features: Array = features.numpy()
        self.prior = HyperparameterPrior(
            family,
            noise if isinstance(noise, str) else None,
            self._features.shape[1],
            1.0 if sites is None else sites.scale,
        )
        self._n_kernel = sum(self.prior.counts[:3])  # the parameters of the family come first
        self._most_at_once = max(1, MOST_WORK // max(1, len(points)) ** 3)
        self._likelihood_constant = -0.5 * len(points) * log(2 * pi)

    @property
    def learned(self) -> bool:
        """Whether the noise variance is a parameter; otherwise it is known."""
        return isinstance(self.noise, str)

    @property
    def varies(self) -> bool:
        """Whether the noise is heteroscedastic."""
        return self.learned and self.noise == "varying"

    @property
    def bounds(self) -> Tensor:
        """Lower and upper bounds (p, 2) of the parameters."""
        return self.prior.bounds

    @property
    def n_slopes(self) -> int:
        """Number of parameters that are slopes of heteroscedastic noise, which come last; 0 for other noise."""
        return self.prior.n_slopes

    def __call__(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-densities (r,), their gradients (r, p) and the most likely constant means (r,) of the rewards.

        `parameters` (r, p) are r sets of p parameters.
        """
        if len(parameters) > self._most_at_once:
            parts = [self(part) for part in parameters.split(self._most_at_once)]
            values, gradients, means = (torch.cat(column) for column in zip(*parts, strict=True))
            return values, gradients, means
        prior, prior_gradient = self.prior(parameters.numpy())
        if product_terms.handles(self._terms, self.points):
            noise, to_noise = self._noise(parameters.numpy())
            likelihoods, means, in_kernel, in_noise = self._of_terms(parameters.numpy()[:, : self._n_kernel], noise)
            gradient = np.concatenate([in_kernel, *to_noise(in_noise)], -1) + prior_gradient
            values = likelihoods + (prior + self._likelihood_constant)
            return torch.from_numpy(values), torch.from_numpy(gradient), torch.from_numpy(means)
        solved = self._solve(parameters)
        likelihood, mean, in_covariance = solved.log_likelihoods(self.rewards)
        value = likelihood + torch.from_numpy(prior + self._likelihood_constant)
        value[solved.failed] = -inf
        return value, solved.pullback(in_covariance).add_(torch.from_numpy(prior_gradient)), mean

    @cached_property
    def _of_terms(self) -> TermLikelihoods:
        """The object that computes log-likelihoods by compiled loops.

        It is used only if the covariance is a sum of terms σ² φ_S φ_X: a variance times correlations of states and of
        actions.
        """
        return TermLikelihoods(self._terms, self.points, self.rewards, self._n_kernel)

    def with_rewards(self, parameters: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-densities (r,) of r sets of p parameters (r, p), each with its own n rewards (r, n).

        The other results are the gradients with respect to the parameters (r, p) and to the rewards (r, n).
        """
        if len(parameters) > self._most_at_once:
            pairs = zip(parameters.split(self._most_at_once), rewards.split(self._most_at_once), strict=True)
            columns = zip(*(self.with_rewards(*pair) for pair in pairs), strict=True)
            value, gradient, in_rewards = (torch.cat(column) for column in columns)
            return value, gradient, in_rewards
        solved = self._solve(parameters)
        prior, prior_gradient = (torch.from_numpy(part) for part in self.prior(parameters.numpy()))
        factors, inverses = solved.factors, solved.inverses
        sums = inverses.sum(-1)
        mean = (sums * rewards).sum(-1, keepdim=True) / sums.sum(-1, keepdim=True)
        weights = (inverses @ (rewards - mean)[..., None])[..., 0]
        half_log_determinant = factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        value = prior + self._likelihood_constant - 0.5 * ((rewards - mean) * weights).sum(-1) - half_log_determinant
        value = torch.where(solved.failed, -inf, value)
        return value, solved.pullback(solved.in_covariance(weights)).add_(prior_gradient), -weights

    def of_rewards(self, parameters: Tensor, rewards: Tensor) -> Tensor:
        """Return log-densities (r, k) of r sets of p parameters (r, p), for each of k columns of `rewards` (n, k)."""
        if len(parameters) > self._most_at_once:
            return torch.cat([self.of_rewards(part, rewards) for part in parameters.split(self._most_at_once)])
        solved = self._solve(parameters)
        factor, inverse, failed = solved.factors, solved.inverses, solved.failed
        sums = inverse.sum(-1)  # (r, n)
        mean = (sums @ rewards) / sums.sum(-1, keepdim=True)
        residual = rewards - mean[:, None]  # (r, n, k)
        misfit = 0.5 * (residual * (inverse @ residual)).sum(-2)
        half_log_determinant = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        prior = torch.from_numpy(self.prior(parameters.numpy())[0])
        value = self._likelihood_constant - misfit + (prior - half_log_determinant)[:, None]
        return torch.where(failed[:, None] | value.isnan(), -inf, value)

    def kernel(self, parameters: Tensor) -> Kernel:
        """Return the kernel with parameters (p,); those of the noise are ignored."""
        return self.family.kernel(parameters[: self._n_kernel])

    def noise_of(self, parameters: Tensor) -> float | Tensor | HeteroscedasticNoise:
        """Return the noise of the model with parameters (p,).

        The result holds the variances (n,) of the rewards' noise if they are known. If they are learned, it is one
        variance for all points or, for heteroscedastic noise, a function from points to variances.
        """
        if not isinstance(self.noise, str):
            return self.noise
        *_, level, slopes = parameters.split(self.prior.counts)
        return HeteroscedasticNoise(self.columns, float(level), slopes) if self.varies else float(level.exp())

    def curvature(self, parameters: Tensor) -> Tensor:
        """Estimate the diagonals (r, p) of the log-density's negated Hessians at r sets of p parameters (r, p).

        The estimate for the log-likelihood is the Fisher information: the variance of the gradient over rewards that
        are drawn from the model with the same parameters. The prior adds the inverse square of its width.
        """
        return self._imagined_gradients(parameters).square().mean(0) + torch.from_numpy(self.prior.spread**-2)

    def peak(self, parameters: Tensor) -> Peak:
        """Return Laplace's approximation of the log-density at a mode (p,), which is a local maximum of the density."""
        second, gradient, mean = self._second_derivatives(parameters)
        scale = torch.from_numpy(self.prior.spread)
        curvatures, directions = torch.linalg.eigh(second)
        curvatures = curvatures.clamp_min(LEAST_CURVATURE)
        log_determinant = float(curvatures.log().sum() - 2 * scale.log().sum())
        slopes = torch.from_numpy(self.prior.logarithm)  # of the log Jacobian
        at_mode = float(slopes @ parameters)
        # along the noise, whose prior has heavy tails, the log-density is not nearly quadratic
        slopes = slopes * torch.from_numpy(self.prior.by_kind(1.0, 1.0, 1.0, 0.0, 1.0))
        beyond = 0.5 * float(((directions.mT @ (scale * slopes)).square() / curvatures).sum())
        relative = self.n_slopes * log(SLOPE_SPREAD * sqrt(2 * pi))  # their density is relative to that at zero
        volume = at_mode + beyond + 0.5 * len(scale) * log(2 * pi) - 0.5 * log_determinant - relative
        whole = (directions * curvatures) @ directions.mT
        low, high = self.bounds.T
        free = torch.where(gradient > 0, parameters < high, parameters > low)  # the others are held by their bounds
        slopes = (scale * gradient)[free]
        gain = 0.5 * float(slopes @ torch.linalg.solve(whole[free][:, free], slopes))
        return Peak(mean, volume, whole / scale[:, None] / scale, gain)

    def draws(self, parameters: Tensor, pairs: int) -> Tensor:
        """Draw parameters (2 · pairs, p) around a mode from Laplace's approximation N(mode, H⁻¹), within the bounds.

        `parameters` (p,) is the mode, and H is the negated Hessian of the log-density there, made positive definite.
        The first half of the draws is mode + step, and the second half is mode - step, with the same steps. All draws
        are then clamped to the bounds. The random numbers are the same in every call. Steps are computed with a
        symmetric matrix square root, because it does not depend on the signs of eigenvectors, which differ between
        platforms.
        """
        curvatures, directions = torch.linalg.eigh(self._second_derivatives(parameters)[0])
        normal = torch.randn(pairs, len(parameters), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        root = (directions / curvatures.clamp_min(LEAST_CURVATURE).sqrt()) @ directions.mT
        steps = normal @ root * torch.from_numpy(self.prior.spread)
        return torch.cat([parameters + steps, parameters - steps]).clamp(*self.bounds.T)

    def _second_derivatives(self, parameters: Tensor) -> tuple[Tensor, Tensor, float]:
        """Return the scaled negated Hessian (p, p), the gradient (p,) and the constant mean at a mode (p,).

        Hessian and gradient are those of the log-density. The constant mean is the maximum-likelihood mean of the
        Gaussian process with these parameters. The second derivatives are finite differences of gradients. Each is
        multiplied by the prior widths of its two parameters, so that the scaled negated Hessian of a normal prior is
        the identity. The gradient is not scaled.
        """
        steps = torch.where(parameters + DIFFERENCE > self.bounds[:, 1], -DIFFERENCE, DIFFERENCE)
        _, gradients, means = self(torch.cat([parameters[None], parameters + steps.diag()]))
        second = -(gradients[1:] - gradients[0]) / steps[:, None]
        second = torch.where(second.isfinite(), second, 0.0)  # NaN if a covariance has no factor
        scale = torch.from_numpy(self.prior.spread)
        return 0.5 * (second + second.mT) * scale[:, None] * scale, gradients[0], float(means[0])

    def promise(self, parameters: Tensor, some: slice) -> float:
        """Estimate by how many nats a Newton step in some of the parameters would raise the log-density.

        The step starts at `parameters` (p,), and changes only those that `some` selects. The negated Hessian is
        estimated as the sum of two terms: the Fisher information, which is the covariance of the gradient over rewards
        that are drawn from the model, and the inverse squares of the prior's widths.
        """
        slopes = self(parameters[None])[1][0, some]
        imagined = self._imagined_gradients(parameters[None])[:, 0, some]
        information = imagined.mT @ imagined / IMAGINED + torch.from_numpy(self.prior.spread[some] ** -2).diag()
        return float(0.5 * slopes @ torch.linalg.solve(information, slopes))

    def _imagined_gradients(self, parameters: Tensor) -> Tensor:
        """Return gradients (IMAGINED, r, p) of the log-likelihoods of rewards that are drawn from the model itself.

        For each of r sets of p parameters (r, p), IMAGINED sets of rewards are drawn with these parameters.
        """
        solved = self._solve(parameters)
        generator = torch.Generator().manual_seed(0)
        draws = torch.randn(len(self.points), IMAGINED, generator=generator, dtype=torch.float64)
        columns = torch.linalg.solve_triangular(solved.factors.mT, draws.expand(len(parameters), -1, -1), upper=True)
        gradients = torch.stack([solved.pullback(solved.in_covariance(one)) for one in columns.unbind(-1)])
        return torch.where(solved.failed[:, None], 0.0, gradients)

    def of_family(self, family: KernelFamily) -> "LogPosterior":
        """Return the log-density for the same rewards, but another family of kernels."""
        return LogPosterior(family, self.points, self.rewards, self.noise, self.sites)

    def thinned(self, n: int) -> "LogPosterior":
        """Return the same log-density for only n of the rewards, evenly spaced from the first to the last."""
        some = torch.linspace(0, len(self.points) - 1, n).long()
        noise = self.noise if isinstance(self.noise, str) else self.noise[some]
        sites = None if self.sites is None else self.sites.some(some)
        return LogPosterior(self.family, self.points[some], self.rewards[some], noise, sites)

    def _noise(self, parameters: Array) -> tuple[Array, Callable[[Array], list[Array]]]:
        """Return the noise variances of n rewards for r sets of p parameters (r, p), and their pullback.

        The variances are (r, n) in general; (r, 1) if they are the same for all rewards; and (n,) if they are known.
        The pullback converts a gradient (r, n) with respect to the variances into gradients with respect to the
        parameters of the noise. If pseudo-observations replace clipped rewards, their variances are added.
        """
        variances, pullback = self._own_noise(parameters)
        return variances if self.sites is None else variances + self.sites.variances.numpy(), pullback

    def _own_noise(self, parameters: Array) -> tuple[Array, Callable[[Array], list[Array]]]:
        """Return the noise variances of n rewards for r sets of p parameters (r, p), and their pullback.

        The variances are (r, n) if the noise is heteroscedastic; (r, 1) if they are the same for all rewards; and (n,)
        if they are known. They do not include the variances of pseudo-observations, which replace clipped rewards. The
        pullback converts a gradient (r, n) with respect to the variances into gradients with respect to the parameters
        of the noise.
        """
        if not isinstance(self.noise, str):
            return self.noise.numpy(force=True), lambda _: []
        if not self.varies:
            level = np.exp(parameters[:, -1:])  # (r, 1): the same for all rewards
            return level, lambda gradient: [gradient.sum(-1, keepdims=True) * level]
        slopes = parameters[:, len(parameters[0]) - self.n_slopes :]
        low, high = LOG_NOISE_BOUNDS
        logarithms = parameters[:, [-1 - self.n_slopes]] + slopes @ self._features.T
        variances = np.exp(logarithms.clip(low, high))

        def pullback(gradient: Array) -> list[Array]:
            in_logarithms = np.where((logarithms > low) & (logarithms < high), gradient * variances, 0.0)
            return [in_logarithms.sum(-1, keepdims=True), in_logarithms @ self._features]

        return variances, pullback

    def _solve(self, parameters: Tensor) -> SolvedCovariances:
        """Return the covariance matrices of the rewards for r sets of p parameters (r, p), factorized and inverted.

        The matrices are computed, factorized and inverted on the device of the points.
        """
        device = self.points.device
        covariance, to_parameters = self.family.covariance(parameters[:, : self._n_kernel].to(device), self.points)
        noise, to_noise = self._noise(parameters.numpy())

        def pullback(gradient: Tensor) -> Tensor:
            in_noise = to_noise(gradient.diagonal(dim1=-2, dim2=-1).numpy(force=True))
            in_kernel = (part.cpu() for part in to_parameters(gradient))
            return torch.cat([*in_kernel, *(torch.from_numpy(part) for part in in_noise)], -1)

        return SolvedCovariances(*factorize_and_invert(covariance, torch.from_numpy(noise).to(device)), pullback)
