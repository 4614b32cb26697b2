"""Priors of a model's hyperparameters, their bounds, and typical values from which fits start.

They are for standardized rewards, and points in the unit cube of d columns:

=================  ==============================  ==========================================================
parameter          prior                           remark
=================  ==============================  ==========================================================
lengthscales       LogNormal(√2 + ½ log d, √3)     grow with the dimension (Hvarfner et al., ICML 2024)
variances          LogNormal(0, 1)                 rewards have variance one
variances, wide    logs are Cauchy(0, 1.5)         of families with `wide_variances`; better for polynomials
loadings           Normal(0.7 or 0, 0.5)           of multi-task kernels; 0.7 makes all states similar
log-exponents      Normal(0, 0.5)                  of input warping; they count among the loadings
noise, "moderate"  ∝ Cauchy(-4, 1.5) of log v      the rewards decide whether noise is small or large
noise, "small"     LogNormal(-6, 2)                nearly no noise, unless many rewards say otherwise
noise, "varying"   level as for "moderate",        heteroscedastic: log v = level + slopes · x; the density
                   slopes are Normal(0, 0.3)       of the slopes is divided by its value at zero
=================  ==============================  ==========================================================

The prior densities of lengthscales, variances and the noise variance v are densities of the value itself, not of its
logarithm.  Wide variances are the exception: their prior is a density of the logarithm.  The "moderate" density of v is
proportional to c(log v), where c is the density of Cauchy(-4, 1.5).  It is not normalized, because the normalizing
constant would be the same for every model with learned noise.
"""

from math import log, pi, sqrt
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.quasirandom import SobolEngine

from conbo.models.heteroscedastic_noise import LOG_NOISE_BOUNDS
from conbo.models.kernel_families import KernelFamily

LOG_LENGTHSCALE_BOUNDS = (log(0.005), log(200.0))
LOG_VARIANCE_BOUNDS = (log(1e-3), log(1e3))
SLOPE_BOUNDS = (-5.0, 5.0)
LOADING_SPREAD = 0.5  # standard deviation of the prior of a loading
SLOPE_SPREAD = 0.3  # standard deviation of the prior of a slope of heteroscedastic noise
USUAL_NOISE = -4.0, 1.5  # center and width of the Cauchy function of log v that the prior density of v follows
SMALL_NOISE = -6.0, 2.0  # mean and standard deviation of the normal prior of the log-variance of small noise
WIDE_VARIANCES = 1.5  # width of the Cauchy prior of a log-variance
SCREENED_STARTS = 8  # number of quasi-random starts that are screened by their objective
MUCH_NOISE = 0.3  # variance of the noise at `noisy_start`, in standardized rewards

Array: TypeAlias = NDArray[np.float64]
Expected: TypeAlias = Literal["small", "moderate", "varying"]  # name of the noise's prior


