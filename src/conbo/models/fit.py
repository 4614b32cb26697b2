"""The most probable models of the rewards, fitted by maximum a posteriori and weighted by their evidence.

No single model is trusted.  Structures (a rough or a smooth kernel, with or without main effects), modes of their
hyperparameters, input warping, heteroscedastic noise and output warping are tried.  The probable models become the
members of an average. Every structure is fitted; warping and heteroscedastic noise are tried only if the rewards hint
at them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp
from typing import Any

import torch
from torch import Tensor

from conbo.errors import ConboError
from conbo.models.approximate import Summary, condition_by_size
from conbo.models.exact import ExactPosterior
from conbo.models.factored import Factored
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.kernels import Kernel
from conbo.models.learned_maps import learned_maps
from conbo.models.log_posterior import Expected, LogPosterior
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
from conbo.models.seed_effects import SeedEffect, condition_with_seeds
from conbo.models.seeded_modes import modes_with_seeds
from conbo.models.structures import Structures
from conbo.models.transformed import TransformedPosterior
from conbo.notices import LOG, in_words

ANNOUNCED_SECONDS = 2.0  # fits that are expected to take longer are announced in the log
LEAST_WEIGHT = 0.03  # members with less weight are dropped
NOISE_MARGIN = 2.0  # nats of evidence that heteroscedastic noise must gain, because every variant adds a member


@dataclass(frozen=True)
class Fit:
    """Fitted hyperparameters of one model, and its log evidence.

    It keeps the factor of the last data that it was conditioned on, so that one more reward costs little.
    """

    kernel: Kernel
    constant: float
    noise: float | Tensor | HeteroscedasticNoise
    objective: float  # log-density at the mode
    evidence: float
    output: LowTail | None
    effect: SeedEffect | None  # the effect of seeds, if the rewards support one
    record: dict[str, Any] = field(repr=False, compare=False)  # plain values from which `restored` makes this fit again
    _last: list[Factored | Summary] = field(default_factory=list, repr=False, compare=False)

    def posterior(
        self,
        points: Tensor,
        rewards: Tensor,
        noise: Tensor | None = None,
        limits: tuple[float, float] | None = None,
        seeds: Tensor | None = None,
    ) -> ExactPosterior | TransformedPosterior:
        """Condition on standardized rewards (n,) at points (n, d), with known noise variances (n,), if given.

        `limits` bound the expected reward, if they are known. `seeds` (n,) are the seeds of the rewards, if they have
        any; with seeds, there are no limits.
        """
        if self.effect is not None and seeds is not None:
            within = self.noise if noise is None else noise
            assert not isinstance(within, HeteroscedasticNoise)  # with effects of seeds, noise is the same everywhere
            return condition_with_seeds(self.kernel, self.constant, within, self.effect, points, rewards, seeds)
        output = self.output if limits is None else Limits(*limits, self.output)
        values, variances = (rewards, noise) if output is None else output.values(rewards, noise)
        known = self.noise if variances is None else variances
        earlier = self._last[0] if self._last else None
        process, kept = condition_by_size(self.kernel, self.constant, known, points, values, earlier=earlier)
        self._last[:] = [kept]
        return process if output is None else TransformedPosterior(process, output)


def expected_seconds(n: int, d: int) -> float:
    """Rough duration in seconds of a fit of all models to n rewards at points with d columns, on one core.

    It was measured with eight columns (2.1 and 4.0 s for 281 and 493 rewards) and with two (1.3 s for 281).  A slow or
    busy machine may take several times as long.
    """
    return 0.78 * (8 + d) * (n / 1000) ** 1.4


def announce(n: int, d: int) -> None:
    """Before a fit begins, log how long it will take, unless it is quick."""
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
    """Fit standardized rewards (n,) at unit-cube points (n, d): the most probable models, the best first.

    `noise` holds known variances. Otherwise noise is learned, and may vary with the point unless it is expected to be
    small.  `warp` allows input warping, and `map_rewards` output warping.  At most `members` models are returned, and
    none of negligible probability.  Given `earlier` models, which were probable for the first of these rewards, only
    those are fitted, starting from their hyperparameters.  If some structures have effects of seeds, the last column of
    the points is the seed.

    The result is a pure function of the arguments: the same data give the same models, whatever happened before.
    """
    rewards = rewards.cpu()
    expected: Tensor | Expected = noise.cpu() if noise is not None else "small" if small_noise else "moderate"
    modes = [mode for one in earlier for mode in refitted(one.record, structures, points, rewards, expected)]
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
) -> list[Mode]:
    """The modes of all models without effects of seeds.

    Every family is fitted to plain and to mapped rewards.  The best mode is then fitted with heteroscedastic noise and
    with input warping, and these variants are kept if they are more probable."""
    modes = at_least_one(modes_of_families(structures.plain, points, rewards, noise, several))
    if map_rewards and isinstance(noise, str):
        modes += with_mapped_rewards(structures.plain, modes, noise, several)
    modes += with_main_effects(structures.with_main_effects, modes)
    variants = [(with_heteroscedastic_noise, NOISE_MARGIN)] if noise == "moderate" else []
    variants += [(with_warped_actions, 0.0)] if warp else []
    for variant, margin in variants:
        best = best_of(modes)
        modes += [mode for mode in variant(best) if mode.evidence > best.evidence + margin]
    return modes


def at_least_one(modes: list[Mode]) -> list[Mode]:
    """The modes; raises ConboError if there are none."""
    if not modes:
        raise ConboError(
            "a covariance matrix must be finite and positive definite, but got none at any start of the fit."
        )
    return modes


def refitted(
    record: dict[str, Any],
    structures: Structures,
    points: Tensor,
    rewards: Tensor,
    noise: Tensor | Expected,
) -> list[Mode]:
    """The mode of a recorded model for other rewards, found by local search from the recorded parameters.

    The recorded curvature makes it short: a few more rewards hardly change that.
    """
    family = structures.read(record)
    seen = structures.seen_by(family, points)
    target = LogPosterior(family, seen, rewards, "varying" if record["varying"] else noise)
    start, curvature = (torch.tensor(record[key], dtype=torch.float64) for key in ("parameters", "curvature"))
    maps = None if record["output"] is None else learned_maps(rewards)
    if maps is None:
        found = local_search(target, start[None], curvature=curvature[None])
    else:
        row = torch.cat([start, maps.parameters(read_tail(record["output"]))])
        found = joint_search(target, maps, row[None], curvature=curvature[None])
    return [replace(mode, log_odds=record["log_odds"]) for mode in found]


def probabilities(fits: Sequence[Fit]) -> Tensor:
    """The weights of models by their evidence; they add up to one."""
    return torch.tensor([fit.evidence for fit in fits], dtype=torch.float64).softmax(0)


def restored(
    record: dict[str, Any],
    structures: Structures,
    points: Tensor,
    noise: Tensor | None = None,
    small_noise: bool = False,
) -> Fit:
    """The fit that a record describes, given the structures and the data that it was made from."""
    family = structures.read(record)
    expected: Expected = "varying" if record["varying"] else "small" if small_noise else "moderate"
    nothing = structures.seen_by(family, points[:0]).cpu()
    target = LogPosterior(family, nothing, nothing[:, 0], expected if noise is None else noise.cpu())
    parameters = torch.tensor(record["parameters"], dtype=torch.float64)
    kernel, learned = target.kernel(parameters), target.noise_of(parameters)
    seeded = structures.seeded(family)
    effect = None if seeded is None else seeded.effect(parameters)
    if points.device.type != "cpu":
        kernel, learned = kernel.to(points.device), learned if isinstance(learned, float) else learned.to(points.device)
        effect = moved(effect, points.device)
    output = None if record["output"] is None else read_tail(record["output"])
    return Fit(kernel, record["constant"], learned, record["objective"], record["evidence"], output, effect, record)
