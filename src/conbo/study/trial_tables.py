"""The methods of a study that list, enqueue, import and export trials (as rows, CSV files or dataframes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conbo.common_random_numbers import check_seed
from conbo.notices import LOG
from conbo.optimizer import Optimizer
from conbo.spaces import Point, Space
from conbo.study.addable import are_noiseless, check_addable
from conbo.study.shared import SharedOptimizer
from conbo.study.trial_rows import observations
from conbo.study.workers import worker_name
from conbo.trials import ENQUEUED, Outcomes, Trial, unlike_before

MANY_RESULTS = 5000  # imports of more results are announced in the log, because they take seconds


class TrialTables:
    """The part of `Study` that lists, imports, exports and enqueues trials, without fitting a model."""

    _shared: SharedOptimizer

    @property
    def space(self) -> Space:
        """The space of the study: its state and action parameters."""
        return self._shared.up_to_date().space

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials, in the order of their numbers."""
        return self._shared.up_to_date().trials

    @property
    def observations(self) -> list[dict[str, Any]]:
        """All trials as rows of a table: number, states, actions, seed if there are seeds, reward and status.

        There is also the noise variance if any trial has one. Other measured outcomes are in columns such as
        `outcome:wait`, which are None for a trial without that outcome.
        """
        return observations(self.trials)

    def to_csv(self, path: str | Path) -> None:
        """Write all trials to a CSV file, with everything that is recorded about them.

        Parameters
        ----------
        path
            The file, which is overwritten.

        Raises
        ------
        StorageError
            If the file is an SQLite database.

        Examples
        --------
        >>> study.to_csv("trials.csv")
        """
        from conbo.study.trial_csv import write_csv

        write_csv(path, self.space, self.trials)

    def import_csv(self, path: str | Path) -> int:
        """Add earlier results from a CSV file: all rows, or none if one of them is invalid.

        Parameters
        ----------
        path
            A file with a column for every parameter and a column `reward`; with common random numbers, also a column
            `seed`. The columns `noise`, `status`, and those of outcomes (such as `outcome:wait`) are optional. Rows
            whose status is neither empty nor "completed" are skipped, with a warning in the log.

        Returns
        -------
        int
            Number of results added.

        Raises
        ------
        StudyError
            If a column is missing, or a value in a row is missing or invalid; the message lists all such rows. A row
            is also invalid if it has a noise variance and earlier trials have none, or vice versa; if a constrained
            outcome is missing; if a cost that the study learns is not positive; or if its seed is not one of the
            study's `seeds`.

        Examples
        --------
        >>> study.to_csv("trials.csv")
        >>> conbo.Study(space).import_csv("trials.csv") == len(study.trials)
        True
        """
        from conbo.study.trial_csv import read_csv

        return len(self._add(read_csv(path, self._shared.up_to_date())))

    def trials_dataframe(self, backend: str = "pandas") -> Any:
        """Return all trials as a dataframe, with everything that is recorded about them.

        Parameters
        ----------
        backend
            The library of the dataframe, such as "pandas", "polars" or "pyarrow".

        Returns
        -------
        dataframe
            One row for every trial.

        Raises
        ------
        ConboError
            If narwhals or the backend is not installed.

        Examples
        --------
        >>> study.trials_dataframe().shape[0] == len(study.trials)
        True
        """
        from conbo.dataframes import frame_of
        from conbo.study.trial_csv import full_table

        columns, rows = full_table(self.space, self.trials)
        return frame_of({name: [row[name] for row in rows] for name in columns}, backend)

    def add_trials(self, results: Any) -> int:
        """Add earlier results from a table: all rows, or none if one of them is invalid.

        Parameters
        ----------
        results
            A dataframe of any library that narwhals reads, or a list of rows, as in `observations`. It has a column for
            every parameter and a column `reward`; with common random numbers, also a column `seed`. The columns
            `noise`, `status`, and those of outcomes (such as `outcome:wait`) are optional. In a list, a missing key
            counts as None. Rows whose status is neither empty nor "completed" are skipped, with a warning in the log.

        Returns
        -------
        int
            Number of results added.

        Raises
        ------
        StudyError
            If a column is missing, or a value in a row is missing or invalid; the message lists all such rows. A row
            is also invalid if it has a noise variance and earlier trials have none, or vice versa; if a constrained
            outcome is missing; if a cost that the study learns is not positive; or if its seed is not one of the
            study's `seeds`.

        Examples
        --------
        >>> conbo.Study(space).add_trials([{"demand": 60, "stock": 55, "reward": 165}])
        1
        """
        from conbo.dataframes import rows_of
        from conbo.study.trial_csv import results_of

        if isinstance(results, list) and all(isinstance(row, Mapping) for row in results):
            columns = list(dict.fromkeys(name for row in results for name in row))
            source, rows = "the list", [dict.fromkeys(columns) | dict(row) for row in results]
        else:
            source, (columns, rows) = "the dataframe", rows_of(results)
        return len(self._add(results_of(source, columns, rows, self._shared.up_to_date()))) if rows else 0

    def add_trial(
        self,
        state: Point,
        action: Point,
        reward: float,
        noise: float | None = None,
        *,
        outcomes: Mapping[str, float] | None = None,
        seed: int | None = None,
    ) -> Trial:
        """Add one earlier result, as if its trial had been asked for and told.

        Parameters
        ----------
        state
            The state in which the result was measured, as a dict from names to values; {} in a space without states.
        action
            The action that was evaluated, as a dict from names to values.
        reward, noise, outcomes
            As in `tell`.
        seed
            Seed that the simulator was given, in a study with common random numbers.

        Returns
        -------
        Trial
            The completed trial.

        Raises
        ------
        PointError
            If the point does not belong to the space.
        RewardError
            If a value is not one finite number, a constrained outcome is missing, or `noise` is given for some trials
            only.
        TrialError
            If the seed is missing, or the study does not allow it.

        Examples
        --------
        >>> conbo.Study(space).add_trial({"demand": 60}, {"stock": 55}, reward=165).number
        0
        """
        told = Outcomes(reward, noise, {} if outcomes is None else outcomes)
        (added,) = self._add([self._trial(state, action, seed).told(told)])
        return added

    def enqueue(self, state: Point, action: Point, seed: int | None = None) -> Trial:
        """Enqueue a point of your own; the next run, or whoever asks next, evaluates it before any suggestion.

        Until it has a reward, it counts as pending, like a suggested trial.

        Parameters
        ----------
        state
            The state to evaluate in, as a dict from names to values; {} in a space without states.
        action
            The action to evaluate, as a dict from names to values.
        seed
            The seed of the trial, in a study with common random numbers; by default a new one.

        Returns
        -------
        Trial
            The trial, which waits to be evaluated.

        Raises
        ------
        PointError
            If the point does not belong to the space.
        TrialError
            If the study does not allow the seed.

        Examples
        --------
        >>> study = conbo.Study(space)
        >>> trial = study.enqueue({"demand": 60}, {"stock": 60})
        >>> study.ask() == trial
        True
        """
        optimizer = self._shared.up_to_date()
        if seed is None and optimizer.seed_rule is not None:
            (seed,) = optimizer.seed_rule.new([trial.seed for trial in optimizer.trials], 1)
        waiting = replace(self._trial(state, action, seed), worker=ENQUEUED, leased=True)
        (added,) = self._add([waiting])
        return added

    def _trial(self, state: Point, action: Point, seed: int | None) -> Trial:
        check_seed(self._shared.up_to_date().seed_rule, seed)
        number = None if seed is None else int(seed)  # of NumPy, for example
        return Trial(0, self.space.validate_state(state), self.space.validate_action(action), seed=number)

    def _add(self, results: Sequence[Trial]) -> list[Trial]:
        """Append trials to those of the study, with new numbers, and return them as recorded."""
        if len(results) >= MANY_RESULTS:
            LOG.info("Adding %s trials.", f"{len(results):,}")

        def numbered(optimizer: Optimizer) -> list[Trial]:
            first = len(optimizer.trials)
            trials = [replace(trial, number=first + trial.number) for trial in results]
            known = are_noiseless(optimizer.trials)
            for trial in trials:
                check_addable(optimizer, trial)
                if trial.status == "completed" and known not in (None, trial.noise is None):
                    raise unlike_before(trial)
            return trials

        return self._shared.add(numbered, worker_name())
