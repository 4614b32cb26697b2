"""Commands for evaluations that happen elsewhere: ask, tell, fail, import and export."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conbo.cli.exit_codes import NOTHING_OR_FAILED
from conbo.cli.study_source import (
    Source,
    leading_study,
    parse_pairs,
    shell_word,
    study_arguments,
    study_source,
)
from conbo.cli.tables import READABLE, as_csv, check_table, exact, from_rows, number_text, read_rows, write_rows
from conbo.common_random_numbers import SEED
from conbo.errors import RewardError, StudyError, TrialError, quoted
from conbo.rounding import counted
from conbo.study.csv_text import is_blank

if TYPE_CHECKING:
    from conbo.cli.stored_study import StoredStudy
    from conbo.record_fields import Fields
    from conbo.trials import Outcomes, Trial

_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW = click.Path(dir_okay=False, path_type=Path)


@click.command()
@study_arguments()
@click.option(
    "-n", "--number", metavar="N", type=click.IntRange(1), default=1, show_default=True, help="Number of points."
)
@click.option("--state", "pairs", multiple=True, metavar="NAME=VALUE", help="A state that the environment has set.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("-o", "--output", type=_NEW, help="Write a .csv or .json file with a column to fill in.")
@click.option("--force", is_flag=True, help="With --output: replace the file if it exists.")
def ask(
    arguments: tuple[str, ...],
    name: str | None,
    number: int,
    pairs: tuple[str, ...],
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Ask for the points to evaluate next.

    Each point is a trial with a number, under which its reward is told. There is no time limit. With several state
    parameters, give --state once for each.
    """
    from conbo.study.trial_rows import MEASURED

    (text,) = leading_study(arguments)
    if output is not None:
        check_table(output, READABLE)  # `conbo tell --file` must be able to read the file
        _check_new(output, force)
    source = study_source(text, name)
    study = source.create_or_resume()
    trials = study.ask(number, parse_pairs("A state", study.space.states, pairs) if pairs else None)
    if output is not None:
        empty = {"reward": None, **{f"{MEASURED}{each}": None for each in source.needed}}
        write_rows(output, [{"number": t.number, **t.point, **empty} for t in trials])
        first, last = trials[0].number, trials[-1].number
        named = (
            f"trials {first} to {last}: fill in the rewards" if last > first else f"trial {first}: fill in the reward"
        )
        click.echo(f"Wrote {output} with {named}, then")
        click.echo(f"  conbo tell {shell_word(text)} --file {shell_word(str(output))}")
        return
    for trial in trials:
        click.echo(json.dumps(_record(trial)) if as_json else _line(trial))


def _record(trial: "Trial") -> dict[str, Any]:
    seed = {} if trial.seed is None else {"seed": trial.seed}
    return {"number": trial.number, "state": trial.state, "action": trial.action, **seed}


def _line(trial: "Trial") -> str:
    values = "  ".join(f"{name}={exact(value)}" for name, value in trial.point.items())
    return f"{trial.number}  {values}"


# unknown options count as arguments, because a negative reward begins with a dash
@click.command(context_settings={"ignore_unknown_options": True})
@study_arguments("[STUDY] [ID VALUE]")
@click.option("--noise", type=float, help="Variance of the reward, if it is known; for all trials or for none.")
@click.option("--cost", type=float, help="What the evaluation cost, for a study that learns it.")
@click.option(
    "--outcome",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another measured outcome. All constrained outcomes must be given.",
)
@click.option("--file", "path", type=_EXISTING, help="A .csv or .json file with the columns number and reward.")
def tell(
    arguments: tuple[str, ...],
    name: str | None,
    noise: float | None,
    cost: float | None,
    pairs: tuple[str, ...],
    path: Path | None,
) -> int:
    """Tell the reward of a trial, or the rewards in a file.

    With several outcomes besides the reward, give --outcome once for each.

    In a file, a column `noise` may hold noise variances, columns such as `outcome:wait` may hold other outcomes, and a
    message in a column `error` says that the trial failed. Rows with neither a reward nor an error are left for later.
    Columns of states, actions and seeds may be left out; otherwise they must be those of the trials, up to rounding.
    If any row is invalid, for example because its trial does not exist, all invalid rows are listed and nothing is
    recorded.
    """
    from conbo.cost_rules import with_cost
    from conbo.trials import Outcomes

    if path is None:
        text, number, reward = leading_study(arguments, "ID", "VALUE")
        outcomes = Outcomes(_reward(reward), noise, with_cost(_measured(pairs), cost))
        study_source(text, name).stored().tell(_number(number), outcomes)
        return 0
    if pairs or noise is not None or cost is not None:
        raise click.UsageError("--file tells the columns of a file: leave --noise, --cost and --outcome out.")
    (text,) = leading_study(arguments)
    return _tell_rows(study_source(text, name).stored(), path)


