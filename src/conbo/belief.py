"""A belief is what is known now: the space, the distribution of states, the observations, and the fitted model."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, sqrt
from typing import TypeAlias

import torch
from torch import Tensor

from conbo.bound_states import StateDistribution
from conbo.constrained_search import ConstrainedSearch
from conbo.cost_model import CostModel
from conbo.errors import SettingError
from conbo.learned_constraints import LearnedConstraints
from conbo.linear_limits import RowLimits
from conbo.models.botorch_model import ModelFactory, as_model
from conbo.models.fit import announce
from conbo.models.fit_memory import FitMemory
from conbo.models.moving import moved
from conbo.models.posterior import Averages, BestSearch, FitsInSteps, Model, Paths, Posterior
from conbo.models.snapping import action_limits, contains, snap, snap_actions, spread
from conbo.observations import Observations
from conbo.quasi_random import sobol
from conbo.spaces import Space

LEAST_NOISE = 1e-7  # smallest variance of a standardized reward, the same as for learned noise
MOST_NOISE = 1e12  # largest variance of a standardized reward: a noisier one says nothing, and quotients could overflow

ModelLike: TypeAlias = Model | ModelFactory


@dataclass(frozen=True)
class Belief:
    """Everything that a proposal or a policy may use. Posterior and values are in standardized rewards."""

    space: Space
    states: StateDistribution
    observations: Observations
    posterior: Posterior
    shift: float
    scale: float
    cost: CostModel | None = None  # None if evaluations have no costs
    # learned constraints on outcomes and on failures; None if there are none
    constraints: LearnedConstraints | None = None
    # averages `posterior` over its hyperparameters
    average: Callable[[], Posterior] | None = field(default=None, repr=False, compare=False)

    @property
    def n_state_dims(self) -> int:
        """Number of state columns, which come first in a point."""
        return self.space.n_state_dims

    @cached_property
    def predictive(self) -> Posterior:
        """The posterior for predictions: `posterior`, averaged over its hyperparameters if that makes a difference.

        Suggestions and policies search with `posterior`, which is several times faster.
        """
        return self.posterior if self.average is None else moved(self.average(), self.device)

    @cached_property
    def device(self) -> torch.device:
        """The device that holds the tensors."""
        return self.observations.points.device

    def to(self, device: torch.device) -> "Belief":
        """The same belief on another device."""
        if device == self.device:
            return self
        observations = self.observations.to(device)
        posterior, constraints = moved(self.posterior, device), moved(self.constraints, device)
        return replace(self, observations=observations, posterior=posterior, constraints=constraints)

    def snap(self, points: Tensor) -> Tensor:
        """The nearest points (..., d) that the space allows, with feasible actions if their states have any."""
        return snap(self.space, points)

    def snap_actions(self, actions: Tensor, states: Tensor | None = None) -> Tensor:
        """The nearest actions (..., d_x) that the space allows; with states (..., d_s), also feasible in these."""
        return snap_actions(self.space, actions, states)

    def feasible_actions(self, states: Tensor, actions: Tensor) -> Tensor:
        """The feasible actions (m, d_x) nearest to these in states (m, d_s), for policies that ignore limits."""
        return actions if self.space.feasible_set is None else self.snap_actions(actions, states)

    def contains(self, points: Tensor) -> Tensor:
        """Which points (..., d) are feasible."""
        return contains(self.space, points)

    def spread(self, points: Tensor) -> Tensor:
        """Move the actions of points (n, d) into the feasible sets of their states, and keep them evenly spread."""
        return spread(self.space, points)

    def spread_actions(self, actions: Tensor) -> Tensor:
        """Valid actions (p, d_x), spread as evenly as the given ones, each feasible in some state drawn from P[s]."""
        if self.space.feasible_set is None:
            return self.snap_actions(actions)
        d_s = self.n_state_dims
        states = self.states.from_uniform(sobol(len(actions), d_s, seed=0)) if d_s else actions[:, :0]
        return self.spread(torch.cat([states.to(actions), actions], -1))[:, d_s:]

    def action_limits(self, states: Tensor) -> RowLimits | None:
        """The linear limits for local searches over actions, one in each state (r, d_s); None without limits."""
        return action_limits(self.space, states)

    def point_limits(self, lower: Tensor, upper: Tensor) -> RowLimits | None:
        """The linear limits for a local search over whole points between lower and upper (d,)."""
        if self.space.feasible_set is None or self.space.feasible_set.limits is None:
            return None
        return RowLimits(self.space.feasible_set.limits, movable=(upper > lower).cpu().numpy())

    def search(self, actions: Tensor) -> BestSearch:
        """A search for a state's best action, which starts from a pool (p, d_x) and satisfies learned constraints."""
        search = self.posterior.action_search(self.space, actions)
        if self.constraints is None:
            return search
        return ConstrainedSearch(self.posterior, self.space, self.constraints, search)

    def of_most_probable(self, share: float) -> "Belief":
        """The same belief with only the fewest, most probable models whose weights reach `share`; 0 keeps one model."""
        posterior = self.posterior
        return replace(self, posterior=posterior.most_probable(share)) if isinstance(posterior, Averages) else self

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Which states (m, d_s) resemble one of the known states (k, d_s), so that its best action is a good start."""
        alike = self.posterior.resemble(states, known, least)
        return alike if self.constraints is None else alike & self.constraints.resemble(states, known, least)

    def probability(self, points: Tensor) -> Tensor | None:
        """Probability that points (n, d) satisfy all learned constraints; None if there are no constraints."""
        return None if self.constraints is None else self.constraints.probability(points)

    def best_mean(self, points: Tensor) -> float:
        """The highest posterior mean among points (n, d) that satisfy the learned constraints with confidence.

        If no point does, it is the lowest mean, because any point that satisfies them would be an improvement.
        """
        mean = self.posterior.mean(points)
        if self.constraints is None:
            return float(mean.amax())
        sure = self.constraints.is_sure(self.constraints.log_probability(points))
        return float(torch.where(sure, mean, mean.amin()).amax())

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> Paths:
        """n functions drawn from the posterior; raises SettingError if the model cannot draw any."""
        paths = self.posterior.draw_paths(n, generator, features)
        if paths is None:
            raise SettingError(
                "whole functions can be drawn from a built-in model, but this model does not offer it: "
                "use 'conbo', 'mts' or another method that draws none."
            )
        return paths

    def to_reward(self, standardized: Tensor) -> Tensor:
        """Convert standardized means to the units of the rewards, still in the sign that is maximized."""
        return self.shift + self.scale * standardized


def fit_belief(
    space: Space,
    states: StateDistribution,
    observations: Observations,
    model: ModelLike,
    memory: FitMemory | None = None,
) -> Belief:
    """Standardize the rewards, fit the model's hyperparameters, and condition the model on all observations.

    A `memory` of earlier fits saves time and does not change the result.
    """
    fitted, n = as_model(model), len(observations)
    if isinstance(fitted, FitsInSteps):
        # standardized by the rewards that hyperparameters are fitted to, so that one fit serves until these change
        looked_at = fitted.fitted_rewards(n)
        shift, scale = standardization(observations.rewards[:looked_at])
        first = observations.first(fitted.begins_with(looked_at))
        before = standardized(first, *standardization(first.rewards)) if len(first) < looked_at else None
        seen = standardized(observations, shift, scale)
        posterior, average = fitted.fit_and_average(space, seen, memory, before)
        return Belief(space, states, observations, posterior, shift, scale, average=average)
    shift, scale = standardization(observations.rewards)
    announce(*observations.points.shape)
    posterior = fitted.fit(space, standardized(observations, shift, scale))
    return Belief(space, states, observations, posterior, shift, scale)


def standardized(observations: Observations, shift: float, scale: float) -> Observations:
    """The same observations with standardized rewards and, if noise variances are known, with standardized variances.

    Variances are at least LEAST_NOISE, because two exact rewards at one point would make the covariance singular.
    """
    noise = observations.noise
    if noise is not None:
        noise = (noise / scale / scale).clamp(LEAST_NOISE, MOST_NOISE)
    low, high = observations.limits or (-inf, inf)
    limits = ((low - shift) / scale, (high - shift) / scale) if observations.limits else None
    return replace(observations, rewards=(observations.rewards - shift) / scale, noise=noise, limits=limits)


def standardization(rewards: Tensor) -> tuple[float, float]:
    """Shift and scale that give rewards mean zero and variance one; constant rewards are only shifted."""
    largest = float(rewards.abs().max())
    unit = largest if largest > 0 else 1.0  # scale first, because squares of 1e200 overflow
    scaled = rewards / unit
    shift = float(scaled.mean())
    # the sample variance, as in BoTorch, whose models warn about any other
    spread = sqrt(float((scaled - shift).square().sum()) / max(len(rewards) - 1, 1))
    if spread < 1e-12:  # only rounding errors
        spread = 1.0
    return shift * unit, spread * unit
