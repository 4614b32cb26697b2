"""Random posteriors for the benchmarks of this folder, as beliefs and as BoTorch models."""

from math import sqrt

import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

from conbo.belief import Belief
from conbo.bound_states import bind
from conbo.models.columns import Columns
from conbo.models.exact import ExactPosterior, condition
from conbo.models.factorization import cholesky
from conbo.models.kernels import Factor, ProductKernel
from conbo.observations import Observations
from conbo.spaces import Real, Space

NOISES = (1e-4, 1e-3, 1e-2, 1e-1)


def random_belief(d_s: int, d_x: int, n: int, seed: int) -> Belief:
    """Return a belief with n noisy observations, at random points, of a function drawn from a random prior.

    The prior has a product of Matérn-5/2 kernels with random lengthscales.
    """
    generator = torch.Generator().manual_seed(1000 * seed + n)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    states = Factor(Columns((0,) * d_s), 0.25 + 0.5 * uniform(d_s))
    actions = Factor(Columns((0,) * d_x), (0.25 + 0.5 * uniform(d_x)) * sqrt(max(1.0, d_x / 2)))
    kernel = ProductKernel(states, actions, 1.0)
    noise, points = NOISES[seed % len(NOISES)], uniform(n, d_s + d_x)
    s, x = states.scaled(points[:, :d_s]), actions.scaled(points[:, d_s:])
    covariance = kernel.scale(s, s) * actions.correlation(x, x) + noise * torch.eye(n, dtype=torch.float64)
    rewards = cholesky(covariance) @ torch.randn(n, generator=generator, dtype=torch.float64)
    space = Space(states={f"s{i}": Real(0, 1) for i in range(d_s)}, actions={f"x{i}": Real(0, 1) for i in range(d_x)})
    posterior = condition(kernel, 0.0, noise, points, rewards)
    return Belief(space, bind(None, space), Observations(points, rewards, points[:0]), posterior, 0.0, 1.0)


def botorch_model(belief: Belief) -> SingleTaskGP:
    """Return a BoTorch model with the same posterior as a belief, with fixed hyperparameters."""
    posterior, points = belief.posterior, belief.observations.points
    assert isinstance(posterior, ExactPosterior)
    kernel = posterior.kernel
    assert isinstance(kernel, ProductKernel)
    d_s, d = belief.n_state_dims, points.shape[1]
    factors = [
        MaternKernel(nu=2.5, ard_num_dims=len(columns), active_dims=columns)
        for columns in (tuple(range(d_s)), tuple(range(d_s, d)))
    ]
    for factor, lengthscales in zip(factors, (kernel.states.lengthscales, kernel.actions.lengthscales), strict=True):
        factor.lengthscale = lengthscales
    covariance = ScaleKernel(factors[0] * factors[1])
    model = SingleTaskGP(points, belief.observations.rewards[:, None], covar_module=covariance, outcome_transform=None)
    model = model.to(torch.float64)
    covariance.outputscale = kernel.outputscale
    model.likelihood.noise = max(posterior.noise, 1e-4)
    model.mean_module.constant.data.fill_(posterior.constant)
    model.requires_grad_(False)
    return model.eval()
