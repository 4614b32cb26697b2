"""Local search for the modes of a model's hyperparameters, and the model's evidence by Laplace's method.

    log p(rewards | model) ≈ log p(rewards, θ | model) + ½ log |2π H⁻¹| + aᵀθ + ½ aᵀH⁻¹a

Here θ is the mode, and H is the negated Hessian of the log-density at θ.  Most parameters are logarithms of quantities,
while their priors are densities of the quantities themselves.  The vector a has the entry 1 for such a parameter and 0
for others.  The last two terms come from the Jacobian of the logarithm (see `Peak`).

The functions `with_...` fit variants of a model: the same model with main effects, input warping or heteroscedastic
noise added.  The search for a variant starts from the mode of the model without the addition.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

import torch
from torch import Tensor

from conbo.ascent import SuccessiveHalving, ascend
from conbo.models.hyperparameter_prior import Expected
from conbo.models.kernel_families import KernelFamily
from conbo.models.log_posterior import LogPosterior
from conbo.models.main_effects import MainEffectsFamily
from conbo.models.output_maps import LowTail
from conbo.models.peak import Peak
from conbo.models.structures import Structures
from conbo.models.truncation import Sites
from conbo.models.warped_family import WarpedFamily

CLIMBED_STARTS = 2  # number of the best screened starts from which a local search begins
SCREENED_REWARDS = 300  # largest number of rewards with which starts are screened, because each evaluation costs n³
ITERATIONS = 100  # largest number of iterations of a local search
TOLERANCE = 1e-3  # nats: a local search ends when its next step promises to gain less
NEGLIGIBLE_NOISE = 1e-4  # variance of the noise below which heteroscedastic noise is not tried
WARP_MARGIN = 6.0  # nats of log-density that input warping must gain
MIN_PROMISED_WARP_GAIN = 3.0  # nats that a Newton step in the warp's exponents must promise before warping is tried
MAP_MARGIN = 15.0  # nats that output warping must gain at least, because it costs accuracy near the best action
MAP_MARGIN_PER_REWARD = 0.3  # nats per reward that output warping must gain, because it makes suggestions slower
MIN_NOISE_GAIN = 1.0  # nats of log-density that heteroscedastic noise must gain before its evidence is computed
EFFECT_REACH = 6.0  # nats by which a model with main effects may be less probable than the best model
VARIANT_HALVING = SuccessiveHalving(iterations=8, survivors=1)  # drops a variant that cannot reach its goal
HOPELESS_GAP = 10.0  # nats: a mode whose log-density is lower than the best mode's by more is dropped
NEARLY_STATIONARY = 0.1  # nats: an end point counts as a mode if a Newton step promises to gain less
SAME_PARAMETERS = 0.3  # models whose parameters (mostly logarithms) are all closer than this count as the same
SAME_MODE = 0.05  # nats: modes of one model whose objectives are closer than this count as one


@dataclass(frozen=True)
class Mode:
    """A mode of the hyperparameters of one model: a local maximum of their log posterior density."""

    target: LogPosterior
    parameters: Tensor  # (p,)
    objective: float  # log-density of the (possibly mapped) rewards and the parameters
    output: LowTail | None = None  # output warping; None if the rewards are not mapped
    log_jacobian: float = 0.0  # log(Jacobian · prior) of the map; it makes models with and without a map comparable

    log_odds: float = 0.0  # nats that are added to Laplace's estimate of the evidence
    stated_evidence: float | None = None  # log evidence that replaces Laplace's estimate

    @cached_property
    def evidence(self) -> float:
        """The log evidence in nats: `stated_evidence` if given, otherwise `laplace` plus the correction `log_odds`."""
        return self.laplace + self.log_odds if self.stated_evidence is None else self.stated_evidence

    @cached_property
    def laplace(self) -> float:
        """The log evidence by Laplace's method.

        If the mode has output warping, `map_margin` is subtracted as a penalty.
        """
        margin = 0.0 if self.output is None else map_margin(len(self.target.points))
        return self.objective + self.log_jacobian + self.peak.log_volume - margin

    @cached_property
    def peak(self) -> Peak:
        """Laplace's approximation of the log-density at this mode."""
        return self.target.peak(self.parameters)

    def like(self, other: "Mode") -> "Mode":
        """Return a copy of `other` with the output map and `log_jacobian` of this mode.

        This mode and `other` were fitted to rewards that were mapped in the same way. `other` comes from a local search
        that knows only the mapped rewards, so these two fields are not set in it.
        """
        return replace(other, output=self.output, log_jacobian=self.log_jacobian)

    def weighted_by_density(self, other: "Mode", margin: float) -> "Mode":
        """Return this mode with its log evidence replaced by an estimate that does not use Laplace's method.

        The estimate is the log evidence of `other`, plus how much higher the log-density is at this mode than at
        `other`, minus `margin` nats.
        """
        return replace(self, stated_evidence=other.evidence + self.objective - other.objective - margin)

    def record(self, structures: Structures) -> dict[str, Any]:
        """Return the fitted model as plain values, from which `conbo.models.fit.restored` rebuilds it."""
        return {
            **structures.record(self.target.family),
            "varying": self.target.varies,
            "n_rewards": len(self.target.points),
            "parameters": self.parameters.tolist(),
            "curvature": self.peak.curvature.tolist(),
            "constant": self.peak.mean,
            "objective": self.objective,
            "evidence": self.evidence,
            "output": None if self.output is None else self.output.record(),
            "floor": None if self.target.sites is None else self.target.sites.floor,
            "log_odds": self.log_odds if self.stated_evidence is None else self.stated_evidence - self.laplace,
        }


