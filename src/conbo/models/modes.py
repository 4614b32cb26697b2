"""Modes of the hyperparameters, where a model's log-density is highest, and the evidence of the model at its mode.

    log p(rewards | model) ≈ log p(rewards, θ | model) + ½ log |2π H⁻¹|     (Laplace)

with θ the mode and H the negated second derivatives of the log-density at θ.  A variant of a model is the same model
with main effects, input warping or heteroscedastic noise added; its search starts from the mode of the plain model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

import torch
from torch import Tensor

from conbo.ascent import SuccessiveHalving, ascend
from conbo.models.kernel_families import KernelFamily
from conbo.models.log_posterior import Expected, LogPosterior, Peak
from conbo.models.main_effects import MainEffectsFamily
from conbo.models.output_maps import LowTail
from conbo.models.structures import Structures
from conbo.models.warped_family import WarpedFamily

CLIMBED_STARTS = 2  # number of the best screened starts from which a local search begins
SCREENED_REWARDS = 300  # largest number of rewards with which starts are screened, because each evaluation costs n³
ITERATIONS = 100
HALVING = SuccessiveHalving(iterations=15, survivors=CLIMBED_STARTS)  # starts that lag are dropped
TOLERANCE = 1e-3  # nats: a step that promises less ends a local search; the data cannot resolve such differences
NEGLIGIBLE_NOISE = 1e-4  # variance of the noise below which heteroscedastic noise is not tried
WARP_MARGIN = 6.0  # nats of log-density that input warping must gain
MIN_PROMISED_WARP_GAIN = 3.0  # nats that a Newton step in the exponents must promise before warping is tried
MAP_MARGIN = 15.0  # least nats that output warping must gain, because it costs accuracy near the best action
MAP_MARGIN_PER_REWARD = 0.3  # nats per reward that it must gain, because suggestions then take longer
MIN_NOISE_GAIN = 1.0  # nats of log-density that heteroscedastic noise must gain before its evidence is computed
EFFECT_REACH = 6.0  # nats by which a model with main effects may be less probable than the best model
VARIANT_HALVING = SuccessiveHalving(iterations=8, survivors=1)  # drops a variant that cannot reach its goal
HOPELESS_GAP = 10.0  # nats: a mode whose log-density is lower than the best mode's by more is dropped
SAME_PARAMETERS = 0.3  # models whose parameters (mostly logarithms) are all closer than this count as the same
SAME_MODE = 0.05  # nats: modes of one model whose objectives are closer than this count as one


@dataclass(frozen=True)
class Mode:
    """A mode of the hyperparameters of one model."""

    target: LogPosterior
    parameters: Tensor  # (p,)
    objective: float  # log-density of the (possibly mapped) rewards and the parameters
    output: LowTail | None = None
    log_jacobian: float = 0.0  # log Jacobian of the map, which makes densities of mapped and plain rewards comparable

    log_odds: float = 0.0  # nats that are added to Laplace's estimate of the evidence
    stated_evidence: float | None = None  # replaces Laplace's estimate of the evidence, which takes many likelihoods

    @cached_property
    def evidence(self) -> float:
        """The log evidence log p(rewards | model), in nats."""
        return self.laplace + self.log_odds if self.stated_evidence is None else self.stated_evidence

    @cached_property
    def laplace(self) -> float:
        """log p(rewards | model) by Laplace's method, minus a margin for output warping."""
        margin = 0.0 if self.output is None else map_margin(len(self.target.points))
        return self.objective + self.log_jacobian + self.peak.log_volume - margin

    @cached_property
    def peak(self) -> Peak:
        """The log-density around the mode."""
        return self.target.peak(self.parameters)

    def like(self, other: "Mode") -> "Mode":
        """The mode `other`, with the output warping of this mode."""
        return replace(other, output=self.output, log_jacobian=self.log_jacobian)

    def weighted_by_density(self, other: "Mode", margin: float) -> "Mode":
        """This mode, with the evidence of `other` plus the gain in log-density over `other`, minus a margin (nats)."""
        return replace(self, stated_evidence=other.evidence + self.objective - other.objective - margin)

    def record(self, structures: Structures) -> dict[str, Any]:
        """The model at this mode as plain values, from which `restored` makes the fit again."""
        return {
            **structures.record(self.target.family),
            "varying": self.target.varies,
            "parameters": self.parameters.tolist(),
            "curvature": self.peak.curvature.tolist(),
            "constant": self.peak.mean,
            "objective": self.objective,
            "evidence": self.evidence,
            "output": None if self.output is None else self.output.record(),
            "log_odds": self.log_odds if self.stated_evidence is None else self.stated_evidence - self.laplace,
        }


def map_margin(n: int) -> float:
    """The nats that output warping of n rewards must gain."""
    return max(MAP_MARGIN, MAP_MARGIN_PER_REWARD * n)


def best_of(modes: Sequence[Mode]) -> Mode:
    """The mode with the highest evidence."""
    return max(modes, key=lambda mode: mode.evidence)


def without_repetitions(modes: Iterable[Mode]) -> list[Mode]:
    """The modes in their order, without those whose parameters are close to those of an earlier mode."""
    kept: list[Mode] = []
    for mode in modes:
        same = (one for one in kept if one.target.family == mode.target.family and one.output == mode.output)
        alike = (one.parameters for one in same if one.parameters.shape == mode.parameters.shape)
        if all(float((mode.parameters - other).abs().max()) > SAME_PARAMETERS for other in alike):
            kept.append(mode)
    return kept


