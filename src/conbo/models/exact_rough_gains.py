"""Rough knowledge gradients of many candidates, all in the same states, by a few matrix products.

Nearly everything is prepared once for these states: the local maxima of the posterior mean (basins), their covariances
with the observed rewards, and the curvature at the best of them.

Let the candidate's reward be z standard deviations above its prediction.  The posterior mean after this reward is
μ + σ̃ z, where μ and σ̃ are functions of the action.  V(z) is its maximum over the actions of a state.  The gain of the
candidate in this state is the sum of two parts:

- corners: the expected rise of the maximum of several lines μ + σ̃ z, at the basins and at the candidate's own action;
- curvature: ½ V''(0) = ½ ∇σ̃ᵀ (-∇²μ)⁻¹ ∇σ̃, because the best action itself moves with z.

The result is good enough to tell for which candidates, and in which states, knowledge gradients are worth an accurate
computation.
"""

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from conbo.models import compiled
from conbo.models.action_functions import state_rows
from conbo.models.compiled_rough_gains import CompiledReactions
from conbo.models.conditioned import Conditioned, LookAhead
from conbo.models.factorization import factorize
from conbo.models.feature_limits import FeatureLimits
from conbo.models.posterior import BestActions
from conbo.models.snapping import without_infeasible

LIMIT_STIFFNESS = 1e6  # curvature across an active limit, in units of the largest other curvature
UNIT_LINE_GAIN = 0.4  # E[Z⁺], rounded: the largest expected gain from an action whose mean changes by z
ACTIVE_SLACK = 1e-7  # slack up to which a limit (a constraint on actions) counts as active

Rough: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # mean and slope of lines (..., lines) → rough gain (...)


