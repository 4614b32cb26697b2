"""What the model believes after n observations: an immutable record with a cached factorisation.

======================  =====================  ========================================================
paper (supplement)      here                   meaning
======================  =====================  ========================================================
X̃ⁿ                      ``states, actions``    observed points, as scaled features of the kernel
K = k⁰(X̃,X̃) + σ²I       ``factor``             its lower Cholesky factor
Ỹⁿ = K⁻¹(Y - μ⁰)        ``weights``            μⁿ(s,x) = μ⁰ + k⁰(s,x,X̃) Ỹⁿ
K⁻¹k⁰(X̃, x̃ⁿ⁺¹)          ``LookAhead.weights``  what a new point takes away from the old ones
σⁿ_y(x̃ⁿ⁺¹)              ``LookAhead.sd``       standard deviation of the new reward
σ̃(s,x; x̃ⁿ⁺¹)            ``look_ahead_slope``   μⁿ⁺¹ = μⁿ + σ̃ Z
======================  =====================  ========================================================

Rewards are in the standardised units that the model was fitted in, points are in the unit cube, states first.
"""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from conbo.errors import ConboError
from conbo.models import compiled_product_kernel
from conbo.models.factorization import factorize
from conbo.models.kernels import Kernel
from conbo.models.noise import VaryingNoise

CHUNK = 4096  # points per pass: the tables between them and the observations stay in the processor's cache


@dataclass(frozen=True)
class Moments:
    """Posterior mean and variance of n points with their gradients in the unit cube."""

    mean: Tensor  # (n,)
    variance: Tensor  # (n,)
    mean_gradient: Tensor  # (n, d)
    variance_gradient: Tensor  # (n, d)


@dataclass(frozen=True)
class LookAhead:
    """How one more observation at each of c candidates would change every posterior mean."""

    states: Tensor  # (c, state features), scaled
    actions: Tensor  # (c, action features), scaled
    weights: Tensor  # (c, n)
    sd: Tensor  # (c,)
    noise_gradient: Tensor  # (c, d), of the variance of the noise


