"""The posterior given many thousand rewards, approximated by inducing points.

Exact inference costs n³ time and n² memory.  With more than `MOST_EXACT` rewards, the function is described by u, its
differences from the prior mean μ⁰ at M inducing points Z.  These are a subset of the observed points X̃.  Every reward
is treated as a noisy observation of what u predicts at its point:

    Y ~ N(μ⁰ + Q(X̃, Z) u, Λ),   Q(x, Z) = k⁰(x, Z) K_zz⁻¹

Here Y are the rewards, and k⁰ is the kernel.  This is the projected process, or DTC (Quiñonero-Candela & Rasmussen,
2005).  Far from the inducing points, the variance stays that of the prior, so the model is uncertain where there are no
data.  Rewards are processed in blocks, so that V (see below) is never stored for all of them.

============================  ===================  =============================================================
symbol                        here                 meaning
============================  ===================  =============================================================
Λ                             ``variances``        diagonal matrix of noise variances
K_zz = L Lᵀ                   ``root``             prior covariance at the inducing points
V = L⁻¹ k⁰(Z, X̃)              (block by block)     covariance of L⁻¹u with the rewards
S = V Λ⁻¹ Vᵀ                  ``information``      information in the rewards, summed over blocks
V Λ⁻¹ (Y - μ⁰)                ``pull``             precision times posterior mean of L⁻¹u, summed over blocks
I + S = C Cᵀ                  ``informed``         posterior precision of L⁻¹u
K_zz⁻¹ - (K_zz + L S Lᵀ)⁻¹    (R Rᵀ)⁻¹             takes the place of K⁻¹ in the formulas of `conditioned.py`
============================  ===================  =============================================================

By the last row of the table, an approximate posterior *is* the exact posterior of M observations at Z whose noise is
correlated, with R as the Cholesky factor of their covariance.  Moments, look-ahead and searches over actions are
therefore inherited from `ExactPosterior`, and cost as much as with M rewards.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conbo.models.exact import ExactPosterior, solved, variances_at
from conbo.models.factored import Factored, factored
from conbo.models.factorization import cholesky, cholesky_solved
from conbo.models.heteroscedastic_noise import HeteroscedasticNoise
from conbo.models.kernels import Kernel
from conbo.models.pathwise import DrawnPaths
from conbo.models.prior_draws import random_normals
from conbo.models.schedule import LONG_BLOCK, block_ends, fitted_rewards, shared_rows
from conbo.notices import LOG, in_words
from conbo.spaces import Space

MOST_EXACT = 5000  # largest number of rewards for which the posterior is exact
INDUCING_POINTS = 1500  # largest number M of inducing points
JITTER = 1e-8  # multiple of the mean prior variance added to K_zz, because inducing points may be close to each other
LEAST_SHARE = 1e-10  # added to the diagonal of I - (I + S)⁻¹, so that R exists even if rewards leave u undetermined
SAID_EVERY = 40 * LONG_BLOCK  # number of rewards between two progress messages in the log


@dataclass(frozen=True)
class Sums:
    """Sums over the first `rows` rewards, from which the posterior at M inducing points can be computed."""

    rows: int  # number of rewards that are summed up
    information: Tensor  # (M, M), S
    pull: Tensor  # (M,), V Λ⁻¹ (Y - μ⁰)


@dataclass(frozen=True)
class Summary:
    """The sums over n rewards that determine the approximate posterior, with the data and the inducing points."""

    points: Tensor  # (n, d)
    residuals: Tensor  # (n,), rewards minus the prior mean
    variances: Tensor  # (n,), of the noise
    inducing: Tensor  # (M, d), Z
    root: Tensor  # (M, M), L
    whole: Sums  # sums over all blocks but the last; a summary of more rewards starts from them
    total: Sums  # sums over all rewards

    def shared_with(self, points: Tensor, residuals: Tensor, variances: Tensor) -> bool:
        """Return whether a summary of the given data can start from the sums `whole` of this summary.

        Sums are computed block by block, and `whole` holds the sums over all blocks except the last. The given data
        must begin with the same points, residuals and noise variances as these blocks, and must lead to the same
        inducing points.
        """
        rows = self.whole.rows
        if shared_rows(len(self.points), len(points)) < rows or fitted_rewards(len(points)) > rows:
            return False
        pairs = (self.points, points), (self.residuals, residuals), (self.variances, variances)
        return all(torch.equal(mine[:rows], other[:rows]) for mine, other in pairs)


def summarized(
    kernel: Kernel, points: Tensor, residuals: Tensor, variances: Tensor, earlier: Summary | None = None
) -> Summary:
    """Compute the sums over n rewards that determine the approximate posterior.

    The rewards at points (n, d) are given as residuals (n,), which are rewards minus the prior mean, with noise
    variances (n,). `earlier` is a summary with the same kernel, for example of the data without the latest
    rewards. If the given data begin with the rewards that it sums up (see `Summary.shared_with`), its sums are
    extended. Otherwise all sums are computed anew.
    """
    ends, m = block_ends(len(points)), INDUCING_POINTS
    if earlier is not None and earlier.shared_with(points, residuals, variances):
        inducing, root, sums = earlier.inducing, earlier.root, earlier.whole
    else:
        inducing = inducing_points(points[: fitted_rewards(len(points))], m)
        here = kernel.scaled(inducing)
        prior = kernel.covariance(here, here)
        prior.diagonal().add_(JITTER * float(prior.diagonal().mean()))
        root = cholesky(prior)
        sums = Sums(0, torch.zeros_like(root), root.new_zeros(len(root)))
        announce(len(points), len(root))
    here, whole = kernel.scaled(inducing), sums
    information, pull, first = sums.information.clone(), sums.pull.clone(), sums.rows
    for last in [end for end in ends if end > sums.rows]:
        if last == ends[-1]:
            whole = Sums(first, information.clone(), pull.clone())
        cross = kernel.covariance(here, kernel.scaled(points[first:last]))
        seen = torch.linalg.solve_triangular(root, cross, upper=False)  # (M, rows)
        weighted = seen / variances[first:last]
        information.addmm_(weighted, seen.mT)
        pull.addmv_(weighted, residuals[first:last])
        if last // SAID_EVERY > first // SAID_EVERY and last < len(points):
            LOG.info("%s of %s rewards are read.", f"{last:,}", f"{len(points):,}")
        first = last
    return Summary(points, residuals, variances, inducing, root, whole, Sums(len(points), information, pull))


def inducing_points(points: Tensor, most: int) -> Tensor:
    """Return the points (n, d) without duplicates, in the same order.

    If more than `most` points remain, only `most` of them are returned, at evenly spaced indices.
    """
    _, group = torch.unique(points, dim=0, return_inverse=True)
    order = torch.arange(len(points), device=points.device)
    first_of_group = order.new_full((int(group.max()) + 1,), len(points)).scatter_reduce(0, group, order, "amin")
    distinct = points[first_of_group.sort().values]
    if len(distinct) <= most:
        return distinct
    return distinct[torch.linspace(0, len(distinct) - 1, most, device=points.device).long()]


def announce(n: int, inducing: int) -> None:
    """Log that the posterior given n rewards is approximated, by how many inducing points, and how long that takes.

    The time is an estimate for two cores.
    """
    seconds = 1.2e-10 * n * inducing**2
    LOG.info(
        "Conditioning on %s rewards approximately, by %s inducing points; this takes about %s.",
        f"{n:,}",
        f"{inducing:,}",
        in_words(seconds),
    )


@dataclass(frozen=True)
class ApproximatePosterior(ExactPosterior):
    """A Gaussian process conditioned on n rewards approximately, by M inducing points."""

    summary: Summary
    informed: Tensor  # (M, M), C

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> DrawnPaths:
        """Draw n functions from the posterior: prior draws, corrected to agree with posterior draws at inducing points.

        `features` is the number of random features that approximate the prior.
        """
        prior, root = self.kernel.draw_prior(n, features, generator), self.summary.root
        normal = random_normals(generator, len(root), n).to(root)
        whitened = torch.linalg.solve_triangular(self.informed.mT, normal, upper=True)
        whitened = whitened - torch.linalg.solve_triangular(root, prior.values(self.observed), upper=False)
        corrections = torch.linalg.solve_triangular(root.mT, whitened, upper=True)
        return DrawnPaths(self, prior, self.weights[:, None] + corrections)

    def leave_one_out(self) -> tuple[Tensor, Tensor] | None:
        """Return leave-one-out residuals (n,) and predictive standard deviations (n,), noise included.

        The inducing points stay the same, whichever reward is left out.
        """
        summary, parts = self.summary, []
        for points, residuals, variances in zip(
            *(part.split(LONG_BLOCK) for part in (summary.points, summary.residuals, summary.variances)), strict=True
        ):
            there = self.kernel.scaled(points)
            cross = self.kernel.covariance(self.observed, there)
            seen = torch.linalg.solve_triangular(summary.root, cross, upper=False)
            known = torch.linalg.solve_triangular(self.informed, seen, upper=False).square().sum(0)
            precision = (1 - known / variances) / variances
            unseen = (self.kernel.variance(there[0]) - seen.square().sum(0)).clamp_min(0)
            left_out = (residuals - cross.mT @ self.weights) / variances / precision
            parts.append(torch.stack([left_out, (1 / precision + unseen).sqrt()]))
        residual, deviation = torch.cat(parts, -1)
        return residual, deviation

    def page_record(self, space: Space) -> dict[str, Any] | None:
        """Return None: the report's web page computes predictions from all rewards, and this model has too many."""
        return None

    def conditioned_on(
        self, points: Tensor, rewards: Tensor, noise: Tensor | None, seeds: Tensor | None = None
    ) -> ExactPosterior:
        """Return the posterior given other observations, with the same hyperparameters.

        The given `rewards` (n,) at `points` (n, d) replace the observations of this posterior. `noise` (n,) holds the
        variances of their noise; if it is None, the noise of this posterior is used. With more than MOST_EXACT rewards,
        the result is an `ApproximatePosterior`, which summarizes them by inducing points. The simulator `seeds` are
        ignored, because this model has no effects of seeds.
        """
        known = self.noise if noise is None else noise
        return condition_by_size(self.kernel, self.constant, known, points, rewards, self.noise)[0]


