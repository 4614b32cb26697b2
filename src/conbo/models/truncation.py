"""Clipped (censored) rewards: a reward at the floor says only that its unclipped value z is not above the floor.

The distribution of z given such rewards is a truncated Gaussian.  Expectation propagation approximates each condition
z ≤ floor by a Gaussian pseudo-observation of z, called a site.  Where z is surely below the floor, the condition
says nothing, and the site has a nearly infinite variance.  Let m and s² be the mean and the variance of z given
everything but the site of this z, and let φ and Φ be the density and the distribution function of the standard normal
distribution.  Then this site is given by:

    b = (floor - m)/s,  h = φ(b)/Φ(b),  w = h (h + b)
    site: value m - s/(h + b), variance s² (1 - w)/w

A new reward above the floor shows z itself.  One at the floor hides how low z is, so part of the variance s² remains.
On average, a new reward explains the share Φ(-b) + φ(b)(b + h) of s².

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

MIN_TIED = 3  # least number of points whose rewards are at the floor
MIN_FREE = 5  # least number of rewards above the floor
MOST_REWARDS = 500  # largest number of rewards, clipped or not, because the time for sites grows with its cube
SAME_REWARD = 1e-9  # standardized rewards that are closer to the floor than this count as clipped
LARGEST_VARIANCE = 1e8  # largest variance of a site, which says nothing about standardized rewards
FAR = 50.0  # standard deviations beyond which an asymptotic series is accurate
LEAST_VARIANCE = 1e-24  # smaller variances are raised to this one, so that nothing is divided by zero
LEAST_SHARE = 1e-9  # least share of the variance that a reward explains, so that its inverse is finite
LARGEST_SCALE = 10.0  # largest standard deviation of unclipped values, in units of that of the rewards
DAMPING = 0.7  # share of the full step to the new sites that an iteration takes
ITERATIONS = 100
TOLERANCE = 1e-8  # change of a site, in units of the posterior's standard deviation, that ends the iterations


@dataclass(frozen=True)
class Sites:
    """Gaussian pseudo-observations (sites of expectation propagation) in place of n rewards, some of them clipped."""

    floor: float
    values: Tensor  # (n,): the rewards above the floor, and the values of the sites
    variances: Tensor  # (n,), of the sites, in addition to the noise; zero for rewards above the floor
    scale: float = 1.0  # standard deviation of the expected unclipped values, in units of that of the rewards

    def some(self, rows: Tensor) -> "Sites":
        """Return only the pseudo-observations with indices `rows`."""
        return Sites(self.floor, self.values[rows], self.variances[rows], self.scale)


def floor_of(points: Tensor, rewards: Tensor) -> float | None:
    """Return the floor at which standardized rewards (n,) at points (n, d) seem to be clipped; None if there is none.

    Rewards seem clipped if all of these conditions hold:

    - At least MIN_TIED points have the lowest reward.
    - At least MIN_FREE rewards are higher.
    - No two of the higher rewards are equal. Otherwise, rewards may be counts or scores.
    - The gap between the lowest reward and the higher ones is at most the range of the higher ones. Otherwise, the
      lowest reward may be a penalty.

    A point that was evaluated again with the same reward counts once. With more than MOST_REWARDS rewards, clipped or
    not, the result is None, because approximating the clipped ones would take too long.
    """
    if not MIN_TIED + MIN_FREE <= len(rewards) <= MOST_REWARDS:
        return None
    # the same point may have been evaluated again without noise
    rows = torch.unique(torch.cat([points.to(rewards), rewards[:, None]], -1), dim=0)
    distinct = rows[:, -1]
    floor = distinct.min()
    free = distinct[distinct > floor]
    if len(distinct) - len(free) < MIN_TIED or len(free) < MIN_FREE or len(free.unique()) < len(free):
        return None
    return float(floor) if free.min() - floor <= free.max() - free.min() else None


def sites_of(kernel: Kernel, constant: float, noise: Tensor, points: Tensor, rewards: Tensor, floor: float) -> Sites:
    """Return n pseudo-observations in place of rewards (n,) at points (n, d); some rewards are clipped at the floor.

    Rewards above the floor stay as they are. `constant` is the prior mean, and `noise` (n,) holds the variances of the
    rewards' noise.
    """
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
    """Approximate the distribution of k jointly Gaussian variables, given that none of them is above the floor.

    Without this condition, the variables have the given mean (k,) and covariance (k, k). Expectation propagation
    replaces the condition on each variable by a Gaussian pseudo-observation, called a site. The results, each (k,), are
    the values of the sites, the variances of the sites, and the means of the variables given the condition.
    """
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
    """Return the variance of noise with which an observation of z would tell as much as a clipped one, elementwise.

    z is Gaussian with the given mean and variance. A clipped observation is z, or the floor if z is below it. Two
    observations tell as much if, on average, they explain the same share of the variance of z. The other two results
    are the derivatives of the noise variance with respect to the mean and the variance of z.
    """
    known = variance.clamp_min(LEAST_VARIANCE)
    b = (floor - mean) / known.sqrt()
    above = ratios(b)[1]
    density = normal_density(b)
    share = (normal_cdf(-b) + density * above).clamp(LEAST_SHARE, 1.0)
    in_b = known * density * above.square() / share.square()  # because d share/db = -φ(b)(b + h)²
    times = (1 - share) / share
    return known * times, -in_b / known.sqrt(), times - in_b * b / (2 * known)


def ratios(b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inverse Mills ratio h = φ(b)/Φ(b), and h + b, computed without cancellation.

    φ and Φ are the density and the distribution function of the standard normal distribution.
    """
    near = b.clamp_min(-FAR)
    ratio = sqrt(2 / pi) / torch.special.erfcx(-near / sqrt(2))
    below = -1 / b.clamp_max(-FAR)
    above = below - 2 * below**3 + 10 * below**5  # asymptotic series of h + b, because h and b nearly cancel
    return torch.where(b < -FAR, above - b, ratio), torch.where(b < -FAR, above, ratio + near)
