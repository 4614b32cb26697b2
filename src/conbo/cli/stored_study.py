"""Reads a stored study, and records results of its trials, without loading the model, so that torch is not needed."""

from collections.abc import Mapping
from typing import Any, get_args

from conbo.cli.tables import limit_rows, parameter_fields, parameter_rows
from conbo.cost_rules import COST, LEARNED, Cost, check_told
from conbo.direction import Direction, sign_of
from conbo.errors import TrialError
from conbo.outcome_constraints import LearnedSettings, OutcomeConstraints, check_constrained, read_constraints
from conbo.record_fields import Fields, errors_about
from conbo.study.stored import open_stored
from conbo.study.stored_fields import LARGEST_SEED
from conbo.trials import Outcomes, Trial


class StoredStudy:
    """A snapshot of the settings and trials of a stored study, and methods that store results of its trials.

    It needs neither the study's model nor the user's functions. The snapshot does not change when results are stored.
    """

    def __init__(self, storage: str, name: str) -> None:
        self.storage, self.name = storage, name
        self._records, self.settings = open_stored(storage, name)
        with errors_about(self._records.origin):
            stored = Fields.of(self.settings)
            self.direction = stored.text("direction", get_args(Direction))
            self.method = _method(stored)
            self.seed = stored.whole("seed", most=LARGEST_SEED)
            self.space: Mapping[str, Any] = stored.fields("space").record  # as `Space.to_dict` gives it
            self._constraints = _constraints(stored)
            self.has_seeds = bool(stored.record.get("common_random_numbers"))  # whether trials have simulator seeds
            self._cost: Cost = LEARNED if stored.record.get("cost") == LEARNED else None
        self.trials = tuple(sorted(self._records.news().trials, key=lambda trial: trial.number))

    def setting_rows(self) -> list[tuple[str, str]]:
        """Return a row (role, description) for every state and action, for every limit, and for the cost."""
        with errors_about(self._records.origin):
            return [*parameter_rows(self.space), *limit_rows(self.settings)]

    @property
    def parameters(self) -> dict[str, Fields]:
        """The records of all states and actions, by name."""
        with errors_about(self._records.origin):
            return {**parameter_fields(self.space, "state"), **parameter_fields(self.space, "action")}

    @property
    def needed(self) -> list[str]:
        """The names of the outcomes that must be told with every reward."""
        return [*([COST] if self._cost == LEARNED else []), *self._constraints]

    @property
    def best(self) -> Trial | None:
        """The completed trial with the best reward among those that satisfy all constraints; None if there is none.

        A constraint that is a function of the user is not known here, so it is not checked.
        """
        learned, sign = LearnedSettings(self._constraints), sign_of(self.direction == "maximize")
        kept = [t for t in self.trials if t.status == "completed" and learned.satisfied_by(t.measured)]
        if self.space.get("constraints"):
            from conbo.spaces import Space  # imports NumPy, which takes time

            with errors_about(self._records.origin):
                space = Space.from_dict({key: value for key, value in self.space.items() if key != "feasible"})
            kept = [trial for trial in kept if space.is_feasible(trial.state, trial.action)]
        return max(kept, key=lambda trial: sign * float(trial.reward or 0), default=None)

    def tell(self, number: int, outcomes: Outcomes) -> None:
        """Record the outcomes of a trial, as `Study.tell` does."""
        self.known(number)
        self.check(outcomes)
        self._records.tell(number, outcomes)

    def check(self, outcomes: Outcomes) -> None:
        """Raise RewardError if a constrained outcome is missing.

        If costs are learned, it is also raised if the outcomes do not include a positive cost.
        """
        check_told(self._cost, outcomes.measured)
        check_constrained(self._constraints, outcomes.measured)

    def fail(self, number: int, error: str) -> None:
        """Record that a trial has failed, as `Study.fail` does."""
        self.known(number)
        self._records.fail(number, error)

    def known(self, number: int) -> int:
        """Return the number of a trial unchanged; raise TrialError if there is no such trial."""
        if not 0 <= number < len(self.trials):
            known = f"known are 0 to {len(self.trials) - 1}" if self.trials else "none was asked for yet"
            raise TrialError(f"unknown trial {number}: {known}.")
        return number


def _constraints(stored: Fields) -> OutcomeConstraints:
    return read_constraints(stored, "outcome_constraints") if stored.has("outcome_constraints") else {}


def _method(stored: Fields) -> str:
    method = stored.value("method")
    return method if isinstance(method, str) else stored.fields("method").text("name")