def modes_of_families(
    families: Sequence[KernelFamily], points: Tensor, rewards: Tensor, noise: Tensor | Expected, all_modes: bool
) -> list[Mode]:
    """The modes of every family; the search for each starts from the best mode of the previous family."""
    modes: list[Mode] = []
    for family in families:
        target = LogPosterior(family, points, rewards, noise)
        starts = modes[-1].parameters[None] if modes else promising_starts(target, noisy=all_modes)
        found = local_search(target, starts)
        modes += reversed(found if all_modes else found[:1])  # the best one last: the next family starts from it
    return modes


def with_main_effects(families: Sequence[MainEffectsFamily], modes: Sequence[Mode]) -> list[Mode]:
    """The most probable mode of each profile with main effects, without improbable profiles.

    Main effects hardly change the volume term of Laplace's method, so log-densities tell early which model can win. The
    most probable profile comes first: if main effects do not help it, they help no other.  A profile that lags by far
    more than main effects can gain is skipped.
    """
    pairs = []
    for family in families:
        alone = [mode for mode in modes if mode.target.family == family.family]
        if alone:
            pairs.append((family, best_of(alone)))
    found: list[Mode] = []
    for family, best in sorted(pairs, key=lambda pair: -pair[1].evidence):
        gain = max(0.0, best_of(found).evidence - best_of(modes).evidence) if found else inf
        if best.evidence + gain < best_of(modes).evidence - HOPELESS_GAP:
            break
        target = LogPosterior(family, best.target.points, best.target.rewards, best.target.noise)
        goal = best.objective + best_of(modes).evidence - best.evidence - EFFECT_REACH
        own = variant_modes(target, family.from_interaction(best.parameters), goal)
        if not own:
            break
        found += [best.like(mode) for mode in own]
    return found


def with_heteroscedastic_noise(plain: Mode) -> list[Mode]:
    """The modes of the same model with heteroscedastic noise; an empty list if this gains too little."""
    old = plain.target
    noise = old.noise_of(plain.parameters)
    if not isinstance(noise, float) or noise < NEGLIGIBLE_NOISE:
        return []
    target = LogPosterior(old.family, old.points, old.rewards, "varying")
    start = torch.cat([plain.parameters, plain.parameters.new_zeros(target.n_slopes)])
    return [plain.like(mode) for mode in variant_modes(target, start, plain.objective + MIN_NOISE_GAIN)]


def with_warped_actions(plain: Mode) -> list[Mode]:
    """The modes of the same model with input warping, if rewards hint at it.

    Each of many exponents is weakly determined, so Laplace's method underrates their joint effect. The model is
    therefore weighted by its density at the mode, with a margin.
    """
    family, old = WarpedFamily(plain.target.family), plain.target
    if not family.n_warps or old.kernel(plain.parameters).actions.warp is not None:
        return []
    target = LogPosterior(family, old.points, old.rewards, old.noise)
    own, rest = plain.parameters[: family.n_own], plain.parameters[family.n_own :]
    start = torch.cat([own, own.new_zeros(family.n_warps), rest])
    if target.promise(start, family.exponents) < MIN_PROMISED_WARP_GAIN:
        return []
    found = variant_modes(target, start, plain.objective + WARP_MARGIN)
    return [plain.like(mode).weighted_by_density(plain, WARP_MARGIN) for mode in found]


def variant_modes(target: LogPosterior, start: Tensor, goal: float) -> list[Mode]:
    """The mode reached from a start (p,) if its log-density exceeds the goal; hopeless searches end early."""
    found = local_search(target, start[None], replace(VARIANT_HALVING, goal=goal))
    return [mode for mode in found if mode.objective > goal]


def local_search(
    target: LogPosterior, starts: Tensor, halving: SuccessiveHalving = HALVING, curvature: Tensor | None = None
) -> list[Mode]:
    """The distinct modes reached from starts (r, p), the best first, without those that are far lower than the best.

    `curvature` (r, p, p) holds rough negated second derivatives at the starts, if they are known.
    """
    lower, upper = target.bounds.T
    starts = starts.clamp(lower, upper)
    curvature = target.curvature(starts).diag_embed() if curvature is None else curvature
    ascent = ascend(lambda p, _: target(p)[:2], starts, lower, upper, ITERATIONS, 0.05, TOLERANCE, halving, curvature)
    return [Mode(target, ascent.points[row], float(ascent.values[row])) for row in distinct_modes(ascent.values)]


def distinct_modes(values: Tensor) -> list[int]:
    """The indices of distinct modes among the ends of a search with values (r,), the best first.

    Modes that are far lower than the best one are left out.
    """
    kept: list[int] = []
    for row in values.argsort(descending=True, stable=True).tolist():
        if not float(values[row]) > (float(values[kept[0]]) - HOPELESS_GAP if kept else -inf):
            break
        if all(float(values[known] - values[row]) > SAME_MODE for known in kept):
            kept.append(row)
    return kept


def promising_starts(target: LogPosterior, noisy: bool) -> Tensor:
    """The best few Sobol starts; if there are many rewards, the best modes for a subset of them.

    With `noisy`, also a start with a large noise variance: from a small one, a local search tends to end at short
    lengthscales that explain the noise.
    """
    if len(target.points) > SCREENED_REWARDS:
        some = target.thinned(SCREENED_REWARDS)
        found = local_search(some, promising_starts(some, noisy))
        return torch.stack([mode.parameters for mode in found[:CLIMBED_STARTS]])
    starts = target.starts()
    chosen = starts[target(starts)[0].argsort(descending=True, stable=True)[:CLIMBED_STARTS]]
    return torch.cat([chosen, target.noisy_start()[None]]) if noisy and target.learned else chosen
