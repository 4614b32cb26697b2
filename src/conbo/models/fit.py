"""Hyperparameters by maximum a posteriori, with a closed-form gradient of the marginal likelihood.

The gradient of log p(y) in the covariance matrix is G = ½(αᵀα - K⁻¹) with α = K⁻¹(y - m); each family of kernels
pulls G back to its own parameters, most of which are logarithms.  The constant mean is profiled out (its best value
given the rest is a formula), so the search runs over lengthscales, variances, loadings and noise only.

Priors, in standardised rewards and unit-cube distances:

=============  =============================  ==========================================================
lengthscales   LogNormal(√2 + ½ log d, √3)    grows with the dimension d (Hvarfner et al., ICML 2024)
variances      LogNormal(0, 1)                rewards have variance one
loadings       Normal(0.7 or 0, 0.5)          of multi-task kernels: the first says that states are alike
noise          Cauchy(-5, 1) of its log       moderate, but a few rewards can say that they are exact
noise, small   LogNormal(-6, 2)               next to nothing, unless many rewards say otherwise
=============  =============================  ==========================================================
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log, pi, sqrt

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from conbo.ascent import Race, ascend
from conbo.models.kernel_families import KernelFamily
from conbo.models.kernels import Kernel
from conbo.models.posterior import Posterior, condition

LOG_LENGTHSCALE_BOUNDS = (log(0.005), log(200.0))
LOG_VARIANCE_BOUNDS = (log(1e-3), log(1e3))
LOADING_BOUNDS = (-10.0, 10.0)
LOG_NOISE_BOUNDS = (log(1e-7), log(10.0))
LOADING_SPREAD = 0.5
USUAL_NOISE = -5.0, 1.0  # centre and width of the prior of its log-variance
SMALL_NOISE = -6.0, 2.0
SCREENED_STARTS = 8  # quasi-random starts whose objective is looked at, beside the prior's mode
CLIMBED_STARTS = 2  # of which the best few are climbed from
MANY = 300  # rewards: starts are looked for with so many of them, since a look costs n³
ITERATIONS = 100
RACE = Race(iterations=15, survivors=CLIMBED_STARTS)  # from then on, a climb that cannot catch up ends
CAUTION = 1.5  # by so much in log-density a smoother family must be better: where it is wrong it is too sure
TOLERANCE = 1e-3  # in log-density: far below what the data can tell apart
IMAGINED = 8  # sets of rewards from which the curvature at a start is estimated


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

    def __init__(
        self, family: KernelFamily, points: Tensor, rewards: Tensor, noise: Tensor | None, small_noise: bool = False
    ) -> None:
        self.family, self.points, self.rewards, self.noise, self.small_noise = (
            family,
            points,
            rewards,
            noise,
            small_noise,
        )
        n_l, n_v, loadings, n_e = family.n_lengthscales, family.n_variances, family.typical_loadings, int(noise is None)
        n_w = len(loadings)
        lengthscales = sqrt(2) + 0.5 * log(points.shape[1])
        centre, width = SMALL_NOISE if small_noise else USUAL_NOISE
        self._location = points.new_tensor([lengthscales] * n_l + [0.0] * n_v + [*loadings] + [centre] * n_e)
        self._spread = points.new_tensor([sqrt(3)] * n_l + [1.0] * n_v + [LOADING_SPREAD] * n_w + [width] * n_e)
        self._logarithm = points.new_tensor([1.0] * (n_l + n_v) + [0.0] * n_w + [1.0] * n_e)
        self._log_spread = (self._spread * sqrt(2 * pi)).log()
        self._likelihood_constant = -0.5 * len(points) * log(2 * pi)
        kinds = [(LOG_LENGTHSCALE_BOUNDS, n_l), (LOG_VARIANCE_BOUNDS, n_v), (LOADING_BOUNDS, n_w)]
        kinds.append((LOG_NOISE_BOUNDS, n_e))
        self.bounds = points.new_tensor([bounds for bounds, count in kinds for _ in range(count)])

    def __call__(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Objectives (r,), gradients (r, p), and the constant mean that goes with each (r,)."""
        factor, inverse, failed, pullback = self._solve(parameters)
        sums = inverse.sum(-1)
        mean = (sums @ self.rewards) / sums.sum(-1)
        residual = self.rewards - mean[:, None]
        solved = (inverse @ residual[..., None])[..., 0]
        likelihood = self._likelihood_constant - 0.5 * (residual * solved).sum(-1)
        likelihood = likelihood - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        prior, prior_gradient = self._prior(parameters)
        value = torch.where(failed == 0, likelihood + prior, -torch.inf)
        return value, pullback(solved) + prior_gradient, mean

    def _prior(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Log-densities (r,), and gradients (r, p); LogNormal ones are densities of exp(parameter), as in BoTorch."""
        score = (parameters - self._location) / self._spread
        values = -(self._logarithm * parameters + 0.5 * score.square() + self._log_spread)
        gradients = -self._logarithm - score / self._spread
        if self.noise is None and not self.small_noise:
            away, width = score[:, -1], self._spread[-1]
            heavy = 1 + away.square()  # Cauchy, of the logarithm itself
            values[:, -1], gradients[:, -1] = -(pi * width * heavy).log(), -2 * away / heavy / width
        return values.sum(-1), gradients

    def curvature(self, parameters: Tensor) -> Tensor:
        """Roughly what the second derivatives in each parameter are on average, negated: (r, p).

        Those of the log-likelihood are the variance of its gradient over rewards that the parameters would make.
        """
        factor, _, failed, pullback = self._solve(parameters)
        generator = torch.Generator().manual_seed(0)
        draws = torch.randn(len(self.points), IMAGINED, generator=generator, dtype=torch.float64)
        solved = torch.linalg.solve_triangular(factor.mT, draws.expand(len(factor), -1, -1), upper=True)
        squares = torch.stack([pullback(one).square() for one in solved.unbind(-1)])
        return torch.where(failed[:, None] == 0, squares.mean(0), 0.0) + self._spread**-2

    def _solve(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor, Callable[[Tensor], Tensor]]:
        """Cholesky factors and inverses of the covariances of rewards, which of them failed, and a pullback.

        It turns solved rewards α (r, n) into the gradient (r, p) of their log-likelihood.
        """
        covariance, to_parameters = self.family.covariance(parameters, self.points)
        noise = parameters[:, -1:].exp().expand(-1, len(self.points)) if self.noise is None else self.noise
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        diagonal.add_(noise)
        factor, failed = torch.linalg.cholesky_ex(covariance)
        inverse = torch.cholesky_inverse(factor)
        diagonal.sub_(noise)

        def pullback(solved: Tensor) -> Tensor:
            gradient = torch.baddbmm(inverse, solved[:, :, None], solved[:, None, :], beta=-0.5, alpha=0.5)
            parts = to_parameters(gradient)
            if self.noise is None:
                parts.append(gradient.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) * noise[:, :1])
            return torch.cat(parts, -1)

        return factor, inverse, failed, pullback

    def thinned(self, n: int) -> "LogPosterior":
        """The same of n of the rewards, evenly from the first to the last."""
        some = torch.linspace(0, len(self.points) - 1, n).long()
        noise = None if self.noise is None else self.noise[some]
        return LogPosterior(self.family, self.points[some], self.rewards[some], noise, self.small_noise)

    def starts(self) -> Tensor:
        """The prior's mode of lengthscales, and quasi-random others: (starts, parameters)."""
        n_l, n_v, n_w = self.family.n_lengthscales, self.family.n_variances, len(self.family.typical_loadings)
        draws = SobolEngine(len(self._location), scramble=True, seed=0).draw(SCREENED_STARTS, dtype=torch.float64)
        centred = draws - 0.5
        n_e = len(self._location) - n_l - n_v - n_w
        lengthscales, variances, loadings, noise = centred.split([n_l, n_v, n_w, n_e], -1)
        for kind in (lengthscales, variances, noise):  # loadings of zero would be a saddle
            kind[0] = 0.0
        typical = self._location[n_l + n_v : n_l + n_v + n_w]
        return torch.cat(
            [
                sqrt(2) + 0.5 * log(self.points.shape[1]) - 2.0 + 3.0 * lengthscales,
                log(1.0 / min(n_v, 3)) + 2.0 * variances,
                typical + LOADING_SPREAD * loadings,
                log(1e-2) + 4.0 * noise,
            ],
            -1,
        )


@torch.no_grad()
def fit(
    families: Sequence[KernelFamily],
    points: Tensor,
    rewards: Tensor,
    noise: Tensor | None = None,
    small_noise: bool = False,
) -> Fit:
    """Fit standardised rewards (n,) at unit-cube points (n, d); `noise` holds known variances, else it is learned.

    Of several families with parameters of the same kinds, the smoothest first, a smoother one is taken where it makes
    the rewards clearly more probable.
    A pure function of its arguments: the same data give the same model, whatever happened before.
    """
    device = points.device
    points, rewards = points.cpu(), rewards.cpu()
    known = None if noise is None else noise.cpu()
    fits = []
    parameters: Tensor | None = None
    for family in families:
        target = LogPosterior(family, points, rewards, known, small_noise)
        # where one family has its best parameters the others have theirs, nearly
        parameters = climb(target, promising_starts(target) if parameters is None else parameters[None])
        objective, _, constant = target(parameters[None])
        learned: float | Tensor = float(parameters[-1].exp()) if noise is None else noise
        fits.append(Fit(family.kernel(parameters), float(constant), learned, float(objective)))
    *smoother, result = fits
    for smooth in reversed(smoother):
        result = smooth if smooth.objective > result.objective + CAUTION else result
    return result if device.type == "cpu" else replace(result, kernel=result.kernel.to(device))


def climb(target: LogPosterior, starts: Tensor) -> Tensor:
    """The best parameters (p,) that are reached from starts (r, p)."""
    lower, upper = target.bounds.T
    starts = starts.clamp(lower, upper)
    curvature = target.curvature(starts)
    ascent = ascend(lambda p, _: target(p)[:2], starts, lower, upper, ITERATIONS, 0.05, TOLERANCE, RACE, curvature)
    return ascent.points[ascent.values.argmax()]


def promising_starts(target: LogPosterior) -> Tensor:
    """The best few of the quasi-random starts; of many rewards, what fits some of them."""
    if len(target.points) > MANY:
        some = target.thinned(MANY)
        return climb(some, promising_starts(some))[None]
    starts = target.starts()
    return starts[target(starts)[0].argsort(descending=True, stable=True)[:CLIMBED_STARTS]]