@dataclass(frozen=True)
class Posterior:
    """A Gaussian process conditioned on n observations."""

    kernel: Kernel
    constant: float  # prior mean
    noise: float | VaryingNoise  # variance of a new observation's noise
    states: Tensor  # (n, state features), scaled
    actions: Tensor  # (n, action features), scaled
    factor: Tensor  # (n, n)
    weights: Tensor  # (n,)

    @property
    def n_observations(self) -> int:
        """How many observations it is conditioned on."""
        return len(self.weights)

    @property
    def n_state_dims(self) -> int:
        """Columns of a point that are its state."""
        return len(self.kernel.states.columns.categories)

    def scaled(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Unit-cube points (..., d) as scaled features of states and of actions."""
        d_s = self.n_state_dims
        return self.kernel.states.scaled(points[..., :d_s]), self.kernel.actions.scaled(points[..., d_s:])

    def prior_covariance(self, a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
        """k⁰ between two sets of scaled features."""
        if a[0].dim() == b[0].dim() == 2 and compiled_product_kernel.handles(self.kernel, *a, *b):
            return compiled_product_kernel.covariance(self.kernel, a, b)
        covariance = self.kernel.scale(a[0], b[0]) * self.kernel.actions.correlation(a[1], b[1])
        offset = self.kernel.offset(a[0], b[0])
        return covariance if offset is None else covariance + offset

    def noise_at(self, points: Tensor) -> Tensor:
        """Variances of the noise of new rewards at points (n, d)."""
        if isinstance(self.noise, VaryingNoise):
            return self.noise.at(points)
        return points.new_full(points.shape[:-1], self.noise)

    def noise_gradient(self, points: Tensor) -> Tensor:
        """Their gradients (n, d)."""
        return self.noise.gradient(points) if isinstance(self.noise, VaryingNoise) else torch.zeros_like(points)

    def solve(self, columns: Tensor) -> Tensor:
        """K⁻¹ columns."""
        return torch.cholesky_solve(columns, self.factor)

    def mean(self, points: Tensor) -> Tensor:
        """Posterior mean of points (n, d)."""
        parts = []
        for chunk in points.split(CHUNK):
            cross = self.prior_covariance(self.scaled(chunk), (self.states, self.actions))
            parts.append(self.constant + cross @ self.weights)
        return torch.cat(parts)

    def variance(self, points: Tensor) -> Tensor:
        """Posterior variance of the noise-free reward at points (n, d)."""
        parts = []
        for chunk in points.split(CHUNK):
            here = self.scaled(chunk)
            cross = self.prior_covariance(here, (self.states, self.actions))
            root = torch.linalg.solve_triangular(self.factor, cross.mT, upper=False)
            parts.append((self.kernel.variance(here[0]) - root.square().sum(0)).clamp_min(0))
        return torch.cat(parts)

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Posterior covariance between points a (p, d) and b (q, d)."""
        a_scaled, b_scaled, observed = self.scaled(a), self.scaled(b), (self.states, self.actions)
        roots = [
            torch.linalg.solve_triangular(self.factor, self.prior_covariance(observed, points), upper=False)
            for points in (a_scaled, b_scaled)
        ]
        # row by row: the tables on the way to a large matrix would not fit into the processor's cache
        rows = max(1, CHUNK * 32 // max(1, len(b)))
        pieces = zip(*(tensor.split(rows) for tensor in (*a_scaled, roots[0].mT)), strict=True)
        return torch.cat(
            [self.prior_covariance((state, action), b_scaled) - root @ roots[1] for state, action, root in pieces]
        )

    def moments(self, points: Tensor) -> Moments:
        """Mean, variance and their closed-form gradients at points (n, d)."""
        here = self.scaled(points)
        cross = self.prior_covariance(here, (self.states, self.actions))  # (n, n_observations)
        solved = self.solve(cross.mT).mT
        pairs = torch.stack([self.weights.expand_as(solved), solved])
        mean_gradient, variance_gradient = covariance_gradient(self.kernel, here, (self.states, self.actions), pairs)
        return Moments(
            self.constant + cross @ self.weights,
            (self.kernel.variance(here[0]) - (cross * solved).sum(-1)).clamp_min(0),
            mean_gradient,
            -2 * variance_gradient,
        )

    def look_ahead(self, candidates: Tensor) -> LookAhead:
        """Prepare one more observation at each candidate (c, d): O(n²) each, once."""
        here = self.scaled(candidates)
        cross = self.prior_covariance(here, (self.states, self.actions))  # (c, n)
        weights = self.solve(cross.mT).mT
        variance = (self.kernel.variance(here[0]) - (cross * weights).sum(-1)).clamp_min(0)
        sd = (variance + self.noise_at(candidates)).sqrt()
        return LookAhead(here[0], here[1], weights, sd, self.noise_gradient(candidates))

    def look_ahead_slope(self, ahead: LookAhead, points: Tensor) -> Tensor:
        """σ̃ of points (p, d) for every candidate: (c, p)."""
        here = self.scaled(points)
        own = self.prior_covariance((ahead.states, ahead.actions), here)
        old = self.prior_covariance((self.states, self.actions), here)
        return (own - ahead.weights @ old) / ahead.sd[:, None]


def covariance_gradient(
    kernel: Kernel, here: tuple[Tensor, Tensor], there: tuple[Tensor, Tensor], weights: Tensor
) -> Tensor:
    """Gradient in each point of Σ_m weights[..., p, m] k(point p, there m), in the unit cube: (..., p, d).

    `here` holds scaled features (p, ·); `there` (m, ·), or (p, m, ·) where every point has partners of its own.
    """
    if compiled_product_kernel.handles(kernel, *here, *there, weights):
        in_states, in_actions = compiled_product_kernel.weighted_gradient(kernel, here, there, weights)
    else:
        in_states, in_actions = _weighted_gradient(kernel, here, there, weights)
    return torch.cat(
        [kernel.states.in_unit_cube(in_states, here[0]), kernel.actions.in_unit_cube(in_actions, here[1])], -1
    )


def _weighted_gradient(
    kernel: Kernel, here: tuple[Tensor, Tensor], there: tuple[Tensor, Tensor], weights: Tensor
) -> tuple[Tensor, Tensor]:
    """The same in scaled features of states and of actions."""
    own_partners = there[0].dim() == 3
    states, actions = (t[:, None] for t in here) if own_partners else here

    def table(values: Tensor) -> Tensor:
        return values[:, 0] if own_partners else values  # (p, m)

    value, slope, _ = (table(t) for t in kernel.actions.tables(actions, there[1]))
    in_actions = _pull(weights * table(kernel.scale(states, there[0])) * slope, here[1], there[1])
    if not kernel.states.columns.numeric:
        return in_actions.new_zeros(*in_actions.shape[:-1], here[0].shape[-1]), in_actions
    state_slope = table(kernel.scale_slope(states, there[0])) * value
    offset_slope = kernel.offset_slope(states, there[0])
    if offset_slope is not None:
        state_slope = state_slope + table(offset_slope)
    return _pull(weights * state_slope, here[0], there[0]), in_actions


def _pull(table: Tensor, here: Tensor, there: Tensor) -> Tensor:
    """-Σ_m table[..., p, m] (here_p - there_m)."""
    towards = (table @ there) if there.dim() == 2 else torch.einsum("...pm,pmf->...pf", table, there)
    return towards - table.sum(-1, keepdim=True) * here


def condition(
    kernel: Kernel,
    constant: float,
    noise: Tensor | float | VaryingNoise,
    points: Tensor,
    rewards: Tensor,
    new_noise: float | VaryingNoise | None = None,
) -> Posterior:
    """Condition a prior on observed points (n, d) and rewards (n,).

    `noise` is one variance, one for each point, or a function of the point; `new_noise` that of further rewards, by
    default the same, or where each point has its own, their mean.
    """
    d_s = len(kernel.states.columns.categories)
    states, actions = kernel.states.scaled(points[:, :d_s]), kernel.actions.scaled(points[:, d_s:])
    covariance = kernel.scale(states, states) * kernel.actions.correlation(actions, actions)
    offset = kernel.offset(states, states)
    if offset is not None:
        covariance = covariance + offset
    known = noise.at(points) if isinstance(noise, VaryingNoise) else noise
    variances = torch.as_tensor(known, dtype=points.dtype, device=points.device).expand(len(points))
    factor = cholesky(covariance + torch.diag(variances))
    weights = torch.cholesky_solve((rewards - constant)[:, None], factor)[:, 0]
    if new_noise is None:
        new_noise = float(noise.mean()) if isinstance(noise, Tensor) else noise
    return Posterior(kernel, constant, new_noise, states, actions, factor, weights)


def cholesky(matrix: Tensor) -> Tensor:
    """Lower factor; rounding that makes the matrix indefinite is met with the least jitter that helps."""
    factor, failed = factorize(matrix)
    jitter = max(1e-10 * float(matrix.diagonal().mean()), 1e-300)
    while failed.item():
        if not (jitter < inf and matrix.isfinite().all()):
            raise ConboError("a covariance matrix must be finite, but got infinite or undefined entries.")
        eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        factor, failed = factorize(matrix + jitter * eye)
        jitter *= 10
    return factor
