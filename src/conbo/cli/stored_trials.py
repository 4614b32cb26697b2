"""Reads the trials of a stored study and records their results without the study's model, so torch is not needed."""

from conbo.cost_rules import COST, LEARNED, Cost, check_told
from conbo.errors import TrialError
from conbo.outcome_constraints import OutcomeConstraints, check_constrained, read_constraints
from conbo.record_fields import Fields, errors_about
from conbo.study.stored import stored_records, stored_settings
from conbo.trials import Outcomes


class StoredTrials:
    """A snapshot of the trials of one study, with methods to tell their rewards."""

    def __init__(self, storage: str, name: str) -> None:
        settings, origin = stored_settings(storage, name)
        with errors_about(origin):
            stored = Fields.of(settings)
            self._constraints = _constraints(stored)
            self._cost: Cost = LEARNED if stored.record.get("cost") == LEARNED else None
        self._records = stored_records(storage, name)
        self.trials = tuple(sorted(self._records.news().trials, key=lambda trial: trial.number))

    @property
    def parameters(self) -> set[str]:
        """The names of the states and actions; empty before the first trial."""
        return {name for trial in self.trials[:1] for name in (*trial.state, *trial.action)}

    @property
    def needed(self) -> list[str]:
        """The names of the outcomes that must be told with every reward."""
        return [*([COST] if self._cost == LEARNED else []), *self._constraints]

    def tell(self, number: int, outcomes: Outcomes) -> None:
        """Record a reward, as `Study.tell` does."""
        self.known(number)
        self.check(outcomes)
        self._records.tell(number, outcomes)

    def check(self, outcomes: Outcomes) -> None:
        """Raise RewardError unless the outcomes have a value for every constraint, and a cost if costs are learned."""
        check_told(self._cost, outcomes.measured)
        check_constrained(self._constraints, outcomes.measured)

    def fail(self, number: int, error: str) -> None:
        """Record a failure, as `Study.fail` does."""
        self.known(number)
        self._records.fail(number, error)

    def known(self, number: int) -> int:
        """Return the number; raise TrialError unless a trial has this number."""
        if not 0 <= number < len(self.trials):
            known = f"known are 0 to {len(self.trials) - 1}" if self.trials else "none was asked for yet"
            raise TrialError(f"unknown trial {number}: {known}.")
        return number


def _constraints(stored: Fields) -> OutcomeConstraints:
    return read_constraints(stored, "outcome_constraints") if stored.has("outcome_constraints") else {}
