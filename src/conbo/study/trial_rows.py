"""Converts trials to the rows of a table: one dict per trial, whose keys are the names of the columns."""

from collections.abc import Container, Iterable, Mapping
from typing import Any

from conbo.common_random_numbers import SEED
from conbo.trials import Trial

MEASURED = "outcome:"  # prefix of the columns of measured outcomes


def observations(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """The trials as rows of a table, all with the same columns, including one for seeds if any trial has a seed.

    If a parameter has the same name as the column of an outcome, the column holds the parameter, not the outcome.
    """
    known = list(trials)
    measured, seeded = measured_columns(known), has_seeds(known)
    return [_observation(trial, measured, seeded) for trial in known]


def has_seeds(trials: Iterable[Trial]) -> bool:
    """Whether any trial has a seed, as in a study with common random numbers."""
    return any(trial.seed is not None for trial in trials)


def with_noise_and_errors(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """The rows of `observations`, plus a column `error` and, if any trial has a noise variance, a column `noise`.

    `error` holds the message of a failed trial, and None for other trials. If a parameter is called `noise` or `error`,
    the column of that name holds the parameter instead.
    """
    known, rows = list(trials), []
    noisy = any(trial.noise is not None for trial in known)
    for trial, row in zip(known, observations(known), strict=True):
        more: dict[str, Any] = {"noise": trial.noise} if noisy else {}
        more |= {"error": trial.error if trial.status == "failed" else None}
        after = list(row).index("status") + 1
        first, last = list(row.items())[:after], list(row.items())[after:]
        rows.append(dict(first) | {name: cell for name, cell in more.items() if name not in row} | dict(last))
    return rows


def measured_columns(trials: Iterable[Trial]) -> dict[str, str]:
    """Map column names (`outcome:wait`) to names of measured outcomes (`wait`), in the order of first occurrence."""
    return {f"{MEASURED}{name}": name for trial in trials for name in trial.measured}


def measured_cells(row: Mapping[Any, Any], parameters: Container[str]) -> dict[str, Any]:
    """The measured outcomes in a row of a table, by outcome name, without empty cells.

    Columns in `parameters` are not outcomes, whatever their names are.
    """
    columns = [column for column in row if str(column).startswith(MEASURED) and column not in parameters]
    return {column.removeprefix(MEASURED): row[column] for column in columns if row[column] not in (None, "")}


def _observation(trial: Trial, measured: Mapping[str, str], seeded: bool) -> dict[str, Any]:
    seed = {SEED: trial.seed} if seeded else {}
    point = {**trial.state, **trial.action, **seed}
    row = {"number": trial.number, **point, "reward": trial.reward, "status": trial.status}
    return row | {column: trial.measured.get(name) for column, name in measured.items() if column not in row}
