"""Hyperparameters by maximum a posteriori, with a closed-form gradient of the marginal likelihood.

The gradient of log p(y) in the covariance matrix is G = ½(αᵀα - K⁻¹) with α = K⁻¹(y - m); each family of kernels
pulls G back to its own parameters, which are logarithms.  The constant mean is profiled out (its best value given
the rest is a formula), so the search runs over lengthscales, variances and noise only.

Priors, in standardised rewards and unit-cube distances:

=============  =============================  ==========================================================
lengthscales   LogNormal(√2 + ½ log d, √3)    grows with the dimension d (Hvarfner et al., ICML 2024)
variances      LogNormal(0, 1)                rewards have variance one
noise          LogNormal(-6, 2)               wide enough for deterministic and for noisy simulators
=============  =============================  ==========================================================
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, pi, sqrt
from typing import Protocol

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from conbo.ascent import ascend
from conbo.models.kernels import PROFILES, Columns, Factor, Kernel, ProductKernel, TrendKernel, squared_distances
from conbo.models.posterior import Posterior, condition

LOG_LENGTHSCALE_BOUNDS = (log(0.005), log(200.0))
LOG_VARIANCE_BOUNDS = (log(1e-3), log(1e3))
LOG_NOISE_BOUNDS = (log(1e-7), log(10.0))
SCREENED_STARTS = 8  # quasi-random starts whose objective is looked at, beside the prior's mode
CLIMBED_STARTS = 2  # of which the best few are climbed from
ITERATIONS = 100
TOLERANCE = 1e-4  # in log-density: far below what the data can tell apart

Pullback = Callable[[Tensor], list[Tensor]]


class KernelFamily(Protocol):
    """A kernel up to its hyperparameters, which are held as logarithms; r sets of them are handled at once."""

    @property
    def n_lengthscales(self) -> int:
        """The first so many parameters are lengthscales; the rest are variances."""

    @property
    def n_variances(self) -> int:
        """How many."""

    def kernel(self, parameters: Tensor) -> Kernel:
        """The kernel with these log-parameters (p,)."""

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """Covariances (r, n, n) of points (n, d), and what turns gradients in them into ones in parameters (r, p)."""


@dataclass(frozen=True)
class ProductFamily:
    """σ² k_S k_X with a lengthscale for every parameter."""

    states: Columns
    actions: Columns
    profile: str = "matern52"

    @property
    def n_lengthscales(self) -> int:
        """One for each column."""
        return len(self.states.categories) + len(self.actions.categories)

    @property
    def n_variances(self) -> int:
        """σ²."""
        return 1

    def kernel(self, parameters: Tensor) -> ProductKernel:
        """Unpack."""
        d_s, values = len(self.states.categories), parameters.exp()
        return ProductKernel(
            Factor(self.states, values[:d_s], self.profile),
            Factor(self.actions, values[d_s : self.n_lengthscales], self.profile),
            float(values[self.n_lengthscales]),
        )

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """K = σ² φ_S φ_X."""
        d_s = len(self.states.categories)
        s = Block(self.states, self.profile, points[:, :d_s], parameters[:, :d_s])
        x = Block(self.actions, self.profile, points[:, d_s:], parameters[:, d_s : self.n_lengthscales])
        outputscale = parameters[:, self.n_lengthscales].exp()[:, None, None]
        matrix = outputscale * s.value * x.value

        def pullback(gradient: Tensor) -> list[Tensor]:
            weighted = outputscale * gradient
            return [
                s.pullback(weighted * s.slope * x.value),
                x.pullback(weighted * s.value * x.slope),
                (gradient * matrix).sum((-2, -1))[:, None],
            ]

        return matrix, pullback


@dataclass(frozen=True)
class TrendFamily:
    """The trend + difference kernel, for states that are categories: few parameters whatever their number."""

    states: Columns
    actions: Columns
    profile: str = "matern52"

    @property
    def n_lengthscales(self) -> int:
        """Of the actions only."""
        return len(self.actions.categories)

    @property
    def n_variances(self) -> int:
        """σ₀² (trend), σ₁² (difference), σ₃² (constant)."""
        return 3

    def kernel(self, parameters: Tensor) -> TrendKernel:
        """Unpack."""
        values, d_x = parameters.exp(), self.n_lengthscales
        same = torch.ones(len(self.states.categories), dtype=parameters.dtype)
        return TrendKernel(
            Factor(self.states, same, self.profile),
            Factor(self.actions, values[:d_x], self.profile),
            *(float(v) for v in values[d_x : d_x + 3]),
        )

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """K = (σ₀² + δ σ₁²) φ_X + δ σ₃²."""
        d_s, d_x = len(self.states.categories), self.n_lengthscales
        x = Block(self.actions, self.profile, points[:, d_s:], parameters[:, :d_x])
        states = self.states.features(points[:, :d_s])
        same = (squared_distances(states, states) < 1e-9).to(points.dtype)
        trend, difference, constant = parameters[:, d_x : d_x + 3].exp().T[..., None, None]
        scale = trend + difference * same

        def pullback(gradient: Tensor) -> list[Tensor]:
            shared = gradient * x.value
            variances = [trend * shared, difference * shared * same, constant * gradient * same]
            return [
                x.pullback(gradient * scale * x.slope),
                torch.stack([v.sum((-2, -1)) for v in variances], -1),
            ]

        return scale * x.value + constant * same, pullback


class Block:
    """φ and ψ of one block of columns between all points, for r sets of lengthscales."""

    def __init__(self, columns: Columns, profile: str, points: Tensor, log_lengthscales: Tensor) -> None:
        function, unit = PROFILES[profile]
        self._owner = torch.tensor(columns.owner, dtype=torch.long)
        scales = unit / log_lengthscales.exp()[:, self._owner]
        self._features = columns.features(points) * scales[:, None, :]  # (r, n, features)
        self._width = len(columns.categories)
        self.value, self.slope, _ = function(squared_distances(self._features, self._features))

    def pullback(self, table: Tensor) -> Tensor:
        """Gradient in log-lengthscales (r, d): Σ_ij table_ij (f_i - f_j)², by matrix products."""
        f = self._features
        sums = 2 * ((table.sum(-1)[:, None] @ f.square())[:, 0] - (f * (table @ f)).sum(-2))
        return f.new_zeros(len(f), self._width).index_add_(1, self._owner, sums)


@dataclass(frozen=True)
class Fit:
    """Fitted hyperparameters, and the log of posterior density that they reach."""

    kernel: Kernel
    constant: float
    noise: float | Tensor
    objective: float

    def posterior(self, points: Tensor, rewards: Tensor) -> Posterior:
        """Condition on the data."""
        return condition(self.kernel, self.constant, self.noise, points, rewards)


class LogPosterior:
    """Log marginal likelihood plus log prior of r sets of log-parameters at once, with gradients."""

    def __init__(self, family: KernelFamily, points: Tensor, rewards: Tensor, noise: Tensor | None) -> None:
        self.family, self.points, self.rewards, self.noise = family, points, rewards, noise
        n_l, n_v, n_e = family.n_lengthscales, family.n_variances, int(noise is None)
        lengthscales = sqrt(2) + 0.5 * log(points.shape[1])
        self._location = torch.tensor([lengthscales] * n_l + [0.0] * n_v + [-6.0] * n_e, dtype=points.dtype)
        self._spread = torch.tensor([sqrt(3)] * n_l + [1.0] * n_v + [2.0] * n_e, dtype=points.dtype)
        self.bounds = torch.tensor(
            [LOG_LENGTHSCALE_BOUNDS] * n_l + [LOG_VARIANCE_BOUNDS] * n_v + [LOG_NOISE_BOUNDS] * n_e,
            dtype=points.dtype,
        )

    def __call__(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Objectives (r,), gradients (r, p), and the constant mean that goes with each (r,)."""
        covariance, pullback = self.family.covariance(parameters, self.points)
        learned = self.noise is None
        noise = parameters[:, -1:].exp().expand(-1, len(self.points)) if self.noise is None else self.noise
        covariance.diagonal(dim1=-2, dim2=-1).add_(noise)
        factor, failed = torch.linalg.cholesky_ex(covariance)
        inverse = torch.cholesky_inverse(factor)
        sums = inverse.sum(-1)
        mean = (sums @ self.rewards) / sums.sum(-1)
        residual = self.rewards - mean[:, None]
        solved = (inverse @ residual[..., None])[..., 0]
        n = residual.shape[-1]
        likelihood = -0.5 * (residual * solved).sum(-1) - 0.5 * n * log(2 * pi)
        likelihood = likelihood - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        gradient = 0.5 * (solved[:, :, None] * solved[:, None, :] - inverse)
        covariance.diagonal(dim1=-2, dim2=-1).sub_(noise)
        parts = pullback(gradient)
        if learned:
            trace = gradient.diagonal(dim1=-2, dim2=-1).sum(-1)
            parts.append((trace * parameters[:, -1].exp())[:, None])
        # LogNormal priors are densities of exp(parameter), as in BoTorch
        score = (parameters - self._location) / self._spread
        prior = -(parameters + self._spread.log() + 0.5 * log(2 * pi) + 0.5 * score.square()).sum(-1)
        value = torch.where(failed == 0, likelihood + prior, -torch.inf)
        return value, torch.cat(parts, -1) - 1 - score / self._spread, mean

    def starts(self) -> Tensor:
        """The prior's mode of lengthscales, and quasi-random others: (starts, parameters)."""
        n_l, n_v = self.family.n_lengthscales, self.family.n_variances
        spread = SobolEngine(len(self._location), scramble=True, seed=0).draw(SCREENED_STARTS, dtype=torch.float64)
        spread[0] = 0.5
        centre = float(self._location[0]) - 2.0
        lengthscales = centre + 3.0 * (spread[:, :n_l] - 0.5)
        variances = log(1.0 / n_v) + 2.0 * (spread[:, n_l : n_l + n_v] - 0.5)
        noise = log(1e-2) + 4.0 * (spread[:, n_l + n_v :] - 0.5)
        return torch.cat([lengthscales, variances, noise], -1)


