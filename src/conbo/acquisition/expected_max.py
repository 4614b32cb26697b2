"""E[max_i (a_i + b_i Z)] for Z ~ N(0, 1): the maximum of a handful of lines under a Gaussian, exactly.

=========  ====================  =============================================================
paper      here                  meaning
=========  ====================  =============================================================
μ_i        ``intercepts``        a, posterior means of the actions
σ̃_i        ``slopes``            b, how each mean moves with the new observation
Z̃          ``starts``, ``ends``  interval of z on which a line is the highest
B          ``probability``       Φ(end) - Φ(start), also ∂E/∂a
-A         ``density``           φ(start) - φ(end), also ∂E/∂b
=========  ====================  =============================================================

Instead of the paper's sequential Algorithm 3, each line's interval is found from its crossings with all others: no
loop, no sorting first, any leading batch shape.  Equal slopes, single and dominated lines need no special care. On a
CPU with Numba, the loops of `compiled_expected_max` give the same result.
"""

from dataclasses import dataclass
from math import pi, sqrt

import torch
from torch import Tensor

from conbo.acquisition import compiled_expected_max
from conbo.models import compiled

MOST_PAIRS = 2**24  # crossings held in memory at once


@dataclass(frozen=True)
class ExpectedMax:
    """E[max], E[max] - max a (summed from non-negative terms), and the derivatives of both."""

    value: Tensor  # (...)
    gain: Tensor  # (...)
    probability: Tensor  # (..., n), probability of being the highest line; ∂value/∂a
    density: Tensor  # (..., n), ∂value/∂b


def expected_max(intercepts: Tensor, slopes: Tensor) -> ExpectedMax:
    """E[max] of lines a + b z (..., n), given as intercepts a and slopes b; differentiable in both."""
    a, b = torch.broadcast_tensors(intercepts, slopes)
    top = a.amax(-1)
    integrate = compiled_expected_max.integrate if _compiles(a, b) else _integrate
    gain, probability, density = integrate(a.detach(), b.detach())
    if a.requires_grad or b.requires_grad:
        # by the envelope theorem the intervals may be held fixed: these sums have the right gradients
        linear = (a * probability).sum(-1) - top + (b * density).sum(-1)
        gain = gain + (linear - linear.detach())
    return ExpectedMax(top + gain, gain, probability, density)


def expected_gain(intercepts: Tensor, slopes: Tensor) -> Tensor:
    """E[max] - max a (...) of lines a + b z along the last dimension, without derivatives."""
    a, b = torch.broadcast_tensors(intercepts, slopes)
    if _compiles(a, b):
        return compiled_expected_max.integrate(a, b, only_gain=True)[0]
    start, end = winning_intervals(a, b)
    return _gain(b, start, start < end)


def _compiles(a: Tensor, b: Tensor) -> bool:
    return compiled.AVAILABLE and a.device.type == "cpu" and a.dtype == b.dtype == torch.float64


def _integrate(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gain (...), probability and density (..., n) of lines a + b z; see `ExpectedMax`."""
    start, end = winning_intervals(a, b)
    wins = start < end
    probability = torch.where(wins, interval_probability(start, end), 0.0)
    density = torch.where(wins, normal_density(start) - normal_density(end), 0.0)
    return _gain(b, start, wins), probability, density


def winning_intervals(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The interval of z on which each line is highest: starts and ends (..., n), with start ≥ end if there is none."""
    n = a.shape[-1]
    step = max(1, MOST_PAIRS // max(1, a.numel()))
    starts, ends = [], []
    order = torch.arange(n, device=a.device)
    for first in range(0, n, step):
        rows = slice(first, first + step)
        rise = b[..., rows, None] - b[..., None, :]  # line i against line j
        drop = a[..., None, :] - a[..., rows, None]
        crossing = drop / rise
        start = torch.where(rise > 0, crossing, -torch.inf).amax(-1)
        end = torch.where(rise < 0, crossing, torch.inf).amin(-1)
        # of parallel lines the higher one wins; of equal lines, the first one
        beaten = (rise == 0) & ((drop > 0) | ((drop == 0) & (order < order[rows, None])))
        starts.append(torch.where(beaten.any(-1), torch.inf, start))
        ends.append(end)
    return torch.cat(starts, -1), torch.cat(ends, -1)


def _gain(b: Tensor, start: Tensor, wins: Tensor) -> Tensor:
    """The gain (...): the sum of non-negative (change of slope) E[(Z - |c|)⁺] over corners c of the upper envelope."""
    order = torch.where(wins, b, torch.inf).argsort(dim=-1, stable=True)
    slopes, corners, real = b.gather(-1, order), start.gather(-1, order), wins.gather(-1, order)
    slope_changes = torch.where(real[..., 1:], (slopes[..., 1:] - slopes[..., :-1]).clamp_min(0), 0.0)
    corners = torch.where(real[..., 1:], corners[..., 1:], 0.0)
    return (slope_changes * mean_excess(corners.abs())).sum(-1)


def mean_excess(c: Tensor) -> Tensor:
    """E[(Z - c)⁺] = φ(c) - c Φ(-c) for c ≥ 0, without cancellation far out."""
    mills = sqrt(pi / 2) * torch.special.erfcx(c / sqrt(2))  # Φ(-c) / φ(c)
    far = c > 1e4  # here the density is zero anyway
    inner = torch.where(far, 0.0, 1 - c * mills)
    return normal_density(c) * inner.clamp_min(0)


def normal_density(z: Tensor) -> Tensor:
    """The density φ of a standard normal variable."""
    return torch.exp(-z.square() / 2) / sqrt(2 * pi)


def interval_probability(start: Tensor, end: Tensor) -> Tensor:
    """Φ(end) - Φ(start), computed in the nearer tail."""
    flip = start > 0
    low, high = torch.where(flip, -end, start), torch.where(flip, -start, end)
    return torch.special.ndtr(high) - torch.special.ndtr(low)
