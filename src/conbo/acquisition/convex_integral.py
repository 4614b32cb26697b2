"""Estimation of E[V(Z)] - V(0), Z ~ N(0, 1), for a convex function V, from values and slopes at a few nodes z_j.

The knowledge gradient in a state s_i is such an expectation, with V(z) = max_x' [μ(s_i, x') + σ̃(s_i, x') z]: the best
posterior mean of s_i if the new observation is z standard deviations above its expectation.  At every node z_j, the
maximizer x*_j gives the value V(z_j) and, by the envelope theorem, the slope σ̃(s_i, x*_j).  One of the nodes is zero.
Three numbers are computed from these values and slopes.  All integrals are with respect to the standard normal density.

- A lower bound: the integral of the highest tangent (KG_h of the ConBO paper, with these nodes).
- An upper bound: the integral of chords between nodes and, beyond the outer nodes, of lines with the steepest slope of
  any action.
- A best estimate.  If the maximizers of two neighboring nodes are similar, V is taken to be smooth between them, and
  the estimate integrates the cubic that has V's values and slopes at both nodes.  If they are dissimilar, V is taken
  to have a corner, and the estimate integrates the higher of the two tangents.  For intermediate similarities, the two
  integrals are blended.  The integral over each interval between nodes is clipped to its lower and upper bound.

The code works with V minus its tangent at zero: D(z) = V(z) - V(0) - V'(0) z ≥ 0, so that the gain is E[D(Z)].  For
given similarities, the best estimate is a linear combination of the values D_j and slopes d_j of D at the nodes, and
its derivatives with respect to them are the coefficients.

There are two implementations: torch code, which is the reference and runs on any device, and the compiled loop of
`compiled_convex_integral.py`, which is used on a CPU if Numba is installed.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from conbo.acquisition import compiled_convex_integral
from conbo.acquisition.expected_max import interval_probability, mean_excess, normal_density
from conbo.loops.compiling import Array
from conbo.models import compiled

CORNER, SMOOTH = 0.4, 0.8  # similarity of neighboring maximizers below which V has a corner, above which it is smooth
SPREAD = 2.3  # standard deviation of the normal distribution whose quantiles are the nodes; chosen by measured error


def quantile_nodes(n: int, spread: float = SPREAD) -> Tensor:
    """Return n nodes (n,): values z at which a convex function V is computed, to estimate E[V(Z)] for Z ~ N(0, 1).

    The nodes are quantiles, with equally spaced probabilities, of a normal distribution with mean zero and standard
    deviation `spread`. n must be odd, so that the middle node is 0.
    """
    ranks = (2 * torch.arange(1, n + 1, dtype=torch.float64) - 1) / (2 * n)
    nodes = spread * torch.special.ndtri(ranks)
    nodes[n // 2] = 0.0
    return nodes


@dataclass(frozen=True)
class Gains:
    """Estimates of E[V(Z)] - V(0), Z ~ N(0, 1), for convex functions V that are given by q tangents."""

    best: Tensor  # (...), the best estimate
    lower: Tensor  # (...), a lower bound
    slope_derivative: Tensor  # (..., q), derivative of `best` with respect to the slopes of the tangents


class ConvexIntegral:
    """Estimates E[V(Z)] - V(0), Z ~ N(0, 1), of convex functions V from values and slopes at q fixed `nodes` (q,).

    The nodes are values of z, and the middle one is zero. Methods work with D(z) = V(z) - V(0) - V'(0) z, the function
    minus its tangent at zero, because E[D(Z)] = E[V(Z)] - V(0). Their arguments `gain` and `slope` (..., q) are the
    values and slopes of D at the nodes.
    """

    def __init__(self, nodes: Tensor) -> None:
        self.nodes = nodes

    @cached_property
    def _powers(self) -> Tensor:
        """Integrals (4, q-1) of (z - left)^k φ(z) over each interval from a node `left` to the next, for k = 0 to 3.

        There are q nodes, which are values of z, and φ is the standard normal density.
        """
        left, right = self.nodes[:-1], self.nodes[1:]
        return torch.stack(_shifted_moments(left, right, left, 3))

    @cached_property
    def cubic(self) -> Tensor:
        """Weights (4, q-1) for integrating a cubic over each of the q-1 intervals between neighboring nodes.

        The cubic has given values and slopes at both ends.  Its integral with respect to the standard normal density
        is the dot product of the interval's four weights with (value at the left node, slope at the left node, value at
        the right node, slope at the right node).
        """
        h = self.nodes[1:] - self.nodes[:-1]
        m0, m1, m2, m3 = self._powers
        rise = 3 * m2 / h**2 - 2 * m3 / h**3  # integral of the cubic that goes from 0 to 1
        return torch.stack([m0 - rise, m1 - 2 * m2 / h + m3 / h**2, rise, m3 / h**2 - m2 / h])

    @cached_property
    def chord(self) -> Tensor:
        """Weights (2, q-1) for integrating a line over each of the q-1 intervals between neighboring nodes.

        The line (chord) has given values at both ends.  Its integral with respect to the standard normal density is
        the dot product of the interval's two weights with the values at the left and at the right node.
        """
        h = self.nodes[1:] - self.nodes[:-1]
        m0, m1 = self._powers[:2]
        return torch.stack([m0 - m1 / h, m1 / h])

    @cached_property
    def tails(self) -> Tensor:
        """Integrals (3, 2) of φ(z), |z - node| φ(z) and (z - node)² φ(z) beyond the first and beyond the last node.

        φ is the standard normal density.
        """
        outer = self.nodes[[0, -1]].abs()
        mass, first = torch.special.ndtr(-outer), mean_excess(outer)
        return torch.stack([mass, first, mass - outer * first])

    @cached_property
    def _tables(self) -> tuple[Array, ...]:
        """First arguments of the compiled loop that computes the estimates: arrays that depend on the nodes alone."""
        return compiled_convex_integral.tables(self.nodes, self.cubic, self.chord, self.tails)

    def tangents(self, gain: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """Integrate, over each of the q-1 intervals between q nodes, the higher of the tangents at its two ends.

        The tangents are those of D, a convex function V minus its tangent at zero; `gain` and `slope` (..., q) are the
        values and slopes of D at the nodes.  Return weights (..., 4, q-1), and integrals (..., q-1) with respect to the
        standard normal density.  An integral is the dot product of its four weights with (value at the left node, slope
        at the left node, value at the right node, slope at the right node).
        """
        left, right = self.nodes[:-1], self.nodes[1:]
        slope_change = slope[..., 1:] - slope[..., :-1]
        apart = gain[..., :-1] - gain[..., 1:] + slope[..., 1:] * right - slope[..., :-1] * left
        corner = torch.where(slope_change > 0, apart / torch.where(slope_change > 0, slope_change, 1.0), left)
        corner = torch.minimum(torch.maximum(corner, left), right)
        ends = torch.stack(torch.broadcast_tensors(left, corner, right))  # left and right of the corner, in one call
        mass, first = _shifted_moments(ends[:2], ends[1:], ends[::2], 1)
        weights = torch.stack([mass[0], first[0], mass[1], first[1]], -2)
        return weights, (weights * _ends(gain, slope)).sum(-2)

    def lower(self, gain: Tensor, slope: Tensor) -> Tensor:
        """Return lower bounds (...) on E[V(Z)] - V(0), Z ~ N(0, 1), for convex functions V with known tangents.

        A convex function lies above its tangents, so the expectation of the highest tangent is a lower bound.  Here, D
        is V minus the tangent of V at zero, and `gain` and `slope` (..., q) are the values and slopes of D at the q
        nodes.
        """
        mass, first, _ = self.tails
        inside = self.tangents(gain, slope)[1].sum(-1)
        return inside + (_outer(gain) * mass + _outer(slope).abs() * first).sum(-1)

    def upper(self, gain: Tensor, steepest: Tensor) -> Tensor:
        """Return upper bounds (...) on E[V(Z)] - V(0), Z ~ N(0, 1), for convex functions V that are known at q nodes.

        Between two nodes, a convex function lies below the line through its values there (the chord).  Beyond an outer
        node, it lies below the line that starts from its value there with the steepest slope of the function.  Here, D
        is V minus the tangent of V at zero, `gain` (..., q) are the values of D at the nodes, and `steepest` (..., 2)
        are the lowest and the highest slope that D has anywhere.
        """
        mass, first, _ = self.tails
        inside = (self.chord * torch.stack([gain[..., :-1], gain[..., 1:]], -2)).sum((-2, -1))
        return inside + (_outer(gain) * mass + steepest.abs() * first).sum(-1)

    def __call__(self, intercepts: Tensor, slopes: Tensor, similarity: Tensor) -> Gains:
        """Estimate E[V(Z)] - V(0), Z ~ N(0, 1), for convex functions V from their tangents at the q nodes.

        `intercepts` and `slopes` (..., q) describe the tangents.  V(z) is the highest posterior mean over actions if
        the new observation is z standard deviations above its expectation.  `similarity` (..., q-1) says how similar
        the best actions at neighboring nodes are, from 0 to 1: between dissimilar ones, V is assumed to have a corner.
        """
        followed = intercepts.requires_grad or slopes.requires_grad or similarity.requires_grad
        if compiled.AVAILABLE and slopes.device.type == "cpu" and not followed:
            lines = intercepts.numpy(), slopes.numpy(), similarity.numpy()
            return Gains(*compiled_convex_integral.gains(self._tables, *lines, CORNER, SMOOTH))
        intercepts, slopes = torch.broadcast_tensors(intercepts, slopes)
        smooth = ((similarity - CORNER) / (SMOOTH - CORNER)).clamp(0, 1).expand(*slopes.shape[:-1], -1)
        return self._gains_torch(intercepts, slopes, smooth)

    def _gains_torch(self, intercepts: Tensor, slopes: Tensor, smooth: Tensor) -> Gains:
        z, middle = self.nodes, len(self.nodes) // 2
        slope = slopes - slopes[..., middle : middle + 1]
        gain = (intercepts - intercepts[..., middle : middle + 1] + slope * z).clamp_min(0)

        ends = _ends(gain, slope)  # (..., 4, q-1)
        tangent_weights, tangent = self.tangents(gain, slope)
        cubic_weights = self.cubic.expand_as(tangent_weights)
        cubic = (cubic_weights * ends).sum(-2)
        chord_weights = torch.zeros_like(tangent_weights)
        chord_weights[..., 0, :], chord_weights[..., 2, :] = self.chord
        chord = (chord_weights * ends).sum(-2)
        blend = smooth * cubic + (1 - smooth) * tangent
        weights = smooth[..., None, :] * cubic_weights + (1 - smooth[..., None, :]) * tangent_weights
        weights = torch.where((blend < tangent)[..., None, :], tangent_weights, weights)
        weights = torch.where((blend > chord)[..., None, :], chord_weights, weights)
        inside = torch.minimum(torch.maximum(blend, tangent), chord)

        tail, tail_weights = self._tails(gain, slope, smooth)
        mass, first, _ = self.tails
        outer = _outer(gain) * mass + _outer(slope).abs() * first
        by_gain, by_slope = torch.zeros_like(gain), torch.zeros_like(gain)
        for k, (part, kind) in enumerate(((0, by_gain), (1, by_slope))):
            kind[..., :-1] += weights[..., part, :]
            kind[..., 1:] += weights[..., part + 2, :]
            for side, near in ((0, 1), (-1, -2)):
                kind[..., side] += tail_weights[..., side, k]
                kind[..., near] += tail_weights[..., side, k + 2]
        for side, sign in ((0, -1.0), (-1, 1.0)):
            by_gain[..., side] += mass[side]
            by_slope[..., side] += sign * first[side]
        derivative = by_gain * z + by_slope
        derivative[..., middle] = 0
        derivative[..., middle] = -derivative.sum(-1)
        best = inside.sum(-1) + (outer + tail).sum(-1)
        return Gains(best, tangent.sum(-1) + outer.sum(-1), derivative)

    def _tails(self, gain: Tensor, slope: Tensor, smooth: Tensor) -> tuple[Tensor, Tensor]:
        """Integrate the quadratic term of D beyond the first and beyond the last of q nodes.

        D is a convex function V minus the tangent of V at zero, with values `gain` and slopes `slope` (..., q) at the
        nodes.  All integrals are with respect to the standard normal density.  In each tail, D is approximated by its
        tangent at the outer node plus the quadratic term ½ c (z - node)².  The caller integrates the tangent, and this
        method the quadratic term.  The curvature c is the second derivative, at the outer node, of the cubic that has
        D's values and slopes at this node and at the next one.  A negative c counts as zero.  A positive c is
        multiplied by the entry of `smooth` (..., q-1) for that interval, which is 1 where V is smooth and 0 where V has
        a corner.

        The first result (..., 2) holds the integrals beyond the first and beyond the last node.  The second
        result (..., 2, 4) holds four weights for each integral.  The integral is the dot product of its weights with
        four numbers: D's value and slope at the outer node, then D's value and slope at the next node.
        """
        h, sign = _outer(self.nodes[1:] - self.nodes[:-1]), _outer(-self.nodes).sign()
        outer_gain, inner_gain = _outer(gain), _outer(gain[..., 1:-1])
        outer_slope, inner_slope = _outer(slope), _outer(slope[..., 1:-1])
        curvature = 6 * (inner_gain - outer_gain) / h**2 - sign * (4 * outer_slope + 2 * inner_slope) / h
        scale = 0.5 * _outer(smooth) * self.tails[2] * (curvature > 0)
        weights = torch.stack([-6 / h**2 * scale, -4 * sign / h * scale, 6 / h**2 * scale, -2 * sign / h * scale], -1)
        return scale * curvature, weights


def _outer(values: Tensor) -> Tensor:
    """Return the first and the last entry (..., 2) of values (..., q)."""
    return torch.stack([values[..., 0], values[..., -1]], -1)


def _ends(gain: Tensor, slope: Tensor) -> Tensor:
    """Return the values and slopes (..., 4, q-1) of a function at both ends of each interval between q nodes.

    `gain` and `slope` (..., q) are its values and slopes at the nodes.  The order of the four numbers is: value at the
    left end, slope at the left end, value at the right end, slope at the right end.
    """
    return torch.stack([gain[..., :-1], slope[..., :-1], gain[..., 1:], slope[..., 1:]], -2)


def _shifted_moments(start: Tensor, end: Tensor, origin: Tensor, order: int) -> list[Tensor]:
    """Return the integrals of (z - origin)^k φ(z) from start to end, for k = 0 to `order`.

    φ is the standard normal density.  Each integral has the shape to which `start`, `end` and `origin` broadcast.
    """
    at_start, at_end = normal_density(start), normal_density(end)
    moments = [interval_probability(start, end)]
    moments.append(at_start - at_end - origin * moments[0])
    for k in range(2, order + 1):
        edge = (start - origin) ** (k - 1) * at_start - (end - origin) ** (k - 1) * at_end
        moments.append(edge + (k - 1) * moments[k - 2] - origin * moments[k - 1])
    return moments
