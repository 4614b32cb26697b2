"""Entropy search per state: the information in an observation about the peak of each state.

    ES_c = PES_c = I(y; x*_i),   MES_c = I(y; y*_i),   x*_i = argmax_x f(s_i, x),   y*_i = max_x f(s_i, x)

The candidate (s, x) and the state s_i differ, so everything is computed from joint draws of f(s_i, ·) at p actions that
are likely peaks.  With K = V Λ Vᵀ the posterior covariance of these, a draw is f_j = μ + V √Λ ξ_j.  Given it,
the standardized outcome Z of the candidate is Gaussian:

    Z | ξ_j ~ N(bᵀξ_j, 1 - |b|²),   b = Λ^-½ Vᵀ σ̃,   σ̃ = kⁿ((s_i, ·), (s, x)) / σ_y

=================  ===========================================================================================
here               meaning
=================  ===========================================================================================
``labels``         the peak of a draw: the index of its action, or the quantile bin of its value
``predictive``     H[Z] - E H[Z | label], with densities of Z from the draws of each label (PES, MES)
``moments``        the same with Gaussian densities of the same variance: cheaper, but too low
``retrospective``  H[label] - E H[label | Z], each draw moved to Z = z by f_j + σ̃ (z - z_j)   (ES)
``corrected``      removes the O(1/draws) by which plug-in estimates are too high, using two halves
=================  ===========================================================================================

Before that correction, every estimate is the mutual information of a discrete joint distribution. So it is never
negative, and zero if σ̃ is zero.  Derivations and measured errors are in docs/entropy.md.

References: Hennig & Schuler (2012), entropy search; Hernández-Lobato, Hoffman & Ghahramani (2014), predictive entropy
search; Wang & Jegelka (2017), max-value entropy search; the conditional forms are from the paper.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.posterior import LineGains
from conbo.models.snapping import FAR_BELOW, feasible_pairs
from conbo.quasi_random import sobol
from conbo.search.action_candidates import action_candidates
from conbo.search.likely_peaks import ROUNDING, every_action, joint_moments, likely_peaks
from conbo.search.path_peaks import path_peaks

FEATURES = 256  # random Fourier features of the draws that find the peaks
POOL_DRAWS = 256  # joint draws on the pool
CLIMBED = 0.375  # share of the peaks that are found by local search on drawn functions
POOL = 64  # Sobol actions: candidates for peaks, and starts of local searches
CLIMB = 5  # steps of each local search
PAIRS, PAIRS_OF_MOVED_DRAWS = 512, 2  # (candidate, state) pairs per pass: usually, and if all draws are moved
REACH = 4.0  # values of Z are between -REACH and REACH
FEWEST_CELLS, CELLS = 33, 129  # least and usual number of cells of the grid for densities of Z
ROUGH_DRAWS = 512
LEAST_PROBABILITY = 1e-30  # replaces a probability of zero, so that its logarithm is finite
NODES = 13  # number of values z, between -REACH and REACH, to which draws are moved
BINS, TAIL, FEWEST = 48, 0.1, 96  # bins of best values: finer in a TAIL at both ends, down to about FEWEST draws

# σ̃ (c, p) and c tables → information (c,), its derivative in σ̃ (c, p)
Estimate = Callable[[Tensor, "PeakTables"], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class PeakTables:
    """For each of c states: p likely peaks, the whitening of their rewards, and the labels of N draws."""

    points: Tensor  # (c, p, d), unit cube
    whitening: Tensor  # (c, p, p), V Λ^-½
    values: Tensor  # (c, p, N), the draws; none if only labels are needed
    labels: Tensor  # (c, N)
    normals: Tensor  # (N, p), ξ
    errors: Tensor  # (N,), standard normal draws for the part of Z that ξ does not determine

    def select(self, rows: Tensor) -> "PeakTables":
        """The tables of the states with these indices."""
        of_states = (self.points, self.whitening, self.values, self.labels)
        points, whitening, values, labels = (t[rows] for t in of_states)
        return PeakTables(points, whitening, values, labels, self.normals, self.errors)


@dataclass(frozen=True)
class _EntropySearch:
    """Settings of all three entropy searches: `peaks` likely peaks for each state, and `draws` joint draws on them."""

    peaks: int = 32
    draws: int = 8192

    def __post_init__(self) -> None:
        if self.peaks < 2 or self.draws < 4:
            given = f"peaks={self.peaks}, draws={self.draws}"
            raise SettingError(f"`peaks >= 2` and `draws >= 4` must hold, but got {given}.")


@dataclass(frozen=True)
class EntropySearch(_EntropySearch):
    """A recipe for ES_c: how much the entropy of a state's best action is expected to fall."""

    peaks: int = 24
    draws: int = 4096

    def build(self, belief: Belief, generator: torch.Generator) -> "Information":
        """Build the function that this recipe describes, for one belief."""
        return Information(belief, generator, self.peaks, self.draws, which_peak, retrospective)


