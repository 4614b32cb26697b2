"""Commands that show a study and what it has learned, and the built-in methods and problems."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import conbo
from conbo.cli.study_source import (
    POLICY_ENDING,
    is_policy_file,
    leading_study,
    parse_pairs,
    parse_row,
    study_arguments,
    study_source,
)
from conbo.cli.tables import (
    as_columns,
    as_csv,
    check_output,
    check_table,
    from_rows,
    parameter_rows,
    read_rows,
    shown,
    write_rows,
)
from conbo.errors import StudyError
from conbo.notices import LOG
from conbo.rounding import MARGIN_IN_WORDS, with_margin

if TYPE_CHECKING:
    from conbo.policies.policy import Policy
    from conbo.prediction import Prediction
    from conbo.spaces import Space, Value

# The names are repeated here, because conbo.plots is slow to import; a test compares them.
PLOTS = (
    "acquisition",
    "calibration",
    "feasibility",
    "importance",
    "policy-map",
    "policy-value",
    "posterior-surface",
    "predicted-reward",
    "remaining-gain",
    "slices",
    "state-coverage",
    "timeline",
)

DIGITS = 6  # least number of significant digits of an action

_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW = click.Path(dir_okay=False, path_type=Path)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@study_arguments()
@click.option("--model", "with_model", is_flag=True, help="Also fit the model, and show what the policy is worth.")
@_JSON
def status(arguments: tuple[str, ...], name: str | None, with_model: bool, as_json: bool) -> None:
    """Show a study: its space and its trials; with --model, what the policy is worth."""
    (text,) = leading_study(arguments)
    source = study_source(text, name)
    log = source.unfolded_log  # read before the study is opened, because closing it may merge the log
    study = source.stored(as_stored=True)
    trials = study.trials
    counts = Counter(trial.status for trial in trials)
    learned = conbo.open_study(study.storage, study.name).summary() if with_model and counts["completed"] else None
    if as_json:
        settings = {"name": study.name, "direction": study.direction, "method": study.method, "seed": study.seed}
        numbers = {kind: counts[kind] for kind in ("completed", "running", "failed")}
        fitted = {"policy_value": None} if learned is None else learned.to_dict()
        click.echo(json.dumps({**settings, **study.space, **numbers, **(fitted if with_model else {})}))
        return
    rows = [
        ("study", f"{study.name}, {study.direction} by {study.method}, seed {study.seed}"),
        *study.setting_rows(),
        ("trials", f"{counts['completed']} completed, {counts['running']} running, {counts['failed']} failed"),
    ]
    if study.best is not None:
        rows.append(("best reward", f"{shown(study.best.reward)}, of trial {study.best.number}"))
    elif counts["completed"]:
        rows.append(("best reward", "none, because all completed trials break a constraint"))
    if failed := [trial for trial in trials if trial.status == "failed" and trial.error]:
        rows.append(("failure", f"the last was trial {failed[-1].number}: {failed[-1].error}"))
    if log is not None:
        rows.append(("beside it", f"{log} may hold the newest changes: copy the study with `conbo export --database`"))
    if not counts["completed"]:
        rows.append(("policy", "nothing learned yet"))
    elif learned is None:
        rows.append(("policy", "`conbo status --model` says what it is worth"))
    click.echo(as_columns(rows))
    if learned is not None:
        click.echo(f"\n{learned}")


@click.command()
@study_arguments("[STUDY or policy.json]")
@click.option("--state", "pairs", multiple=True, metavar="NAME=VALUE", help="The state; once for each parameter.")
@click.option("--states", "path", type=_EXISTING, help="A .csv or .json file with a state in each row.")
@click.option(
    "-o",
    "--output",
    type=_NEW,
    help="With --states: write a .csv, .json, .parquet or .xlsx file instead of printing CSV.",
)
@click.option("--extrapolate", is_flag=True, help="Treat a number out of range as the nearest one in range.")
@click.option("--save", type=_NEW, help="Write the policy itself to a .json file, which answers without the study.")
@_JSON
def policy(
    arguments: tuple[str, ...],
    name: str | None,
    pairs: tuple[str, ...],
    path: Path | None,
    output: Path | None,
    extrapolate: bool,
    save: Path | None,
    as_json: bool,
) -> None:
    """Show the best action for a state, or for a CSV file of states.

    The columns of the file are kept, and columns are added for every action, for the predicted reward, and for the
    standard deviation of this prediction, which does not include the noise of a single reward. The file must not have
    columns of these names already.
    """
    (source,) = leading_study(arguments)
    _check_different(
        {
            "the policy": Path(source) if is_policy_file(source) else None,
            "--states": path,
            "--output": output,
            "--save": save,
        }
    )
    if path is not None and pairs:
        raise click.UsageError("--states reads the states from a file: leave --state out.")
    if output is not None:
        if path is None:
            raise click.UsageError("--output needs --states.")
        check_table(output)
    if save is not None:
        check_output("a policy", save, [POLICY_ENDING])
    learned = _policy(source, name)
    space = learned.belief.space
    if path is not None:
        _answer_rows(learned, path, output, extrapolate, as_json)
    elif save is None or pairs:
        prediction = learned.predict(parse_pairs("A state", space.states, pairs), extrapolate=extrapolate)
        click.echo(json.dumps(_record(prediction)) if as_json else _in_lines(prediction, space))
    if save is not None:
        learned.save(save)


def _check_different(files: Mapping[str, Path | None]) -> None:
    """Raise click.UsageError if two of these files are the same, because one would replace the other."""
    known: dict[Path, str] = {}
    for what, path in files.items():
        if path is not None and (other := known.setdefault(path.resolve(), what)) != what:
            raise click.UsageError(f"{other} and {what} must be different files, but both are '{path}'.")


def _policy(source: str, name: str | None) -> "Policy":
    if is_policy_file(source):
        return conbo.load_policy(source)
    return study_source(source, name).open_existing().policy()


def _record(prediction: "Prediction") -> dict[str, Any]:
    record = {"action": prediction.action, "mean": prediction.mean, "std": prediction.std}
    return record if prediction.probability is None else {**record, "probability": prediction.probability}


def _in_lines(prediction: "Prediction", space: "Space") -> str:
    from conbo.value_text import value_text

    expected = with_margin(prediction.mean, prediction.std)
    action = [(name, value_text(space.actions[name], value, DIGITS)) for name, value in prediction.action.items()]
    lines = [*action, ("predicted reward", f"{expected}  ({MARGIN_IN_WORDS})")]
    if prediction.probability is not None:
        lines.append(("keeps constraints", f"with probability {prediction.probability:.3f}"))
    return as_columns(lines)


def _answer_rows(learned: "Policy", path: Path, output: Path | None, extrapolate: bool, as_json: bool) -> None:
    from conbo.space_columns import into_range

    space, placed = learned.belief.space, read_rows(path, all_columns=True)
    added = (*space.actions, "predicted_reward", "predicted_std", "predicted_probability")
    columns = {name for row in placed.values() for name in row} - set(space.states)
    if taken := [name for name in added if name in columns]:
        raise StudyError(f"'{path}' must not have a column that the policy adds, but has '{taken[0]}'.")
    if taken := [name for name in added if [*space.states, *added].count(name) > 1]:
        raise StudyError(f"a parameter must not have the name of a column that is added, but has '{taken[0]}'.")

    def with_state(row: dict[str, Any]) -> "tuple[dict[str, Any], dict[str, Value]]":
        given = parse_row(space.states, row)
        return row | given, space.validate_state(into_range(space.states, given) if extrapolate else given)

    known = from_rows(path, placed, with_state)
    predictions = learned.predict_many([state for _, state in known])
    answers = [
        {**row, **p.action, "predicted_reward": p.mean, "predicted_std": p.std}
        | ({} if p.probability is None else {"predicted_probability": p.probability})
        for (row, _), p in zip(known, predictions, strict=True)
    ]
    usual = [*space.states, *added[:-1]]
    if output is not None:
        write_rows(output, answers, usual)
        click.echo(f"Wrote {output}.")
    else:
        click.echo(json.dumps(answers, indent=1) if as_json else as_csv(answers, usual).rstrip("\n"))


@click.command()
@study_arguments("[STUDY] KIND")
@click.option("-o", "--output", type=_NEW, help="A .html, .png, .svg or .pdf file; by default KIND.html.")
def plot(arguments: tuple[str, ...], name: str | None, output: Path | None) -> None:
    """Draw one picture of a study.

    KIND is one of acquisition, calibration, feasibility, importance, policy-map, policy-value, posterior-surface,
    predicted-reward, remaining-gain, slices, state-coverage, timeline.
    """
    source, kind = leading_study(arguments, "KIND")
    if kind not in PLOTS:
        raise click.UsageError(f"KIND must be one of {', '.join(PLOTS)}, but got '{kind}'.")
    study = study_source(source, name).open_existing()
    path = output or Path(f"{kind}.html")
    LOG.info("Loading torch and the plots; this takes a few seconds.")
    draw = getattr(conbo.plots, kind.replace("-", "_"))
    from conbo.plots.save import check_ending

    check_ending(path)  # checked before a long computation
    conbo.plots.save(draw(study), path)
    click.echo(f"Wrote {path}.")


@click.command()
@study_arguments()
@click.option("-o", "--output", type=_NEW, default="report.html", show_default=True, help="The page to write.")
def report(arguments: tuple[str, ...], name: str | None, output: Path) -> None:
    """Write a study as one self-contained HTML page."""
    (source,) = leading_study(arguments)
    study = study_source(source, name).open_existing()
    LOG.info("Loading torch and the plots, and drawing the page; this takes some seconds.")
    conbo.report(study, output)
    click.echo(f"Wrote {output}.")


@click.command()
@click.option("--method", default="conbo", show_default=True, help="A name that `conbo methods` lists.")
@click.option("-n", "--evaluations", metavar="N", type=click.IntRange(1), default=30, show_default=True)
@click.option("--picture", type=_NEW, default=Path("out/demo.png"), show_default=True, help="The file to draw to.")
@click.option(
    "--storage", type=_NEW, default=Path("out/demo.db"), show_default=True, help="Where the studies are kept."
)
def demo(**options: object) -> None:
    """Learn a policy for the Branin function and draw it.

    Random search learns another policy, for comparison. A second call continues the first.
    """
    from conbo.demo import main

    main([f"--{name}={value}" for name, value in options.items()])


@click.command()
@click.argument("name", required=False)
@click.option("--show", is_flag=True, help="With NAME: print all settings of the method, with their values.")
@_JSON
def methods(name: str | None, show: bool, as_json: bool) -> None:
    """List the methods, or describe one.

    \b
      conbo methods --show conbo
    """
    if name is None:
        if show:
            raise click.UsageError("--show needs the NAME of a method.")
        summaries = conbo.methods()
        click.echo(json.dumps(summaries) if as_json else as_columns(list(summaries.items())))
        return
    from conbo.method_list import listed

    found = listed(name)
    needs = "finitely many states" if found.needs_finite_states else "any states"
    record: dict[str, Any] = {
        "name": name,
        "summary": found.summary,
        "reference": found.reference,
        "needs": f"{needs} and actions" if found.needs_finite_actions else needs,
    }
    if show and as_json:
        from conbo.cli.show_method import settings_record

        record["settings"] = settings_record(name)
    click.echo(json.dumps(record) if as_json else as_columns(list(record.items())))
    if show and not as_json:
        from conbo.cli.show_method import settings_lines

        click.echo("\n" + "\n".join(settings_lines(name)))


@click.command()
@click.argument("name", required=False)
@_JSON
def problems(name: str | None, as_json: bool) -> None:
    """List the test problems, or describe one."""
    if name is None:
        lines = conbo.problems.SUMMARIES
        click.echo(json.dumps(lines) if as_json else as_columns(list(lines.items())))
        return
    from conbo.experiments.problem_names import load_problem

    problem = load_problem(name)
    if as_json:
        click.echo(json.dumps({"name": problem.name, "noise": problem.noise, **problem.space.to_dict()}))
        return
    noise = "depends on state and action" if problem.noise is None else f"standard deviation {shown(problem.noise)}"
    click.echo(as_columns([("problem", problem.name), *parameter_rows(problem.space.to_dict()), ("noise", noise)]))
    click.echo(f"\n{problem.description}" if problem.description else "")
