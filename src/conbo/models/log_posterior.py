"""How probable hyperparameters are: marginal likelihood times prior, with a closed-form gradient.

The gradient of log p(y) with respect to the covariance matrix is G = ½(ααᵀ - K⁻¹) with α = K⁻¹(y - m); each family of
kernels pulls G back to its own parameters, most of which are logarithms.  The constant mean is profiled out (its best
value given the rest is a formula), so that lengthscales, variances, loadings and noise are left.

Priors, in standardized rewards and unit-cube distances:

=================  =============================  ==========================================================
lengthscales       LogNormal(√2 + ½ log d, √3)    grows with the dimension d (Hvarfner et al., ICML 2024)
variances          LogNormal(0, 1)                rewards have variance one
loadings           Normal(0.7 or 0, 0.5)          of multi-task kernels: the first says that states are alike
exponents' logs    Normal(0, 0.5)                 of input warping, among the loadings
noise, "moderate"  Cauchy(-4, 1.5) of its log     anything from small to large; rewards decide
noise, "small"     LogNormal(-6, 2)               nearly none, unless many rewards say otherwise
noise, "varying"   Cauchy(-4, 1.5), N(0, 0.3)     moderate on average; slopes have density one at zero
=================  =============================  ==========================================================
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, pi, sqrt
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.quasirandom import SobolEngine

from conbo.models.columns import Columns
from conbo.models.heteroscedastic_noise import LOG_NOISE_BOUNDS, HeteroscedasticNoise, centered_features
from conbo.models.kernel_families import KernelFamily
from conbo.models.kernels import Kernel
from conbo.models.solved_covariances import SolvedCovariances, factorize_and_invert

LOG_LENGTHSCALE_BOUNDS = (log(0.005), log(200.0))
LOG_VARIANCE_BOUNDS = (log(1e-3), log(1e3))
SLOPE_BOUNDS = (-5.0, 5.0)
LOADING_SPREAD = 0.5
SLOPE_SPREAD = 0.3
USUAL_NOISE = -4.0, 1.5  # center and width of the Cauchy prior of the noise's log-variance
SMALL_NOISE = -6.0, 2.0
SCREENED_STARTS = 8  # number of quasi-random starts that are screened by their objective
MUCH_NOISE = 0.3  # variance of the noise at `noisy_start`, in standardized rewards
DIFFERENCE = 1e-3  # step in a parameter between two gradients, from which second derivatives follow
LEAST_CURVATURE = 0.3  # least curvature of a log-density along any direction, in units of the prior's spread
MOST_WORK = 10**9  # r n³ of the covariances that one call factorizes: well below a second, so that Ctrl-C is answered
IMAGINED = 8  # number of drawn sets of rewards from which the curvature at a start is estimated

Array: TypeAlias = NDArray[np.float64]
Expected: TypeAlias = Literal["small", "moderate", "varying"]


@dataclass(frozen=True)
class Peak:
    """The log-density around a mode, with H its negated second derivatives.

    LogNormal priors are densities of exp(parameter), but H is with respect to the parameter. The change of variables
    adds the parameter itself to the log-volume.
    """

    mean: float  # the constant mean of the rewards
    log_volume: float  # log |2π H⁻¹|^½
    curvature: Tensor  # H (p, p), made positive definite


class LogPosterior:
    """Log marginal likelihood plus log prior of r sets of parameters at once, with gradients.

    `noise` holds the variances of the rewards' noise if they are known, or else the name of its prior.
    """

    def __init__(self, family: KernelFamily, points: Tensor, rewards: Tensor, noise: Tensor | Expected) -> None:
        self.family, self.points, self.rewards, self.noise = family, points, rewards, noise
        self.columns = Columns(family.states.categories + family.actions.categories)
        self._features = centered_features(self.columns, points.cpu()) if self.varies else points[:, :0].cpu()
        n_l, n_v, loadings = family.n_lengthscales, family.n_variances, family.typical_loadings
        n_e, n_s = int(self.learned), self._features.shape[1]
        self._counts = n_l, n_v, len(loadings), n_e, n_s
        self._n_kernel = n_l + n_v + len(loadings)  # the parameters of the family come first
        center, width = SMALL_NOISE if noise == "small" else USUAL_NOISE
        lengthscales = sqrt(2) + 0.5 * log(len(self.columns.categories))
        self._location = self._by_kind(lengthscales, 0.0, loadings, center, 0.0)
        self._spread = self._by_kind(sqrt(3), 1.0, LOADING_SPREAD, width, SLOPE_SPREAD)
        self._logarithm = self._by_kind(1.0, 1.0, 0.0, 1.0, 0.0)
        self._log_spread = np.log(self._spread * sqrt(2 * pi)) * self._by_kind(1.0, 1.0, 1.0, 1.0, 0.0)
        self._most_at_once = max(1, MOST_WORK // max(1, len(points)) ** 3)
        self._likelihood_constant = -0.5 * len(points) * log(2 * pi)
        loading_bounds = tuple(-largest for largest in family.largest_loadings), family.largest_loadings
        bounds = LOG_LENGTHSCALE_BOUNDS, LOG_VARIANCE_BOUNDS, loading_bounds, LOG_NOISE_BOUNDS, SLOPE_BOUNDS
        self.bounds = torch.from_numpy(np.stack([self._by_kind(*side) for side in zip(*bounds, strict=True)], -1))

    @property
    def learned(self) -> bool:
        """Whether the noise is a parameter."""
        return isinstance(self.noise, str)

    @property
    def varies(self) -> bool:
        """Whether the noise is heteroscedastic."""
        return self.learned and self.noise == "varying"

    @property
    def n_slopes(self) -> int:
        """Number of parameters for the slopes of heteroscedastic noise."""
        return self._counts[-1]

    def __call__(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Objectives (r,) of parameters (r, p), their gradients (r, p), and the best constant mean for each (r,)."""
        if len(parameters) > self._most_at_once:
            parts = [self(part) for part in parameters.split(self._most_at_once)]
            values, gradients, means = (torch.cat(column) for column in zip(*parts, strict=True))
            return values, gradients, means
        solved = self._solve(parameters)
        prior, prior_gradient = self._prior(parameters.numpy())
        likelihood, mean, in_covariance = solved.log_likelihoods(self.rewards)
        value = likelihood + torch.from_numpy(prior + self._likelihood_constant)
        value[solved.failed] = -inf
        return value, solved.pullback(in_covariance).add_(torch.from_numpy(prior_gradient)), mean

    def with_rewards(self, parameters: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Objectives (r,) of parameters (r, p), each with rewards (r, n) of its own, and gradients in both."""
        if len(parameters) > self._most_at_once:
            pairs = zip(parameters.split(self._most_at_once), rewards.split(self._most_at_once), strict=True)
            columns = zip(*(self.with_rewards(*pair) for pair in pairs), strict=True)
            value, gradient, in_rewards = (torch.cat(column) for column in columns)
            return value, gradient, in_rewards
        solved = self._solve(parameters)
        prior, prior_gradient = (torch.from_numpy(part) for part in self._prior(parameters.numpy()))
        factors, inverses = solved.factors, solved.inverses
        sums = inverses.sum(-1)
        mean = (sums * rewards).sum(-1, keepdim=True) / sums.sum(-1, keepdim=True)
        weights = (inverses @ (rewards - mean)[..., None])[..., 0]
        half_log_determinant = factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        value = prior + self._likelihood_constant - 0.5 * ((rewards - mean) * weights).sum(-1) - half_log_determinant
        value = torch.where(solved.failed, -inf, value)
        return value, solved.pullback(solved.in_covariance(weights)).add_(prior_gradient), -weights

    def of_rewards(self, parameters: Tensor, rewards: Tensor) -> Tensor:
        """Objectives (r, k) of parameters (r, p) for each of k other sets of rewards (n, k)."""
        if len(parameters) > self._most_at_once:
            return torch.cat([self.of_rewards(part, rewards) for part in parameters.split(self._most_at_once)])
        solved = self._solve(parameters)
        factor, inverse, failed = solved.factors, solved.inverses, solved.failed
        sums = inverse.sum(-1)  # (r, n)
        mean = (sums @ rewards) / sums.sum(-1, keepdim=True)
        residual = rewards - mean[:, None]  # (r, n, k)
        misfit = 0.5 * (residual * (inverse @ residual)).sum(-2)
        half_log_determinant = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        prior = torch.from_numpy(self._prior(parameters.numpy())[0])
        value = self._likelihood_constant - misfit + (prior - half_log_determinant)[:, None]
        return torch.where(failed[:, None] | value.isnan(), -inf, value)

    def kernel(self, parameters: Tensor) -> Kernel:
        """The kernel with parameters (p,)."""
        return self.family.kernel(parameters[: self._n_kernel])

    def noise_of(self, parameters: Tensor) -> float | Tensor | HeteroscedasticNoise:
        """The noise with these parameters (p,)."""
        if not isinstance(self.noise, str):
            return self.noise
        *_, level, slopes = parameters.split(self._counts)
        return HeteroscedasticNoise(self.columns, float(level), slopes) if self.varies else float(level.exp())

    def curvature(self, parameters: Tensor) -> Tensor:
        """Rough estimates (r, p) of the negated second derivative with respect to each parameter.

        For the log-likelihood, the estimate is the variance of its gradient over rewards drawn with these parameters.
        """
        return self._imagined_gradients(parameters).square().mean(0) + torch.from_numpy(self._spread**-2)

    def peak(self, parameters: Tensor) -> "Peak":
        """The log-density around a mode (p,)."""
        second, mean = self._second_derivatives(parameters)
        scale = torch.from_numpy(self._spread)
        curvatures, directions = torch.linalg.eigh(second)
        curvatures = curvatures.clamp_min(LEAST_CURVATURE)
        log_determinant = float(curvatures.log().sum() - 2 * scale.log().sum())
        in_logarithms = float(torch.from_numpy(self._logarithm) @ parameters)
        relative = self.n_slopes * log(SLOPE_SPREAD * sqrt(2 * pi))  # slopes have a density relative to that at zero
        volume = in_logarithms + 0.5 * len(scale) * log(2 * pi) - 0.5 * log_determinant - relative
        return Peak(mean, volume, (directions * curvatures) @ directions.mT / scale[:, None] / scale)

    def draws(self, parameters: Tensor, pairs: int) -> Tensor:
        """Parameters (2 · pairs, p) from a normal distribution around a mode (p,) with covariance H⁻¹, within bounds.

        They come in opposite pairs, so that their mean is the mode.  The root of H⁻¹ is symmetric, because the signs of
        eigenvectors depend on the platform.
        """
        curvatures, directions = torch.linalg.eigh(self._second_derivatives(parameters)[0])
        normal = torch.randn(pairs, len(parameters), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        root = (directions / curvatures.clamp_min(LEAST_CURVATURE).sqrt()) @ directions.mT
        steps = normal @ root * torch.from_numpy(self._spread)
        return torch.cat([parameters + steps, parameters - steps]).clamp(*self.bounds.T)

    def _second_derivatives(self, parameters: Tensor) -> tuple[Tensor, float]:
        """H (p, p) at a mode (p,) by differences of gradients, and the constant mean at the mode.

        H is scaled so that the prior's own curvature is 1. Callers raise its eigenvalues to at least LEAST_CURVATURE.
        """
        steps = torch.where(parameters + DIFFERENCE > self.bounds[:, 1], -DIFFERENCE, DIFFERENCE)
        _, gradients, means = self(torch.cat([parameters[None], parameters + steps.diag()]))
        second = -(gradients[1:] - gradients[0]) / steps[:, None]
        second = torch.where(second.isfinite(), second, 0.0)  # NaN if a covariance has no factor
        scale = torch.from_numpy(self._spread)
        return 0.5 * (second + second.mT) * scale[:, None] * scale, float(means[0])

    def promise(self, parameters: Tensor, some: slice) -> float:
        """Roughly how much log-density (nats) a Newton step in some of the parameters (p,) would gain."""
        slopes = self(parameters[None])[1][0, some]
        imagined = self._imagined_gradients(parameters[None])[:, 0, some]
        information = imagined.mT @ imagined / IMAGINED + torch.from_numpy(self._spread[some] ** -2).diag()
        return float(0.5 * slopes @ torch.linalg.solve(information, slopes))

    def _imagined_gradients(self, parameters: Tensor) -> Tensor:
        """Gradients (IMAGINED, r, p) of the log-likelihood at parameters (r, p), for rewards drawn with them."""
        solved = self._solve(parameters)
        generator = torch.Generator().manual_seed(0)
        draws = torch.randn(len(self.points), IMAGINED, generator=generator, dtype=torch.float64)
        columns = torch.linalg.solve_triangular(solved.factors.mT, draws.expand(len(parameters), -1, -1), upper=True)
        gradients = torch.stack([solved.pullback(solved.in_covariance(one)) for one in columns.unbind(-1)])
        return torch.where(solved.failed[:, None], 0.0, gradients)

    def thinned(self, n: int) -> "LogPosterior":
        """The same log-density for n of the rewards, evenly spaced from the first to the last."""
        some = torch.linspace(0, len(self.points) - 1, n).long()
        noise = self.noise if isinstance(self.noise, str) else self.noise[some]
        return LogPosterior(self.family, self.points[some], self.rewards[some], noise)

    def starts(self) -> Tensor:
        """Starts (starts, p) of a fit: Sobol points around typical values, which the first has except for loadings."""
        drawn = sum(self._counts) - self.n_slopes
        centered = SobolEngine(drawn, scramble=True, seed=0).draw(SCREENED_STARTS, dtype=torch.float64) - 0.5
        lengthscales, variances, loadings, noise = centered.split(self._counts[:-1], -1)
        for kind in (lengthscales, variances, noise):  # not the loadings: zero is a saddle point for them
            kind[0] = 0.0
        return torch.cat(
            [
                sqrt(2) + 0.5 * log(len(self.columns.categories)) - 2.0 + 3.0 * lengthscales,
                log(1.0 / min(self.family.n_variances, 3)) + 2.0 * variances,
                loadings.new_tensor(self.family.typical_loadings) + LOADING_SPREAD * loadings,
                log(1e-2) + 4.0 * noise,
                noise.new_zeros(len(noise), self.n_slopes),
            ],
            -1,
        )

    def noisy_start(self) -> Tensor:
        """The first of the `starts` (p,), but with a large noise variance."""
        start = self.starts()[0]
        start[len(start) - 1 - self.n_slopes] = log(MUCH_NOISE)
        return start

    def _by_kind(self, *values: float | tuple[float, ...]) -> Array:
        """One value for every parameter; `values` has a number or a tuple for each kind of parameters."""
        pairs = zip(values, self._counts, strict=True)
        flat = [v for value, n in pairs for v in (value if isinstance(value, tuple) else [value] * n)]
        return np.array(flat, dtype=np.float64)

    def _prior(self, parameters: Array) -> tuple[Array, Array]:
        """Log-densities (r,) of the prior, and gradients (r, p); LogNormals are densities of exp(parameter)."""
        score = (parameters - self._location) / self._spread
        values = -(self._logarithm * parameters + 0.5 * score * score + self._log_spread)
        gradients = -self._logarithm - score / self._spread
        if self.learned and self.noise != "small":
            level = -1 - self.n_slopes
            away, width = score[:, level], self._spread[level]
            heavy = 1 + away * away  # Cauchy, of the logarithm itself
            values[:, level], gradients[:, level] = -np.log(pi * width * heavy), -2 * away / heavy / width
        return values.sum(-1), gradients

    def _noise(self, parameters: Tensor) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
        """Noise variances (r, n), (r, 1) or (n,), and a map from their gradients (r, n) to gradients of parameters."""
        if not isinstance(self.noise, str):
            return self.noise, lambda _: []
        if not self.varies:
            variances = parameters[:, -1:].exp()  # (r, 1): the same for all rewards
            return variances, lambda gradient: [gradient.sum(-1, keepdim=True) * variances]
        *_, level, slopes = parameters.split(self._counts, -1)
        low, high = LOG_NOISE_BOUNDS
        logarithms = level + slopes @ self._features.mT
        variances = logarithms.clamp(low, high).exp()

        def pullback(gradient: Tensor) -> list[Tensor]:
            in_logarithms = torch.where((logarithms > low) & (logarithms < high), gradient * variances, 0.0)
            return [in_logarithms.sum(-1, keepdim=True), in_logarithms @ self._features]

        return variances, pullback

    def _solve(self, parameters: Tensor) -> SolvedCovariances:
        """The covariances of rewards with these parameters (r, p), factorized and inverted.

        Work of order n² and more is done on the device of the points.
        """
        device = self.points.device
        covariance, to_parameters = self.family.covariance(parameters[:, : self._n_kernel].to(device), self.points)
        noise, to_noise = self._noise(parameters)

        def pullback(gradient: Tensor) -> Tensor:
            in_noise = gradient.diagonal(dim1=-2, dim2=-1).cpu().clone()
            return torch.cat([*(part.cpu() for part in to_parameters(gradient)), *to_noise(in_noise)], -1)

        return SolvedCovariances(*factorize_and_invert(covariance, noise.to(device)), pullback)
