"""Output warping: monotone maps between rewards and what a Gaussian process models.

Exploding costs and cliffs of very bad values are not Gaussian, and a Gaussian process that has to follow them sees
little else.  A map g compresses such a tail; the process models z = g(y).

==========  ==================================================  ==============================================
map         g(y), before it is standardized                     for rewards
==========  ==================================================  ==============================================
`LowTail`   -τ ((1 + (p - y)/τ)^λ - 1)/λ below p, y - p above   with a long tail of bad values
`Limits`    y itself, or a `LowTail` of it                      whose expectation has known limits
==========  ==================================================  ==============================================

The first is a Box-Cox map with power λ; for λ = 0 it is -τ log(1 + (p - y)/τ).  `learned_maps.py` learns its settings.
`Limits` cuts the expected reward off at the limits that the user knows; single rewards may exceed them by noise.

Predictions are the expected reward E[g⁻¹(z)], noise included, and its standard deviation.  Both are integrals over one
Gaussian variable.
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
LEAST_VARIANCE = 1e-10  # variance below which the slope of a map is taken at a single point
LARGEST_EXPONENT = 30.0  # logarithm of a distance beyond which a tail is continued linearly in that logarithm


class OutputMap(ABC):
    """A map from a value of the process to an expected reward; both are standardized."""

    @abstractmethod
    def expected(self, value: Tensor, noise: Tensor) -> Tensor:
        """The expected reward, given the noise-free value of the process and the variance of its noise."""

    @abstractmethod
    def expected_slope(self, value: Tensor, noise: Tensor) -> Tensor:
        """The derivative of the expected reward with respect to the value of the process."""

    @abstractmethod
    def values(self, rewards: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The values that the process models in place of rewards (n,), and their noise variances if known."""

    @abstractmethod
    def rewards(self, values: Tensor) -> Tensor:
        """The rewards (n,) that belong to values of the process; the inverse of `values`."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """The settings of the map as plain values."""

    def moments(self, mean: Tensor, variance: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the expected reward, given mean and variance of the process; elementwise."""
        nodes, weights = NODES.to(mean), WEIGHTS.to(mean)
        sd = variance.clamp_min(1e-300).sqrt()
        values = self.expected(mean[..., None] + sd[..., None] * nodes, noise[..., None])
        average = values @ weights
        return average, (values - average[..., None]).square() @ weights

    def slope(self, mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        """The ratio of the standard deviations of the expected reward and of the process; elementwise."""
        known = variance.clamp_min(LEAST_VARIANCE)
        return (self.moments(mean, known, noise)[1] / known).clamp_min(1e-300).sqrt()

    def gain(self, before: Tensor, gain: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The rise of the expected reward if the process rises by `gain` from `before`, and its derivative."""
        after = before + gain
        return self.expected(after, noise) - self.expected(before, noise), self.expected_slope(after, noise)


@dataclass(frozen=True)
class LowTail(OutputMap):
    """A map that compresses a tail of low rewards."""

    pivot: float  # p
    width: float  # τ
    shift: float = 0.0
    scale: float = 1.0  # standard deviation of the compressed rewards, by which they are divided
    power: float = 0.0  # λ; zero stands for the logarithm

    def values(self, rewards: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The values g(y), standardized, and the known variances of the noise, to first order."""
        variances = None if noise is None else noise * (2 * self.log_slope(rewards)).exp()
        return (self.compressed(rewards) - self.shift) / self.scale, variances

    def compressed(self, rewards: Tensor) -> Tensor:
        """The compressed rewards g(y), before they are standardized."""
        below = (self.pivot - rewards) / self.width
        grown = torch.log1p(below.clamp_min(0))
        if self.power:
            grown = torch.expm1(self.power * grown) / self.power
        return -self.width * (grown + below.clamp_max(0))

    def log_slope(self, rewards: Tensor) -> Tensor:
        """The logarithms log g'(y) of the map's slope at rewards y."""
        below = (self.pivot - rewards) / self.width
        return (self.power - 1) * torch.log1p(below.clamp_min(0)) - log(self.scale)

    def rewards(self, values: Tensor) -> Tensor:
        """The rewards y with g(y) = values."""
        below, distance = self._below(values)
        inner = distance.clamp_max(LARGEST_EXPONENT)
        grown = torch.expm1(inner) + (distance - inner) * inner.exp() + below.clamp_max(0)
        return self.pivot - self.width * grown

    def slope_of_rewards(self, values: Tensor) -> Tensor:
        """The derivative dy/dz of the reward at these values z."""
        _, distance = self._below(values)
        return self.scale * (distance.clamp_max(LARGEST_EXPONENT) - self.power * distance).exp()

    def _below(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """How far values are below the pivot in units of the width, and log(1 + (p - y)/τ) for their rewards y."""
        below = -(self.shift + self.scale * values) / self.width
        distance = below.clamp_min(0)
        return below, torch.log1p(self.power * distance) / self.power if self.power else distance

    def expected(self, value: Tensor, noise: Tensor) -> Tensor:
        """The expected reward E[g⁻¹(value + ε)], with noise ε."""
        return self.rewards(value[..., None] + noise.sqrt()[..., None] * NODES.to(value)) @ WEIGHTS.to(value)

    def expected_slope(self, value: Tensor, noise: Tensor) -> Tensor:
        """The derivative of the expected reward with respect to the value."""
        return self.slope_of_rewards(value[..., None] + noise.sqrt()[..., None] * NODES.to(value)) @ WEIGHTS.to(value)

    def record(self) -> dict[str, Any]:
        """The settings of the map as plain values."""
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
    """A map for an expected reward between two limits, one of which may be infinite."""

    low: float
    high: float
    tail: LowTail | None = None

    def expected(self, value: Tensor, noise: Tensor) -> Tensor:
        """The expected reward without limits, cut off at the limits."""
        inner = value if self.tail is None else self.tail.expected(value, noise)
        return inner.clamp(self.low, self.high)

    def expected_slope(self, value: Tensor, noise: Tensor) -> Tensor:
        """The slope without limits, zero beyond the limits."""
        inner = value if self.tail is None else self.tail.expected(value, noise)
        slope = torch.ones_like(inner) if self.tail is None else self.tail.expected_slope(value, noise)
        return torch.where((inner > self.low) & (inner < self.high), slope, 0.0)

    def values(self, rewards: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The values of the map without limits, because rewards may exceed the limits by noise."""
        return (rewards, noise) if self.tail is None else self.tail.values(rewards, noise)

    def rewards(self, values: Tensor) -> Tensor:
        """The rewards that the map without limits gives."""
        return values if self.tail is None else self.tail.rewards(values)

    def record(self) -> dict[str, Any]:
        """The limits and the map of the tail as plain values; None stands for a limit or a map that is absent."""
        low, high = (limit if isfinite(limit) else None for limit in (self.low, self.high))
        tail = {} if self.tail is None else {"tail": self.tail.record()}
        return {"type": "limits", "low": low, "high": high, **tail}

    def moments(self, mean: Tensor, variance: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The moments of a rectified Gaussian variable, in closed form unless there is a tail."""
        if self.tail is not None:
            return super().moments(mean, variance, noise)
        sd = variance.clamp_min(1e-24).sqrt()
        low, high = (self.low - mean) / sd, (self.high - mean) / sd
        below, above = normal_cdf(low), normal_cdf(-high)
        inside = (1 - below - above).clamp_min(0)
        density_low, density_high = normal_density(low), normal_density(high)
        first = density_low - density_high  # E[z; inside]
        second = inside + _times(low, density_low) - _times(high, density_high)  # E[z²; inside]
        average = _times(self.low, below) + _times(self.high, above) + mean * inside + sd * first
        # deviations from the mean without limits, so that no large numbers are subtracted
        from_mean = _times((self.low - mean).square(), below) + _times((self.high - mean).square(), above)
        from_mean = from_mean + variance * second
        return average.clamp(self.low, self.high), (from_mean - (average - mean).square()).clamp_min(0)


def read_output(record: Mapping[str, Any]) -> OutputMap:
    """The output map that a plain record describes."""
    if record["type"] != "limits":
        return read_tail(record)
    low, high = -inf if record["low"] is None else record["low"], inf if record["high"] is None else record["high"]
    return Limits(low, high, read_tail(record["tail"]) if "tail" in record else None)


def read_tail(record: Mapping[str, Any]) -> LowTail:
    """The map of a tail that a plain record describes."""
    return LowTail(**{name: value for name, value in record.items() if name != "type"})


def normal_cdf(z: Tensor) -> Tensor:
    """The distribution function Φ of a standard normal variable."""
    return torch.special.ndtr(z)


def normal_density(z: Tensor) -> Tensor:
    """The density φ of a standard normal variable."""
    return torch.exp(-0.5 * z.square()) / sqrt(2 * pi)


def _times(bound: Tensor | float, weight: Tensor) -> Tensor:
    """bound · weight, which is zero if the bound is infinite."""
    bound = torch.as_tensor(bound).to(weight)
    return torch.where(bound.isfinite(), bound, 0.0) * weight
