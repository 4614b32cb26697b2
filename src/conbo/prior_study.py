"""A copy of the results of an earlier study of a similar problem, which a new study uses as its prior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from conbo.direction import sign_of
from conbo.errors import PointError, SettingError
from conbo.record_fields import Fields
from conbo.spaces import Space, Value
from conbo.trials import Outcomes, Trial

MOST_RESULTS = 200  # largest number of results that are copied, evenly spaced, because each makes every fit slower


@dataclass(frozen=True)
class PriorStudy:
    """The completed trials of an earlier study, and whether it maximized or minimized rewards."""

    direction: str
    trials: tuple[Trial, ...]

    @classmethod
    def of(cls, prior: Any) -> PriorStudy:
        """Copy the results of a study or a policy, at most 200 of them.

        Raises SettingError if `prior` is neither, or has no results.
        """
        if isinstance(prior, PriorStudy):
            return prior
        if hasattr(prior, "belief") and hasattr(prior, "maximize"):
            direction, trials = "maximize" if prior.maximize else "minimize", _trials_of_policy(prior)
        elif hasattr(prior, "trials") and hasattr(prior, "direction"):
            direction = prior.direction
            trials = [trial for trial in prior.trials if trial.status == "completed"]
        else:
            raise SettingError(f"`prior` must be a study or a policy, but got {prior!r}.")
        if not trials:
            raise SettingError("`prior` must have a completed trial, but has none.")
        n = min(len(trials), MOST_RESULTS)
        kept = [trials[i * (len(trials) - 1) // max(n - 1, 1)] for i in range(n)]
        return cls(direction, tuple(_plain(number, trial) for number, trial in enumerate(kept)))

    def within(self, space: Space, direction: str) -> list[Trial]:
        """Return the trials whose points belong to a new study's space.

        Raises SettingError if the new study has other parameter names or another direction, or if no point belongs to
        its space.
        """
        if direction != self.direction:
            raise SettingError(f"`prior` must be a study to {direction} rewards, but it is to {self.direction} them.")
        first = self.trials[0]
        if first.state.keys() != space.states.keys() or first.action.keys() != space.actions.keys():
            theirs = ", ".join([*first.state, *first.action])
            raise SettingError(f"`prior` must have the states and actions of this study, but it has {theirs}.")
        inside = [trial for trial in self.trials if _is_in(space, trial)]
        if not inside:
            raise SettingError("`prior` must have results inside this study's space, but has none.")
        return inside

    def to_record(self) -> dict[str, Any]:
        """Return the direction and the trials as a JSON record."""
        return {"direction": self.direction, "trials": [_row(trial) for trial in self.trials]}

    @classmethod
    def from_record(cls, stored: Fields) -> PriorStudy:
        """Read a prior study from the record that `to_record` returned; raise RecordError if the record is damaged."""
        stored.only(("direction", "trials"))
        trials = []
        for number, record in enumerate(stored.items("trials")):
            row = Fields.of(record, f"{stored.where}.trials[{number}]")
            row.only(("state", "action", "reward", "noise"), optional=("outcomes",))
            noise = row.number("noise", 0.0) if row.has("noise") else None
            outcomes = Outcomes(row.number("reward"), noise, row.point("outcomes") if row.has("outcomes") else {})
            trials.append(Trial(number, row.point("state"), row.point("action")).told(outcomes))
        return cls(stored.text("direction", ("maximize", "minimize")), tuple(trials))


def _plain(number: int, trial: Trial) -> Trial:
    """Return a copy of a completed trial that has only its state, its action, its outcomes and a new number."""
    assert trial.outcomes is not None
    return Trial(number, trial.state, trial.action).told(trial.outcomes)


def _row(trial: Trial) -> dict[str, Any]:
    row = {"state": trial.state, "action": trial.action, "reward": trial.reward, "noise": trial.noise}
    return {**row, "outcomes": dict(trial.measured)} if trial.measured else row


def _is_in(space: Space, trial: Trial) -> bool:
    try:
        space.validate_state(trial.state)
        space.validate_action(trial.action)
    except PointError:
        return False
    return True


def _trials_of_policy(policy: Any) -> Sequence[Trial]:
    """Return the observations that a policy was learned from, as trials in the user's units."""
    space, seen = policy.belief.space, policy.belief.observations.to("cpu")
    d, sign = space.n_state_dims, sign_of(policy.maximize)
    points, rewards = seen.points.numpy(), (sign * seen.rewards).tolist()
    noise: list[float | None] = [None] * len(rewards) if seen.noise is None else seen.noise.tolist()
    states: list[dict[str, Value]] = space.decode_states(points[:, :d])
    columns = {name: values.tolist() for name, values in seen.measured.items()}
    measured = [{name: column[i] for name, column in columns.items() if isfinite(column[i])} for i in range(len(seen))]
    results = zip(states, space.decode_actions(points[:, d:]), rewards, noise, measured, strict=True)
    return [Trial(0, state, action).told(Outcomes(*outcomes)) for state, action, *outcomes in results]
