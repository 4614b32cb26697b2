"""Constraints on actions (limits) for searches over scaled inputs.

Scaled inputs are the columns of an action, warped and divided by the kernel's lengthscales.  Linear constraints are
linear in the user's units.  Log scales and input warping make them nonlinear in scaled inputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from conbo.feasible_set import FeasibleSet
from conbo.linear_limits import Flags, LinearLimits
from conbo.models.kernels import Factor
from conbo.models.snapping import snap
from conbo.spaces import Array, Space


@dataclass(frozen=True)
class FeatureShapes:
    """What linear constraints on actions have in common in all states, for searches over scaled inputs.

    The coefficients of the actions are the same in all states; only the bounds differ. Scaled inputs are the columns of
    an action, warped and divided by the kernel's lengthscales. The constraints are linear in the user's units, so this
    object also holds what is needed to convert scaled inputs to these units.
    """

    space: Space
    factor: Factor  # turns actions into scaled inputs

    @cached_property
    def feasible(self) -> FeasibleSet:
        """The feasible set of the space."""
        assert self.space.feasible_set is not None
        return self.space.feasible_set

    @cached_property
    def coefficients(self) -> Tensor:
        """Coefficients (J, f) of the J linear constraints, for the f numeric columns of an action."""
        numeric, like, linear = list(self.factor.columns.numeric), self.factor.lengthscales, self.feasible.limits
        if linear is None:
            return like.new_zeros(0, len(numeric))
        return torch.from_numpy(linear.coefficients[:, self.space.n_state_dims :][:, numeric]).to(like)

    @cached_property
    def scales(self) -> tuple[Tensor, Tensor, Tensor]:
        """Lower end, width, and log(upper end / lower end) of the range of each of f numeric action columns.

        These are three tensors (f,). Ends and widths are in the user's units. The logarithm is zero on a linear scale.
        """
        numeric, like, linear = list(self.factor.columns.numeric), self.factor.lengthscales, self.feasible.limits
        if linear is None:
            return (like.new_zeros(len(numeric)),) * 3
        parts = (part[self.space.n_state_dims :][numeric] for part in linear.scales)
        low, width, log_ratio = (torch.from_numpy(part).to(like) for part in parts)
        return low, width, log_ratio

    @cached_property
    def edges(self) -> Tensor:
        """Tensor (2, J) for J linear constraints: the least slack after a projection, and the tolerance for rounding.

        The slack is how far an action is below the bound of a constraint.
        """
        like, linear = self.factor.lengthscales, self.feasible.limits
        if linear is None:
            return like.new_zeros(2, 0)
        return torch.from_numpy(np.stack([linear.margins, linear.rounding])).to(like)

    @cached_property
    def compiled(self) -> tuple[Array, Array, Array]:
        """Three arrays for the compiled search loops: `coefficients`, `edges`, and conversion constants (6, f).

        The loops use the constants to convert scaled inputs of f numeric action columns to the user's units. The six
        constants of a column are its three `scales`, the factor that turns its warped value into a scaled input, and
        the reciprocals of the two exponents of its input warping.
        """
        numeric, factor = list(self.factor.columns.numeric), self.factor
        scale = factor.feature_scales[list(factor.columns.numeric_features)]
        exponents = [scale.new_ones(len(numeric))] * 2
        if factor.warp is not None:
            exponents = [torch.exp(-log)[numeric] for log in (factor.warp.log_a, factor.warp.log_b)]
        shapes = torch.stack([*self.scales, scale, *exponents])
        coefficients, edges, rows = (
            np.ascontiguousarray(part.numpy()) for part in (self.coefficients, self.edges, shapes)
        )
        return coefficients, edges, rows

    def of_states(self, states: Tensor) -> "FeatureLimits":
        """Return the constraints on actions in states (r, d_s)."""
        return FeatureLimits(self, states)


@dataclass(frozen=True)
class FeatureLimits:
    """Constraints on actions in each of r states, for searches over scaled inputs.

    Scaled inputs are actions that are warped, and divided by the lengthscales of the kernel.
    """

    shapes: FeatureShapes  # the part that is the same in all states
    states: Tensor  # (r, d_s), unit cube
    held: tuple[int, ...] = ()  # columns of the actions that must not change, such as rounded integers

    @property
    def space(self) -> Space:
        """The space of the states and actions."""
        return self.shapes.space

    @property
    def factor(self) -> Factor:
        """The kernel's correlation of actions, which also turns actions into scaled inputs."""
        return self.shapes.factor

    @property
    def linear(self) -> LinearLimits | None:
        """The linear constraints of the space; None if there are none."""
        return self.shapes.feasible.limits

    @property
    def allowed(self) -> Callable[[Array], Flags] | None:
        """The user's function `feasible`, which says which points are allowed; None if there is none."""
        return self.shapes.feasible.allowed

    @cached_property
    def room(self) -> Tensor:
        """What each of J linear constraints leaves for the action in each of r states: (r, J).

        A linear constraint is an upper bound on a weighted sum of state and action columns. The result is this bound
        minus the state's part of the sum.
        """
        like = self.factor.lengthscales
        if self.linear is None:
            return like.new_zeros(len(self.states), 0)
        return torch.from_numpy(self.linear.bounds - self.linear.used(self.states.cpu().numpy())).to(like)

    def tangents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Linearize the J linear constraints at actions: return normals (r, q, J, width) and gaps (r, q, J).

        To first order, a step from an action satisfies a constraint if normal · step ≤ gap. `x` (r, q, width) holds q
        actions in each of r states, as scaled inputs.
        """
        (values, slopes), coefficients = self._values(x), self.shapes.coefficients
        normals = x.new_zeros(*x.shape[:-1], len(coefficients), x.shape[-1])
        normals[..., list(self.factor.columns.numeric_features)] = coefficients * slopes[..., None, :]
        gaps = self.room[:, None] - values @ coefficients.mT - self.shapes.edges[0]
        return normals, gaps.clamp_min(0)

    def _values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numeric values of q actions x in each of r states, in the user's units, and their derivatives.

        `x` (r, q, width) are scaled inputs. Both results are (r, q, f) for f numeric columns, and the derivative of a
        value is with respect to its own scaled input.
        """
        numeric, places = list(self.factor.columns.numeric), list(self.factor.columns.numeric_features)
        points = self.factor.unscaled(x)
        slopes = 1 / self.factor.feature_scales[places]
        if self.factor.warp is not None:
            slopes = slopes / self.factor.warp.slope(points)[..., numeric].clamp_min(1e-12)
        low, width, log_ratio = self.shapes.scales
        unit = points[..., numeric]
        values = torch.where(log_ratio > 0, low + low * torch.expm1(unit * log_ratio), low + width * unit)
        return values, slopes * torch.where(log_ratio > 0, log_ratio * values, width)

    def contains(self, x: Tensor) -> Tensor:
        """Return which of q actions x (r, q, width) in each of r states satisfy the linear constraints: (r, q).

        Actions are given as scaled inputs. Violations within rounding errors are tolerated only for equalities, and for
        constraints that involve only integers.
        """
        slack = self.room[:, None] - self._values(x)[0] @ self.shapes.coefficients.mT
        margins, rounding = self.shapes.edges
        return (slack >= torch.where(margins > 0, 0.0, -rounding)).all(-1)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Move q actions x (r, q, width) in each of r states to nearby ones that satisfy the linear constraints.

        Actions are given and returned as scaled inputs. The second result (r, q) says which of the actions satisfy the
        constraints after the move.
        """
        inside = self.contains(x)
        rows = (~inside).nonzero()[:, 0]
        if len(rows) == 0 or self.linear is None:
            return x, inside
        points = torch.cat([self.states[rows].to(x), self.factor.unscaled(x[~inside])], -1).numpy(force=True)
        columns = np.arange(points.shape[1]) - self.space.n_state_dims
        found, feasible = self.linear.project(points, (columns >= 0) & ~np.isin(columns, self.held))
        moved = x.clone()
        moved[~inside] = self.factor.scaled(torch.from_numpy(found[:, self.space.n_state_dims :]).to(x))
        now = inside.clone()
        now[~inside] = torch.from_numpy(feasible).to(inside)
        return moved, now

    def inside(self, x: Tensor) -> Tensor:
        """Return q actions x (r, q, width) in each of r states, with infeasible ones moved to feasible ones nearby.

        Actions are given and returned as scaled inputs. An action stays infeasible if no feasible one is found.
        """
        feasible = torch.from_numpy(self.space.contains(self._points(x).numpy(force=True))).to(x.device)
        if bool(feasible.all()):
            return x
        moved = x.clone()
        points = snap(self.space, self._points(x)[~feasible])
        moved[~feasible] = self.factor.scaled(points[..., self.space.n_state_dims :])
        return moved

    def snapped(self, x: Tensor) -> Tensor:
        """Move q actions x (r, q, width) in each of r states to nearby feasible ones, and round integers.

        Actions are given and returned as scaled inputs.
        """
        return self.factor.scaled(snap(self.space, self._points(x))[..., self.space.n_state_dims :])

    def cut(self, starts: Tensor, ends: Tensor) -> Tensor:
        """Move each feasible action in `starts` straight to its counterpart in `ends`, or as far as it stays feasible.

        `starts`, `ends` and the result are (r, q, width): q actions in each of r states, as scaled inputs.
        """
        assert self.space.feasible_set is not None
        inside, towards = (self._points(x).flatten(0, 1).numpy(force=True) for x in (starts, ends))
        found = self.space.feasible_set.cut(inside, towards)[:, self.space.n_state_dims :]
        return self.factor.scaled(torch.from_numpy(found).to(ends)).reshape(ends.shape)

    def _points(self, x: Tensor) -> Tensor:
        """Return the points (r, q, d), in the unit cube, of q actions in each of the r states.

        The actions are given as scaled inputs, `x` (r, q, width).
        """
        states = self.states[:, None].expand(*x.shape[:-1], -1).to(x)
        return torch.cat([states, self.factor.unscaled(x)], -1)


def feature_limits(shapes: FeatureShapes | None, states: Tensor) -> FeatureLimits | None:
    """Return the constraints on actions in states (r, d_s); None if `shapes` is None, which means no constraints."""
    return None if shapes is None else shapes.of_states(states)