class HyperparameterPrior:
    """The prior density of the hyperparameters of one family of kernels and of the noise, with gradients.

    Hyperparameters are called parameters. Their order is: lengthscales, variances, loadings, noise level, noise slopes.
    `noise` is the name of the noise's prior, or None if the noise is known and has no parameters. `n_slopes` is the
    number of slopes of heteroscedastic noise. `scale` is the standard deviation of the values that the kernel models.
    """

    def __init__(self, family: KernelFamily, noise: Expected | None, n_slopes: int, scale: float) -> None:
        self._family, self._n_columns = family, len(family.states.categories) + len(family.actions.categories)
        n_l, n_v, loadings = family.n_lengthscales, family.n_variances, family.typical_loadings
        self.counts = n_l, n_v, len(loadings), int(noise is not None), n_slopes
        wide, cauchy_noise = family.wide_variances, noise is not None and noise != "small"
        center, width = SMALL_NOISE if noise == "small" else USUAL_NOISE
        lengthscales = sqrt(2) + 0.5 * log(self._n_columns)
        self._log_variance = 2 * log(scale)
        self._location = self.by_kind(lengthscales, self._log_variance, loadings, center, 0.0)
        self.spread = self.by_kind(sqrt(3), WIDE_VARIANCES if wide else 1.0, LOADING_SPREAD, width, SLOPE_SPREAD)
        # 1 where a parameter is a logarithm whose prior is a density of the value itself, otherwise 0
        self.logarithm = self.by_kind(1.0, float(not wide), 0.0, 1.0, 0.0)
        self._cauchy = np.flatnonzero(self.by_kind(0.0, float(wide), 0.0, float(cauchy_noise), 0.0))
        self._log_spread = np.log(self.spread * sqrt(2 * pi)) * self.by_kind(1.0, 1.0, 1.0, 1.0, 0.0)
        loading_bounds = tuple(-largest for largest in family.largest_loadings), family.largest_loadings
        low, high = LOG_VARIANCE_BOUNDS
        variance_bounds = low + self._log_variance, high + self._log_variance
        bounds = LOG_LENGTHSCALE_BOUNDS, variance_bounds, loading_bounds, LOG_NOISE_BOUNDS, SLOPE_BOUNDS
        self.bounds = torch.from_numpy(np.stack([self.by_kind(*side) for side in zip(*bounds, strict=True)], -1))

    @property
    def n_slopes(self) -> int:
        """Number of parameters that are slopes of heteroscedastic noise, which come last; 0 for other noise."""
        return self.counts[-1]

    def __call__(self, parameters: Array) -> tuple[Array, Array]:
        """Return log prior densities (r,) of r sets of p parameters (r, p), and their gradients (r, p).

        The priors of lengthscales, variances and the noise level are densities of exp(parameter). The priors of
        loadings, noise slopes, and variances with heavy tails are densities of the parameter. All gradients are with
        respect to the parameter.
        """
        score = (parameters - self._location) / self.spread
        values = -(self.logarithm * parameters + 0.5 * score * score + self._log_spread)
        gradients = -self.logarithm - score / self.spread
        some = self._cauchy  # their densities are Cauchy functions of the logarithms
        away, width = score[:, some], self.spread[some]
        heavy = 1 + away * away
        values[:, some], gradients[:, some] = -np.log(pi * width * heavy), -2 * away / heavy / width
        return values.sum(-1), gradients

    def starts(self) -> Tensor:
        """Return sets of p parameters (SCREENED_STARTS, p) to start a fit from: Sobol points around typical values.

        The first start has exactly the typical values, except for its loadings (parameters that may be negative),
        because the log-density may have a saddle point where all loadings are typical.
        """
        drawn = sum(self.counts) - self.n_slopes
        centered = SobolEngine(drawn, scramble=True, seed=0).draw(SCREENED_STARTS, dtype=torch.float64) - 0.5
        lengthscales, variances, loadings, noise = centered.split(self.counts[:-1], -1)
        for kind in (lengthscales, variances, noise):  # not the loadings, because zero is a saddle point for them
            kind[0] = 0.0
        return torch.cat(
            [
                sqrt(2) + 0.5 * log(self._n_columns) - 2.0 + 3.0 * lengthscales,
                self._log_variance - log(min(self._family.n_variances, 3)) + 2.0 * variances,
                loadings.new_tensor(self._family.typical_loadings) + LOADING_SPREAD * loadings,
                log(1e-2) + 4.0 * noise,
                noise.new_zeros(len(noise), self.n_slopes),
            ],
            -1,
        )

    def noisy_start(self) -> Tensor:
        """Return parameters (p,) to start a fit from: the first of `starts`, but with a large noise variance.

        The noise must be learned.
        """
        start = self.starts()[0]
        start[len(start) - 1 - self.n_slopes] = log(MUCH_NOISE)
        return start

    def by_kind(self, *values: float | tuple[float, ...]) -> Array:
        """Return an array (p,) with one value for every parameter.

        `values` has one entry for each kind of parameter, in this order: lengthscales, variances, loadings, noise
        level, noise slopes. An entry is one number for all parameters of its kind, or a tuple with one number for each.
        """
        pairs = zip(values, self.counts, strict=True)
        flat = [v for value, n in pairs for v in (value if isinstance(value, tuple) else [value] * n)]
        return np.array(flat, dtype=np.float64)
