"""The expected cost of an evaluation, as a smooth function of the point.

Costs are positive and often differ by large factors, so their logarithm is modeled by a Gaussian process.  If the log
cost has mean μ and variance σ², the cost is log-normal with mean exp(μ + σ²/2).  If the user gives a cost function, the
process is fitted closely to it, and is used only in local searches, which need gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log

import torch
from torch import Tensor

from conbo.gaussian_process import GaussianProcess
from conbo.models.posterior import Posterior
from conbo.observations import Observations
from conbo.spaces import Space

KNOWN_COST_NOISE = 1e-6  # noise variance of the standardized log cost, if costs are a known function
FEWEST_TOLD = 2  # fewest measured costs to which a model is fitted


@dataclass(frozen=True)
class CostModel:
    """The model of the expected cost of an evaluation: a Gaussian process on the logarithm of the cost."""

    posterior: Posterior  # posterior of the standardized log cost, (log cost - shift) / scale
    shift: float
    scale: float
    known: Callable[[Tensor], Tensor] | None  # the user's cost function; None if costs are learned

    def expected(self, points: Tensor) -> Tensor:
        """Return the expected costs (n,) of points (n, d), in the user's units."""
        if self.known is not None:
            return self.known(points)
        at = points.cpu()
        with torch.no_grad():
            spread = self.posterior.variance(at) + self.posterior.noise_at(at)
            return (self.shift + self.scale * self.posterior.mean(at) + self.scale**2 * spread / 2).exp().to(points)

    def relative(self, points: Tensor) -> Tensor:
        """Return the expected costs (n,) of points (n, d), divided by the geometric mean of the training costs."""
        return self.expected(points) / exp(self.shift)

    def log_relative(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log relative costs (n,) of points (n, d), and their gradients (n, d).

        The relative cost is the expected cost divided by the geometric mean of the training costs.  Both results come
        from the model even if the user gave a cost function, because that function has no gradients.
        """
        at = points.cpu()
        moments = self.posterior.moments(at)
        value, gradient = self.scale * moments.mean, self.scale * moments.mean_gradient
        if self.known is None:
            half = self.scale**2 / 2
            value = value + half * (moments.variance + self.posterior.noise_at(at))
            gradient = gradient + half * (moments.variance_gradient + self.posterior.noise_gradient(at))
        return value.to(points), gradient.to(points)


def fit_costs(
    space: Space, points: Tensor, costs: Tensor, known: Callable[[Tensor], Tensor] | None = None
) -> CostModel:
    """Fit a model to the costs (n,) of points (n, d); `known` is the user's cost function, or None."""
    logs = costs.log()
    shift, scale = float(logs.mean()), float(logs.std()) if len(logs) > 1 else 0.0
    scale = scale if scale > 1e-9 else log(1.1)  # equal costs may still differ at other points
    noise = None if known is None else torch.full_like(logs, KNOWN_COST_NOISE)
    observations = Observations(points, (logs - shift) / scale, pending=points[:0], noise=noise)
    return CostModel(GaussianProcess().fit(space, observations), shift, scale, known)
