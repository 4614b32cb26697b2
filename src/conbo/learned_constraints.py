"""The probability that a point satisfies the learned constraints.

The slack of an outcome is the amount by which it satisfies its constraint.  It is negative if the constraint is
violated.  The slack of each constraint is modeled by its own Gaussian process, and constraints are assumed to be
independent:

======  ==================  ==================================================================================
symbol  here                meaning
======  ==================  ==================================================================================
m, v    ``posterior``       posterior mean and variance of the expected slack, standardized
t       ``threshold``       the standardized slack of an action that just satisfies the constraint
h       ``margins``         (m - t) / √v
P       ``probability``     Π Φ(h), the probability that the expected outcomes satisfy all constraints
Φ⁻¹(P)  ``levels``          the quantile of N(0, 1) at P, which is easier to maximize than P
======  ==================  ==================================================================================

Points are in the unit cube, with the columns of the state before those of the action.

A policy chooses the best action that seems feasible, so it favors actions whose feasibility is overestimated.  One
cause of overestimates is errors in the fitted hyperparameters.  A model that is averaged over the hyperparameters is
less certain about such actions.  Policies therefore use averaged models: m and v are the mean and the variance of the
averaged model.  Suggestions need many more probabilities, and use the most probable hyperparameters to save time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log, pi

import torch
from torch import Tensor

from conbo.models.moving import moved
from conbo.models.posterior import Posterior
from conbo.observations import Observations

LEAST_VARIANCE = 1e-12  # least variance of a standardized slack, so that margins stay finite
LOWEST = -600.0  # log-probability below which levels are computed by an asymptotic expansion
HIGHEST = 1 - 1e-15  # probabilities are clamped to at most this, so that levels stay finite
ROUNDING = 1e-9  # tolerance when a probability is compared with the confidence


@dataclass(frozen=True)
class LearnedConstraint:
    """The model of one constraint: a point satisfies it if the point's expected slack is at least the threshold.

    A slack is the amount by which a measured outcome satisfies the constraint.  It is negative if the constraint is
    violated.
    """

    name: str
    posterior: Posterior  # posterior of the standardized slack
    threshold: float  # standardized slack of an action that just satisfies the constraint
    observations: Observations  # the data of the model, with standardized slacks as rewards
    # returns `posterior`, averaged over its hyperparameters; None if that is not done
    average: Callable[[], Posterior] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def averaged(self) -> "LearnedConstraint":
        """This constraint, with its model averaged over the hyperparameters if there is such an average."""
        if self.average is None:
            return self
        return replace(self, posterior=moved(self.average(), self.observations.points.device), average=None)

    def margins(self, points: Tensor) -> Tensor:
        """Return the margins (n,) of points (n, d).

        A margin is the posterior mean of the slack minus the threshold, divided by the posterior standard deviation,
        which does not include noise.  A slack is the amount by which an outcome satisfies the constraint.
        """
        variance = self.posterior.variance(points).clamp_min(LEAST_VARIANCE)
        return (self.posterior.mean(points) - self.threshold) / variance.sqrt()

    def margins_and_gradients(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the margins (n,) of points (n, d), and their gradients (n, d) with respect to the points.

        A margin is the posterior mean of the slack minus the threshold, divided by the posterior standard deviation,
        which does not include noise.  A slack is the amount by which an outcome satisfies the constraint.
        """
        moments = self.posterior.moments(points)
        variance = moments.variance.clamp_min(LEAST_VARIANCE)
        margin = (moments.mean - self.threshold) / variance.sqrt()
        narrower = torch.where(moments.variance > LEAST_VARIANCE, margin / (2 * variance), 0.0)
        return margin, moments.mean_gradient / variance.sqrt()[:, None] - narrower[:, None] * moments.variance_gradient