def map_margin(n: int) -> float:
    """Return the penalty in nats on the log evidence of a model with output warping, if there are n rewards."""
    return max(MAP_MARGIN, MAP_MARGIN_PER_REWARD * n)


def best_of(modes: Sequence[Mode]) -> Mode:
    """Return the mode (a fitted model) with the highest evidence."""
    return max(modes, key=lambda mode: mode.evidence)


def without_repetitions(modes: Iterable[Mode]) -> list[Mode]:
    """Return the modes without those that nearly equal an earlier one.

    A mode is a set of fitted hyperparameters. Two modes are compared only if they have the same family of kernels, the
    same output warping and the same number of hyperparameters.
    """
    kept: list[Mode] = []
    for mode in modes:
        same = (one for one in kept if one.target.family == mode.target.family and one.output == mode.output)
        alike = (one.parameters for one in same if one.parameters.shape == mode.parameters.shape)
        if all(float((mode.parameters - other).abs().max()) > SAME_PARAMETERS for other in alike):
            kept.append(mode)
    return kept


def modes_of_families(
    families: Sequence[KernelFamily],
    points: Tensor,
    rewards: Tensor,
    noise: Tensor | Expected,
    all_modes: bool,
    sites: Sites | None = None,
) -> list[Mode]:
    """Return the fitted modes of every family of kernels, given rewards (n,) at points (n, d).

    A mode is a local maximum of the posterior density of the hyperparameters. The search in the first family starts
    from its `promising_starts`. If `all_modes` is true, every family contributes all modes that `local_search` returns,
    and the search in the next family starts from the one with the highest evidence. Otherwise, a family contributes
    only the mode with the highest density, from which the search in the next family starts. `noise` holds the known
    variances (n,) of the rewards' noise, or else the name of the noise's prior. If rewards are clipped at a floor, the
    pseudo-observations `sites` are used in place of `rewards`.
    """
    modes: list[Mode] = []
    leader: Mode | None = None
    for family in families:
        target = LogPosterior(family, points, rewards, noise, sites)
        starts = promising_starts(target, noisy=all_modes) if leader is None else leader.parameters[None]
        if found := local_search(target, starts):
            leader = best_of(found) if all_modes else found[0]
            modes += found if all_modes else [leader]
    return modes


