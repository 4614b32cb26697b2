"""Modes of the hyperparameters for rewards that are clipped at a floor.

Pseudo-observations (sites) replace the clipped rewards.  They depend on the hyperparameters, so the search for a mode
alternates with expectation propagation, which computes the sites.  While the sites are fixed, the search treats them as
ordinary observations.  The resulting Gaussian log-density has the same gradient as the log evidence that expectation
propagation estimates.  Each mode defines a model.  All models get the same sites, computed with one probable model, so
that their evidence is comparable.
"""

from torch import Tensor

from conbo.models.exact import variances_at
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.hyperparameter_prior import Expected
from conbo.models.log_posterior import LogPosterior
from conbo.models.modes import Mode, local_search
from conbo.models.truncation import Sites, sites_of

ROUNDS = 4  # number of alternations between sites and hyperparameters
MOST_NOISE = 0.05  # largest noise variance: with more, the expected reward is above the floor where rewards are clipped


def settled_sites(start: Mode, points: Tensor, rewards: Tensor, noise: Expected, floor: float) -> Sites:
    """Return the rewards (n,) at points (n, d), with pseudo-observations in place of those clipped at the floor.

    Pseudo-observations and hyperparameters depend on each other, so they are computed alternately. The first
    hyperparameters are those of `start`, which were fitted to the rewards above the floor. `noise` names the prior of
    the noise variance.
    """
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
    """Return whether rewards have almost no noise in the model with the hyperparameters of this mode.

    The noise variance must be constant and at most MOST_NOISE, and the model must have no output warping.
    """
    noise = mode.target.noise_of(mode.parameters)
    return mode.output is None and not isinstance(noise, HeteroscedasticNoise) and float(noise) <= MOST_NOISE
