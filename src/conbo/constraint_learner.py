"""Learns constraints on outcomes, and where evaluations fail, from trials."""

from collections.abc import Mapping
from math import nan

import torch
from torch import Tensor

from conbo.belief import Belief, fit_belief, standardized
from conbo.bound_states import StateDistribution
from conbo.errors import ConboError
from conbo.gaussian_process import GaussianProcess
from conbo.learned_constraints import LearnedConstraint, LearnedConstraints
from conbo.models.fit_memory import FitMemory, Shelf
from conbo.observations import Observations
from conbo.outcome_constraints import OutcomeConstraint, OutcomeConstraints
from conbo.prior_belief import fit_both
from conbo.spaces import Space

# A single model: a probability needs a mean and a variance, and an average of models would make each suggestion several
# times as expensive. Outputs are not warped, because the probability assumes that the slack is normal.
MODEL = GaussianProcess(members=1, output_warping="none")
FEWEST_FAILURES = 2  # number of failures from which on they are learned from, because one may be an accident
SUCCESS = "success"  # the name of the constraint that an evaluation succeeds


class ConstraintLearner:
    """Fits a model to the slack of every constraint, and another model to successes and failures."""

    def __init__(self, constraints: OutcomeConstraints, confidence: float, shelf: Shelf | None = None) -> None:
        self._constraints, self._confidence = constraints, confidence
        self._memories: Mapping[str, FitMemory] = {name: FitMemory(shelf) for name in constraints}
        self._success_memory = FitMemory(shelf)

    def learn(
        self,
        space: Space,
        states: StateDistribution,
        told: Observations,
        failed: Tensor,
        earlier: Observations | None = None,
    ) -> LearnedConstraints | None:
        """The constraints learned from the observations and the failed points (f, d); None if there are none.

        Outcomes that were told to an `earlier` study are used as well.
        """
        outcomes = tuple(
            self._outcome(name, constraint, space, states, told, earlier)
            for name, constraint in self._constraints.items()
        )
        success = None
        if len(failed) >= FEWEST_FAILURES:
            success = self._fitted(SUCCESS, space, states, _labels(told, failed), self._success_memory)
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
        return _learned(name, fit_belief(space, states, slacks, MODEL, memory), slacks)


def _learned(name: str, belief: Belief, slacks: Observations) -> LearnedConstraint:
    seen = standardized(slacks, belief.shift, belief.scale)
    return LearnedConstraint(name, belief.posterior, -belief.shift / belief.scale, seen)


def _slacks(told: Observations, name: str, constraint: OutcomeConstraint) -> Observations:
    """The slack of each observation that has this outcome: by how much it satisfies the constraint."""
    values = told.measured.get(name, torch.full_like(told.rewards, nan))
    known = values.isfinite()
    slacks = torch.tensor([constraint.slack(value) for value in values[known].tolist()], dtype=torch.float64)
    return Observations(told.points[known], slacks.to(told.points), pending=told.points[:0])


def _labels(told: Observations, failed: Tensor) -> Observations:
    """Labels of evaluations as rewards: one half for a success, minus one half for a failure.

    A regression on these labels is positive where evaluations succeed more often than not.  The constraint is the
    probability that it is positive.  Evaluations that fail by accident are noise of the regression.
    """
    points = torch.cat([told.points, failed])
    labels = torch.cat([told.points.new_full((len(told),), 0.5), told.points.new_full((len(failed),), -0.5)])
    return Observations(points, labels, pending=points[:0])
