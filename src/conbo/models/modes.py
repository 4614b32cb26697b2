"""Modes of the hyperparameters: where the log-density of a model is highest, and how probable the model is there.

    log p(rewards | model) ≈ log p(rewards, θ | model) + ½ log |2π H⁻¹|     (Laplace)

with θ the mode and H the negated second derivatives of the log-density there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

import torch
from torch import Tensor

from conbo.ascent import Race, ascend
from conbo.models.kernel_families import KernelFamily
from conbo.models.log_posterior import Expected, LogPosterior
from conbo.models.main_effects import MainEffectsFamily
from conbo.models.output_maps import LowTail, low_tails
from conbo.models.warped_family import WarpedFamily

CLIMBED_STARTS = 2  # of those that are looked at, the best few are climbed from
MANY = 300  # rewards: starts are looked for with so many of them, since a look costs n³
ITERATIONS = 100
RACE = Race(iterations=15, survivors=CLIMBED_STARTS)  # from then on, a climb that cannot catch up ends
TOLERANCE = 1e-3  # in log-density: far below what the data can tell apart
EXACT = 1e-4  # variance of noise below which its slopes do not matter
WARP_MARGIN = 6.0  # nats of log-density that input warping must gain
WARP_HINT = 3.0  # nats that a Newton step in the exponents must promise before warping is tried
MAP_MARGIN = 15.0  # nats by which a map of the rewards must be more probable: it costs accuracy near the best action
TRIAL = Race(iterations=20, survivors=1)  # a variant may have a long way to go from where the model without it ended
REACH = 4.0  # nats below the goal at which a variant is given up
SAME_PARAMETERS = 0.3  # nats: models whose parameters are all closer than this predict nearly the same
SAME_MODE = 0.05  # nats: modes of one model with objectives closer than this are taken to be one


@dataclass(frozen=True)
class Mode:
    """A mode of the hyperparameters of one model."""

    target: LogPosterior
    parameters: Tensor  # (p,)
    objective: float  # log-density of the (possibly mapped) rewards and the parameters
    output: LowTail | None = None
    log_jacobian: float = 0.0  # of the map, which makes densities of mapped and plain rewards comparable

    log_odds: float = 0.0  # nats that are added to the evidence

    @cached_property
    def evidence(self) -> float:
        """log p(rewards | model), by Laplace's method, less a margin for a map of the rewards."""
        margin = 0.0 if self.output is None else MAP_MARGIN
        volume = self.target.log_volume(self.parameters)
        return self.objective + self.log_jacobian + volume - margin + self.log_odds

    def like(self, other: "Mode") -> "Mode":
        """Another mode of a model with the same map of the rewards."""
        return replace(other, output=self.output, log_jacobian=self.log_jacobian)

    def weighed_by_density(self, other: "Mode", margin: float) -> "Mode":
        """The same with the evidence of another mode, plus what its own density gains on it beyond a margin."""
        wanted = other.evidence + self.objective - other.objective - margin
        return replace(self, log_odds=wanted - self.evidence)

    def record(self, families: Sequence[KernelFamily]) -> dict[str, Any]:
        """The model at this mode as plain values, from which `restored` makes it again."""
        family, (*_, constant) = self.target.family, self.target(self.parameters[None])
        warped = isinstance(family, WarpedFamily) and family not in families
        return {
            "family": families.index(family.family if isinstance(family, WarpedFamily) and warped else family),
            "warped": warped,
            "varying": self.target.varies,
            "parameters": self.parameters.tolist(),
            "constant": float(constant),
            "objective": self.objective,
            "evidence": self.evidence,
            "output": None if self.output is None else self.output.record(),
            "log_odds": self.log_odds,
            "map": None if self.output is None else self.output.name,
        }


def best_of(modes: Sequence[Mode]) -> Mode:
    """The most probable one."""
    return max(modes, key=lambda mode: mode.evidence)


def without_repetitions(modes: Iterable[Mode]) -> list[Mode]:
    """The modes in their order, without those that another climb found before."""
    kept: list[Mode] = []
    for mode in modes:
        same = (one for one in kept if one.target.family == mode.target.family and one.output == mode.output)
        alike = (one.parameters for one in same if one.parameters.shape == mode.parameters.shape)
        if all(float((mode.parameters - other).abs().max()) > SAME_PARAMETERS for other in alike):
            kept.append(mode)
    return kept


def structures(
    families: Sequence[KernelFamily], points: Tensor, rewards: Tensor, noise: Tensor | Expected, all_modes: bool
) -> list[Mode]:
    """The modes of every family, each climbed from where the one before ended."""
    modes: list[Mode] = []
    for family in families:
        target = LogPosterior(family, points, rewards, noise)
        starts = modes[-1].parameters[None] if modes else promising_starts(target, noisy=all_modes)
        found = climb(target, starts)
        modes += reversed(found if all_modes else found[:1])  # the best one last: the next family begins there
    return modes


