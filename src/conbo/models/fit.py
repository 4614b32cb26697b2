"""Finds the most probable hyperparameters of many models (MAP estimates), and keeps the models with the most evidence.

The models differ in the family of their kernel (rough or smooth, with or without main effects), in input warping,
output warping and heteroscedastic noise, and in the hyperparameters, whose posterior may have several modes. Warping is
tried only if the rewards hint at it, and heteroscedastic noise only if the noise is not negligible. Probable models are
later averaged (`mixture.py`), weighted by their evidence. If rewards are clipped at a floor, models treat them as
censored (`censored.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf
from typing import Any

import torch
from torch import Tensor

from conbo.errors import ConboError
from conbo.models.approximate import Summary, condition_by_size
from conbo.models.censored import condition_censored
from conbo.models.censored_modes import nearly_exact, settled_sites
from conbo.models.exact import ExactPosterior, variances_at
from conbo.models.factored import Factored
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.hyperparameter_prior import Expected
from conbo.models.kernels import Kernel
from conbo.models.learned_maps import learned_maps
from conbo.models.log_posterior import LogPosterior
from conbo.models.mapped_modes import joint_search, with_mapped_rewards
from conbo.models.modes import (
    Mode,
    best_of,
    local_search,
    modes_of_families,
    with_heteroscedastic_noise,
    with_main_effects,
    with_warped_actions,
    without_repetitions,
)
from conbo.models.moving import moved
from conbo.models.output_maps import Limits, LowTail, read_tail
from conbo.models.relative import RelativePosterior
from conbo.models.relative_family import shear_of
from conbo.models.relative_modes import with_relative_actions
from conbo.models.seed_effects import SeedEffect, condition_with_seeds
from conbo.models.seeded_modes import modes_with_seeds
from conbo.models.shear import Shear
from conbo.models.structures import Structures
from conbo.models.transformed import TransformedPosterior
from conbo.models.truncation import Sites, floor_of, sites_of
from conbo.notices import LOG, in_words

ANNOUNCED_SECONDS = 2.0  # fits that are expected to take longer are announced in the log
LEAST_WEIGHT = 0.03  # models whose evidence is less than this multiple of the highest evidence are dropped
NOISE_MARGIN = 2.0  # nats of evidence that heteroscedastic noise must gain, because one more model costs time
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Fit:
    """The fitted hyperparameters of one model, and its log evidence.

    A fit keeps the Cholesky factor of the covariance of the rewards that it was last conditioned on. Conditioning on
    one more reward extends that factor, at a cost of n² instead of n³.
    """

    kernel: Kernel
    constant: float
    noise: float | Tensor | HeteroscedasticNoise
    objective: float  # log marginal likelihood plus log prior of the hyperparameters
    evidence: float  # log evidence in nats, from which the model's weight follows
    output: LowTail | None  # output warping, if the model has it
    floor: float | None  # the floor at which rewards are clipped; None if they are not
    effect: SeedEffect | None  # the random effect of simulator seeds, if the model has one
    shear: Shear | None  # the change to actions relative to the state, if the model has them
    record: dict[str, Any] = field(repr=False, compare=False)  # JSON values from which `restored` makes this fit again
    # at most one entry: the factor of the data that this fit was last conditioned on
    _last: list[Factored | Summary] = field(default_factory=list, repr=False, compare=False)

    def posterior(
        self,
        points: Tensor,
        rewards: Tensor,
        noise: Tensor | None = None,
        limits: tuple[float, float] | None = None,
        seeds: Tensor | None = None,
    ) -> ExactPosterior | TransformedPosterior | RelativePosterior:
        """Return the posterior given standardized rewards (n,) at points (n, d).

        `noise` (n,) holds the variances of the rewards' noise if they are known; otherwise the fitted noise is used.
        `limits` are known bounds on the expected reward. `seeds` (n,) are the rewards' simulator seeds. In some models,
        every seed adds its own constant or function to the reward. If `seeds` are given, such a model uses them and
        ignores `limits`.
        """
        if self.effect is not None and seeds is not None:
            within = self.noise if noise is None else noise
            assert not isinstance(within, HeteroscedasticNoise)  # with effects of seeds, noise is the same everywhere
            return condition_with_seeds(self.kernel, self.constant, within, self.effect, points, rewards, seeds)
        if self.floor is not None:
            low, high = limits or (-inf, inf)
            clipped = condition_censored(self.kernel, self.constant, self._learned_noise, points, rewards, self.floor)
            return TransformedPosterior(clipped, Limits(max(low, self.floor), high))
        output = self.output if limits is None else Limits(*limits, self.output)
        values, variances = (rewards, noise) if output is None else output.values(rewards, noise)
        known = self.noise if variances is None else variances
        earlier = self._last[0] if self._last else None
        seen = points if self.shear is None else self.shear(points)
        process, kept = condition_by_size(self.kernel, self.constant, known, seen, values, earlier=earlier)
        self._last[:] = [kept]
        posterior = process if output is None else TransformedPosterior(process, output)
        return posterior if self.shear is None else RelativePosterior(posterior, self.shear)

    def sites(self, points: Tensor, rewards: Tensor) -> Sites | None:
        """Return n pseudo-observations at points (n, d), in place of rewards (n,) of which some are clipped at a floor.

        Rewards above the floor stay as they are. The result is None if the model does not treat rewards as clipped.
        """
        if self.floor is None:
            return None
        noise = variances_at(points, self._learned_noise)
        return moved(sites_of(self.kernel, self.constant, noise, points, rewards.to(points), self.floor), CPU)

    @property
    def _learned_noise(self) -> float | HeteroscedasticNoise:
        assert not isinstance(self.noise, Tensor)  # rewards with known noise are not clipped
        return self.noise


def expected_seconds(n: int, d: int) -> float:
    """Estimate how many seconds a fit of all models to n rewards at points with d columns takes on one core.

    The formula was fitted to three measurements: with eight columns, 2.1 s for 281 rewards and 4.0 s for 493 rewards;
    with two columns, 1.3 s for 281 rewards. A slow or busy machine may take several times as long.
    """
    return 0.78 * (8 + d) * (n / 1000) ** 1.4


def announce(n: int, d: int) -> None:
    """Log how long a fit to n rewards at points with d columns will take, unless it is quick."""
    if (seconds := expected_seconds(n, d)) > ANNOUNCED_SECONDS:
        LOG.info("Fitting the model to %s rewards; this takes about %s.", f"{n:,}", in_words(seconds))


@torch.no_grad()
def fit(
    structures: Structures,
    points: Tensor,
    rewards: Tensor,
    noise: Tensor | None = None,
    *,
    small_noise: bool = False,
    warp: bool = False,
    map_rewards: bool = False,
    members: int = 1,
    earlier: Sequence[Fit] = (),
) -> list[Fit]:
    """Fit models to standardized rewards (n,) at unit-cube points (n, d); return the most probable ones, best first.

    `noise` (n,) holds the variances of the rewards' noise if they are known. Otherwise noise is learned: if
    `small_noise` is true, with a prior that favors small variances; if it is false, heteroscedastic noise is tried too.
    `warp` allows input warping. `map_rewards` allows output warping, and models that treat the lowest rewards as
    clipped. At most `members` models are returned, and none of negligible probability. If some kernel families of
    `structures` have effects of simulator seeds, the last column of the points is the seed.

    If `earlier` holds fits to the first m of these rewards, only their models are fitted again, starting from their
    hyperparameters. If that fails, all models are tried. The result is a pure function of the arguments.
    """
    rewards = rewards.cpu()
    expected: Tensor | Expected = noise.cpu() if noise is not None else "small" if small_noise else "moderate"
    floor = None
    if map_rewards and isinstance(expected, str) and not structures.with_seeds:
        floor = floor_of(points.cpu(), rewards)
    modes = refitted_modes([one.record for one in earlier], structures, points, rewards, expected, floor)
    if not modes and floor is not None and isinstance(expected, str):
        modes = censored_modes(structures, points, rewards, expected, warp, members > 1, floor)
    if not modes:
        seen = structures.seen_by(structures.plain[0], points)
        modes = all_modes(structures, seen, rewards, expected, warp, map_rewards, members > 1)
        modes += modes_with_seeds(structures.with_seeds, modes, points)
    modes.sort(key=lambda mode: -mode.evidence)
    modes = without_repetitions(mode for mode in modes if exp(mode.evidence - modes[0].evidence) > LEAST_WEIGHT)
    kept = modes[:members]
    records = [mode.record(structures) for mode in kept]
    return [restored(record, structures, points, noise, small_noise) for record in records]


def all_modes(
    structures: Structures,
    points: Tensor,
    rewards: Tensor,
    noise: Tensor | Expected,
    warp: bool,
    map_rewards: bool,
    several: bool,
    sites: Sites | None = None,
) -> list[Mode]:
    """Return the modes of all models that have no effects of simulator seeds.

    A mode is a local maximum of the posterior density of a model's hyperparameters. `noise` holds the known variances
    (n,) of the rewards' noise, or else the name of the noise's prior. If `several` is true, a family may contribute
    more than one mode. If rewards are clipped at a floor, the pseudo-observations `sites` replace them.

    First, every family of kernels without main effects is fitted. If `map_rewards` is true and the noise is not known,
    these families are also fitted with output warping. Then the families with the most evidence are fitted with main
    effects. Then variants of the best mode so far are tried: one with heteroscedastic noise if `noise` is "moderate",
    and one with input warping if `warp` is true. A variant is added if it has more evidence than the best mode. With
    heteroscedastic noise, it must have NOISE_MARGIN nats more. Finally, all families are fitted with relative actions,
    if the structures allow it and if these promise enough evidence.
    """
    modes = at_least_one(modes_of_families(structures.plain, points, rewards, noise, several, sites))
    if map_rewards and isinstance(noise, str):
        modes += with_mapped_rewards(structures.plain, modes, noise, several)
    modes += with_main_effects(structures.with_main_effects, modes)
    variants = [(with_heteroscedastic_noise, NOISE_MARGIN)] if noise == "moderate" else []
    variants += [(with_warped_actions, 0.0)] if warp else []
    for variant, margin in variants:
        best = best_of(modes)
        modes += [mode for mode in variant(best) if mode.evidence > best.evidence + margin]
    return modes + with_relative_actions(structures, modes) if structures.relative else modes


def censored_modes(
    structures: Structures,
    points: Tensor,
    rewards: Tensor,
    noise: Expected,
    warp: bool,
    several: bool,
    floor: float,
) -> list[Mode]:
    """Return the modes of the hyperparameters of all models, for rewards that are clipped at a floor.

    A mode is a local maximum of the posterior density. `noise` is the name of the noise's prior, `warp` allows input
    warping, and with `several`, a family may contribute more than one mode. The list is empty if the best model has
    much noise, heteroscedastic noise or output warping. The caller then does not treat rewards as clipped.
    """
    structures = replace(structures, relative=False)
    free = rewards > floor
    best = best_of(all_modes(structures, points[free], rewards[free], noise, False, True, False))
    if not nearly_exact(best):
        return []
    sites = settled_sites(best, points, rewards, noise, floor)
    modes = all_modes(structures, points, rewards, noise, warp, False, several, sites)
    return modes if nearly_exact(best_of(modes)) else []


def at_least_one(modes: list[Mode]) -> list[Mode]:
    """Return modes of hyperparameters unchanged; raise ConboError if there are none, because all searches failed."""
    if not modes:
        raise ConboError(
            "a covariance matrix must be finite and positive definite, but got none at any start of the fit."
        )
    return modes


def refitted_modes(
    records: Sequence[dict[str, Any]],
    structures: Structures,
    points: Tensor,
    rewards: Tensor,
    noise: Tensor | Expected,
    floor: float | None,
) -> list[Mode]:
    """Fit recorded models to new rewards, and return the modes that local searches from recorded parameters find.

    A mode is a local maximum of the posterior density of a model's hyperparameters. `floor` is where the new rewards
    are clipped; None if they are not. The list is empty if the models were recorded for clipped rewards and the new
    rewards are not clipped. It is also empty if the searches fail.
    """
    sites = None
    if records and records[0]["floor"] is not None:
        if floor is None or not isinstance(noise, str):
            return []
        leader = refitted(records[0], structures, points[rewards > floor], rewards[rewards > floor], noise)
        if not leader:
            return []
        sites = settled_sites(leader[0], points, rewards, noise, floor)
    return [mode for record in records for mode in refitted(record, structures, points, rewards, noise, sites)]


def refitted(
    record: dict[str, Any],
    structures: Structures,
    points: Tensor,
    rewards: Tensor,
    noise: Tensor | Expected,
    sites: Sites | None = None,
) -> list[Mode]:
    """Fit one recorded model to new rewards, and return a list with the mode that a local search finds.

    The search starts from the recorded parameters. The record also holds the second derivatives of the log-density at
    the old mode. They make the search short, because a few more rewards hardly change them. The list is empty if the
    search fails. If rewards are clipped at a floor, the pseudo-observations `sites` replace them.
    """
    family = structures.read(record)
    seen = structures.seen_by(family, points)
    target = LogPosterior(family, seen, rewards, "varying" if record["varying"] else noise, sites)
    start, curvature = (torch.tensor(record[key], dtype=torch.float64) for key in ("parameters", "curvature"))
    maps = None if record["output"] is None else learned_maps(rewards)
    if maps is None:
        found = local_search(target, start[None], curvature=curvature[None])
    else:
        # the map was learned when the first rewards alone were standardized
        scale, shift = torch.std_mean(rewards[: record["n_rewards"]])
        output = read_tail(record["output"]).in_other_units(float(shift), float(scale))
        row = torch.cat([start, maps.parameters(output)])
        found = joint_search(target, maps, row[None], curvature=curvature[None])
    return [replace(mode, log_odds=record["log_odds"]) for mode in found]


def probabilities(fits: Sequence[Fit]) -> Tensor:
    """Return the posterior probabilities (models,) of fitted models, which are proportional to their evidence."""
    return torch.tensor([fit.evidence for fit in fits], dtype=torch.float64).softmax(0)


def restored(
    record: dict[str, Any],
    structures: Structures,
    points: Tensor,
    noise: Tensor | None = None,
    small_noise: bool = False,
) -> Fit:
    """Return the fit that a record describes, given the kernel families, points and noise of that fit."""
    family = structures.read(record)
    expected: Expected = "varying" if record["varying"] else "small" if small_noise else "moderate"
    nothing = structures.seen_by(family, points[:0]).cpu()
    target = LogPosterior(family, nothing, nothing[:, 0], expected if noise is None else noise.cpu())
    parameters = torch.tensor(record["parameters"], dtype=torch.float64)
    kernel, learned = target.kernel(parameters), target.noise_of(parameters)
    seeded = structures.seeded(family)
    effect = None if seeded is None else seeded.effect(parameters)
    shear = shear_of(family, parameters)
    if points.device.type != "cpu":
        kernel, learned = kernel.to(points.device), learned if isinstance(learned, float) else learned.to(points.device)
        effect, shear = moved((effect, shear), points.device)
    output = None if record["output"] is None else read_tail(record["output"])
    floor, evidence = record["floor"], record["evidence"]
    known = record["constant"], learned, record["objective"], evidence
    return Fit(kernel, *known, output, floor, effect, shear, record)
