"""Converts trials to the rows of a table: one dict per trial, whose keys are the names of the columns."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from conbo.common_random_numbers import SEED
from conbo.notices import LOG
from conbo.study.csv_text import is_blank
from conbo.trials import Trial

MEASURED = "outcome:"  # prefix of the columns of measured outcomes


def observations(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """The trials as rows of a table, all with the same columns.

    There is a column for seeds, and one for noise variances, if any trial has one. If a parameter has the name of the
    column of a noise variance or an outcome, the column holds the parameter.
    """
    known = list(trials)
    measured, seeded = measured_columns(known), has_seeds(known)
    noisy = any(trial.noise is not None for trial in known)
    return [_observation(trial, measured, seeded, noisy) for trial in known]


def has_seeds(trials: Iterable[Trial]) -> bool:
    """Whether any trial has a seed, as in a study with common random numbers."""
    return any(trial.seed is not None for trial in trials)


def with_errors(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """The rows of `observations`, plus a column `error`: the message of a failed trial, and None for other trials.

    If a parameter has the name of another column, such as `error` or `noise`, the column holds the parameter instead,
    and a warning in the log says so.
    """
    known, rows = list(trials), []
    errors = [trial.error if trial.status == "failed" else None for trial in known]
    warn_hidden(known, {"noise": [trial.noise for trial in known], "error": errors})
    for trial, message, row in zip(known, errors, observations(known), strict=True):
        outcomes = {name: row.pop(name) for name in measured_columns(known) if name not in trial.point}
        error = {} if "error" in row else {"error": message}
        rows.append(row | error | outcomes)
    return rows


def warn_hidden(trials: Sequence[Trial], others: Mapping[str, Sequence[object]]) -> None:
    """Warn in the log if a parameter has the name of another column that is not empty, and so hides it.

    `others` are the values in the other columns by name, besides those of measured outcomes.
    """
    outcomes = {
        column: [trial.measured.get(name) for trial in trials] for column, name in measured_columns(trials).items()
    }
    values = {**others, **outcomes}
    parameters = {name: None for trial in trials for name in (*trial.state, *trial.action)}
    if hidden := [name for name in parameters if any(value is not None for value in values.get(name, []))]:
        LOG.warning(
            "The column '%s' holds the parameter of this name; what else is recorded under it is left out.", hidden[0]
        )


def measured_columns(trials: Iterable[Trial]) -> dict[str, str]:
    """Map column names (`outcome:wait`) to names of measured outcomes (`wait`), in the order of first occurrence."""
    return {f"{MEASURED}{name}": name for trial in trials for name in trial.measured}


def measured_cells(row: Mapping[Any, Any], parameters: Container[str]) -> dict[str, Any]:
    """The measured outcomes in a row of a table, by outcome name, without empty cells.

    Columns in `parameters` are not outcomes, whatever their names are.
    """
    columns = [column for column in row if str(column).startswith(MEASURED) and column not in parameters]
    return {column.removeprefix(MEASURED): row[column] for column in columns if not is_blank(row[column])}


def _observation(trial: Trial, measured: Mapping[str, str], seeded: bool, noisy: bool) -> dict[str, Any]:
    seed = {SEED: trial.seed} if seeded else {}
    point = {**trial.state, **trial.action, **seed}
    row = {"number": trial.number, **point, "reward": trial.reward, "status": trial.status}
    row |= {"noise": trial.noise} if noisy and "noise" not in row else {}
    return row | {column: trial.measured.get(name) for column, name in measured.items() if column not in row}
