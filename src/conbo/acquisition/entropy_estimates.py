"""Estimates of the mutual information between an observation and the peak of a state, from joint draws.

The peak is the best action of the state or its best value.  There are N draws of the function f(s_i, ·) of a state s_i,
jointly at p actions that may well be the state's best.  Let μ be the posterior mean and V Λ Vᵀ the posterior covariance
at these actions.  A draw is f_j = μ + V √Λ ξ_j, where ξ_j is standard normal.  Given the draw, the standardized
observation Z at a candidate (s, x) is Gaussian:

    Z | ξ_j ~ N(bᵀξ_j, 1 - |b|²),   b = Λ^-½ Vᵀ σ̃,   σ̃ = kⁿ((s_i, ·), (s, x)) / σ_y

Here kⁿ is the posterior covariance after n rewards, and σ_y the predictive standard deviation of the observation, noise
included.  A value of Z that is drawn together with f_j is called z_j.

=================  ===========================================================================================
here               meaning
=================  ===========================================================================================
label              the peak of a draw: the index of its best action, or the quantile bin of its best value
``predictive``     H[Z] - E H[Z | label], with densities of Z from the draws of each label (PES, MES)
``moments``        the same, as if Z given a label were Gaussian: cheaper, but too low
``retrospective``  H[label] - E H[label | Z]; draw j is moved to Z = z by adding σ̃ (z - z_j) to f_j (ES)
``corrected``      removes the bias of order 1/N of these estimates, by comparing all draws with halves of them
=================  ===========================================================================================

Densities of Z are computed on a grid.  So before the correction, every estimate is the mutual information of a discrete
joint distribution: it is not negative, and it is zero if σ̃ is zero.  In shapes, c is the number of pairs of a
candidate and a state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from conbo.acquisition.moved_draws import best_counts
from conbo.search.likely_peaks import ROUNDING

REACH = 4.0  # values of Z are between -REACH and REACH
FEWEST_CELLS, CELLS = 33, 129  # least and largest number of cells of the grid for densities of Z
LEAST_PROBABILITY = 1e-30  # replaces a probability of zero, so that its logarithm is finite
NODES = 13  # number of values z, between -REACH and REACH, to which draws are moved
BINS = 48  # largest number of bins of best values
TAIL = 0.1  # weight of the logit of a rank in the scale of bins, which makes bins finer towards both ends
FEWEST = 96  # the logit is clipped to its value at about this many ranks from each end, so that no bin is too small

# from slopes σ̃ (c, p) and the tables of c states to mutual information (c,) and its derivatives in σ̃ (c, p)
Estimate = Callable[[Tensor, "PeakTables"], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class PeakTables:
    """For each of c states, N joint posterior draws of the expected rewards of p actions that may well be the best."""

    points: Tensor  # (c, p, d), the actions with their state, in the unit cube
    whitening: Tensor  # (c, p, p), V Λ^-½
    values: Tensor  # (c, p, N), the draws; empty if only their labels are needed
    labels: Tensor  # (c, N), for each draw the index of its best action, or the quantile bin of its best value
    normals: Tensor  # (N, p), the standard normal variables ξ of which the draws are linear functions
    errors: Tensor  # (N,), standard normal draws for the part of Z that ξ does not determine

    def select(self, rows: Tensor) -> "PeakTables":
        """Return the draws in the states with the indices `rows`."""
        of_states = (self.points, self.whitening, self.values, self.labels)
        points, whitening, values, labels = (t[rows] for t in of_states)
        return PeakTables(points, whitening, values, labels, self.normals, self.errors)


def which_peak(values: Tensor) -> Tensor:
    """Return, for each of N draws (..., N, p) of p function values, the index (..., N) of its highest value."""
    return values.argmax(-1)


def which_value(values: Tensor) -> Tensor:
    """Return, for each of N draws (..., N, p) of p function values, the quantile bin (..., N) of its highest value.

    The highest value of a draw is its best value, and the bins are delimited by quantiles of the N best values.  Bins
    get finer towards both ends, because very high and very low best values are the most informative.
    """
    best = values.amax(-1)
    n = best.shape[-1]
    rank = torch.arange(n, dtype=values.dtype, device=values.device) / n
    end = TAIL * log(1 + n / FEWEST)  # the logarithms are between -end and end
    scale = (rank + TAIL * rank.logit(FEWEST / (n + 2 * FEWEST)) + end) / (1 + 2 * end)  # 0 to 1
    bin_of_rank = (scale * min(BINS, max(4, n // 128))).long()
    first = torch.nonzero(bin_of_rank.diff())[:, 0] + 1  # first rank of every bin but the lowest
    return torch.searchsorted(best.sort(-1).values[..., first], best, right=True)


def root_and_whitening(covariance: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Return V √Λ and V Λ^-½, both (c, p, p), for c covariance matrices V Λ Vᵀ (c, p, p) of p variables.

    V has the eigenvectors as columns, and Λ the eigenvalues on its diagonal.  An eigenvalue that is tiny relative to
    the prior variance, `prior` (c,), is only a rounding error, and its column is zero in both results.  The columns are
    sorted by decreasing eigenvalue, because V √Λ is multiplied with a quasi-random sequence, which is most even in its
    first dimensions.
    """
    variances, vectors = torch.linalg.eigh(covariance)
    variances, vectors = variances.flip(-1), vectors.flip(-1)
    real = variances > ROUNDING * prior[:, None]
    sd = variances.clamp_min(0).sqrt()
    roots, inverses = torch.where(real, sd, 0.0), torch.where(real, 1 / sd, 0.0)
    return vectors * roots[:, None], vectors * inverses[:, None]


