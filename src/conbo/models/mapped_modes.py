"""Joint search for modes of a model's hyperparameters and of the parameters of output warping.

Output warping is a monotone map of the rewards.  A search that alternates between hyperparameters and map would get
stuck.  Under a slightly wrong map, the Gaussian process explains the misfit as noise, and with that much noise, no
other map is much more probable.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from conbo.ascent import SuccessiveHalving, ascend
from conbo.models.hyperparameter_prior import Expected
from conbo.models.kernel_families import KernelFamily
from conbo.models.learned_maps import TRIED_DISTANCES, TRIED_POWERS, LearnedMaps, learned_maps
from conbo.models.log_posterior import LogPosterior
from conbo.models.modes import (
    EFFECT_REACH,
    ITERATIONS,
    TOLERANCE,
    Mode,
    distinct_modes,
    map_margin,
    nearly_stationary,
)

# Searches that lag are dropped if they cannot catch up in all remaining iterations.  Along a narrow ridge from much to
# little noise, a search gains little in each step, but tens of nats in the end.
HALVING = SuccessiveHalving(iterations=15, survivors=2, catch_up=ITERATIONS)
MAP_CURVATURE = 5.0  # assumed curvature of the log-density along each parameter of the map, where a search starts


def with_mapped_rewards(
    families: Sequence[KernelFamily], plain: Sequence[Mode], noise: Expected, all_modes: bool
) -> list[Mode]:
    """Return modes of the models with output warping, for the given kernel families.

    Output warping replaces the rewards by a monotone map of them. A mode is a local maximum of the posterior density of
    the hyperparameters and the map's parameters, which are fitted jointly. `plain` are the modes without output
    warping, and `noise` is the name of the prior of the noise variance.

    No search is made, and the result is empty, if the median reward equals the best one, or if no map on a grid is
    promising. A map is promising if it raises the highest log-density among the first family's default starts by more
    than M nats, where M is the `map_margin` for the number of rewards.

    Otherwise, local searches look for modes of every family. A mode is kept if its log-density exceeds that of every
    `plain` mode by more than M - EFFECT_REACH nats. If `all_modes` is true, a family contributes all its modes that are
    kept, otherwise only the best of them.
    """
    points, rewards = plain[0].target.points, plain[0].target.rewards
    maps = learned_maps(rewards)
    if maps is None:
        return []
    tried = maps.tried()
    values, weights = maps.values(tried)
    target = LogPosterior(families[0], points, rewards, noise)
    usual = target.prior.starts()
    heights = target.of_rewards(usual, torch.cat([rewards[None], values]).mT)
    mapped = heights[:, 1:] + weights
    margin = map_margin(len(rewards))
    if not mapped.max() > heights[:, 0].max() + margin:
        return []
    best = mapped.amax(0).reshape(len(TRIED_POWERS), -1).argmax(-1)  # the index of the best t for each power λ
    best = best + TRIED_DISTANCES * torch.arange(len(best))
    rows = torch.cat([usual[mapped[:, best].argmax(0)], tried[best]], -1)
    if all_modes:
        rows = torch.cat([rows, torch.cat([target.prior.noisy_start(), tried[mapped.amax(0).argmax()]])[None]])
    goal = max(mode.objective for mode in plain) + margin - EFFECT_REACH
    halving = replace(HALVING, goal=goal)
    modes: list[Mode] = []
    for family in families:
        found = joint_search(LogPosterior(family, points, rewards, noise), maps, rows, halving)
        found = [mode for mode in found if mode.objective + mode.log_jacobian > goal]
        modes += found if all_modes else found[:1]
        if found and found[0].output is not None:
            rows = torch.cat([found[0].parameters, maps.parameters(found[0].output)])[None]
    return modes


def joint_search(
    target: LogPosterior,
    maps: LearnedMaps,
    starts: Tensor,
    halving: SuccessiveHalving = HALVING,
    curvature: Tensor | None = None,
) -> list[Mode]:
    """Return the distinct modes of hyperparameters and output map that local searches reach, the best first.

    A mode is a local maximum of the posterior density, and the output map transforms rewards into the values to which
    the Gaussian process is fitted. A row of `starts` (r, p + 2) holds p hyperparameters and the map's parameters log t
    and λ. Here t is the distance from the best reward to the map's ceiling, in units of `maps.reach`, and λ is the
    map's power. `halving` says when a search that lags is dropped. `curvature` (r, p, p) holds estimates of the negated
    second derivatives with respect to the hyperparameters at the starts; by default, they are computed here. Modes
    whose log-density is lower than that of the best one by more than HOPELESS_GAP are left out.
    """
    lower, upper = torch.cat([target.bounds, maps.bounds]).T
    starts = starts.clamp(lower, upper)
    known = target.curvature(starts[:, :-2]).diag_embed() if curvature is None else curvature
    whole = MAP_CURVATURE * torch.eye(starts.shape[1], dtype=torch.float64).repeat(len(starts), 1, 1)
    whole[:, :-2, :-2] = known

    def objective(parameters: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        values, weights = maps.values(parameters[:, -2:])
        height, gradient, in_values = target.with_rewards(parameters[:, :-2], values)
        return height + weights, torch.cat([gradient, maps.gradients(parameters[:, -2:], in_values)], -1)

    ascent = ascend(objective, starts, lower, upper, ITERATIONS, 0.05, TOLERANCE, halving, whole)
    modes = []
    for row in distinct_modes(ascent.values):
        end, height = ascent.points[row], float(ascent.values[row])
        values, weights = maps.values(end[None, -2:])
        mapped, weight = LogPosterior(target.family, target.points, values[0], target.noise), float(weights[0])
        modes.append(Mode(mapped, end[:-2], height - weight, maps.output(end[-2:]), weight))
    return nearly_stationary(modes)