def condition_by_size(
    kernel: Kernel,
    constant: float,
    noise: Tensor | float | HeteroscedasticNoise,
    points: Tensor,
    rewards: Tensor,
    new_noise: float | HeteroscedasticNoise | None = None,
    earlier: Factored | Summary | None = None,
) -> tuple[ExactPosterior, Factored | Summary]:
    """Condition a prior on rewards (n,) at points (n, d): exactly up to MOST_EXACT rewards, approximately beyond.

    `constant` is the prior mean. `noise` is one variance for all rewards, a variance (n,) for each, or a function of
    the point. `new_noise` is the variance of the noise of further rewards; by default it is `noise`, or the mean of
    `noise` if each reward has its own variance. The second result can be passed as `earlier` once there are more
    rewards, with the same kernel and prior mean. That saves time and does not change the result.
    """
    if new_noise is None:
        new_noise = float(noise.mean()) if isinstance(noise, Tensor) else noise
    variances = variances_at(points, noise)
    if len(points) <= MOST_EXACT:
        known = factored(kernel, points, variances, earlier if isinstance(earlier, Factored) else None)
        return solved(kernel, constant, new_noise, known, rewards), known
    before = earlier if isinstance(earlier, Summary) else None
    summary = summarized(kernel, points, rewards - constant, variances, before)
    return approximate(kernel, constant, new_noise, summary), summary


def approximate(
    kernel: Kernel, constant: float, new_noise: float | HeteroscedasticNoise, summary: Summary
) -> ApproximatePosterior:
    """Compute the approximate posterior from `summary`, which holds the points and the sums over all rewards.

    `constant` is the prior mean, and `new_noise` is the variance of the noise of further rewards: one number, or a
    function of the point.
    """
    root, total = summary.root, summary.total
    eye = torch.eye(len(root), dtype=root.dtype, device=root.device)
    informed = cholesky(eye + total.information)
    weights = torch.linalg.solve_triangular(root.mT, cholesky_solved(informed, total.pull[:, None]), upper=True)
    # (R Rᵀ)⁻¹ = L⁻ᵀ (I - (I + S)⁻¹) L⁻¹, so R = L U⁻¹ for the lower triangular U with UᵀU = I - (I + S)⁻¹
    told = eye - torch.cholesky_inverse(informed) + LEAST_SHARE * eye
    lower = cholesky(told.flip(0, 1)).mT.flip(0, 1)
    factor = torch.linalg.solve_triangular(lower, root, upper=False, left=False)
    here = kernel.scaled(summary.inducing)
    return ApproximatePosterior(kernel, constant, new_noise, *here, factor, weights[:, 0], summary, informed)
