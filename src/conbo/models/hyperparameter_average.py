"""Averages predictions over the uncertain hyperparameters of the fitted models.

A policy takes the action with the highest mean under its model, so it prefers actions that the model overrates.  With
fixed hyperparameters, the predictions for its actions are too high and too certain (the winner's curse).
Other hyperparameters that are nearly as probable disagree about exactly these actions, so an average over
hyperparameters predicts lower and less certain rewards there.

The hyperparameters of each model are drawn from Laplace's approximation, a normal distribution around their mode.  By
default, all draws of a model have the same weight.  On request, the weight of a draw is proportional to p / q, where p
is its posterior density and q its density under the normal distribution, both divided by their values at the mode.
Ratios above one count as one, because a single draw could otherwise outweigh all others (truncated importance
sampling).
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from conbo.models.fit import Fit, probabilities
from conbo.models.hyperparameter_prior import Expected
from conbo.models.log_posterior import LogPosterior
from conbo.models.mixture import Mixture
from conbo.models.moving import moved
from conbo.models.posterior import Posterior
from conbo.models.relative_family import shear_of
from conbo.models.structures import Structures
from conbo.observations import Observations

PAIRS = 8  # number of pairs of opposite draws, divided among the models in proportion to their weights
MOST_REWARDS = 500  # number of rewards above which callers do not average, because hyperparameters are nearly known


def averaged(
    fits: Sequence[Fit],
    structures: Structures,
    fitted: Observations,
    observations: Observations,
    small_noise: bool,
    weighted: bool = False,
) -> Posterior:
    """Return the posterior averaged over fitted models and over draws of their hyperparameters.

    The hyperparameters of `fits` were fitted to the observations `fitted`, with a prior that favors small noise if
    `small_noise` is true. The result is conditioned on all `observations`. All draws of a model have the same weight by
    default. With `weighted`, they have truncated importance weights, based on the posterior density of a draw divided
    by its density under the distribution that it was drawn from.

    The result is for predictions only. Unlike in other mixtures, the members are not sorted by weight. Means and
    variances do not depend on their order, but the first member (`Mixture.leader`) need not be the most probable.
    """
    members: list[Posterior] = []
    weights: list[float] = []
    known = observations.noise, observations.limits
    for fit, weight in zip(fits, probabilities(fits).tolist(), strict=True):
        drawn, ratios = drawn_fits(fit, structures, fitted, max(1, round(PAIRS * weight)), small_noise)
        members += [one.posterior(observations.points, observations.rewards, *known) for one in drawn]
        shares = ratios / ratios.sum() if weighted else torch.full_like(ratios, 1 / len(drawn))
        weights += (weight * shares).tolist()
    return Mixture(tuple(members), torch.tensor(weights, dtype=torch.float64).to(observations.points))


def drawn_fits(
    fit: Fit, structures: Structures, fitted: Observations, pairs: int, small_noise: bool
) -> tuple[list[Fit], Tensor]:
    """Return copies of a fit, with hyperparameters that are drawn around those of the fit, and a ratio for each copy.

    There are at most 2 · pairs copies. Their hyperparameters are drawn from Laplace's approximation, a normal
    distribution around the mode, in pairs mode ± step. A draw is left out if it makes the covariance matrix of the
    rewards numerically indefinite. If no draw remains, the results are the fit itself and the ratio one.

    The ratio of a draw is p / q, where p is its posterior density and q its density under the normal distribution, both
    divided by their values at the mode. Ratios above one are set to one.

    The hyperparameters of the fit were fitted to the observations `fitted`, with a prior that favors small noise if
    `small_noise` is true.
    """
    rewards = fitted.rewards.cpu()
    values = rewards if fit.output is None else fit.output.values(rewards, None)[0]
    usual: Expected = "varying" if fit.record["varying"] else "small" if small_noise else "moderate"
    noise: Tensor | Expected = usual if fitted.noise is None else fitted.noise.cpu()
    target = LogPosterior(structures.read(fit.record), fitted.points, values, noise, fit.sites(fitted.points, values))
    mode, curvature = (torch.tensor(fit.record[key], dtype=torch.float64) for key in ("parameters", "curvature"))
    drawn = target.draws(mode, pairs)
    objectives, _, constants = target(torch.cat([drawn, mode[None]]))
    usable = objectives[:-1].isfinite()
    if not bool(usable.any()):
        return [fit], torch.ones(1, dtype=torch.float64)
    found = []
    for parameters, constant in zip(drawn[usable], constants[:-1][usable], strict=True):
        kernel, noise_there = moved((target.kernel(parameters), target.noise_of(parameters)), fitted.points.device)
        shear = moved(shear_of(target.family, parameters), fitted.points.device)
        found.append(replace(fit, kernel=kernel, constant=float(constant), noise=noise_there, shear=shear, _last=[]))
    step = (drawn - mode)[usable]
    normal = -0.5 * torch.einsum("ip,pq,iq->i", step, curvature, step)
    ratios = (objectives[:-1][usable] - objectives[-1] - normal).clamp_max(0).exp()
    return found, ratios