def _tell_rows(study: "StoredStudy", path: Path) -> int:
    rows = read_rows(path)
    columns = {name: None for row in rows.values() for name in row if name is not None}
    if rows and ("number" not in columns or not {"reward", "error"} & columns.keys()):
        raise StudyError(f"'{path}' must have the columns 'number' and 'reward', but has {quoted(columns)}.")
    told = {trial.number: trial for trial in study.trials}  # the trials as they will be once the rows read are told
    # all rows are read before any row is told
    parameters = study.parameters
    known = from_rows(path, rows, lambda row: _result(study, parameters, told, row))
    results = [result for result in known if result is not None]
    for number, result in results:
        if isinstance(result, str):
            study.fail(number, result)
        else:
            study.tell(number, result)
    failed = sum(isinstance(result, str) for _, result in results)
    click.echo(f"{len(results) - failed} told, {failed} failed, {len(rows) - len(results)} left for later.")
    return 0 if results else NOTHING_OR_FAILED


def _result(
    study: "StoredStudy",
    parameters: "Mapping[str, Fields]",
    told: "dict[int, Trial]",
    row: Mapping[str, Any],
) -> "tuple[int, Outcomes | str] | None":
    """Return the number of a row's trial, and the trial's outcomes or error; None if the row has neither.

    `parameters` are the records of the study's parameters by name. `told` maps numbers to trials, including results
    from earlier rows, and is updated with this row's result.

    Raises TrialError if `told` has a different result for the trial or an error is not text, PointError if the row has
    another state, action or seed than the trial, and RewardError if this row has a noise variance and the completed
    trials have none, or vice versa.
    """
    from conbo.cli.asked_values import check_asked
    from conbo.study.addable import are_noiseless
    from conbo.trials import unlike_before

    # a parameter may be called `error`
    result = {name: cell for name, cell in row.items() if name not in parameters}
    error = _error(result)
    if error is None and not _has(result, "reward"):
        return None
    number = study.known(_number(result.get("number")))
    check_asked(told[number], row, parameters)
    if error is not None:
        if _has(result, "reward"):
            raise RewardError(f"a trial must have a reward or an error, but trial {number} has both.")
        told[number] = told[number].failed(error)
        return number, error
    outcomes = _outcomes(study, result)
    completed = told[number].told(outcomes)
    if are_noiseless(told.values()) not in (None, completed.noise is None):
        raise unlike_before(completed)
    told[number] = completed
    return number, outcomes


def _has(row: Mapping[str, Any], column: str) -> bool:
    return not is_blank(row.get(column))


def _error(row: Mapping[str, Any]) -> str | None:
    """Return the error in a row, or None if there is none; raise TrialError if it is not text."""
    if not _has(row, "error"):
        return None
    error = row["error"]
    if not isinstance(error, str):
        raise TrialError(f"an error must be text, but got {error!r}.")
    return error


def _outcomes(study: "StoredStudy", row: Mapping[str, Any]) -> "Outcomes":
    from conbo.study.trial_rows import measured_cells
    from conbo.trials import Outcomes

    noise = _reward(row["noise"], "noise") if _has(row, "noise") else None
    measured = {name: _reward(cell, f"value of the outcome '{name}'") for name, cell in measured_cells(row, ()).items()}
    outcomes = Outcomes(_reward(row["reward"]), noise, measured)
    study.check(outcomes)
    return outcomes


