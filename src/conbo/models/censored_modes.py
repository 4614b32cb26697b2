"""Modes of the hyperparameters for rewards that are clipped at a floor.

The sites that stand for rewards at the floor depend on the hyperparameters.  So the search for a mode alternates with
expectation propagation.  For fixed sites, the gradient of the Gaussian density of values and sites is also that of the
evidence that expectation propagation estimates.  All models get the sites of the most probable one, which makes their
evidence comparable.
"""

from torch import Tensor

from conbo.models.exact import variances_at
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.log_posterior import Expected, LogPosterior
from conbo.models.modes import Mode, local_search
from conbo.models.truncation import Sites, sites_of

ROUNDS = 4  # number of times that sites and hyperparameters are searched in turn
MOST_NOISE = 0.05  # largest variance of the noise: with more, the expected reward is not clipped where rewards are


def settled_sites(start: Mode, points: Tensor, rewards: Tensor, noise: Expected, floor: float) -> Sites:
    """The sites of rewards (n,) at points (n, d), found in turn with a mode near `start`, a mode of some rewards."""
    target, parameters, there = start.target, start.parameters, points.cpu()
    for _ in range(ROUNDS):
        kernel, constant = target.kernel(parameters), float(target(parameters[None])[2])
        variances = variances_at(there, target.noise_of(parameters))
        sites = sites_of(kernel, constant, variances, there, rewards, floor)
        target = LogPosterior(target.family, points, rewards, noise, sites)
        found = local_search(target, parameters[None])
        if not found:
            break
        parameters = found[0].parameters
    return sites


def nearly_exact(mode: Mode) -> bool:
    """Whether the rewards of a mode are not mapped and have little noise."""
    noise = mode.target.noise_of(mode.parameters)
    return mode.output is None and not isinstance(noise, HeteroscedasticNoise) and float(noise) <= MOST_NOISE
