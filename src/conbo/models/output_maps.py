"""Output warping: monotone maps from rewards y to the values that a Gaussian process models.

Rewards with a long tail of very bad values are not Gaussian, and a Gaussian process that has to follow the tail hardly
sees differences between good rewards.  A map g compresses the tail, and the process models
g(y) = z + ε, where z is its noise-free value and ε its noise.

==========  ==================================================  ==============================================
class       g(y), before it is standardized                     use
==========  ==================================================  ==============================================
`LowTail`   -τ ((1 + (p - y)/τ)^λ - 1)/λ below p, y - p above   rewards with a long tail of bad values
`Limits`    y itself, or a `LowTail` of it                      the expected reward has known bounds
==========  ==================================================  ==============================================

`LowTail` is a Box-Cox map with pivot p, width τ and power λ; for λ = 0, it is -τ log(1 + (p - y)/τ) below p.
`learned_maps.py` learns its settings.
`Limits` clamps the expected reward to bounds: those that the user knows, and the floor of clipped rewards.  Noise may
move single rewards beyond the user's bounds.

The predicted quantity is the expected reward E[g⁻¹(z + ε)], an expectation over ε alone.  Its posterior mean and
standard deviation are integrals over the posterior of z, which is Gaussian.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite, log, pi, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

NODES, WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(11))
WEIGHTS = WEIGHTS / WEIGHTS.sum()
LEAST_VARIANCE = 1e-10  # `OutputMap.slope` raises smaller variances to this one, so that it does not divide by zero
NO_LIMIT = 1e9  # replaces an infinite bound of a standardized reward, which would have no gradient
LARGEST_EXPONENT = 30.0  # beyond it, exp in the inverse map is continued linearly, so that it does not overflow


class OutputMap(ABC):
    """A monotone map from rewards to the values that a Gaussian process models in their place (output warping)."""

    @abstractmethod
    def expected(self, value: Tensor, noise: Tensor) -> Tensor:
        """Return the expected reward, given the Gaussian process's noise-free value and the variance of its noise."""

    @abstractmethod
    def expected_slope(self, value: Tensor, noise: Tensor) -> Tensor:
        """Return the derivative of the expected reward with respect to `value`.

        `value` is the Gaussian process's noise-free value, and `noise` is the variance of its noise.
        """

    @abstractmethod
    def values(self, rewards: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the values (n,) to which rewards (n,) are mapped, and the noise variances (n,) of these values.

        The argument `noise` (n,) holds the noise variances of the rewards. If it is None, the second result is None.
        """

    @abstractmethod
    def rewards(self, values: Tensor) -> Tensor:
        """Convert values of the Gaussian process back to rewards; this is the inverse of the method `values`."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """Return the settings of the map as plain values, which JSON can hold."""

    def moments(self, mean: Tensor, variance: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior mean and variance of the expected reward, elementwise.

        `mean` and `variance` are those of the noise-free Gaussian process, and `noise` is the variance of its noise. By
        default, the integrals over the values of the process are computed by Gauss-Hermite quadrature.
        """
        nodes, weights = NODES.to(mean), WEIGHTS.to(mean)
        sd = variance.clamp_min(1e-300).sqrt()
        values = self.expected(mean[..., None] + sd[..., None] * nodes, noise[..., None])
        average = values @ weights
        return average, (values - average[..., None]).square() @ weights

    def slope(self, mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        """Return the standard deviation of the expected reward divided by that of the Gaussian process, elementwise.

        `mean` and `variance` are those of the noise-free process, and `noise` is the variance of its noise.
        """
        known = variance.clamp_min(LEAST_VARIANCE)
        return (self.moments(mean, known, noise)[1] / known).clamp_min(1e-300).sqrt()

    def gain(self, before: Tensor, gain: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return how much the expected reward rises if the Gaussian process rises from `before` by `gain`, elementwise.

        `before` and `gain` refer to the noise-free value of the process, and `noise` is the variance of its noise. The
        second result is the derivative of the first with respect to `gain`.
        """
        after = before + gain
        return self.expected(after, noise) - self.expected(before, noise), self.expected_slope(after, noise)


@dataclass(frozen=True)
class LowTail(OutputMap):
    """A Box-Cox map that compresses a tail of low rewards and is linear above a pivot."""

    pivot: float  # p; rewards below it are compressed
    width: float  # τ; the distance below the pivot at which compression becomes strong
    shift: float = 0.0  # mean of the compressed rewards, which is subtracted to standardize them
    scale: float = 1.0  # standard deviation of the compressed rewards, by which they are divided
    power: float = 0.0  # λ; zero stands for the logarithm

    def values(self, rewards: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the mapped and standardized rewards (n,), and their noise variances (n,).

        The argument `noise` (n,) holds the noise variances before the map. They are mapped to first order (the delta
        method). If `noise` is None, the second result is None.
        """
        variances = None if noise is None else noise * (2 * self.log_slope(rewards)).exp()
        return (self.compressed(rewards) - self.shift) / self.scale, variances

    def in_other_units(self, shift: float, scale: float) -> "LowTail":
        """Return this map for rewards in other units, in which a reward y is shift + scale · y.

        The new map gives shift + scale · y the same value as this map gives y.
        """
        pivot, width = shift + scale * self.pivot, scale * self.width
        return LowTail(pivot, width, scale * self.shift, scale * self.scale, self.power)

    def compressed(self, rewards: Tensor) -> Tensor:
        """Return the mapped rewards (n,), not yet standardized."""
        below = (self.pivot - rewards) / self.width
        grown = torch.log1p(below.clamp_min(0))
        if self.power:
            grown = torch.expm1(self.power * grown) / self.power
        return -self.width * (grown + below.clamp_max(0))

    def log_slope(self, rewards: Tensor) -> Tensor:
        """Return the logarithms (n,) of the derivative of the standardized map at rewards (n,)."""
        below = (self.pivot - rewards) / self.width
        return (self.power - 1) * torch.log1p(below.clamp_min(0)) - log(self.scale)

    def rewards(self, values: Tensor) -> Tensor:
        """Return the rewards that are mapped to these standardized values."""
        below, distance = self._below(values)
        inner = distance.clamp_max(LARGEST_EXPONENT)
        grown = torch.expm1(inner) + (distance - inner) * inner.exp() + below.clamp_max(0)
        return self.pivot - self.width * grown

    def slope_of_rewards(self, values: Tensor) -> Tensor:
        """Return the derivatives of the rewards with respect to their mapped and standardized values, elementwise."""
        _, distance = self._below(values)
        return self.scale * (distance.clamp_max(LARGEST_EXPONENT) - self.power * distance).exp()

    def _below(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return how far rewards are below the pivot, on two scales, given their mapped and standardized values.

        The first result is the mapped pivot minus the mapped reward, in units of `width`. The second is log(1 + d),
        where d is the pivot minus the reward itself, in units of `width`, or 0 if the reward is above the pivot.
        """
        below = -(self.shift + self.scale * values) / self.width
        distance = below.clamp_min(0)
        return below, torch.log1p(self.power * distance) / self.power if self.power else distance

    def expected(self, value: Tensor, noise: Tensor) -> Tensor:
        """Return the expected reward, given the Gaussian process's noise-free value and the variance of its noise.

        This is the mean over the noise, computed by Gauss-Hermite quadrature.
        """
        return self.rewards(value[..., None] + noise.sqrt()[..., None] * NODES.to(value)) @ WEIGHTS.to(value)

    def expected_slope(self, value: Tensor, noise: Tensor) -> Tensor:
        """Return the derivative of the expected reward with respect to `value`.

        `value` is the Gaussian process's noise-free value, and `noise` is the variance of its noise.
        """
        return self.slope_of_rewards(value[..., None] + noise.sqrt()[..., None] * NODES.to(value)) @ WEIGHTS.to(value)

    def record(self) -> dict[str, Any]:
        """Return the settings of the map as plain values."""
        settings = {
            "pivot": self.pivot,
            "width": self.width,
            "shift": self.shift,
            "scale": self.scale,
            "power": self.power,
        }
        return {"type": "low-tail", **settings}


@dataclass(frozen=True)
class Limits(OutputMap):
    """An output map that clamps the expected reward to known bounds, one of which may be infinite."""

    low: float  # least expected reward, standardized; may be -inf
    high: float  # largest expected reward, standardized; may be inf
    tail: LowTail | None = None  # output warping besides the bounds

    def expected(self, value: Tensor, noise: Tensor) -> Tensor:
        """Return the expected reward, clamped to the bounds.

        `value` is the Gaussian process's noise-free value, and `noise` is the variance of its noise.
        """
        inner = value if self.tail is None else self.tail.expected(value, noise)
        return inner.clamp(self.low, self.high)

    def expected_slope(self, value: Tensor, noise: Tensor) -> Tensor:
        """Return the derivative of the clamped expected reward with respect to the noise-free value of the process.

        It is 0 where the expected reward without clamping is not strictly between the bounds.
        """
        inner = value if self.tail is None else self.tail.expected(value, noise)
        slope = torch.ones_like(inner) if self.tail is None else self.tail.expected_slope(value, noise)
        return torch.where((inner > self.low) & (inner < self.high), slope, 0.0)

    def values(self, rewards: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Map rewards (n,) and noise variances (n,) without regard to the bounds, which noisy rewards may exceed."""
        return (rewards, noise) if self.tail is None else self.tail.values(rewards, noise)

    def rewards(self, values: Tensor) -> Tensor:
        """Return the rewards that are mapped to these values of the Gaussian process; they may exceed the bounds."""
        return values if self.tail is None else self.tail.rewards(values)

    def record(self) -> dict[str, Any]:
        """Return the bounds and the output warping as plain values; None stands for an infinite bound."""
        low, high = (limit if isfinite(limit) else None for limit in (self.low, self.high))
        tail = {} if self.tail is None else {"tail": self.tail.record()}
        return {"type": "limits", "low": low, "high": high, **tail}

    def moments(self, mean: Tensor, variance: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior mean and variance of the clamped expected reward, elementwise.

        Without output warping, they have a closed form, because the expected reward is a Gaussian variable clamped to
        [low, high] (a rectified Gaussian). With output warping, they are computed by quadrature.
        """
        if self.tail is not None:
            return super().moments(mean, variance, noise)
        sd = variance.clamp_min(1e-24).sqrt()
        lowest, highest = max(self.low, -NO_LIMIT), min(self.high, NO_LIMIT)
        low, high = (lowest - mean) / sd, (highest - mean) / sd
        below, above = normal_cdf(low), normal_cdf(-high)
        inside = (1 - below - above).clamp_min(0)
        density_low, density_high = normal_density(low), normal_density(high)
        first = density_low - density_high  # E[z; inside]
        second = inside + low * density_low - high * density_high  # E[z²; inside]
        average = lowest * below + highest * above + mean * inside + sd * first
        # squared deviations from the mean of the process, so that no large numbers are subtracted
        from_mean = (lowest - mean).square() * below + (highest - mean).square() * above + variance * second
        return average.clamp(self.low, self.high), (from_mean - (average - mean).square()).clamp_min(0)


def read_output(record: Mapping[str, Any]) -> OutputMap:
    """Rebuild an output map from the dict that its method `record` returned."""
    if record["type"] != "limits":
        return read_tail(record)
    low, high = -inf if record["low"] is None else record["low"], inf if record["high"] is None else record["high"]
    return Limits(low, high, read_tail(record["tail"]) if "tail" in record else None)


def read_tail(record: Mapping[str, Any]) -> LowTail:
    """Rebuild a `LowTail` map from the dict that its method `record` returned."""
    return LowTail(**{name: value for name, value in record.items() if name != "type"})


def normal_cdf(z: Tensor) -> Tensor:
    """Return the cumulative distribution function Φ(z) of the standard normal distribution."""
    return torch.special.ndtr(z)


def normal_density(z: Tensor) -> Tensor:
    """Return the density φ(z) of the standard normal distribution."""
    return torch.exp(-0.5 * z.square()) / sqrt(2 * pi)