class RoughGains:
    """A function that roughly estimates the knowledge gradients (r, m) of candidates (r, d) in m fixed states."""

    def __init__(
        self,
        posterior: Conditioned,
        limits: FeatureLimits | None,
        states: Tensor,
        best: BestActions,
        rough: Rough,
    ) -> None:
        self._posterior, self._states, self._rough = posterior, states, rough
        self.best, self._limits = best, limits
        rows, factor = state_rows(posterior, states[:, None]), posterior.kernel.actions
        self._features = rows.features[:, 0]  # (m, state features)
        self._scale = rows.scale[:, 0]  # (m, n)
        self._offset = None if rows.offset is None else rows.offset[:, 0]
        self._mean_weights, self._mean_constant = rows.mean_weights[:, 0], rows.mean_constant[:, 0]
        self._basins = factor.scaled(self.best.basins)  # (m, k, features)
        correlation = factor.correlation(self._basins, posterior.actions)  # (m, k, n)
        self._basin_mean = self._mean_constant[:, None] + (correlation @ self._mean_weights[..., None])[..., 0]
        old = self._scale[:, None] * correlation
        self._basin_old = old if self._offset is None else old + self._offset[:, None]  # (m, k, n)

    def under(self, posterior: Conditioned) -> "RoughGains":
        """Return a copy of this function that uses the given posterior instead of the current one.

        The two posteriors may differ only in the simulator seeds of new rewards. What was prepared for the m states
        does not depend on these seeds, and is reused.
        """
        other = copy(self)
        other._posterior = posterior
        return other

    @cached_property
    def _curvature(self) -> tuple[Tensor, Tensor, Tensor]:
        """What is needed to compute how much a state gains because its best action moves after a new reward.

        The first result is the best action of each of m states, as f scaled inputs (m, f). The second is the gradient,
        with respect to the best action, of its prior covariances with the n observed rewards (m, f, n). The third is
        the inverse Cholesky factor (m, f, f) of the negated Hessian of the posterior mean at the best action. In this
        inverse factor, the columns of inputs that cannot move are zero, and all columns are zero if the negated Hessian
        is not positive definite.
        """
        factor = self._posterior.kernel.actions
        features = factor.scaled(self.best.actions)  # (m, features)
        _, slope, curve = (table[:, 0] for table in factor.tables(features[:, None], self._posterior.actions))  # (m, n)
        away = features[:, :, None] - self._posterior.actions.mT  # (m, features, n)
        eye = torch.eye(features.shape[-1], dtype=features.dtype, device=features.device)
        pull = (self._mean_weights * slope).sum(-1)
        curvature = pull[:, None, None] * eye - (away * (self._mean_weights * curve)[:, None]) @ away.mT  # -∇²μ
        lower, upper, free = factor.box
        stuck = ~free | (features <= lower) | (features >= upper)
        curvature = torch.where(stuck[:, :, None] | stuck[:, None, :], eye, curvature)
        if self._limits is not None:
            curvature = curvature + stiffness_across_limits(self._limits, features, curvature)
        root, failed = factorize(curvature)
        whitening = torch.linalg.solve_triangular(torch.where(failed[:, None, None], eye, root), eye, upper=False)
        # no curvature comes from a coordinate at its bound, or from a point that is not a maximum to second order
        whitening = torch.where((stuck[:, None, :]) | failed[:, None, None], 0.0, whitening)
        return features, away.mul_(-(self._scale * slope)[:, None]), whitening

    @cached_property
    def _compiled(self) -> CompiledReactions:
        """The compiled form of `_reactions`: computes how posterior means in the m states change after new rewards."""
        best, old_gradient, whitening = self._curvature
        name = self._posterior.kernel.actions.profile.name
        return CompiledReactions(name, self._basins, best, self._basin_old, old_gradient, whitening)

    def __call__(self, candidates: Tensor) -> Tensor:
        """Return rough knowledge gradients (r, m) of candidates (r, d) in the m states."""
        posterior, kernel = self._posterior, self._posterior.kernel
        ahead = posterior.look_ahead(candidates)
        r, (m, k, _) = len(candidates), self._basins.shape
        sd = ahead.sd[:, None]
        new_scale = kernel.scale(ahead.states, self._features)  # (r, m)
        new_offset = kernel.offset(ahead.states, self._features)

        correlation = kernel.actions.correlation(ahead.actions, posterior.actions)  # (r, n)
        mean = self._mean_constant + correlation @ self._mean_weights.mT
        own_slope = new_scale - (ahead.weights * correlation) @ self._scale.mT
        if self._offset is not None and new_offset is not None:
            own_slope = own_slope + new_offset - ahead.weights @ self._offset.mT
        mean, own_slope = self._without_infeasible(candidates, mean, own_slope)
        slopes, curvature_gain = self._reactions(ahead, new_scale, new_offset)
        slopes[..., k] = own_slope / sd
        lines = slopes.new_empty(r, m, k + 1)
        lines[..., :k], lines[..., k] = self._basin_mean, mean
        return self._rough(lines, slopes) + curvature_gain

    def _reactions(self, ahead: LookAhead, new_scale: Tensor, new_offset: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return slopes (r, m, k + 1) and gains (r, m) of m states, for one new reward at each of r candidates.

        If the reward is z standard deviations above its prediction, the posterior mean of an action becomes mean +
        slope · z. The first k slopes of a state are those at its basins (local maxima of the posterior mean). The last
        one, that of the candidate's own action, is filled in by the caller. A gain is how much the highest mean of a
        state is expected to rise because the best action moves with z, to second order in z. It is capped at
        UNIT_LINE_GAIN · |A| / sd, where A is `new_scale`, and sd is the standard deviation of the new reward.

        `new_scale` and `new_offset` (r, m) are the terms A and B of the kernel A κ + B, between each candidate's state
        and the m states, where κ is the correlation of actions.
        """
        factor, (m, k, f) = self._posterior.kernel.actions, self._basins.shape
        actions, sd, variance = ahead.actions, ahead.sd[:, None], ahead.sd.square()[:, None]
        if compiled.handles(factor.profile) and actions.device.type == "cpu":
            return self._compiled(actions, ahead.weights, ahead.sd, new_scale, new_offset, UNIT_LINE_GAIN)
        best, old_gradient, whitening = self._curvature
        old = (ahead.weights @ self._basin_old.flatten(0, 1).mT).unflatten(-1, (m, k))
        if new_offset is not None:
            old = old - new_offset[..., None]
        correlation = factor.correlation(actions, self._basins.flatten(0, 1)).unflatten(-1, (m, k))
        slopes = torch.nn.functional.pad((new_scale[..., None] * correlation).sub_(old).div_(sd[..., None]), (0, 1))
        _, slope, _ = factor.tables(actions, best)  # (r, m)
        # ∇σ̃ · sd (m, f, r): f is not the last dimension, because torch is slow at sums of few neighboring numbers
        old_part = (old_gradient.flatten(0, 1) @ ahead.weights.mT).unflatten(0, (m, f))
        gradients = (actions.mT - best[..., None]).mul_((new_scale * slope).mT[:, None]).sub_(old_part)
        gain = (whitening @ gradients).square_().sum(1).mT / (2 * variance)
        return slopes, torch.minimum(gain, UNIT_LINE_GAIN * new_scale.abs() / sd)

    def _without_infeasible(self, candidates: Tensor, mean: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and slopes (r, m) of r candidates' own actions in m states, changed for infeasible actions.

        After a reward that is z standard deviations above its prediction, a posterior mean becomes mean + slope z. If
        an action is infeasible in a state, its mean there is lowered by a large number and its slope is set to zero, so
        that it is never the best action.
        """
        limits = self._limits
        if limits is None:
            return mean, slope
        actions = candidates[:, self._states.shape[-1] :]
        mean, slope = without_infeasible(limits.space, self._states, actions, mean.mT, slope.mT)
        return mean.mT, slope.mT


def stiffness_across_limits(limits: FeatureLimits, features: Tensor, curvature: Tensor) -> Tensor:
    """Return matrices (m, f, f) that, added to `curvature`, keep best actions from moving across active constraints.

    After a new reward, the best action of a state moves. The higher the curvature of the posterior mean at this action,
    the less the action moves. `features` (m, f) are the best actions of m states as f scaled inputs, and `curvature`
    (m, f, f) is the negated Hessian of the posterior mean at these actions. The result is a high curvature across each
    active constraint.
    """
    normals, gaps = (part[:, 0] for part in limits.tangents(features[:, None]))  # (m, J, f), (m, J)
    normals = normals / normals.norm(dim=-1, keepdim=True).clamp_min(1e-300) * (gaps < ACTIVE_SLACK)[..., None]
    return LIMIT_STIFFNESS * curvature.abs().amax((-2, -1))[:, None, None] * (normals.mT @ normals)
