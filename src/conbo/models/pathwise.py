"""Functions drawn from an exact posterior by Matheron's rule: a prior draw plus a correction at the observations.

    f = μ⁰ + f⁰ + k⁰(·, X̃) K⁻¹ (Y - μ⁰ - f⁰(X̃) - ε),   ε ~ N(0, noise)

==============  =================  ==========================================================================
symbol          in `DrawnPaths`    meaning
==============  =================  ==========================================================================
f⁰              ``prior``          functions drawn from the prior of mean zero: see prior_draws.py
K⁻¹(…)          ``corrections``    weights that make the draw agree with the observations
==============  =================  ==========================================================================

μ⁰ is the prior mean, k⁰ the kernel, X̃ and Y are the observed points and rewards, and K is the covariance of Y, noise
included.  The drawn functions can be evaluated anywhere, with gradients.  Evaluating them at new points requires no
matrix factorization.

Reference: Wilson, Borovitskiy, Terenin, Mostowsky & Deisenroth (2020).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.models.conditioned import Conditioned
from conbo.models.prior_draws import PriorDraws, random_normals

CHUNK = 1024  # number of points that are evaluated at once


@dataclass(frozen=True)
class DrawnPaths:
    """c sample paths: functions of state and action that are drawn from one posterior."""

    posterior: Conditioned
    prior: PriorDraws
    corrections: Tensor  # (n, c)

    @property
    def n(self) -> int:
        """Number of drawn functions."""
        return self.corrections.shape[1]

    def __call__(self, points: Tensor) -> Tensor:
        """Return the values (p, c) of all c functions at points (p, d)."""
        kernel, parts = self.posterior.kernel, []
        for chunk in points.split(CHUNK):
            here = kernel.scaled(chunk)
            cross = kernel.covariance(here, self.posterior.observed)
            parts.append(self.posterior.constant + self.prior.values(here) + cross @ self.corrections)
        return torch.cat(parts)

    def along(self, points: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Return values (p,) and gradients (p, d) at points (p, d); point i uses the function with index `draws[i]`."""
        kernel, observed = self.posterior.kernel, self.posterior.observed
        here, corrections = kernel.scaled(points), self.corrections[:, draws].mT
        prior, prior_gradient = self.prior.along(here, draws)
        cross = kernel.covariance(here, observed)
        value = self.posterior.constant + prior + (cross * corrections).sum(-1)
        return value, kernel.in_unit_cube(prior_gradient, here) + kernel.gradient(here, observed, corrections)


def draw_paths(posterior: Conditioned, n: int, generator: torch.Generator, features: int) -> DrawnPaths:
    """Draw n functions from a posterior; `features` is the number of random features that approximate the prior."""
    prior = posterior.kernel.draw_prior(n, features, generator)
    errors = random_normals(generator, posterior.n_observations, n).to(posterior.weights)
    noisy = prior.values(posterior.observed) + posterior.observed_noise.sqrt()[:, None] * errors
    return DrawnPaths(posterior, prior, posterior.weights[:, None] - posterior.solve(noisy))
