"""Converts Optuna's trials to conbo's; Optuna's constraints become outcomes that must be at most zero.

Constraint values are read from the trials, whether they were set by `trial.set_constraint` (Optuna 5) or stored as a
list by a sampler with `constraints_func`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from conbo.errors import PointError
from conbo.integrations.optuna_space import point_of
from conbo.notices import LOG
from conbo.outcome_constraints import AtMost
from conbo.spaces import Space
from conbo.trials import LARGEST_REWARD, Outcomes, Trial

SUGGESTED = "conbo:"  # prefix of the system attributes that hold the suggested value of each parameter
CONSTRAINTS = "constraints"  # name of the system attribute in which samplers of Optuna store the constraint values

Range = tuple[float, float]


def constraints_of(trials: Iterable[FrozenTrial]) -> dict[str, AtMost]:
    """The constraints that have a value in some completed trial, as limits on outcomes, by outcome name."""
    completed = (trial for trial in trials if trial.state == TrialState.COMPLETE)
    return {name: AtMost(0.0) for trial in completed for name in _constraint_values(trial)}


def trials_of(found: Sequence[FrozenTrial], space: Space, distributions: dict[str, BaseDistribution]) -> list[Trial]:
    """Convert all trials of an Optuna study to conbo's; those from which nothing can be learned become failed trials.

    Infinite rewards become the lowest or highest finite reward of the completed trials. Infinite values of constraints
    become finite as well (see `_constraint_ranges`).
    """
    completed = [trial for trial in found if trial.state == TrialState.COMPLETE]
    values = [trial.value for trial in completed if trial.value is not None]
    finite = [value for value in values if abs(value) <= LARGEST_REWARD] or [0.0]
    limits = _constraint_ranges(completed)
    return [_trial(trial, space, distributions, (min(finite), max(finite)), limits) for trial in found]


def _constraint_values(trial: FrozenTrial) -> dict[str, float]:
    """The constraint values of a trial, by the names of the outcomes that they become in conbo."""
    if hasattr(trial, "constraints"):
        known: Mapping[str, float] = trial.constraints
    else:  # Optuna 4
        known = {str(i): value for i, value in enumerate(trial.system_attrs.get(CONSTRAINTS) or ())}
    return {f"constraint_{key}": float(value) for key, value in known.items()}


def _constraint_ranges(completed: Sequence[FrozenTrial]) -> dict[str, Range]:
    """For every constraint, the range (-m, m) to which its values are clipped, so that infinite ones become finite.

    m is the largest finite absolute value of the constraint over the completed trials, or 1 if that is 0 or there is
    none.
    """
    largest: dict[str, float] = {}
    for trial in completed:
        for name, value in _constraint_values(trial).items():
            size = abs(value) if abs(value) <= LARGEST_REWARD else 0.0
            largest[name] = max(largest.get(name, 0.0), size)
    return {name: (-(size or 1.0), size or 1.0) for name, size in largest.items()}


def _trial(
    trial: FrozenTrial,
    space: Space,
    distributions: dict[str, BaseDistribution],
    rewards: Range,
    limits: Mapping[str, Range],
) -> Trial:
    """Convert a trial of Optuna to one of conbo.

    Values of the reward and of constraints are clipped to the ranges `rewards` and `limits`. A trial counts as failed
    if it is neither completed nor running, if its point is incomplete or outside the space, or if it is completed
    but lacks the value of a constraint.
    """
    prefix = len(SUGGESTED)
    suggested = {name[prefix:]: value for name, value in trial.system_attrs.items() if name.startswith(SUGGESTED)}
    params = {**({} if trial.state.is_finished() else suggested), **trial.params}
    made = Trial(trial.number, *_center(space), "failed")
    if not params.keys() >= {*space.states, *space.actions} or trial.state == TrialState.WAITING:
        return made
    try:
        state = space.validate_state(point_of(params, distributions, space.states))
        action = space.validate_action(point_of(params, distributions, space.actions))
    except (PointError, ValueError) as error:
        LOG.warning("Nothing is learned from trial %d, because it is outside the space: %s", trial.number, error)
        return made
    made = Trial(trial.number, state, action)
    if trial.state != TrialState.COMPLETE:
        return made if trial.state == TrialState.RUNNING else made.failed()
    values = _constraint_values(trial)
    if missing := sorted(limits.keys() - values.keys()):
        LOG.warning("Nothing is learned from trial %d, because it has no value of '%s'.", trial.number, missing[0])
        return made.failed()
    assert trial.value is not None
    measured = {name: min(max(value, limits[name][0]), limits[name][1]) for name, value in values.items()}
    return made.told(Outcomes(min(max(trial.value, rewards[0]), rewards[1]), measured=measured))


def _center(space: Space) -> tuple[dict[str, Any], dict[str, Any]]:
    """A valid state and action near the center of the space, as a placeholder for trials whose point is not known."""
    middle = space.snap(np.full((1, space.n_state_dims + space.n_action_dims), 0.5))
    d = space.n_state_dims
    return space.decode_states(middle[:, :d])[0], space.decode_actions(middle[:, d:])[0]