@dataclass(frozen=True)
class LearnedConstraints:
    """All learned constraints, and the confidence with which they must be satisfied."""

    outcomes: tuple[LearnedConstraint, ...]  # constraints on measured outcomes
    confidence: float  # least probability that an action of the policy satisfies all constraints
    success: LearnedConstraint | None = None  # the constraint that evaluations succeed; None if it is not learned

    @property
    def all(self) -> tuple[LearnedConstraint, ...]:
        """The constraints on outcomes and, if failures are modeled, the constraint that an evaluation succeeds."""
        return self.outcomes if self.success is None else (*self.outcomes, self.success)

    def of_most_probable(self) -> "LearnedConstraints":
        """Return the same constraints, with models that use the most probable hyperparameters instead of an average."""
        if all(one.average is None for one in self.all):
            return self
        success = None if self.success is None else replace(self.success, average=None)
        return replace(self, outcomes=tuple(replace(one, average=None) for one in self.outcomes), success=success)

    def log_probability(self, points: Tensor) -> Tensor:
        """Return the log-probabilities (n,) that points (n, d) satisfy all constraints."""
        return torch.stack([torch.special.log_ndtr(one.averaged.margins(points)) for one in self.all]).sum(0)

    def probability(self, points: Tensor) -> Tensor:
        """Return the probabilities (n,) that points (n, d) satisfy all constraints."""
        return self.log_probability(points).exp()

    def success_probability(self, points: Tensor) -> Tensor:
        """Return the probabilities (n,) that evaluations at points (n, d) succeed; 1 if failures are not modeled.

        They are computed with the most probable hyperparameters, not averaged over hyperparameters.
        """
        if self.success is None:
            return points.new_ones(len(points))
        return torch.special.ndtr(self.success.margins(points))

    def is_sure(self, log_probability: Tensor) -> Tensor:
        """Return whether each probability, given by its logarithm, is at least the required confidence."""
        return log_probability >= log(self.confidence) - ROUNDING

    def levels(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values (n,) of Φ⁻¹(P) at points (n, d), and their gradients (n, d).

        P is the probability that a point satisfies all constraints, and Φ⁻¹ the standard normal quantile function.
        P reaches the required confidence where Φ⁻¹(P) equals `wanted`.
        """
        value, slope = log_probability_and_gradient(tuple(one.averaged for one in self.all), points)
        level = torch.special.ndtri(value.exp().clamp_max(HIGHEST))
        steepness = (value + level.square() / 2 + log(2 * pi) / 2).exp()
        # log Φ(h) is about -h²/2 - log(-h √2π) for very negative h
        twice = -2 * value.clamp_max(LOWEST)
        far = -(twice - twice.log() - log(2 * pi)).sqrt()
        low = value < LOWEST
        level, steepness = torch.where(low, far, level), torch.where(low, -1 / far, steepness)
        return level, steepness[:, None] * slope

    def ranks(self, log_probability: Tensor) -> Tensor:
        """Return numbers by which probabilities that lack the required confidence are compared: at most zero.

        They are ordered like the probabilities, which are given by their logarithms, and are not huge even if a
        probability is extremely small.
        """
        return -torch.log1p(-log_probability.clamp_max(0.0))

    @property
    def wanted(self) -> float:
        """The standard normal quantile of the required confidence, with which the values of `levels` are compared."""
        return float(torch.special.ndtri(torch.tensor(self.confidence, dtype=torch.float64)))

    def resemble(self, states: Tensor, known: Tensor, least: float) -> Tensor:
        """Return flags (m,): which states (m, d_s) are similar to one of the `known` states (k, d_s).

        Two states are similar if their correlation is at least `least`.  The correlation comes from the kernel over
        states in a constraint's model, with very long lengthscales capped.  A state is flagged only if it is similar to
        a known one in the model of every constraint.
        """
        return torch.stack([one.posterior.resemble(states, known, least) for one in self.all]).all(0)


def log_probability_and_gradient(constraints: tuple[LearnedConstraint, ...], points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities (n,) that points (n, d) satisfy the given constraints, and gradients (n, d)."""
    value, gradient = points.new_zeros(len(points)), torch.zeros_like(points)
    for one in constraints:
        margin, slope = one.margins_and_gradients(points)
        log_cdf = torch.special.log_ndtr(margin)
        value = value + log_cdf
        gradient = gradient + inverse_mills(margin, log_cdf)[:, None] * slope
    return value, gradient


def inverse_mills(margin: Tensor, log_cdf: Tensor) -> Tensor:
    """Return the inverse Mills ratio φ(h) / Φ(h), which is the derivative of log Φ(h).

    The arguments are h (`margin`) and log Φ(h) (`log_cdf`), for the standard normal density φ and its distribution
    function Φ.
    """
    return (-margin.square() / 2 - log_cdf - log(2 * pi) / 2).exp()