def predictive(slope: Tensor, tables: PeakTables) -> tuple[Tensor, Tensor]:
    """Estimate the mutual information between the standardized observation Z and a state's best action or best value.

    This is H[Z] - E H[Z | peak], where the peak is the best action or value, and H is the entropy.  Densities of Z are
    smoothed histograms over the draws.  There are c pairs of a candidate and a state, and the estimates are (c,).  Also
    return their derivatives (c, p) with respect to `slope` (c, p), which says how the posterior means at p actions
    change with Z.
    """
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
        # sharing a draw between two cells has already smoothed it, as a variance of width² / 6 does
        variance = (left - width**2 / 6).clamp_min((0.6 * width) ** 2)
        smooth = torch.exp(-away / (2 * variance[:, None, None]))
        smooth = smooth / smooth.sum(-1, keepdim=True)
        return corrected(counts.unflatten(1, (2, k, cells)) @ smooth[:, None] * (2 / n))

    return with_derivative(information, slope, tables)


def moments(slope: Tensor, tables: PeakTables) -> tuple[Tensor, Tensor]:
    """Estimate the mutual information between the observation Z and a state's best action or best value, cheaply.

    This is ½ log Var[Z] - ½ E log Var[Z | peak], where the peak is the best action or value.  It would be exact if Z
    were Gaussian given the peak; otherwise it is too low.  There are c pairs of a candidate and a state, and the
    estimates are (c,).  Also return their derivatives (c, p) with respect to `slope` (c, p), which says how the
    posterior means at p actions change with Z.
    """
    return with_derivative(lambda b: gaussian_information(b, tables), slope, tables)


def gaussian_information(b: Tensor, tables: PeakTables) -> Tensor:
    """Return the mutual information (c,) between the observation Z and the peak of a state, approximately.

    It is ½ log Var[Z] - ½ E log Var[Z | peak], as if Z were Gaussian given the peak. Z is the observation at a
    candidate, the peak is the best action or the best value of a state, and there are c pairs of a candidate and a
    state. `b` (c, p) are the whitened slopes of the posterior means at p actions as functions of Z (see `whitened`).
    `tables` holds functions drawn from the model in each of the c states, at these actions.
    """
    labels = tables.labels
    means, left = outcome(b, tables)
    empty = b.new_zeros(len(b), int(labels.amax()) + 1)
    count = empty.scatter_add(1, labels, torch.ones_like(means))
    first, second = (empty.scatter_add(1, labels, m) / count.clamp_min(1) for m in (means, means.square()))
    within = (second - first.square()).clamp_min(0) + left[:, None]
    overall = means.var(1, unbiased=False) + left
    return (overall.log() - (count * within.log()).sum(1) / labels.shape[1]).clamp_min(0) / 2


