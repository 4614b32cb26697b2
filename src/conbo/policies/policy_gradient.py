"""PG: a Gaussian policy whose mean is a quadratic function of the state, by the paper's expected advantage.

    π_θ(x | s) = N(x; sᵀAs + Bs + C, 0.2² I),   θ maximizes Σ_i π_θ(xⁱ | sⁱ) (yⁱ - V(sⁱ))

=========  ===================  ==========================================================================
paper      here                 meaning
=========  ===================  ==========================================================================
θ          ``coefficients``     A, B and C, one column for each action
V(s)       ``baseline``         kernel regression of the rewards on the states, bandwidth 0.2
yⁱ - V     ``advantage``        how much better an observation was than others at similar states
0.2        ``spread``           standard deviation of the policy, and the bandwidth
=========  ===================  ==========================================================================

States and actions are in the unit cube, rewards are standardized; categories of a state enter one-hot.  No model is
used.  Reference: Williams (1992), in the form of the paper's supplement.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.ascent import ascend
from conbo.belief import Belief, standardization
from conbo.errors import SettingError
from conbo.models.columns import Columns, squared_distances

LARGEST = 10.0  # largest absolute coefficient
RIDGE = 1e-3  # weight of an observation without advantage in the first guess, and of the coefficients' size


@dataclass(frozen=True)
class PolicyGradient:
    """The quadratic policy, found by local search from `starts` guesses."""

    spread: float = 0.2
    starts: int = 8
    iterations: int = 60

    def __post_init__(self) -> None:
        if not self.spread > 0:
            raise SettingError(f"`spread` must be positive, but got spread={self.spread}.")
        if self.starts < 1:
            raise SettingError(f"`starts` must be at least 1, but got starts={self.starts}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "QuadraticPolicy":
        """The policy fitted to all observations."""
        columns, d_s = Columns(belief.space.state_categories), belief.n_state_dims
        observations = belief.observations
        states, actions = columns.features(observations.points[:, :d_s]), observations.points[:, d_s:]
        shift, scale = standardization(observations.rewards)
        rewards = (observations.rewards - shift) / scale
        advantage = rewards - baseline(states, rewards, self.spread)
        coefficients = self._fitted(quadratic(states), actions, advantage)
        return QuadraticPolicy(belief, columns, coefficients)

    def _fitted(self, features: Tensor, actions: Tensor, advantage: Tensor) -> Tensor:
        """The coefficients θ (features, d_x) that maximize the expected advantage."""
        shape = features.shape[1], actions.shape[1]

        def expected_advantage(flat: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            away = actions - features @ flat.unflatten(1, shape)  # (r, n, d_x)
            term = advantage * torch.exp(-away.square().sum(-1) / (2 * self.spread**2))  # (r, n)
            gradient = features.mT @ (term[..., None] * away) / self.spread**2
            return term.sum(-1), gradient.flatten(1)

        guesses = torch.stack([*first_guesses(features, actions, advantage, self.starts)]).flatten(1)
        upper = guesses.new_full((guesses.shape[1],), LARGEST)
        ascent = ascend(expected_advantage, guesses, -upper, upper, self.iterations, first_step=0.1 / LARGEST)
        return ascent.points[ascent.values.argmax()].reshape(shape)


def quadratic(states: Tensor) -> Tensor:
    """The features 1, s and all products of two entries of s, for s (..., f) measured from the center of the cube."""
    s = states - 0.5
    rows, columns = torch.triu_indices(s.shape[-1], s.shape[-1], device=s.device)
    return torch.cat([torch.ones_like(s.sum(-1, keepdim=True)), s, s[..., rows] * s[..., columns]], -1)


def baseline(states: Tensor, rewards: Tensor, bandwidth: float) -> Tensor:
    """V at the observed states (n, f): a weighted mean of the rewards (n,) of similar states."""
    similarity = torch.exp(-squared_distances(states, states) / (2 * bandwidth**2))
    return similarity @ rewards / similarity.sum(-1)


def first_guesses(features: Tensor, actions: Tensor, advantage: Tensor, n: int) -> list[Tensor]:
    """First guesses of the coefficients: a regression on good observations, and policies that repeat a good action."""
    weights = advantage.clamp_min(0) + RIDGE
    eye = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
    eye[0, 0] = 0.0  # the constant is free
    normal = (features.mT * weights) @ features + RIDGE * weights.sum() * eye
    guesses = [torch.linalg.solve(normal, (features.mT * weights) @ actions)]
    for best in advantage.argsort(descending=True, stable=True)[: n - 1]:
        constant = torch.zeros_like(guesses[0])
        constant[0] = actions[best]
        guesses.append(constant)
    return guesses


@dataclass(frozen=True)
class QuadraticPolicy:
    """A policy from states (m, d_s) to actions (m, d_x)."""

    belief: Belief
    columns: Columns
    coefficients: Tensor  # (features, d_x)

    def mean(self, states: Tensor) -> Tensor:
        """The mean of the Gaussian policy, which may be outside the cube."""
        return quadratic(self.columns.features(states)) @ self.coefficients

    def __call__(self, states: Tensor) -> Tensor:
        """The nearest valid action to the mean."""
        return self.belief.snap_actions(self.mean(states).clamp(0, 1), states)
