"""Fits models to the trials of a study: one for each constrained outcome, and one that predicts failed evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, ClassVar

import torch

from conbo.belief import Belief, fit_belief, standardized
from conbo.bound_states import StateDistribution
from conbo.errors import ConboError
from conbo.failure_model import success_model
from conbo.gaussian_process import GaussianProcess
from conbo.learned_constraints import LearnedConstraint, LearnedConstraints
from conbo.models.conditioned import Conditioned
from conbo.models.fit_memory import FitMemory, Shelf
from conbo.observations import Observations
from conbo.outcome_constraints import OutcomeConstraint, OutcomeConstraints
from conbo.prior_belief import fit_both
from conbo.spaces import Space

if TYPE_CHECKING:
    from conbo.models.fit import Fit


@dataclass(frozen=True)
class OutcomeProcess(GaussianProcess):
    """A Gaussian process for a constrained outcome, with a wider prior on the kernel's variances than for rewards.

    Many outcomes are nearly polynomial in the action. Long lengthscales with large variances predict such functions
    well, but the prior for rewards makes such large variances very improbable. Accuracy matters more than for rewards:
    the larger the model's standard deviation is at the boundary of the constraint, the farther the policy stays away
    from this boundary. An uncertain model therefore keeps the policy away from good actions.

    With such a prior, the density of the hyperparameters often has modes far apart, and a search may miss the best one.
    Up to a few hundred outcomes, a second search therefore starts from the fit to somewhat fewer of them. Its mode is
    used if it has both a higher density and more evidence. There is a single model, because an average of several would
    make each suggestion several times as expensive.
    """

    wide_variances: ClassVar[bool] = True

    def begins_with(self, n: int) -> int:
        """Return m: one search for the hyperparameters given n outcomes starts from the fit to the first m.

        If m equals n, there is no such search.
        """
        from conbo.models.schedule import EVERY_REWARD, FIRST_LOOK, begins_with

        return begins_with(n - 1) if FIRST_LOOK < n < EVERY_REWARD else n

    def _fits(
        self, space: Space, observations: Observations, memory: FitMemory, earlier: Sequence["Fit"]
    ) -> list["Fit"]:
        """Return the better of two fits: from a search from typical values, and from one from the `earlier` fit."""
        (usual,) = super()._fits(space, observations, memory, [])
        if not earlier:
            return [usual]
        (again,) = super()._fits(space, observations, memory, earlier)
        return [again if again.objective > usual.objective and again.evidence > usual.evidence else usual]


# Outputs are not warped, because the probability of feasibility assumes that the slack is normal.
MODEL = OutcomeProcess(members=1, relative_actions="none", output_warping="none")
SAME = 1e-12  # slacks are equal if they differ by at most this share of the largest one


class ConstraintLearner:
    """Fits a model to the slacks of each constraint, and learns where evaluations fail.

    The slack of a measured outcome is the amount by which it satisfies its constraint.  It is negative if the
    constraint is violated.
    """

    def __init__(self, constraints: OutcomeConstraints, confidence: float, shelf: Shelf | None = None) -> None:
        self._constraints, self._confidence = constraints, confidence
        self._memories: Mapping[str, FitMemory] = {name: FitMemory(shelf) for name in constraints}
        self._success_memory = FitMemory(shelf)

    def learn(
        self,
        space: Space,
        states: StateDistribution,
        told: Observations,
        labels: Observations,
        earlier: Observations | None = None,
    ) -> LearnedConstraints | None:
        """Fit the models of all constraints to completed and failed trials.

        `told` holds the completed trials of this study, and `earlier` those of an earlier study.  `labels` holds the
        trials that show where evaluations fail; their rewards are 1/2 for a success and -1/2 for a failure.  Failures
        that do not seem to depend on the point are ignored.  The result is None if there are no constraints on outcomes
        and no failures to learn from.  Raises ConboError if a constrained outcome was never measured.
        """
        outcomes = tuple(
            self._outcome(name, constraint, space, states, told, earlier)
            for name, constraint in self._constraints.items()
        )
        success = success_model(space, labels, self._success_memory)
        if not outcomes and success is None:
            return None
        return LearnedConstraints(outcomes, self._confidence, success)

    def _outcome(
        self,
        name: str,
        constraint: OutcomeConstraint,
        space: Space,
        states: StateDistribution,
        told: Observations,
        earlier: Observations | None,
    ) -> LearnedConstraint:
        slacks, memory = _slacks(told, name, constraint), self._memories[name]
        before = None if earlier is None else _slacks(earlier, name, constraint)
        if before is None or not len(before):
            if not len(slacks):
                rule = f"a policy needs a completed trial, because `prior` says nothing of the outcome '{name}'"
                raise ConboError(f"{rule}, but there is none yet.")
            return self._fitted(name, space, states, slacks, memory)
        return _learned(name, fit_both(space, states, slacks, before, MODEL, memory), slacks)

    def _fitted(
        self, name: str, space: Space, states: StateDistribution, slacks: Observations, memory: FitMemory
    ) -> LearnedConstraint:
        spread = float(slacks.rewards.max() - slacks.rewards.min())
        if len(slacks) > 1 and spread <= SAME * float(slacks.rewards.abs().max()):
            return _of_equal(name, fit_belief(space, states, slacks.first(1), MODEL), slacks)
        return _learned(name, fit_belief(space, states, slacks, MODEL, memory), slacks)


def _learned(name: str, belief: Belief, slacks: Observations) -> LearnedConstraint:
    seen = standardized(slacks, belief.shift, belief.scale)
    return LearnedConstraint(name, belief.posterior, -belief.shift / belief.scale, seen, belief.average)


def _of_equal(name: str, belief: Belief, slacks: Observations) -> LearnedConstraint:
    """Return the model of slacks that are all equal; `belief`, which is fitted to the first, has the hyperparameters.

    Equal slacks say nothing of how far others may differ. Fitted to all of them, the model would be certain that every
    slack has this value.
    """
    seen = standardized(slacks, belief.shift, belief.scale)
    assert isinstance(belief.posterior, Conditioned)
    posterior = belief.posterior.conditioned_on(seen.points, seen.rewards, None)
    assert posterior is not None
    return LearnedConstraint(name, posterior, -belief.shift / belief.scale, seen)


def _slacks(told: Observations, name: str, constraint: OutcomeConstraint) -> Observations:
    """Return the points where an outcome was measured, with slacks in place of rewards.

    A slack is the amount by which the measured outcome satisfies the constraint.  It is negative if the constraint is
    violated.
    """
    values = told.measured.get(name, torch.full_like(told.rewards, nan))
    known = values.isfinite()
    slacks = torch.tensor([constraint.slack(value) for value in values[known].tolist()], dtype=torch.float64)
    return Observations(told.points[known], slacks.to(told.points), pending=told.points[:0])
