"""A belief is all that is known at present, from the space and P[s] to the observations and the fitted models.

`fit_belief` creates a belief.  Proposals and policies are functions of it.
"""

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
from conbo.models.heteroscedastic_noise import LEAST_NOISE
from conbo.models.model import FitsInSteps, Model
from conbo.models.moving import moved
from conbo.models.posterior import Averages, BestSearch, Paths, Posterior
from conbo.models.snapping import action_limits, contains, snap, snap_actions, spread
from conbo.observations import Observations
from conbo.quasi_random import sobol
from conbo.spaces import Space

MOST_NOISE = 1e12  # largest noise variance of a standardized reward, so that quotients do not overflow

ModelLike: TypeAlias = Model | ModelFactory


@dataclass(frozen=True)
class Belief:
    """All that is known at present: the space, P[s], the observations and the fitted model of rewards.

    If there are costs or learned constraints, it also holds the models of these.

    Points (d,) are in the unit cube, with the d_s columns of the state before the d_x columns of the action.
    """

    space: Space
    states: StateDistribution  # P[s]
    observations: Observations  # with rewards in the user's units, negated if they are minimized
    posterior: Posterior  # fitted to standardized rewards, (reward - shift) / scale
    shift: float  # subtracted from rewards to standardize them
    scale: float  # divides rewards to standardize them
    cost: CostModel | None = None  # None if evaluations have no costs
    # learned constraints on outcomes and on failures; None if there are none
    constraints: LearnedConstraints | None = None
    # returns the posterior averaged over hyperparameters; None if `posterior` is used for predictions too
    average: Callable[[], Posterior] | None = field(default=None, repr=False, compare=False)

    @property
    def n_state_dims(self) -> int:
        """Number d_s of columns of a state in the unit cube."""
        return self.space.n_state_dims

    @cached_property
    def predictive(self) -> Posterior:
        """The posterior for predictions: the average over the hyperparameters if there is one, otherwise `posterior`.

        Searches for suggestions and for the policy's actions use `posterior`, because an averaged one is several times
        slower.
        """
        return self.posterior if self.average is None else moved(self.average(), self.device)

    @cached_property
    def device(self) -> torch.device:
        """The torch device that holds the tensors of this belief."""
        return self.observations.points.device

    def to(self, device: torch.device) -> "Belief":
        """Return the same belief with its tensors on another torch device."""
        if device == self.device:
            return self
        observations = self.observations.to(device)
        posterior, constraints = moved(self.posterior, device), moved(self.constraints, device)
        return replace(self, observations=observations, posterior=posterior, constraints=constraints)

    def snap(self, points: Tensor) -> Tensor:
        """Move points (..., d) to valid ones nearby: round integers and categories, and satisfy the known limits.

        A point stays infeasible if no feasible action is found in its state.
        """
        return snap(self.space, points)

    def snap_actions(self, actions: Tensor, states: Tensor | None = None) -> Tensor:
        """Round the integers and categories of actions (..., d_x).

        If the states (..., d_s) of the actions are given, also move the actions so that they satisfy the known limits.
        """
        return snap_actions(self.space, actions, states)

    def feasible_actions(self, states: Tensor, actions: Tensor) -> Tensor:
        """Move actions (m, d_x), one in each state (m, d_s), to nearby ones that satisfy the known limits.

        This corrects the actions of policies that ignore the limits.  Without known limits, nothing changes.
        """
        return actions if self.space.feasible_set is None else self.snap_actions(actions, states)

    def contains(self, points: Tensor) -> Tensor:
        """Return whether points (..., d) satisfy the known limits of the space: a boolean tensor (...)."""
        return contains(self.space, points)

    def spread(self, points: Tensor) -> Tensor:
        """Round integers and categories of points (n, d), and replace infeasible actions by feasible ones.

        An action stays infeasible if no feasible one is found.  Actions that were evenly spread over the unit cube
        become roughly evenly spread over the feasible actions.
        """
        return spread(self.space, points)

    def spread_actions(self, actions: Tensor) -> Tensor:
        """Map actions (p, d_x) to valid ones; actions that are evenly spread stay roughly evenly spread.

        If the space has known limits, a state is drawn from P[s] for each action, and the action is made feasible in
        that state.
        """
        if self.space.feasible_set is None:
            return self.snap_actions(actions)
        d_s = self.n_state_dims
        states = self.states.from_uniform(sobol(len(actions), d_s, seed=0)) if d_s else actions[:, :0]
        return self.spread(torch.cat([states.to(actions), actions], -1))[:, d_s:]

    def action_limits(self, states: Tensor) -> RowLimits | None:
        """Return the linear limits on actions for local searches in r states (r, d_s); None if the space has none."""
        return action_limits(self.space, states)

    def point_limits(self, lower: Tensor, upper: Tensor) -> RowLimits | None:
        """Return the linear limits for local searches over states and actions together; None if the space has none.

        Columns whose bounds `lower` and `upper` (d,) are equal stay fixed.
        """
        if self.space.feasible_set is None or self.space.feasible_set.limits is None:
            return None
        return RowLimits(self.space.feasible_set.limits, movable=(upper > lower).cpu().numpy())

    def search(self, actions: Tensor) -> BestSearch:
        """Return an object that finds the best action of each given state.

        If there are learned constraints, they are taken into account.  Local searches start from the pool `actions`
        (p, d_x).
        """
        search = self.posterior.action_search(self.space, actions)
        if self.constraints is None:
            return search
        return ConstrainedSearch(self.posterior, self.space, self.constraints, search)

    def of_most_probable(self, share: float) -> "Belief":
        """Return the same belief with simpler models.

        If the posterior is a weighted average of several models, only the most probable are kept: the fewest whose
        total weight is at least `share`, and at least one.  The models of learned constraints have their most probable
        hyperparameters instead of an average over hyperparameters.
        """
        posterior, constraints = self.posterior, self.constraints
        if isinstance(posterior, Averages):
            posterior = posterior.most_probable(share)
        if constraints is not None:
            constraints = constraints.of_most_probable()
        if posterior is self.posterior and constraints is self.constraints:
            return self
        return replace(self, posterior=posterior, constraints=constraints)

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Return flags (m,): which states (m, d_s) are similar to one of the `known` states (k, d_s).

        Two states are similar if their correlation is at least `least`.  The correlation comes from the model's kernel
        over states, with very long lengthscales capped.  If models are averaged or constraints are learned, a state is
        flagged only if it is similar to a known one under every model.
        """
        alike = self.posterior.resemble(states, known, least)
        return alike if self.constraints is None else alike & self.constraints.resemble(states, known, least)

    def probability(self, points: Tensor) -> Tensor | None:
        """Return the probabilities (n,) that points (n, d) satisfy all learned constraints; None if there are none."""
        return None if self.constraints is None else self.constraints.probability(points)

    def without_failures(self, points: Tensor) -> Tensor:
        """Return flags (n,): at which points (n, d) evaluations succeed with a probability of more than one half.

        All flags are true if failures are not modeled.
        """
        if self.constraints is None:
            return torch.ones(len(points), dtype=torch.bool, device=points.device)
        return self.constraints.success_probability(points) > 0.5

    def best_mean(self, points: Tensor) -> float:
        """Return the highest posterior mean of those points (n, d) that confidently satisfy the learned constraints.

        If none of the points does, return the lowest posterior mean of all points, so that any point that satisfies
        the constraints counts as an improvement.
        """
        mean = self.posterior.mean(points)
        if self.constraints is None:
            return float(mean.amax())
        sure = self.constraints.is_sure(self.constraints.log_probability(points))
        return float(torch.where(sure, mean, mean.amin()).amax())

    def draw_paths(self, n: int, generator: torch.Generator, features: int = 1024) -> Paths:
        """Draw n functions from the posterior.

        `features` is the number of random Fourier features that approximate the prior.  Raises SettingError if the
        model cannot draw functions.
        """
        paths = self.posterior.draw_paths(n, generator, features)
        if paths is None:
            raise SettingError(
                "whole functions can be drawn from a built-in model, but this model does not offer it: "
                "use 'conbo', 'mts' or another method that draws none."
            )
        return paths

    def to_reward(self, standardized: Tensor) -> Tensor:
        """Convert standardized posterior means to the user's units, as numbers to be maximized.

        If rewards are minimized, the results are therefore negated rewards.
        """
        return self.shift + self.scale * standardized


def fit_belief(
    space: Space,
    states: StateDistribution,
    observations: Observations,
    model: ModelLike,
    memory: FitMemory | None = None,
) -> Belief:
    """Return the belief after the given observations: standardize the rewards, and fit the model to them.

    A `memory` of earlier fits saves time and does not change the result.
    """
    fitted, n = as_model(model), len(observations)
    if isinstance(fitted, FitsInSteps):
        # Shift and scale are those of the rewards that hyperparameters are fitted to, so a fit stays valid until the
        # number of these rewards changes.
        used = fitted.fitted_rewards(n)
        shift, scale = standardization(observations.rewards[:used])
        first = observations.first(fitted.begins_with(used))
        before = standardized(first, *standardization(first.rewards)) if len(first) < used else None
        seen = standardized(observations, shift, scale)
        posterior, average = fitted.fit_and_average(space, seen, memory, before)
        return Belief(space, states, observations, posterior, shift, scale, average=average)
    shift, scale = standardization(observations.rewards)
    announce(*observations.points.shape)
    posterior = fitted.fit(space, standardized(observations, shift, scale))
    return Belief(space, states, observations, posterior, shift, scale)


def standardized(observations: Observations, shift: float, scale: float) -> Observations:
    """Return the observations with standardized rewards, (reward - shift) / scale.

    Known noise variances, and known limits of the expected reward, are standardized too.  Noise variances are then
    clamped to a range.  Its lower end is positive, so that two rewards at one point do not make the covariance
    singular.  Its upper end is huge, and avoids overflow.
    """
    noise = observations.noise
    if noise is not None:
        noise = (noise / scale / scale).clamp(LEAST_NOISE, MOST_NOISE)
    low, high = observations.limits or (-inf, inf)
    limits = ((low - shift) / scale, (high - shift) / scale) if observations.limits else None
    return replace(observations, rewards=(observations.rewards - shift) / scale, noise=noise, limits=limits)


def standardization(rewards: Tensor) -> tuple[float, float]:
    """Return the shift and the scale for which (rewards - shift) / scale has mean zero and variance one.

    If all rewards are equal, the scale is their absolute value, or 1 if they are zero.
    """
    largest = float(rewards.abs().max())
    unit = largest if largest > 0 else 1.0  # scale first, because squares of 1e200 overflow
    scaled = rewards / unit
    shift = float(scaled.mean())
    # the sample variance, because BoTorch's models warn if rewards are standardized otherwise
    spread = sqrt(float((scaled - shift).square().sum()) / max(len(rewards) - 1, 1))
    if spread < 1e-12:  # only rounding errors
        spread = 1.0
    return shift * unit, spread * unit
