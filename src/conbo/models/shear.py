"""Actions relative to the state: u = x - W s, for a state s and an action x of the unit cube.

The best action often follows the state: the best stock grows with the demand, the best dose with the weight.  Then
rewards depend on x - W s in nearly the same way in all states, and a model of them learns from few evaluations.

    u = (x - W s - low) / span,   low = -Σ_k max(W_k, 0),   span = 1 + Σ_k |W_k|

Here u is moved and scaled, for each action by itself, so that it fills the unit interval if s and x fill the unit cube.
W has one row for each action column and one column for each state column.  The rows and columns of categories are zero.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Shear:
    """The change of coordinates from (s, x), a state and an action, to (s, u), where u is the relative action."""

    weights: Tensor  # W (d_x, d_s)

    @property
    def n_state_dims(self) -> int:
        """Number d_s of columns of a state."""
        return self.weights.shape[1]

    @cached_property
    def span(self) -> Tensor:
        """The lengths (d_x,) of the ranges of x - W s, if s and x fill the unit cube."""
        return 1 + self.weights.abs().sum(1)

    @cached_property
    def low(self) -> Tensor:
        """The lower ends (d_x,) of the ranges of x - W s, if s and x fill the unit cube."""
        return -self.weights.clamp_min(0).sum(1)

    def __call__(self, points: Tensor) -> Tensor:
        """Return points (..., d) with relative actions u in place of the actions x."""
        d_s = self.n_state_dims
        return torch.cat([points[..., :d_s], self.relative(points[..., :d_s], points[..., d_s:])], -1)

    def relative(self, states: Tensor, actions: Tensor) -> Tensor:
        """Return the relative actions u (..., d_x) of actions x (..., d_x) in states (..., d_s)."""
        return (actions - states @ self.weights.mT - self.low) / self.span

    def actions(self, states: Tensor, relative: Tensor) -> Tensor:
        """Return the actions x (..., d_x) of relative actions u (..., d_x) in states (..., d_s), within the unit cube.

        Rounding errors could otherwise lead out of it.
        """
        return (relative * self.span + self.low + states @ self.weights.mT).clamp(0, 1)

    def gradient(self, gradient: Tensor) -> Tensor:
        """Convert gradients (..., d) with respect to (s, u) into gradients with respect to (s, x)."""
        in_states, in_actions = gradient.split([self.n_state_dims, len(self.weights)], -1)
        in_actions = in_actions / self.span
        return torch.cat([in_states - in_actions @ self.weights, in_actions], -1)

    def to(self, device: torch.device) -> "Shear":
        """Return a copy on another device."""
        return Shear(self.weights.to(device))
