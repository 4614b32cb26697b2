"""Any BoTorch model as a posterior: the same questions, answered through its own `posterior` and autograd.

Slower than the built-in models, whose formulas are written out, but the estimators and methods are the same.
Points reach the model with numbers in the unit cube and categories as 0, 1, 2, …, as BoTorch's models expect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from conbo.errors import ConboError
from conbo.models.posterior import Moments

if TYPE_CHECKING:  # else imported on first use: BoTorch takes a second, and most studies do without it
    from botorch.models.gpytorch import GPyTorchModel
    from botorch.posteriors.gpytorch import GPyTorchPosterior

# (points (n, d), rewards (n, 1), variances of the rewards (n, 1) or None) → model, not yet fitted
ModelFactory = Callable[[Tensor, Tensor, Tensor | None], "GPyTorchModel"]


@dataclass(frozen=True)
class BotorchPosterior:
    """A fitted BoTorch model."""

    model: "GPyTorchModel"
    categories: tuple[int, ...]  # of all columns, 0 for numbers
    n_state_dims: int
    noise: float  # variance of a new observation's noise

    def inputs(self, points: Tensor) -> Tensor:
        """Unit-cube points as the model's inputs."""
        return model_inputs(points, self.categories)

    def _joint(self, points: Tensor) -> "GPyTorchPosterior":
        """The joint posterior of q points (..., q, d)."""
        from botorch.posteriors.gpytorch import GPyTorchPosterior

        posterior = self.model.posterior(self.inputs(points))
        assert isinstance(posterior, GPyTorchPosterior)  # a Gaussian process
        return posterior

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean of points (..., d), each on its own: no covariances between them are built."""
        return self._joint(points[..., None, :]).mean[..., 0, 0]

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance of the noise-free reward at points (..., d)."""
        return self._joint(points[..., None, :]).variance[..., 0, 0]

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances of the noise of new rewards at points (..., d)."""
        return points.new_full(points.shape[:-1], self.noise)

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Their gradients (..., d): the noise of a new reward is taken to be the same everywhere."""
        return torch.zeros_like(points)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance between points a (p, d) and b (q, d)."""
        return self._joint(torch.cat([a, b])).distribution.covariance_matrix[: len(a), len(a) :]

    def pair_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance of each pair of points a (n, d), b (n, d)."""
        return self._joint(torch.stack([a, b], -2)).distribution.covariance_matrix[:, 0, 1]

    def moments(self, points: Tensor) -> Moments:
        """Mean, variance and their gradients by autograd."""
        with torch.enable_grad():
            variable = points.detach().clone().requires_grad_(True)
            posterior = self._joint(variable[:, None])
            mean, variance = posterior.mean[:, 0, 0], posterior.variance[:, 0, 0]
            gradients = [torch.autograd.grad(v.sum(), variable, retain_graph=True)[0] for v in (mean, variance)]
        return Moments(mean.detach(), variance.detach(), *gradients)


def model_inputs(points: Tensor, categories: tuple[int, ...]) -> Tensor:
    """Numbers stay in the unit cube, categories become 0, 1, 2, …"""
    if not any(categories):
        return points
    columns = [
        (points[..., i] * count).floor().clamp(0, count - 1) if count else points[..., i]
        for i, count in enumerate(categories)
    ]
    return torch.stack(columns, -1)


def fit_botorch(
    factory: ModelFactory,
    points: Tensor,
    rewards: Tensor,
    noise: Tensor | None,
    categories: tuple[int, ...],
    n_state_dims: int,
) -> BotorchPosterior:
    """Build the user's model on standardised rewards and fit it the way BoTorch does."""
    from botorch.fit import fit_gpytorch_mll
    from gpytorch.mlls import ExactMarginalLogLikelihood

    known = None if noise is None else noise[:, None]
    model = factory(model_inputs(points, categories), rewards[:, None], known)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    model.eval()
    model.requires_grad_(False)
    new_noise = float(noise.mean()) if noise is not None else float(model.likelihood.noise.mean())
    posterior = BotorchPosterior(model, categories, n_state_dims, new_noise)
    moments = posterior.moments(points)
    if not (moments.mean.isfinite().all() and moments.variance.isfinite().all()):
        raise ConboError("a model's means and variances must be finite, but got others at points that were observed.")
    return posterior