def with_main_effects(families: Sequence[MainEffectsFamily], modes: Sequence[Mode]) -> list[Mode]:
    """The most probable mode of each profile with main effects."""
    found = []
    for family in families:
        alone = [mode for mode in modes if mode.target.family == family.family]
        if alone:
            best = best_of(alone)
            target = LogPosterior(family, best.target.points, best.target.rewards, best.target.noise)
            found += [best.like(mode) for mode in climb(target, family.from_interaction(best.parameters)[None])]
    return found


def with_mapped_rewards(
    families: Sequence[KernelFamily], points: Tensor, rewards: Tensor, noise: Expected, all_modes: bool
) -> list[Mode]:
    """The modes of every family for mapped rewards, where a map is promising at the usual starts of a fit."""
    maps = low_tails(rewards)
    if not maps:
        return []
    columns = torch.stack([rewards, *(output.values(rewards, None)[0] for output in maps)], -1)
    jacobians = torch.tensor([0.0, *(float(output.log_slope(rewards).sum()) for output in maps)], dtype=torch.float64)
    target = LogPosterior(families[0], points, rewards, noise)
    heights = target.of_rewards(target.starts(), columns).amax(0) + jacobians
    best = int(heights[1:].argmax()) + 1
    if not heights[best] > heights[0] + MAP_MARGIN:
        return []
    mapped = structures(families, points, columns[:, best], noise, all_modes)
    return [replace(mode, output=maps[best - 1], log_jacobian=float(jacobians[best])) for mode in mapped]


def with_varying_noise(plain: Mode) -> list[Mode]:
    """The same model with noise that varies."""
    old = plain.target
    noise = old.noise_of(plain.parameters)
    if not isinstance(noise, float) or noise < EXACT:
        return []
    target = LogPosterior(old.family, old.points, old.rewards, "varying")
    start = torch.cat([plain.parameters, plain.parameters.new_zeros(target.n_slopes)])
    found = climb(target, start[None], replace(TRIAL, goal=plain.objective - REACH))
    return [plain.like(mode) for mode in found]


def with_warped_actions(plain: Mode) -> list[Mode]:
    """The same model with warped actions, where rewards hint at it.

    Each of many exponents is weakly determined, so that Laplace's method underrates what they do together: the model is
    weighed by its density at the mode, with a margin.
    """
    if isinstance(plain.target.family, WarpedFamily):
        return []
    family, old = WarpedFamily(plain.target.family), plain.target
    if not family.n_warps:
        return []
    target = LogPosterior(family, old.points, old.rewards, old.noise)
    own, rest = plain.parameters[: family.n_own], plain.parameters[family.n_own :]
    start = torch.cat([own, own.new_zeros(family.n_warps), rest])
    if target.promise(start, family.exponents) < WARP_HINT:
        return []
    found = climb(target, start[None], replace(TRIAL, goal=plain.objective + WARP_MARGIN))
    return [plain.like(mode).weighed_by_density(plain, WARP_MARGIN) for mode in found]


def climb(target: LogPosterior, starts: Tensor, race: Race = RACE) -> list[Mode]:
    """The different modes that are reached from starts (r, p), the best first."""
    lower, upper = target.bounds.T
    starts = starts.clamp(lower, upper)
    curvature = target.curvature(starts)
    ascent = ascend(lambda p, _: target(p)[:2], starts, lower, upper, ITERATIONS, 0.05, TOLERANCE, race, curvature)
    modes: list[Mode] = []
    for row in ascent.values.argsort(descending=True, stable=True).tolist():
        value = float(ascent.values[row])
        if value > -inf and all(known.objective - value > SAME_MODE for known in modes):
            modes.append(Mode(target, ascent.points[row], value))
    return modes


def promising_starts(target: LogPosterior, noisy: bool) -> Tensor:
    """The best few of the quasi-random starts; of many rewards, what fits some of them.

    With `noisy`, also one with much noise: from little noise a climb tends to end where short lengthscales explain
    what is noise.
    """
    if len(target.points) > MANY:
        some = target.thinned(MANY)
        found = climb(some, promising_starts(some, noisy))
        return torch.stack([mode.parameters for mode in found[:CLIMBED_STARTS]])
    starts = target.starts()
    chosen = starts[target(starts)[0].argsort(descending=True, stable=True)[:CLIMBED_STARTS]]
    return torch.cat([chosen, target.noisy_start()[None]]) if noisy and target.learned else chosen
