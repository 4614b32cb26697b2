"""Covariance matrices of rewards, factorized and inverted, and the log-likelihoods that follow from them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.models import compiled_likelihood
from conbo.models.factorization import factorize


@dataclass(frozen=True)
class SolvedCovariances:
    """The Cholesky factors and inverses of r covariance matrices K of n rewards, noise included.

    Factors and inverses stay on the device where they were computed. Results of methods are in CPU memory, except for
    gradients with respect to K.
    """

    on_device: tuple[Tensor, Tensor]  # lower Cholesky factors and inverses (r, n, n)
    failed: Tensor  # (r,), which matrices could not be factorized
    pullback: Callable[[Tensor], Tensor]  # from ∂/∂K (r, n, n), on the device, to ∂/∂parameters (r, p), in CPU memory

    @property
    def factors(self) -> Tensor:
        """The lower Cholesky factors (r, n, n) of r covariance matrices K of n rewards."""
        return self.on_device[0].cpu()

    @property
    def inverses(self) -> Tensor:
        """The inverses (r, n, n) of r covariance matrices K of n rewards."""
        return self.on_device[1].cpu()

    def in_covariance(self, solved: Tensor) -> Tensor:
        """Return the gradients (r, n, n) of log-likelihoods with respect to r covariance matrices K.

        They are ½(ααᵀ - K⁻¹), where α = K⁻¹(y - m) for n rewards y and constant means m. α (r, n) is given as `solved`.
        """
        inverses = self.on_device[1]
        there = solved.to(inverses.device)
        return torch.baddbmm(inverses, there[:, :, None], there[:, None, :], beta=-0.5, alpha=0.5)

    def log_likelihoods(self, rewards: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-likelihoods (r,) of rewards (n,), the constant means (r,) that maximize them, and gradients.

        Each of r covariance matrices K gives one log-likelihood, without the constant -½ n log 2π. The gradients
        (r, n, n) are those of the log-likelihoods with respect to K.
        """
        factors, inverses = self.on_device
        if compiled_likelihood.handles(inverses):
            return compiled_likelihood.log_likelihoods(factors, inverses, rewards)
        factors, inverses = self.factors, self.inverses
        sums = inverses.sum(-1)
        means = (sums @ rewards) / sums.sum(-1)
        residuals = rewards - means[:, None]
        solved = (inverses @ residuals[..., None])[..., 0]
        log_determinants = factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -0.5 * (residuals * solved).sum(-1) - log_determinants, means, self.in_covariance(solved)


def factorize_and_invert(covariances: Tensor, noise: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return Cholesky factors and inverses (r, n, n) of covariances plus noise on the diagonal, and flags (r,).

    `noise` holds variances (r, n), (r, 1) or (n,). The flags say which matrices could not be factorized.
    """
    if compiled_likelihood.handles(covariances):
        factors, inverses, failed = compiled_likelihood.factorize_and_invert(covariances, noise)
        return (factors, inverses), failed
    noisy = covariances.clone()  # a copy, because the pullback needs the covariances again
    noisy.diagonal(dim1=-2, dim2=-1).add_(noise)
    factors, failed = factorize(noisy)
    return (factors, torch.cholesky_inverse(factors)), failed.cpu()
