"""Computes E[max_i (a_i + b_i Z)] for Z ~ N(0, 1): the exact expected maximum of finitely many lines.

=========  ====================  =============================================================
ConBO      here                  meaning
=========  ====================  =============================================================
μ_i        ``intercepts``        a, posterior means of the actions
σ̃_i        ``slopes``            b, how each mean moves with the new observation
Z̃          ``starts``, ``ends``  interval of z on which a line is the highest
B          ``probability``       Φ(end) - Φ(start), also ∂E/∂a
-A         ``density``           φ(start) - φ(end), also ∂E/∂b
=========  ====================  =============================================================

The first column has the symbols of the ConBO paper, whose Algorithm 3 goes through the lines one by one.  Here, each
line's interval is found from its crossings with all other lines, without a loop, for any leading batch dimensions.
Equal slopes, single lines and dominated lines are allowed.  On a CPU with Numba, the compiled loop of
`compiled_expected_max.py` gives the same result.
"""

from dataclasses import dataclass
from math import pi, sqrt

import torch
from torch import Tensor

from conbo.acquisition import compiled_expected_max
from conbo.models import compiled

MOST_PAIRS = 2**24  # largest number of crossings that are held in memory at once


@dataclass(frozen=True)
class ExpectedMax:
    """The expected maximum of n lines a + b Z, Z ~ N(0, 1), and its derivatives."""

    value: Tensor  # (...), E[max (a + b Z)]
    gain: Tensor  # (...), E[max (a + b Z)] - max a, without cancellation
    probability: Tensor  # (..., n), probability that a line is the highest, which is ∂value/∂a
    density: Tensor  # (..., n), ∂value/∂b


def expected_max(intercepts: Tensor, slopes: Tensor) -> ExpectedMax:
    """Compute E[max (a + b Z)], Z ~ N(0, 1), of n lines with intercepts a and slopes b (..., n); supports autograd."""
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
    """Return the gains E[max (a + b Z)] - max a, Z ~ N(0, 1), of n lines with intercepts a and slopes b (..., n).

    The result has the shape (...).
    """
    a, b = torch.broadcast_tensors(intercepts, slopes)
    if _compiles(a, b):
        return compiled_expected_max.integrate(a, b, only_gain=True)[0]
    start, end = winning_intervals(a, b)
    return _gain(b, start, start < end)


def _compiles(a: Tensor, b: Tensor) -> bool:
    return compiled.AVAILABLE and a.device.type == "cpu" and a.dtype == b.dtype == torch.float64


def _integrate(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gains E[max (a + b Z)] - max a of n lines, with derivatives.

    Z is standard normal, and the lines a + b z have intercepts a and slopes b (..., n).  The gains are (...).  The
    derivatives (..., n) of E[max (a + b Z)] are with respect to a, then b.
    """
    start, end = winning_intervals(a, b)
    wins = start < end
    probability = torch.where(wins, interval_probability(start, end), 0.0)
    density = torch.where(wins, normal_density(start) - normal_density(end), 0.0)
    return _gain(b, start, wins), probability, density


def winning_intervals(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the starts and ends (..., n) of the intervals of z on which each of n lines a + b z is the highest.

    A line that is never the highest has start ≥ end.
    """
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
    """Return the gains E[max (a + b Z)] - max a, Z ~ N(0, 1), of n lines a + b z, from their slopes b (..., n).

    `start` (..., n) is the z where a line begins to be the highest, and `wins` (..., n) says whether it ever is.  The
    highest line changes at corners z = c.  A gain is the sum, over these corners, of the change of slope at c times
    E[(Z - |c|)⁺].  The gains have the shape (...).
    """
    order = torch.where(wins, b, torch.inf).argsort(dim=-1, stable=True)
    slopes, corners, real = b.gather(-1, order), start.gather(-1, order), wins.gather(-1, order)
    slope_changes = torch.where(real[..., 1:], (slopes[..., 1:] - slopes[..., :-1]).clamp_min(0), 0.0)
    corners = torch.where(real[..., 1:], corners[..., 1:], 0.0)
    return (slope_changes * mean_excess(corners.abs())).sum(-1)


def mean_excess(c: Tensor) -> Tensor:
    """Return E[(Z - c)⁺] = φ(c) - c Φ(-c), Z ~ N(0, 1), for c ≥ 0, without cancellation if c is large.

    φ and Φ are the density and the distribution function of Z.
    """
    mills = sqrt(pi / 2) * torch.special.erfcx(c / sqrt(2))  # Φ(-c) / φ(c)
    far = c > 1e4  # the density is zero for such large c
    inner = torch.where(far, 0.0, 1 - c * mills)
    return normal_density(c) * inner.clamp_min(0)


def normal_density(z: Tensor) -> Tensor:
    """Return the standard normal density φ(z)."""
    return torch.exp(-z.square() / 2) / sqrt(2 * pi)


def interval_probability(start: Tensor, end: Tensor) -> Tensor:
    """Return P[start < Z < end], Z ~ N(0, 1); if start > 0, the mirrored interval is used, to avoid cancellation."""
    flip = start > 0
    low, high = torch.where(flip, -end, start), torch.where(flip, -start, end)
    return torch.special.ndtr(high) - torch.special.ndtr(low)
