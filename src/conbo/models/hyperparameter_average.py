"""Predictions averaged over the hyperparameters, because fitted hyperparameters are uncertain.

A policy takes the action with the highest mean under its model, so it profits from every error of the fit: with fixed
hyperparameters its predictions are too high and too sure (the winner's curse).  Other hyperparameters that are nearly
as probable disagree about just these actions.  For these, the average over hyperparameters is lower and less sure.

The hyperparameters of each model are drawn from Laplace's approximation, a normal distribution around their mode, and
weighted by how much more or less probable they really are (importance sampling).
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from conbo.models.fit import Fit, probabilities
from conbo.models.log_posterior import Expected, LogPosterior
from conbo.models.mixture import Mixture
from conbo.models.moving import moved
from conbo.models.posterior import Posterior
from conbo.models.structures import Structures
from conbo.observations import Observations

PAIRS = 8  # number of pairs of opposite draws, shared out among the models by their weight
NEGLIGIBLE = 1e-3  # importance below which a draw is left out
MOST_REWARDS = 500  # number of rewards above which nothing is averaged, because hyperparameters are nearly known


def averaged(
    fits: Sequence[Fit], structures: Structures, fitted: Observations, observations: Observations, small_noise: bool
) -> Posterior:
    """Average models over their hyperparameters: `fits` used the rewards `fitted`, the result uses all."""
    members: list[Posterior] = []
    weights: list[Tensor] = []
    known = observations.noise, observations.limits
    for fit, weight in zip(fits, probabilities(fits).tolist(), strict=True):
        around, shares = drawn_around(fit, structures, fitted, max(1, round(PAIRS * weight)), small_noise)
        members += [one.posterior(observations.points, observations.rewards, *known) for one in around]
        weights.append(weight * shares)
    return Mixture(tuple(members), torch.cat(weights).to(observations.points))


def drawn_around(
    fit: Fit, structures: Structures, fitted: Observations, pairs: int, small_noise: bool
) -> tuple[list[Fit], Tensor]:
    """Copies of a model, with hyperparameters drawn around its own, and their shares (copies,) of its weight."""
    rewards = fitted.rewards.cpu()
    values = rewards if fit.output is None else fit.output.values(rewards, None)[0]
    usual: Expected = "varying" if fit.record["varying"] else "small" if small_noise else "moderate"
    noise: Tensor | Expected = usual if fitted.noise is None else fitted.noise.cpu()
    target = LogPosterior(structures.read(fit.record), fitted.points, values, noise)
    mode = torch.tensor(fit.record["parameters"], dtype=torch.float64)
    drawn, log_densities = target.draws(mode, pairs)
    candidates = torch.cat([mode[None], drawn])
    objectives, _, constants = target(candidates)
    shares = importance(objectives[1:] - objectives[0] - log_densities)
    found = []
    for number in shares.nonzero()[:, 0].tolist():
        parameters = candidates[number]
        kernel, noise_there = moved((target.kernel(parameters), target.noise_of(parameters)), fitted.points.device)
        constant = float(constants[number])
        found.append(replace(fit, kernel=kernel, constant=constant, noise=noise_there, _last=[]))
    return found, shares[shares > 0]


def importance(log_ratios: Tensor) -> Tensor:
    """Shares (1 + draws,) of a mode and of the draws around it, from log-ratios (draws,) of true to drawn density.

    With rewards that are nearly exact the normal distribution is too wide, and some draws contradict the rewards. Their
    shares are small. Ratios above one count as one, so that no single draw dominates. The mode has a share only if all
    draws together weigh less than one good draw.
    """
    weights = log_ratios.clamp_max(0.0).exp()
    weights = torch.where(weights > NEGLIGIBLE, weights, 0.0)
    shares = torch.cat([(1.0 - weights.sum()).clamp_min(0.0)[None], weights])
    return shares / shares.sum()