@dataclass(frozen=True)
class PredictiveEntropySearch(_EntropySearch):
    """A recipe for PES_c: how much the entropy of the outcome would fall if a state's best action were known."""

    estimate: str = "density"

    def build(self, belief: Belief, generator: torch.Generator) -> "Information":
        """Build the function that this recipe describes, for one belief."""
        return Information(belief, generator, self.peaks, self.draws, which_peak, _predictive(self.estimate))


@dataclass(frozen=True)
class MaxValueEntropySearch(_EntropySearch):
    """A recipe for MES_c: how much the entropy of the outcome would fall if a state's best value were known."""

    draws: int = 16384
    estimate: str = "density"

    def build(self, belief: Belief, generator: torch.Generator) -> "Information":
        """Build the function that this recipe describes, for one belief."""
        return Information(belief, generator, self.peaks, self.draws, which_value, _predictive(self.estimate))


def _predictive(name: str) -> Estimate:
    estimates = {"density": predictive, "moments": moments}
    if name not in estimates:
        raise SettingError(f"`estimate` must be 'density' or 'moments', but got {name!r}.")
    return estimates[name]


# Labels


def which_peak(values: Tensor) -> Tensor:
    """The index (..., N) of the best action of every draw (..., N, p)."""
    return values.argmax(-1)