@torch.no_grad()
def fit(family: KernelFamily, points: Tensor, rewards: Tensor, noise: Tensor | None = None) -> Fit:
    """Fit standardised rewards (n,) at unit-cube points (n, d); `noise` holds known variances, else it is learned.

    A pure function of its arguments: the same data give the same model, whatever happened before.
    """
    device = points.device
    points, rewards = points.cpu(), rewards.cpu()
    target = LogPosterior(family, points, rewards, None if noise is None else noise.cpu())

    starts = target.starts()
    best = target(starts)[0].argsort(descending=True, stable=True)[:CLIMBED_STARTS]
    lower, upper = target.bounds.T
    ascent = ascend(lambda p, _: target(p)[:2], starts[best], lower, upper, ITERATIONS, 0.05, TOLERANCE)
    parameters = ascent.points[ascent.values.argmax()]
    kernel = family.kernel(parameters)
    learned: float | Tensor = float(parameters[-1].exp()) if noise is None else noise
    result = Fit(kernel, float(target(parameters[None])[2]), learned, float(ascent.values.max()))
    return result if device.type == "cpu" else _move(result, device)


def _move(result: Fit, device: torch.device) -> Fit:
    """The same fit with its tensors on another device."""
    from dataclasses import replace

    kernel = result.kernel
    moved = replace(
        kernel,  # type: ignore[type-var]
        states=replace(kernel.states, lengthscales=kernel.states.lengthscales.to(device)),
        actions=replace(kernel.actions, lengthscales=kernel.actions.lengthscales.to(device)),
    )
    return replace(result, kernel=moved)
