"""Many functions of the action, maximized at once: h(x; z) = mean(x) + z slope(x).

Mean and slope are each a constant plus a weighted sum of correlations κ of the action x with other actions.  The
function h is the posterior mean in a state s (then the slope is zero), or the look-ahead mean in s.  The look-ahead
mean is the posterior mean after a candidate is evaluated.  If the new reward is z standard deviations above its
prediction, this mean is

    μⁿ⁺¹(s, x) = μⁿ(s, x) + σ̃(s, x; candidate) z.

So mean(x) is μⁿ(s, x), with n weights, one for each observed action.  And slope(x) is σ̃(s, x; candidate), with n + 1
weights, the last one for the candidate's action.

`maximize` searches for the maximizers of all functions at all given z in one batch, by safeguarded, projected Newton
steps with gradients and Hessians in closed form.  It has two implementations: plain torch (any device, the reference),
and the compiled loops of `compiled_ascent` on a CPU with Numba.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from conbo.constrained_steps import constrained_steps
from conbo.models import compiled, compiled_ascent
from conbo.models.columns import squared_distances
from conbo.models.conditioned import Conditioned, LookAhead
from conbo.models.factorization import cholesky_solved, factorize
from conbo.models.feature_limits import FeatureLimits
from conbo.models.kernels import Factor
from conbo.recording import repeat

FIRST_RADIUS = 1.5  # first radius of the trust region, in scaled inputs: about two thirds of a Matérn lengthscale


@dataclass(frozen=True)
class Maxima:
    """Local maxima of r functions mean + z slope of the action (see `ActionFunctions`), each at q values of z."""

    actions: Tensor  # (r, q, width), scaled inputs of the maximizers
    mean: Tensor  # (r, q), at the maximizers
    slope: Tensor  # (r, q), at the maximizers
    correlation: Tensor  # (r, q, n), κ between maximizers and observed actions; n = 0 if it was not asked for

    def take(self, chosen: Tensor) -> "Maxima":
        """Return k of the q maxima of each of the r functions; `chosen` (r, k) holds their indices."""
        rows, columns = self.mean.shape
        places = (chosen + columns * torch.arange(rows, device=chosen.device)[:, None]).flatten()

        def pick(tensor: Tensor) -> Tensor:  # whole rows at once, which is faster than gathering single numbers
            return tensor.flatten(0, 1).index_select(0, places).unflatten(0, chosen.shape)

        return Maxima(pick(self.actions), pick(self.mean), pick(self.slope), pick(self.correlation))


@dataclass(frozen=True)
class ActionFunctions:
    """r functions mean(x) + z slope(x) of the action x, such as posterior means in r states after one more reward.

    The new reward, at a candidate, is z standard deviations above its prediction. The mean is a constant plus a
    weighted sum of the correlations κ of x with the n observed actions (`points`). The slope has the same form, and one
    more term for the correlation with the candidate's action (`new_points`). All actions are scaled inputs.
    """

    factor: Factor  # κ
    points: Tensor  # (n, width), scaled inputs of the observed actions
    mean_weights: Tensor  # (r, n), weights of κ(·, points) in the mean
    slope_weights: Tensor  # (r, n), weights of κ(·, points) in the slope
    new_points: Tensor  # (r, width), scaled inputs of the candidates' actions
    new_weights: Tensor  # (r,), weights of κ(·, new point) in the slope
    mean_constant: Tensor  # (r,), added to the mean
    slope_constant: Tensor  # (r,), added to the slope
    limits: FeatureLimits | None = None  # constraints on the actions of each of the r functions
    held: tuple[int, ...] = ()  # columns of the actions that searches do not change, such as rounded integers

    @property
    def box(self) -> tuple[Tensor, Tensor, Tensor]:
        """Lower bounds, upper bounds and flags of an action's scaled inputs, as three tensors (width,).

        The flags say which inputs searches may change: those from numeric columns whose indices are not in `held`.
        """
        lower, upper, free = self.factor.box
        if not self.held:
            return lower, upper, free
        moves = [column not in self.held for column in self.factor.columns.owner]
        return lower, upper, free & torch.tensor(moves, device=free.device)

    def holding(self, columns: tuple[int, ...]) -> "ActionFunctions":
        """Return a copy of the functions whose searches do not change these columns of the actions."""
        limits = None if self.limits is None else replace(self.limits, held=columns)
        return replace(self, held=columns, limits=limits)

    def pooled(self, correlation: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and slopes (r, p) of the r functions mean + z slope, all at the same p actions.

        `pool` (p, width) holds these actions as scaled inputs, and `correlation` (n, p) their correlations with the
        observed actions.
        """
        own = self.factor.correlation(self.new_points, pool)  # (r, p)
        mean = self.mean_constant[:, None] + self.mean_weights @ correlation
        slope = self.slope_constant[:, None] + self.slope_weights @ correlation + self.new_weights[:, None] * own
        return mean, slope

    def at(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return means and slopes (r, q) of the r functions mean + z slope, each at q actions of its own (r, q, width).

        The third result (r, q, n) holds the correlations of these actions with the n observed ones.
        """
        correlation = self.factor.correlation(actions, self.points)
        own = self.factor.correlation(actions, self.new_points[:, None])[..., 0]
        mean = self.mean_constant[:, None] + (correlation * self.mean_weights[:, None]).sum(-1)
        slope = (correlation * self.slope_weights[:, None]).sum(-1) + self.new_weights[:, None] * own
        return mean, slope + self.slope_constant[:, None], correlation

    def lines_at(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return `mean` and `slope` (r, q) of r functions of the action, each at its own q actions.

        Each function is mean + z · slope, where z is the standardized new reward. `actions` (r, q, width) are scaled
        inputs.
        """
        if not self._is_compiled(actions):
            return self.at(actions)[:2]
        unmoved = replace(self, limits=None)._maximize_compiled(actions, actions.new_zeros(actions.shape[:2]), 0, False)
        return unmoved.mean, unmoved.slope

    def maximize(self, starts: Tensor, z: Tensor, steps: int, keep_correlation: bool = False) -> Maxima:
        """Return local maxima of the r functions mean + z slope of the action, each at q values of z.

        `starts` (r, q, width) holds the initial actions as scaled inputs, `z` is (q,) or (r, q), and `steps` is the
        largest number of steps of Newton's method. Correlations of the maximizers with the observed actions are
        returned only with `keep_correlation`.
        """
        z = z.expand(starts.shape[:2])
        if self.limits is None or self.limits.allowed is None:
            return self._climb(starts, z, steps, keep_correlation)
        starts = self.limits.inside(starts)
        ends = self.limits.cut(starts, self._climb(starts, z, steps, False).actions)
        mean, slope, correlation = self.at(ends)
        return Maxima(ends, mean, slope, correlation if keep_correlation else correlation[..., :0])

    def _climb(self, starts: Tensor, z: Tensor, steps: int, keep_correlation: bool) -> Maxima:
        climb = self._maximize_compiled if self._is_compiled(starts) else self._maximize_torch
        return climb(starts, z, steps, keep_correlation)

    def _is_compiled(self, actions: Tensor) -> bool:
        """Return whether compiled loops can be used: with Numba, for a built-in profile and actions on the CPU."""
        return compiled.handles(self.factor.profile) and actions.device.type == "cpu"

    def _maximize_compiled(self, starts: Tensor, z: Tensor, steps: int, keep_correlation: bool) -> Maxima:
        found = compiled_ascent.ascend(
            self.factor.profile.name,
            self.points,
            self.mean_weights,
            self.slope_weights,
            self.new_points,
            self.new_weights,
            (self.mean_constant, self.slope_constant),
            starts,
            z,
            self.box,
            steps,
            FIRST_RADIUS,
            keep_correlation,
            self.limits,
        )
        return Maxima(*found)

    def _maximize_torch(self, starts: Tensor, z: Tensor, steps: int, keep_correlation: bool) -> Maxima:
        lower, upper, free = self.box
        x = (starts if self.limits is None else self.limits.project(starts)[0]).clone()  # overwritten below
        value, gradient, hessian = self.derivatives(x, z)
        radius = torch.full_like(value, FIRST_RADIUS)

        def step() -> tuple[Tensor, ...]:
            if self.limits is None:
                move, length = newton_step(x, gradient, hessian, lower, upper, free, radius)
                there, inside = (x + move).clamp(lower, upper), None
            else:
                move, length = limited_step(x, gradient, hessian, self.box, radius, self.limits)
                there, inside = self.limits.project((x + move).clamp(lower, upper))
            new_value, new_gradient, new_hessian = self.derivatives(there, z)
            better = new_value > value if inside is None else inside & (new_value > value)
            wider = torch.where(length >= 0.99 * radius, 2 * radius, radius)
            torch.where(better, wider, length / 4, out=radius)
            torch.where(better[..., None], there, x, out=x)
            torch.where(better, new_value, value, out=value)
            torch.where(better[..., None], new_gradient, gradient, out=gradient)
            torch.where(better[..., None, None], new_hessian, hessian, out=hessian)
            return ()

        recordable = x.is_cuda and self.limits is None and self.factor.profile.built_in
        repeat(step, steps, x.device if recordable else None)
        mean, slope, correlation = self.at(x)
        return Maxima(x, mean, slope, correlation if keep_correlation else correlation[..., :0])

    def derivatives(self, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the values of the r functions mean + z slope at q actions each, with gradients and Hessians.

        `x` (r, q, width) are the actions as scaled inputs, and `z` is (r, q). The values (r, q) are without the
        constants `mean_constant` and `slope_constant`, because searches compare values of the same function. The
        gradients are (r, q, width), and the Hessians (r, q, width, width).
        """
        points, n = self.points, len(self.points)
        away = x - self.new_points[:, None]  # (r, q, width)
        # the new point comes last, behind the observed ones
        observed = self.mean_weights[:, None] + z[..., None] * self.slope_weights[:, None]
        weights = torch.cat([observed, (z * self.new_weights[:, None])[..., None]], -1)  # (r, q, n + 1)
        squares = torch.cat([squared_distances(x, points), away.square().sum(-1, keepdim=True)], -1)
        value, slope, curve = self.factor.profile.tables(squares)
        pull, curve_weights = weights * slope, weights * curve
        observed_curve, new_curve = curve_weights[..., :n], curve_weights[..., n:]
        total_pull = pull.sum(-1, keepdim=True)
        gradient = pull[..., :n] @ points + pull[..., n:] * self.new_points[:, None] - total_pull * x
        # With c = observed_curve, Σ c (x-p)(x-p)ᵀ over the observed points p is Σ c p pᵀ - x fᵀ - f xᵀ, where
        # f = Σ c p - ½ (Σ c) x, so that all sums are matrix products.
        second = (observed_curve @ self._outer).unflatten(-1, 2 * points.shape[-1:])
        first = torch.sub(observed_curve @ points, observed_curve.sum(-1, keepdim=True) * x, alpha=0.5)
        mixed = x[..., :, None] * first[..., None, :]
        hessian = second - mixed - mixed.mT + (new_curve * away)[..., :, None] * away[..., None, :]
        hessian.diagonal(dim1=-2, dim2=-1).sub_(total_pull)
        return (weights * value).sum(-1), gradient, hessian

    @cached_property
    def _outer(self) -> Tensor:
        """The outer product of each observed point with itself, as a row: (n, width²)."""
        return (self.points[:, :, None] * self.points[:, None, :]).flatten(1)


def newton_step(
    x: Tensor, gradient: Tensor, hessian: Tensor, lower: Tensor, upper: Tensor, free: Tensor, radius: Tensor
) -> tuple[Tensor, Tensor]:
    """Return projected Newton steps from points x (..., d) towards maxima within bounds, and their lengths (...).

    `gradient` (..., d) and `hessian` (..., d, d) are those of the function at x. Only coordinates that are `free` (d,)
    move. A coordinate at its bound, `lower` or `upper` (d,), stays there if the gradient points beyond the bound. A
    step may still end outside the bounds, so callers clamp its end. No step is longer than its `radius` (...).
    """
    stuck = ~free | ((x <= lower) & (gradient < 0)) | ((x >= upper) & (gradient > 0))
    gradient = torch.where(stuck, 0.0, gradient)
    fixed = stuck[..., :, None] | stuck[..., None, :]
    bowl = torch.where(fixed, 0.0, -hessian)
    both = torch.stack([bowl, bowl])  # the second is lifted, to be positive definite
    both.diagonal(dim1=-2, dim2=-1).add_(stuck)
    both[1].diagonal(dim1=-2, dim2=-1).add_(missing_curvature(bowl)[..., None])
    factors, (failed, lost) = factorize(both)
    factor = torch.where(failed[..., None, None], factors[1], factors[0])
    step = cholesky_solved(factor, gradient[..., None])[..., 0]
    step = torch.where((failed & lost)[..., None], 0.0, step)  # no step, because the Hessian is not finite
    length = step.norm(dim=-1)
    shrink = (radius / length.clamp_min(1e-300)).clamp_max(1.0)
    return step * shrink[..., None], length * shrink


def missing_curvature(matrices: Tensor) -> Tensor:
    """Return what to add to the diagonals of symmetric matrices (..., d, d) to make them positive definite.

    The result (...) is one number per matrix, from Gershgorin's lower bound on its smallest eigenvalue.
    """
    sizes, diagonal = matrices.abs(), matrices.diagonal(dim1=-2, dim2=-1)
    excess = torch.sub(sizes.sum(-1), diagonal.clamp_min(0), alpha=2)  # Σ_j≠i |a_ij| - a_ii
    return torch.add(excess.amax(-1), sizes.amax((-2, -1)), alpha=1e-3).clamp_min(1e-300)


def limited_step(
    x: Tensor,
    gradient: Tensor,
    hessian: Tensor,
    box: tuple[Tensor, Tensor, Tensor],
    radius: Tensor,
    limits: FeatureLimits,
) -> tuple[Tensor, Tensor]:
    """Return Newton steps (r, q, d) towards maxima within bounds and constraints, and their lengths (r, q).

    The steps start at q actions x (r, q, d) for each of r functions. `gradient` (r, q, d) and `hessian` (r, q, d, d)
    are those of the functions at x. No step is longer than its `radius` (r, q). `box` holds three tensors (d,):
    lower bounds, upper bounds, and flags of the coordinates that may move. `limits` holds the constraints.
    """
    lower, upper, free = box
    fixed = ~free[:, None] | ~free
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    bowl = torch.where(fixed, eye, -hessian)
    _, failed = factorize(bowl)
    shift = torch.where(failed, missing_curvature(torch.where(fixed, 0.0, -hessian)), 0.0)
    bowl = bowl + shift[..., None, None] * eye
    low, high = torch.where(free, lower - x, 0.0), torch.where(free, upper - x, 0.0)
    normals, gaps = limits.tangents(x)
    inputs = (bowl, torch.where(free, gradient, 0.0), normals, gaps, low, high)
    arrays = [part.flatten(0, 1).numpy(force=True) for part in inputs]
    known = np.isfinite(arrays[0]).all((-2, -1))
    step = np.zeros(arrays[1].shape)
    step[known] = constrained_steps(*(array[known] for array in arrays))
    moves = torch.from_numpy(step).to(x).reshape(x.shape)
    length = moves.norm(dim=-1)
    shrink = (radius / length.clamp_min(1e-300)).clamp_max(1.0)
    return moves * shrink[..., None], length * shrink


def state_functions(posterior: Conditioned, states: Tensor) -> ActionFunctions:
    """Return r functions of the action: the posterior mean in each of r states (r, d_s)."""
    prepared = state_rows(posterior, states[:, None])
    weights, constant = prepared.mean_weights[:, 0], prepared.mean_constant[:, 0]
    rows = len(states)
    nothing = weights.new_zeros(rows)
    new_points = weights.new_zeros(rows, posterior.actions.shape[-1])
    return ActionFunctions(
        posterior.kernel.actions,
        posterior.actions,
        weights,
        torch.zeros_like(weights),
        new_points,
        nothing,
        constant,
        nothing,
    )


@dataclass(frozen=True)
class StateRows:
    """The parts of look-ahead means that are the same for all candidates, for r sets of m states.

    A look-ahead mean is the posterior mean in a state after one more reward at a candidate, as a function of the
    action.
    """

    features: Tensor  # (r, m, width), scaled inputs of the states
    scale: Tensor  # (r, m, n), the kernel's A between these states and the observed ones
    offset: Tensor | None  # (r, m, n), the kernel's B between the same states; None if the kernel has no offset
    mean_weights: Tensor  # (r, m, n), weights of κ with the observed actions in the posterior mean
    mean_constant: Tensor  # (r, m), part of the posterior mean that does not depend on the action

    def select(self, rows: Tensor) -> "StateRows":
        """Return a copy with only those sets of states whose indices are in `rows`."""
        offset = None if self.offset is None else self.offset[rows]
        return StateRows(
            self.features[rows], self.scale[rows], offset, self.mean_weights[rows], self.mean_constant[rows]
        )


def state_rows(posterior: Conditioned, states: Tensor) -> StateRows:
    """Compute the parts of look-ahead means that are the same for all candidates, for r sets of m states (r, m, d_s).

    A look-ahead mean is the posterior mean in a state after one more reward at a candidate, as a function of the
    action.
    """
    r, m, _ = states.shape
    features = posterior.kernel.states.scaled(states)
    flat = features.flatten(0, 1)
    scale = posterior.kernel.scale(flat, posterior.states)
    offset = posterior.kernel.offset(flat, posterior.states)
    constant = torch.full((r * m,), posterior.constant, dtype=states.dtype, device=states.device)
    if offset is not None:
        constant = constant + offset @ posterior.weights
    return StateRows(
        features,
        scale.unflatten(0, (r, m)),
        None if offset is None else offset.unflatten(0, (r, m)),
        (scale * posterior.weights).unflatten(0, (r, m)),
        constant.unflatten(0, (r, m)),
    )


def look_ahead_functions(
    posterior: Conditioned, ahead: LookAhead, rows: StateRows, limits: FeatureLimits | None = None
) -> ActionFunctions:
    """Return the posterior means after one more reward, as r·m functions of the action: m states for each candidate.

    The new reward is at one of the r candidates of `ahead`. The states of candidate i are set i of `rows`, and its m
    functions are consecutive. `limits` holds the constraints on the action of each function.
    """
    kernel = posterior.kernel
    r, m, _ = rows.features.shape
    sd = ahead.sd[:, None]
    taken = (ahead.weights / -sd)[:, None]  # (r, 1, n)
    new_scale = kernel.scale(rows.features, ahead.states[:, None])[..., 0] / sd  # (r, m)
    slope_constant = new_scale.new_zeros(r, m)
    if rows.offset is not None:
        new_offset = kernel.offset(rows.features, ahead.states[:, None])
        assert new_offset is not None  # a kernel has offsets everywhere or nowhere
        slope_constant = new_offset[..., 0] / sd + (rows.offset * taken).sum(-1)
    return ActionFunctions(
        kernel.actions,
        posterior.actions,
        rows.mean_weights.flatten(0, 1),
        (rows.scale * taken).flatten(0, 1),
        ahead.actions[:, None].expand(r, m, -1).flatten(0, 1),
        new_scale.flatten(),
        rows.mean_constant.flatten(),
        slope_constant.flatten(),
        limits,
    )