def which_value(values: Tensor) -> Tensor:
    """The quantile bin (..., N) of the best value of every draw (..., N, p); bins get finer towards both ends.

    A state's best value is hardly below its best known reward. If that reward is nearly exact, the lowest bins are the
    most informative.
    """
    best = values.amax(-1)
    n = best.shape[-1]
    rank = torch.arange(n, dtype=values.dtype, device=values.device) / n
    end = TAIL * log(1 + n / FEWEST)  # the logarithms are between -end and end
    scale = (rank + TAIL * rank.logit(FEWEST / (n + 2 * FEWEST)) + end) / (1 + 2 * end)  # 0 to 1
    bin_of_rank = (scale * min(BINS, max(4, n // 128))).long()
    first = torch.nonzero(bin_of_rank.diff())[:, 0] + 1  # first rank of every bin but the lowest
    return torch.searchsorted(best.sort(-1).values[..., first], best, right=True)


# The value of a state, in the form that ConBO integrates


class Information:
    """The information I(y; peak of s_i) under one belief, for any candidate and any states s_i."""

    def __init__(
        self,
        belief: Belief,
        generator: torch.Generator,
        peaks: int,
        draws: int,
        label: Callable[[Tensor], Tensor],
        estimate: Estimate,
    ) -> None:
        self.belief, self.posterior = belief, belief.posterior
        self.label, self.estimate = label, estimate
        self._every, self._peaks = every_action(belief, peaks), peaks
        self._paths = belief.draw_paths(int(CLIMBED * peaks), generator, FEATURES)
        self._pool = action_candidates(belief, POOL, generator)
        pool_normals = torch.randn(len(self._pool), POOL_DRAWS, generator=generator, dtype=torch.float64)
        self._pool_normals = pool_normals.to(belief.device)
        p = peaks if self._every is None else len(self._every)
        seed = int(torch.randint(2**31, (1,), generator=generator))
        uniform = sobol(draws, p + 1, seed).clamp(1e-12, 1 - 1e-12)
        normal = torch.special.ndtri(uniform).to(belief.device)
        self._normals, self._errors = normal[:, :-1], normal[:, -1]

    def at(self, states: Tensor) -> "StatesInformed":
        """Prepare r sets of m states (r, m, d_s); the result is a function from candidates to their information."""
        flat = states.flatten(0, 1)
        known: dict[bytes, int] = {}
        index = [known.setdefault(row.tobytes(), len(known)) for row in flat.cpu().numpy()]
        first = [index.index(k) for k in range(len(known))]
        which = torch.tensor(index, device=flat.device).unflatten(0, states.shape[:2])
        return StatesInformed(self, states, self.tables(flat[first], climb=CLIMB), which)

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Rough values at shared states (m, d_s), by `moments`: a function from candidates (r, d) to (r, m)."""
        tables, m = self.tables(states, climb=0), len(states)

        def function(candidates: Tensor) -> Tensor:
            slope = self.posterior.look_ahead_slopes(candidates, tables.points.flatten(0, 1))  # (r, m·p)
            parts = []
            for some in slope.unflatten(1, (m, -1)).split(max(1, PAIRS // m)):
                mine = tables.select(torch.arange(m, device=states.device).repeat(len(some)))
                parts.append(gaussian_information(whitened(some.flatten(0, 1), mine), mine).reshape(-1, m))
            return torch.cat(parts)

        return function

    def gains(self, candidates: Tensor, states: Tensor, tables: PeakTables, which: Tensor) -> LineGains:
        """Values (k, m) of candidates (k, d) at states (k, m, d_s); `which` (k, m) are the indices of their tables."""
        shape, mine = which.shape, tables.select(which.flatten())
        actions = mine.points[..., self.belief.n_state_dims :].unflatten(0, shape)
        lines = self.posterior.look_ahead_lines(candidates, states, actions)
        value, derivative = self.estimate(lines.slope.flatten(0, 1), mine)
        return LineGains(value.reshape(shape), derivative.unflatten(0, shape), lines)

    def tables(self, states: Tensor, climb: int) -> PeakTables:
        """The tables of states (c, d_s); local searches for their peaks take `climb` steps."""
        actions = self._actions(states, climb)
        c, p, _ = actions.shape
        points = torch.cat([states[:, None].expand(c, p, -1), actions], -1)
        mean, covariance = joint_moments(self.posterior, states, actions)
        if self.belief.space.feasible_set is not None:  # infeasible actions are no peaks
            mean = torch.where(self.belief.contains(points), mean, mean - FAR_BELOW)
        spread, whitening = independent(covariance, self.posterior.prior_variance(states))
        n = len(self._normals) if climb else ROUGH_DRAWS
        normals, errors = self._normals[:n, :p], self._errors[:n]
        values = mean[:, None] + normals @ spread.mT
        kept = values.mT.contiguous() if self.estimate is retrospective and climb else values[:, :0]
        return PeakTables(points, whitening, kept, self.label(values), normals, errors)

    def _actions(self, states: Tensor, climb: int) -> Tensor:
        """Likely peaks (c, p, d_x) of states (c, d_s)."""
        if self._every is not None:
            return self._every.expand(len(states), -1, -1)
        climbed = self._paths.n if climb else 0
        feasible = feasible_pairs(self.belief.space, states, self._pool)
        likely = likely_peaks(self.posterior, self._pool, states, self._pool_normals, self._peaks - climbed, feasible)
        if self.belief.space.feasible_set is not None:
            likely = self.belief.snap_actions(likely, states[:, None])
        if not climbed:
            return likely
        return torch.cat([likely, path_peaks(self.belief, self._paths, self._pool, states, climb)], 1)


class StatesInformed:
    """r sets of m fixed states with their tables."""

    def __init__(self, information: Information, states: Tensor, tables: PeakTables, index: Tensor) -> None:
        self._information, self._states, self._tables, self._index = information, states, tables, index

    def __call__(self, candidates: Tensor, rows: Tensor) -> LineGains:
        """Information (k, m) of candidates (k, d); candidate i looks at the set of states `rows[i]`."""
        return self._information.gains(candidates, self._states[rows], self._tables, self._index[rows])


# Estimates of the information


def independent(covariance: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """The matrices V √Λ and V Λ^-½ (c, p, p) of covariances V Λ Vᵀ; prior variances (c,) set the scale of rounding.

    Likely peaks are close together, so covariances are singular up to rounding; directions without variance are left
    out.  The others are sorted by decreasing variance, because a quasi-random sequence is most even in its first
    dimensions.
    """
    variances, vectors = torch.linalg.eigh(covariance)
    variances, vectors = variances.flip(-1), vectors.flip(-1)
    real = variances > ROUNDING * prior[:, None]
    sd = variances.clamp_min(0).sqrt()
    spread, whitening = torch.where(real, sd, 0.0), torch.where(real, 1 / sd, 0.0)
    return vectors * spread[:, None], vectors * whitening[:, None]


def predictive(slope: Tensor, tables: PeakTables) -> tuple[Tensor, Tensor]:
    """H[Z] - E H[Z | label], from densities of Z on a grid, smoothed by the variance of Z given a draw."""
    n = len(tables.normals)
    sharpest = float(outcome(whitened(slope, tables), tables)[1].amin()) ** 0.5
    cells = int(min(CELLS, max(FEWEST_CELLS, 1.6 * REACH / sharpest + 1)))
    width = 2 * REACH / (cells - 1)
    k = int(tables.labels.amax()) + 1
    half = torch.arange(n, device=slope.device) * 2 // n
    nodes = torch.linspace(-REACH, REACH, cells, dtype=slope.dtype, device=slope.device)
    away = (nodes[:, None] - nodes).square()

    def information(b: Tensor) -> Tensor:
        means, left = outcome(b, tables)  # (c, N), (c,)
        place = ((means + REACH) / width).clamp(0, cells - 1.001)
        cell = place.detach().long()
        share = place - cell
        row = (half * k + tables.labels) * cells + cell  # (c, N)
        counts = means.new_zeros(len(b), 2 * k * cells)
        counts = counts.scatter_add(1, row, 1 - share).scatter_add(1, row + 1, share)
        # spreading a draw over two cells has smoothed by width² / 6 already
        variance = (left - width**2 / 6).clamp_min((0.6 * width) ** 2)
        smooth = torch.exp(-away / (2 * variance[:, None, None]))
        smooth = smooth / smooth.sum(-1, keepdim=True)
        return corrected(counts.unflatten(1, (2, k, cells)) @ smooth[:, None] * (2 / n))

    return with_derivative(information, slope, tables)


def moments(slope: Tensor, tables: PeakTables) -> tuple[Tensor, Tensor]:
    """½ log Var[Z] - ½ E log Var[Z | label], which is the information if Z is Gaussian given the label."""
    return with_derivative(lambda b: gaussian_information(b, tables), slope, tables)


def gaussian_information(b: Tensor, tables: PeakTables) -> Tensor:
    """The estimate (c,) that `moments` returns, as a function of b (c, p)."""
    labels = tables.labels
    means, left = outcome(b, tables)
    empty = b.new_zeros(len(b), int(labels.amax()) + 1)
    count = empty.scatter_add(1, labels, torch.ones_like(means))
    first, second = (empty.scatter_add(1, labels, m) / count.clamp_min(1) for m in (means, means.square()))
    within = (second - first.square()).clamp_min(0) + left[:, None]
    overall = means.var(1, unbiased=False) + left
    return (overall.log() - (count * within.log()).sum(1) / labels.shape[1]).clamp_min(0) / 2


def retrospective(slope: Tensor, tables: PeakTables) -> tuple[Tensor, Tensor]:
    """H[label] - E H[label | Z], estimated by moving all draws to Z = z and counting their labels.

    Counts have no derivative.  The derivative of the information is E[∂ log P(label | Z) ∂Z], with the labels of the
    draws and the table of logarithms held fixed.
    """
    n, k = len(tables.normals), tables.points.shape[1]
    nodes = torch.linspace(-REACH, REACH, NODES, dtype=slope.dtype, device=slope.device)
    weights = torch.exp(-nodes.square() / 2)
    weights = weights / weights.sum()
    half = torch.arange(n, device=slope.device) * 2 // n

    def outcomes(b: Tensor) -> Tensor:
        means, left = outcome(b, tables)
        return means + left.sqrt()[:, None] * tables.errors  # (c, N)

    with torch.no_grad():
        z = outcomes(whitened(slope, tables))
        counts = slope.new_zeros(len(slope), NODES, 2 * k)
        for first in range(0, len(slope), PAIRS_OF_MOVED_DRAWS):
            some = slice(first, first + PAIRS_OF_MOVED_DRAWS)
            for node, at in enumerate(nodes):
                # (few, p, N)
                moved = torch.addcmul(tables.values[some], (at - z[some])[:, None], slope[some, :, None])
                row = half * k + moved.max(1).indices  # not argmax, which is far slower along this dimension
                counts[some, node].scatter_add_(1, row, torch.ones_like(z[some]))
        joint = (counts * (2 / n) * weights[:, None]).unflatten(-1, (2, k)).permute(0, 2, 3, 1)  # (c, 2, k, NODES)
        value = corrected(joint)
        given = joint.mean(1) / weights + 0.5 / n  # P(label | z); 0.5 is added so that no count is zero
        ratios = (given / (given @ weights)[..., None]).log()  # (c, k, NODES)
        own = ratios.gather(1, tables.labels[..., None].expand(-1, -1, NODES))  # (c, N, NODES)

    def mean_ratio(b: Tensor) -> Tensor:
        place = ((outcomes(b) + REACH) * ((NODES - 1) / (2 * REACH))).clamp(0, NODES - 1.001)
        cell = place.detach().long()[..., None]
        low, high = own.gather(2, cell)[..., 0], own.gather(2, cell + 1)[..., 0]
        along: Tensor = low + (place - cell[..., 0]) * (high - low)
        return along.mean(1)

    return value, with_derivative(mean_ratio, slope, tables)[1]


def whitened(slope: Tensor, tables: PeakTables) -> Tensor:
    """The whitened slopes b = Λ^-½ Vᵀ σ̃ (c, p)."""
    return (slope[:, None] @ tables.whitening)[:, 0]


def outcome(b: Tensor, tables: PeakTables) -> tuple[Tensor, Tensor]:
    """Mean (c, N) and variance (c,) of Z given each draw."""
    left = 1 - b.square().sum(-1)
    return b @ tables.normals.mT, left.clamp(1e-6, 1.0)


def corrected(joint: Tensor) -> Tensor:
    """Twice the information in all draws minus the information in half of them: (c, 2, k, z) → (c,).

    The argument holds joint distributions of labels and z, one for each half of the draws.  Since Σ P dlog(P / P_z
    P_label) = 0, the logarithms can be treated as constant in the derivative.
    """
    with torch.no_grad():
        logarithms = log_ratio(joint.mean(1, keepdim=True)) - log_ratio(joint) / 2
    return (joint * logarithms).sum((1, 2, 3)).clamp_min(0)


def log_ratio(joint: Tensor) -> Tensor:
    """log (P / (row sum × column sum)) of joint distributions (..., rows, columns)."""
    rows, columns = joint.sum(-1, keepdim=True), joint.sum(-2, keepdim=True)
    whole, row, column = (t.clamp_min(LEAST_PROBABILITY).log() for t in (joint, rows, columns))
    return whole - row - column


def with_derivative(
    information: Callable[[Tensor], Tensor], slope: Tensor, tables: PeakTables
) -> tuple[Tensor, Tensor]:
    """The value (c,) of `information`, a function of the whitened b, and its derivative with respect to σ̃ (c, p)."""
    with torch.enable_grad():
        variable = slope.detach().requires_grad_(True)
        value = information(whitened(variable, tables))
        (derivative,) = torch.autograd.grad(value.sum(), variable)
    return value.detach(), derivative
