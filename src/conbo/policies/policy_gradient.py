"""Policy gradient: a Gaussian policy whose mean is a quadratic function of the state, fitted to the observations.

Observation i has the state sⁱ, the action xⁱ and the reward yⁱ. The policy π_θ is a density of actions x in a state s:

    π_θ(x | s) = N(x; sᵀAs + Bs + C, 0.2² I),   θ maximizes Σ_i π_θ(xⁱ | sⁱ) (yⁱ - V(sⁱ))

The sum is the expected advantage: observations that are better than others in similar states attract the policy.

=========  ===================  ==========================================================================
paper      here                 meaning
=========  ===================  ==========================================================================
θ          ``coefficients``     A, B and C, one column for each action parameter
V(s)       ``baseline``         kernel regression of the rewards on the states, bandwidth 0.2
yⁱ - V     ``advantage``        how much better an observation was than others in similar states
0.2        ``spread``           standard deviation of the policy, and the bandwidth
=========  ===================  ==========================================================================

States and actions are in the unit cube, and rewards are standardized. Categories of a state are encoded one-hot. No
Gaussian process is used. Reference: Williams (1992), in the form of the ConBO paper's supplement.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.ascent import ascend
from conbo.belief import Belief, standardization
from conbo.errors import SettingError
from conbo.models.columns import Columns, squared_distances

LARGEST = 10.0  # largest absolute value of a coefficient
RIDGE = 1e-3  # in the first regression: weight of observations without advantage, and of the ridge penalty


@dataclass(frozen=True)
class PolicyGradient:
    """A recipe for the Gaussian policy whose mean is a quadratic function of the state."""

    spread: float = 0.2  # standard deviation of the policy in the unit cube, and bandwidth of the baseline
    starts: int = 8  # number of local searches for the coefficients
    iterations: int = 60  # largest number of iterations of each local search

    def __post_init__(self) -> None:
        if not self.spread > 0:
            raise SettingError(f"`spread` must be positive, but got spread={self.spread}.")
        if self.starts < 1:
            raise SettingError(f"`starts` must be at least 1, but got starts={self.starts}.")

    def build(self, belief: Belief, generator: torch.Generator) -> "QuadraticPolicy":
        """Fit the policy to the belief's observations: a function from states (m, d_s) to actions (m, d_x)."""
        columns, d_s = Columns(belief.space.state_categories), belief.n_state_dims
        observations = belief.observations
        states, actions = columns.features(observations.points[:, :d_s]), observations.points[:, d_s:]
        shift, scale = standardization(observations.rewards)
        rewards = (observations.rewards - shift) / scale
        advantage = rewards - baseline(states, rewards, self.spread)
        coefficients = self._fitted(quadratic(states), actions, advantage)
        return QuadraticPolicy(belief, columns, coefficients)

    def _fitted(self, features: Tensor, actions: Tensor, advantage: Tensor) -> Tensor:
        """Return the coefficients θ (f, d_x) with which the Gaussian policy has the highest expected advantage.

        The policy's mean action in a state is the product of f features of the state with θ. For n observations,
        `features` (n, f) are the features of their states, `actions` (n, d_x) are their actions, and `advantage` (n,)
        says how much better their rewards are than others in similar states. The expected advantage is the sum of the
        advantages, each multiplied by the policy's density at the observed action.
        """
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
    """Return the features 1, s and all products of two columns of s, where s is `states` (..., f) minus 0.5.

    The states have f columns, in which categories are encoded one-hot. The last dimension of the result holds the
    features.
    """
    s = states - 0.5
    rows, columns = torch.triu_indices(s.shape[-1], s.shape[-1], device=s.device)
    return torch.cat([torch.ones_like(s.sum(-1, keepdim=True)), s, s[..., rows] * s[..., columns]], -1)


def baseline(states: Tensor, rewards: Tensor, bandwidth: float) -> Tensor:
    """Return the baseline V(s) at n observed states (n, f): a kernel-weighted mean (n,) of the rewards (n,).

    The states have f columns, in which categories are encoded one-hot. The kernel is Gaussian, with standard
    deviation `bandwidth`.
    """
    similarity = torch.exp(-squared_distances(states, states) / (2 * bandwidth**2))
    return similarity @ rewards / similarity.sum(-1)


def first_guesses(features: Tensor, actions: Tensor, advantage: Tensor, n: int) -> list[Tensor]:
    """Return at most n initial guesses of the coefficients (f, d_x), which have one row for each of f features.

    The first comes from a regression of the actions on the features, weighted by positive advantages. The others are
    constant policies: each takes the action of one of the observations with the highest advantages.
    """
    weights = advantage.clamp_min(0) + RIDGE
    eye = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
    eye[0, 0] = 0.0  # the constant is not penalized
    normal = (features.mT * weights) @ features + RIDGE * weights.sum() * eye
    guesses = [torch.linalg.solve(normal, (features.mT * weights) @ actions)]
    for best in advantage.argsort(descending=True, stable=True)[: n - 1]:
        constant = torch.zeros_like(guesses[0])
        constant[0] = actions[best]
        guesses.append(constant)
    return guesses


@dataclass(frozen=True)
class QuadraticPolicy:
    """The policy that a policy gradient fits: the valid action nearest to a quadratic function of the state."""

    belief: Belief
    columns: Columns  # of the states; turns categories into numbers
    coefficients: Tensor  # (features, d_x)

    def mean(self, states: Tensor) -> Tensor:
        """Return the means (m, d_x) of the Gaussian policy in states (m, d_s); they may be outside the unit cube."""
        return quadratic(self.columns.features(states)) @ self.coefficients

    def __call__(self, states: Tensor) -> Tensor:
        """Return, for each state (m, d_s), the valid action (m, d_x) nearest to the mean of the Gaussian policy."""
        return self.belief.snap_actions(self.mean(states).clamp(0, 1), states)