def with_main_effects(families: Sequence[MainEffectsFamily], modes: Sequence[Mode]) -> list[Mode]:
    """Fit promising families with main effects, and return one mode of the hyperparameters for each of them.

    `modes` are the modes of the families without main effects. The families are fitted with main effects in descending
    order of their evidence without main effects, and the first family is always fitted. The function stops at the first
    family that cannot compete with the best of `modes`, for one of two reasons:

    - Its evidence without main effects is too low, so it is not fitted.
    - It was fitted, but main effects raise its log-density too little.

    This family contributes no mode.
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
        target = best.target.of_family(family)
        goal = best.objective + best_of(modes).evidence - best.evidence - EFFECT_REACH
        own = variant_modes(target, family.from_interaction(best.parameters), goal)
        if not own:
            break
        found += [best.like(mode) for mode in own]
    return found


def with_heteroscedastic_noise(plain: Mode) -> list[Mode]:
    """Fit a variant of the model of `plain`, with heteroscedastic noise, and return a list with its mode.

    The list is empty if the variant raises the log-density too little, if the noise variance of `plain` is negligible,
    or if the noise of `plain` is known or heteroscedastic already.
    """
    old = plain.target
    noise = old.noise_of(plain.parameters)
    if not isinstance(noise, float) or noise < NEGLIGIBLE_NOISE:
        return []
    target = LogPosterior(old.family, old.points, old.rewards, "varying", old.sites)
    start = torch.cat([plain.parameters, plain.parameters.new_zeros(target.n_slopes)])
    return [plain.like(mode) for mode in variant_modes(target, start, plain.objective + MIN_NOISE_GAIN)]


def with_warped_actions(plain: Mode) -> list[Mode]:
    """Fit a variant of the model of `plain`, with input warping, and return a list with its mode.

    The list is empty if the variant raises the log-density too little, or a Newton step promises too little. It is also
    empty if no action is numeric, or if `plain` has input warping already. The log evidence of the variant is set to
    that of `plain`, plus the gain in log-density at the mode, minus WARP_MARGIN. Laplace's method is not used, because
    it underrates input warping.
    """
    family, old = WarpedFamily(plain.target.family), plain.target
    if not family.n_warps or old.kernel(plain.parameters).actions.warp is not None:
        return []
    target = old.of_family(family)
    own, rest = plain.parameters[: family.n_own], plain.parameters[family.n_own :]
    start = torch.cat([own, own.new_zeros(family.n_warps), rest])
    if target.promise(start, family.exponents) < MIN_PROMISED_WARP_GAIN:
        return []
    found = variant_modes(target, start, plain.objective + WARP_MARGIN)
    return [plain.like(mode).weighted_by_density(plain, WARP_MARGIN) for mode in found]


def variant_modes(target: LogPosterior, start: Tensor, goal: float) -> list[Mode]:
    """Return a list with the mode (local maximum) of `target` that a search from `start` (p,) reaches.

    The list is empty if the log-density at the mode is not above `goal`. A search that cannot reach the goal is stopped
    early.
    """
    found = local_search(target, start[None], replace(VARIANT_HALVING, goal=goal))
    return [mode for mode in found if mode.objective > goal]


def local_search(
    target: LogPosterior, starts: Tensor, halving: SuccessiveHalving | None = None, curvature: Tensor | None = None
) -> list[Mode]:
    """Return the distinct modes (local maxima) of `target` that local searches from `starts` (r, p) reach.

    There are r starts of p parameters. The best mode comes first, and modes whose log-density is lower by more than
    HOPELESS_GAP are left out. `halving` says when a search that lags is dropped. By default, all searches go on to the
    end, because a mode with a lower density, such as one with much noise, may have more evidence. `curvature` (r, p, p)
    holds estimates of the negated second derivatives at the starts; by default, they are computed here.
    """
    lower, upper = target.bounds.T
    starts = starts.clamp(lower, upper)
    curvature = target.curvature(starts).diag_embed() if curvature is None else curvature
    ascent = ascend(lambda p, _: target(p)[:2], starts, lower, upper, ITERATIONS, 0.05, TOLERANCE, halving, curvature)
    ends = [Mode(target, ascent.points[row], float(ascent.values[row])) for row in distinct_modes(ascent.values)]
    return nearly_stationary(ends)


def distinct_modes(values: Tensor) -> list[int]:
    """Return the indices of distinct modes among the end points of local searches, the best first.

    `values` (r,) are the log-densities at the end points. End points with nearly equal values count as one mode, and
    modes that are lower than the best one by more than HOPELESS_GAP are left out.
    """
    kept: list[int] = []
    for row in values.argsort(descending=True, stable=True).tolist():
        if not float(values[row]) > (float(values[kept[0]]) - HOPELESS_GAP if kept else -inf):
            break
        if all(float(values[known] - values[row]) > SAME_MODE for known in kept):
            kept.append(row)
    return kept


def nearly_stationary(ends: Sequence[Mode]) -> list[Mode]:
    """Return the end points of local searches where the log-density is nearly stationary.

    The first end point, which has the highest log-density, is always returned. At the points that are left out, a
    search was dropped or ran out of iterations on the way to a mode. Laplace's method would overrate their evidence.
    """
    return [*ends[:1], *(end for end in ends[1:] if end.peak.gain < NEARLY_STATIONARY)]


def promising_starts(target: LogPosterior, noisy: bool) -> Tensor:
    """Return starts (r, p) of r local searches for p parameters: the few Sobol points where `target` is highest.

    If `noisy` is true and the noise is learned, a start with a large noise variance is added, because a local search
    that starts from a small noise variance tends to end at short lengthscales, which explain the noise as signal.
    With more than SCREENED_REWARDS rewards, local searches are first made with a subset of the rewards. If they find
    modes, those with the most evidence are returned as the starts instead.
    """
    if len(target.points) > SCREENED_REWARDS:
        some = target.thinned(SCREENED_REWARDS)
        if found := local_search(some, promising_starts(some, noisy)):
            found.sort(key=lambda mode: -mode.evidence)
            return torch.stack([mode.parameters for mode in found[:CLIMBED_STARTS]])
    starts = target.prior.starts()
    chosen = starts[target(starts)[0].argsort(descending=True, stable=True)[:CLIMBED_STARTS]]
    return torch.cat([chosen, target.prior.noisy_start()[None]]) if noisy and target.learned else chosen
