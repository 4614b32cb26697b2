"""Rewards that are clipped from below: a reward at the floor says only that the value z of the process is not above it.

The distribution of z given such rewards is a truncated Gaussian.  Expectation propagation replaces each condition
z ≤ floor by a Gaussian observation of z, its site.  A value that is surely below the floor gets a site of nearly
infinite variance, which says nothing.  With s² and m the variance and the mean of z without its own site:

    b = (floor - m)/s,  h = φ(b)/Φ(b),  w = h (h + b)
    site: value m - s/(h + b), variance s² (1 - w)/w

The variance of z that a reward at a new point is expected to explain is the share Φ(-b) + φ(b)(b + h) of s²: a reward
below the floor hides how far below it z is.

References: Minka (2001); Cunningham, Hennig & Lacoste-Julien (2011).
"""

from dataclasses import dataclass
from math import pi, sqrt

import torch
from torch import Tensor

from conbo.models.exact import condition
from conbo.models.factorization import cholesky
from conbo.models.kernels import Kernel
from conbo.models.output_maps import normal_cdf, normal_density

MIN_TIED = 3  # least number of points with equal rewards at the floor
MIN_FREE = 5  # least number of other rewards
MOST_CENSORED = 500  # largest number of rewards, because sites cost the cube of it
SAME_REWARD = 1e-9  # standardized rewards that are closer to the floor than this are at the floor
LARGEST_VARIANCE = 1e8  # of a site: it says nothing about standardized rewards
FAR = 50.0  # standard deviations beyond which an asymptotic series is accurate
LEAST_VARIANCE = 1e-24  # smallest variance that is told from zero
LEAST_SHARE = 1e-9  # least share of the variance that a reward explains, so that its inverse is finite
LARGEST_SCALE = 10.0  # largest spread of the process, in units of the spread of the rewards
DAMPING = 0.7  # share of the way to the new sites in each iteration
ITERATIONS = 100
TOLERANCE = 1e-8  # change of a site, in units of the posterior's standard deviation, that ends the iterations


@dataclass(frozen=True)
class Sites:
    """Gaussian observations that stand for rewards of which some are at the floor."""

    floor: float
    values: Tensor  # (n,): the rewards, and the values of the sites
    variances: Tensor  # (n,), in addition to the noise: zero except for sites
    scale: float = 1.0  # standard deviation of the values of the process, in units of that of the rewards

    def some(self, rows: Tensor) -> "Sites":
        """Some of the observations."""
        return Sites(self.floor, self.values[rows], self.variances[rows], self.scale)


def floor_of(points: Tensor, rewards: Tensor) -> float | None:
    """The floor at which standardized rewards (n,) at points (n, d) seem to be clipped; None if they are not.

    Rewards are clipped if the lowest is tied, no other is, and it is not far below the others.  Other rewards that are
    tied too are counts, scores or the like.  A lowest reward far below the others is a penalty.
    """
    if not MIN_TIED + MIN_FREE <= len(rewards) <= MOST_CENSORED:
        return None
    # an exact reward may be told again
    rows = torch.unique(torch.cat([points.to(rewards), rewards[:, None]], -1), dim=0)
    distinct = rows[:, -1]
    floor = distinct.min()
    free = distinct[distinct > floor]
    if len(distinct) - len(free) < MIN_TIED or len(free) < MIN_FREE or len(free.unique()) < len(free):
        return None
    return float(floor) if free.min() - floor <= free.max() - free.min() else None


def sites_of(kernel: Kernel, constant: float, noise: Tensor, points: Tensor, rewards: Tensor, floor: float) -> Sites:
    """The sites of rewards (n,) at points (n, d) with noise variances (n,), under a process with this kernel."""
    tied = (rewards - floor).abs() <= SAME_REWARD
    free = ~tied
    values, variances, expected = rewards.clone(), torch.zeros_like(rewards), rewards.clone()
    if bool(tied.any()):
        others = condition(kernel, constant, noise[free], points[free], rewards[free])
        mean, covariance = others.joint(points[tied][None])
        values[tied], variances[tied], expected[tied] = truncated(mean[0], covariance[0] + noise[tied].diag(), floor)
    scale = float(expected.std() / rewards.std()) if len(rewards) > 1 else 1.0
    return Sites(floor, values, variances, min(max(scale, 1.0), LARGEST_SCALE))


def truncated(mean: Tensor, covariance: Tensor, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """Values and variances of the sites of k Gaussian variables that are not above the floor, and their means: (k,)."""
    eye = torch.eye(len(mean)).to(mean)
    precision, pull = torch.zeros_like(mean), torch.zeros_like(mean)  # of the sites
    for _ in range(ITERATIONS):
        root = precision.sqrt()
        factor = cholesky(eye + root[:, None] * covariance * root)
        explained = torch.linalg.solve_triangular(factor, root[:, None] * covariance, upper=False)
        posterior = covariance - explained.mT @ explained
        variance = posterior.diagonal()
        now = mean + posterior @ (pull - precision * mean)
        without = variance / (1 - precision * variance).clamp_min(LEAST_SHARE)  # variances s² without the own site
        center = now + without * (precision * now - pull)
        deviation = without.sqrt()
        ratio, above = ratios((floor - center) / deviation)
        told = (ratio * above).clamp(1 / LARGEST_VARIANCE, 1 - LEAST_SHARE)
        new_precision = told / (1 - told) / without
        new_pull = new_precision * (center - deviation / above)
        step = (new_precision - precision) * variance, (new_pull - pull) * variance.sqrt()
        precision, pull = precision + DAMPING * (new_precision - precision), pull + DAMPING * (new_pull - pull)
        if max(float(part.abs().max()) for part in step) < TOLERANCE:
            break
    return pull / precision, (1 / precision).clamp_max(LARGEST_VARIANCE), now


def hidden_variance(mean: Tensor, variance: Tensor, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """The noise that would hide as much of z as the floor does, with its derivatives in mean and variance of z.

    A reward with this noise explains the same share of the variance as a reward that is clipped at the floor.
    """
    known = variance.clamp_min(LEAST_VARIANCE)
    b = (floor - mean) / known.sqrt()
    above = ratios(b)[1]
    density = normal_density(b)
    share = (normal_cdf(-b) + density * above).clamp(LEAST_SHARE, 1.0)
    in_b = known * density * above.square() / share.square()  # the share falls by φ(b)(b + h)² per unit of b
    times = (1 - share) / share
    return known * times, -in_b / known.sqrt(), times - in_b * b / (2 * known)


def ratios(b: Tensor) -> tuple[Tensor, Tensor]:
    """h = φ(b)/Φ(b) and h + b, which is positive."""
    near = b.clamp_min(-FAR)
    ratio = sqrt(2 / pi) / torch.special.erfcx(-near / sqrt(2))
    below = -1 / b.clamp_max(-FAR)
    above = below - 2 * below**3 + 10 * below**5  # far below zero, because there h + b cancels
    return torch.where(b < -FAR, above - b, ratio), torch.where(b < -FAR, above, ratio + near)