def retrospective(slope: Tensor, tables: PeakTables) -> tuple[Tensor, Tensor]:
    """Estimate the mutual information H[x*] - E H[x* | Z] between the observation Z and a state's best action x*.

    H is the entropy.  There are c pairs of a candidate and a state, and the estimates are (c,).  For each of several
    values z, all draws of the state's function are conditioned on Z = z.  The share of draws in which an action is the
    best one is the estimate of its probability P(x* | Z = z).

    Also return the derivatives (c, p) with respect to `slope` (c, p), which says how the posterior means at p actions
    change with Z.  The shares are piecewise constant, so the derivatives are those of another estimate: the average of
    log (P(x* | Z) / P(x*)) over the draws.  In this average, only the value of Z in each draw depends on the slopes;
    the probabilities and the draw's best action are held fixed.
    """
    n = len(tables.normals)
    nodes = torch.linspace(-REACH, REACH, NODES, dtype=slope.dtype, device=slope.device)
    weights = torch.exp(-nodes.square() / 2)
    weights = weights / weights.sum()

    def outcomes(b: Tensor) -> Tensor:
        means, left = outcome(b, tables)
        return means + left.sqrt()[:, None] * tables.errors  # (c, N)

    with torch.no_grad():
        z = outcomes(whitened(slope, tables))
        counts = best_counts(tables.values, slope, z, nodes)  # (c, NODES, 2, k)
        joint = (counts * (2 / n) * weights[:, None, None]).permute(0, 2, 3, 1)  # (c, 2, k, NODES)
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
    """Return b = Λ^-½ Vᵀ σ̃, the slopes σ̃ in whitened coordinates.

    The slopes σ̃, `slope` (c, p), say how the posterior means at p actions change with the observation Z, for each of c
    pairs of a candidate and a state.  V Λ Vᵀ is the posterior covariance (p, p) of these actions: V has its
    eigenvectors as columns, and Λ has its eigenvalues on the diagonal.  The result is (c, p), too.
    """
    return (slope[:, None] @ tables.whitening)[:, 0]


def outcome(b: Tensor, tables: PeakTables) -> tuple[Tensor, Tensor]:
    """Return the mean (c, N) and variance (c,) of the candidate's observation Z, given a draw of the reward function.

    There are c pairs of a candidate and a state, and N draws of the function in each state.  The variance is the same
    for all draws.  `b` (c, p) says how fast the posterior mean at each of p actions changes with Z, after whitening
    (see `whitened`).
    """
    left = 1 - b.square().sum(-1)
    return b @ tables.normals.mT, left.clamp(1e-6, 1.0)


def corrected(joint: Tensor) -> Tensor:
    """Return mutual information (c,), corrected for the bias that is inversely proportional to the number of draws.

    There are c pairs of a candidate and a state.  For each half of the draws, `joint` (c, 2, k, cells) holds the joint
    distribution of a draw's label and the observation Z at the candidate.  A label says which action is the best one in
    the draw, or how high its best value is, and k is the number of labels.  The range of Z is divided into cells.  The
    result is twice the mutual information from all draws, minus the mean of the two values from the halves.
    """
    # Since Σ P dlog(P / (P_z P_label)) = 0, the derivative may treat the logarithms as constant.
    with torch.no_grad():
        logarithms = log_ratio(joint.mean(1, keepdim=True)) - log_ratio(joint) / 2
    return (joint * logarithms).sum((1, 2, 3)).clamp_min(0)


def log_ratio(joint: Tensor) -> Tensor:
    """Return log (P / (row sum × column sum)) for each entry P of joint distributions (..., rows, columns)."""
    rows, columns = joint.sum(-1, keepdim=True), joint.sum(-2, keepdim=True)
    whole, row, column = (t.clamp_min(LEAST_PROBABILITY).log() for t in (joint, rows, columns))
    return whole - row - column


def with_derivative(
    information: Callable[[Tensor], Tensor], slope: Tensor, tables: PeakTables
) -> tuple[Tensor, Tensor]:
    """Return the values (c,) of `information` and their derivatives (c, p) with respect to `slope` (c, p).

    There are c pairs of a candidate and a state, and p actions in each state.  `slope` says how the posterior means at
    these actions change with the observation at the candidate.  `information` is a function of the whitened slopes
    (c, p), which `whitened` computes from `slope` and `tables`.
    """
    with torch.enable_grad():
        variable = slope.detach().requires_grad_(True)
        value = information(whitened(variable, tables))
        (derivative,) = torch.autograd.grad(value.sum(), variable)
    return value.detach(), derivative
