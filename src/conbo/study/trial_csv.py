"""Writes trials to CSV files, and reads results from them and from other tables."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conbo.common_random_numbers import SEED
from conbo.errors import PointError, RewardError, StudyError, TrialError, shortened
from conbo.files import write_whole
from conbo.notices import LOG
from conbo.optimizer import Optimizer
from conbo.spaces import Parameter, Space, Value
from conbo.study.addable import are_noiseless, check_addable
from conbo.study.cells import number_in, seed_in, value_in
from conbo.study.csv_text import LONGEST_ERROR, csv_rows, is_blank
from conbo.study.spreadsheets import marked
from conbo.study.trial_rows import MEASURED, has_seeds, measured_cells, measured_columns, observations, warn_hidden
from conbo.trials import Outcomes, Trial

# columns of a CSV file that the rows of `observations` do not have, or not always
FILE_COLUMNS = ("noise", "error", "worker", "attempts", "started", "finished", "late")


def full_table(space: Space, trials: Iterable[Trial]) -> tuple[list[str], list[dict[str, Any]]]:
    """The column names and the rows of a table with everything that is recorded about the trials.

    A parameter may have the name of another column, such as `noise`. The column then holds the parameter, and a warning
    in the log says what is left out.
    """
    known = list(trials)
    parameters = [*space.states, *space.actions]
    warn_hidden(known, {name: [getattr(trial, name) for trial in known] for name in FILE_COLUMNS})
    more = [name for name in FILE_COLUMNS if name not in parameters]
    measured = [column for column in measured_columns(known) if column not in parameters]
    rows = [
        observation | {name: getattr(trial, name) for name in more}
        for trial, observation in zip(known, observations(known), strict=True)
    ]
    seed = [SEED] if has_seeds(known) else []
    return ["number", *parameters, *seed, "reward", "status", *more, *measured], rows


def write_csv(path: str | Path, space: Space, trials: Iterable[Trial]) -> None:
    """Write all trials to a CSV file, with one line for each trial.

    An existing file is replaced only if all trials can be written.
    """
    header, rows = full_table(space, trials)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(map(marked, header))
    for row in rows:
        writer.writerow(marked(row[name]) for name in header)
    write_whole(path, text.getvalue())


def read_csv(path: str | Path, optimizer: Optimizer) -> list[Trial]:
    """The results in a CSV file as completed trials, numbered from 0, that can be added to a study with this optimizer.

    Raises StudyError if a column is missing, or if a value in a row is missing or invalid; the message lists all such
    rows.
    """
    columns, rows, lines = csv_rows(path)
    return results_of(f"'{path}'", columns, rows, optimizer, [f"line {line}" for line in lines])


def results_of(
    source: str,
    columns: Sequence[str],
    rows: Iterable[Mapping[Any, Any]],
    optimizer: Optimizer,
    places: Sequence[str] | None = None,
) -> list[Trial]:
    """The rows of a table as completed trials, numbered from 0, that can be added to a study with this optimizer.

    The table has a column for every parameter and for the reward, and optionally one for the variance of the reward
    (`noise`) and some for outcomes (such as `outcome:wait`). In a study that chooses seeds, it also has a column for
    seeds. If there is a column `status`, rows whose status is neither empty nor "completed" are skipped, and
    a warning in the log counts them. Other columns are ignored. A string is read as the number or the choice that it
    stands for.

    Raises StudyError if a column is missing, or if a value in a row is missing or invalid; the message lists all such
    rows. In the message, `source` is the name of the table, and `places` are the names of its rows; by default, rows
    are called row 1, row 2, …
    """
    if unnamed := [name for name in columns if not isinstance(name, str)]:
        raise StudyError(f"{source} must have columns whose names are text, but got {unnamed[0]!r}.")
    space, seeded = optimizer.space, optimizer.seed_rule is not None
    needed = (*space.states, *space.actions, *([SEED] if seeded else []), "reward")
    if missing := [name for name in needed if name not in columns]:
        raise StudyError(
            f"{source} must have a column for every parameter{', the seed' if seeded else ''} and the reward, but has "
            f"none for '{missing[0]}'."
        )
    measured = [name for name in columns if name.startswith(MEASURED)]
    if twice := [name for name in (*needed, "noise", "status", *measured) if columns.count(name) > 1]:
        raise StudyError(f"{source} must have one column for '{twice[0]}', but has several.")
    results: dict[int, Trial] = {}  # completed trials by row
    wrong: dict[int, str] = {}
    skipped: Counter[str] = Counter()  # statuses of rows that are not completed
    for number, row in enumerate(rows, start=1):
        if not is_blank(status := row.get("status")) and str(status) != "completed":
            skipped[str(status)] += 1
            continue
        try:
            trial = _trial(row, space, columns, len(results), seeded)
            check_addable(optimizer, trial)
            results[number] = trial
        except (PointError, RewardError, TrialError) as error:
            wrong[number] = shortened(str(error), LONGEST_ERROR)
    earlier = are_noiseless(optimizer.trials)
    usual = all(trial.noise is None for trial in results.values()) if earlier is None else earlier
    rule = (
        f"`noise` must be given with every reward or with none{'' if earlier is None else ', also of earlier trials'}."
    )
    wrong |= {number: rule for number, trial in results.items() if (trial.noise is None) != usual}
    if wrong:
        lines = "".join(
            f"\n  {f'row {number}' if places is None else places[number - 1]}: {what}"
            for number, what in sorted(wrong.items())
        )
        raise StudyError(f"nothing was imported from {source}, since not every row is a result:{lines}")
    if skipped:
        kinds = shortened(", ".join(f"{n} '{status}'" for status, n in skipped.most_common()))
        LOG.warning("Rows of %s whose status is not 'completed' were skipped: %s.", source, kinds)
    return list(results.values())


def _trial(row: Mapping[Any, Any], space: Space, columns: Sequence[str], number: int, seeded: bool) -> Trial:
    if any(beyond := row.get(None, [])):  # more cells than columns, for example because of decimal commas
        raise PointError(f"there must be a column for every value, but got {beyond} beyond the last.")
    # fewer cells than columns, for example because the file was cut off
    if lacking := [name for name in columns if name not in row]:
        raise PointError(f"there must be a value for every column, but got none for '{lacking[0]}'.")

    def point(parameters: Mapping[str, Parameter]) -> dict[str, Value]:
        return {name: value_in(parameter, row[name]) for name, parameter in parameters.items()}

    point_names = {*space.states, *space.actions}
    state, action = space.validate_state(point(space.states)), space.validate_action(point(space.actions))
    noise = None if "noise" in point_names or is_blank(row.get("noise")) else number_in(row["noise"])
    measured = {name: number_in(cell) for name, cell in measured_cells(row, point_names).items()}
    outcomes = Outcomes(number_in(row["reward"]), noise, measured)
    return Trial(number, state, action, seed=seed_in(row[SEED]) if seeded else None).told(outcomes)