def _measured(pairs: tuple[str, ...]) -> dict[str, float]:
    measured: dict[str, float] = {}
    for pair in pairs:
        name, equals, value = pair.rpartition("=")
        if not equals:
            raise click.UsageError(f"an outcome must be NAME=VALUE, but got {pair!r}.")
        if name in measured:
            raise click.UsageError(f"an outcome must be given once, but got '{name}' twice.")
        measured[name] = _reward(value, f"value of the outcome '{name}'")
    return measured


def _number(text: object) -> int:
    try:
        return int(number_text(text))
    except ValueError:
        raise TrialError(f"a trial must be named by its number, but got {text!r}.") from None


def _reward(text: object, what: str = "reward") -> float:
    try:
        return float(number_text(text))
    except ValueError:
        raise RewardError(f"a {what} must be one finite number, but got {text!r}.") from None


@click.command()
@study_arguments("[STUDY] ID")
@click.option("--error", default="", help="What went wrong, for the record.")
def fail(arguments: tuple[str, ...], name: str | None, error: str) -> None:
    """Record that a trial will have no reward.

    With --error, the trial counts as a failed evaluation, from which the study may learn where evaluations fail.
    Without it, the trial is canceled.
    """
    text, number = leading_study(arguments, "ID")
    study_source(text, name).stored().fail(_number(number), error)


@click.command("import")
@study_arguments("[STUDY] FILE")
def import_results(arguments: tuple[str, ...], name: str | None) -> int:
    """Add earlier results from a CSV file.

    The file has a column for every state and action, and a column `reward`. It may have a column `noise`, and columns
    such as `outcome:wait` for other outcomes; with common random numbers, it must have a column `seed`. If it has a
    column `status`, rows that are not `completed` are skipped, and a warning counts them. If any row is invalid, for
    example because a value is out of range, all invalid rows are listed and nothing is added.
    """
    text, path = leading_study(arguments, "FILE")
    added = study_source(text, name).create_or_resume().import_csv(path)
    click.echo(f"{counted(added, 'result')} added.")
    return 0 if added else NOTHING_OR_FAILED


@click.command()
@study_arguments()
@click.option("-o", "--output", type=_NEW, help="A .csv, .json, .parquet or .xlsx file; else CSV is printed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--database", type=_NEW, help="Copy the database to a new SQLite file instead.")
@click.option("--force", is_flag=True, help="With --database: replace the file if it exists.")
def export(
    arguments: tuple[str, ...],
    name: str | None,
    output: Path | None,
    as_json: bool,
    database: Path | None,
    force: bool,
) -> None:
    """Write all trials as a table, or copy the database.

    In CSV, text that a spreadsheet would take for a formula gets an apostrophe in front of it, which `conbo import` and
    `conbo tell` remove again.

    With --database, the copy is complete, even while others write. A copy of an SQLite file has all its studies; a copy
    from a database server has only this study. Do not copy an SQLite file by other means: the copy may lack changes
    that are still in the -wal file.
    """
    (text,) = leading_study(arguments)
    if database is not None:
        if output is not None or as_json:
            raise click.UsageError("--database copies the database: leave --output and --json out.")
        _copy(study_source(text, name), database, force)
        return
    if output is not None:
        check_table(output)
    from conbo.study.trial_rows import with_errors

    study = study_source(text, name).stored(as_stored=True)
    rows, seed = with_errors(study.trials), [SEED] if study.has_seeds else []
    usual = list(dict.fromkeys(["number", *study.parameters, *seed, "reward", "status", "error"]))
    if output is not None:
        write_rows(output, rows, usual)
        click.echo(f"Wrote {output}.")
    else:
        click.echo(json.dumps(rows, indent=1) if as_json else as_csv(rows, usual).rstrip("\n"))


def _copy(source: Source, target: Path, force: bool) -> None:
    from conbo.study.copies import copy_study

    _check_new(target, force)
    copy_study(*source.location(as_stored=True), target, overwrite=force)
    click.echo(f"Wrote {target}.")


def _check_new(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise click.UsageError(f"{path} exists already: --force replaces it.")
