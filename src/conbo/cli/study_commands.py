"""Commands that begin a study, check its file and run it: `init`, `check`, `run` and `worker`."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import conbo
from conbo.cli.exit_codes import INTERRUPTED, NOTHING_OR_FAILED
from conbo.cli.objectives import (
    checked,
    command_option,
    exits_as_errors,
    source_and_objective,
    timeout_option,
    workers_option,
)
from conbo.cli.study_file import TEMPLATE, read_study_file
from conbo.cli.study_source import (
    STUDY_FILE,
    Source,
    existing_file,
    is_study_file,
    leading_study,
    shell_word,
    study_arguments,
    study_source,
)
from conbo.cli.tables import as_columns, limit_rows, parameter_rows
from conbo.files import write_whole
from conbo.rounding import counted

if TYPE_CHECKING:
    from conbo.study import Study
    from conbo.study.executors import AnyObjective


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path), default=STUDY_FILE)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def init(path: Path, force: bool) -> None:
    """Write a commented study.toml to begin with."""
    _check_ending(str(path))
    if path.exists() and not force:
        raise click.UsageError(f"{path} exists already: --force replaces it.")
    template, word = TEMPLATE.read_text(encoding="utf-8"), shell_word(str(path))
    storage = json.dumps(f"{path.stem}.db", ensure_ascii=False)  # a JSON string is a TOML string
    text = template.replace('"study.db"', storage).replace(STUDY_FILE, shell_word(path.name))
    write_whole(path, text)
    click.echo(
        f"Wrote {path}. Set the states and actions there, then run a function of state and action, or any program:\n"
        f"  conbo run {word} simulator.py:reward\n"
        f'  conbo run {word} --command "./simulator {{demand}} {{stock}}"'
    )


@click.command()
@study_arguments("[STUDY.toml]")
def check(arguments: tuple[str, ...], name: str | None) -> None:
    """Check a study file, and print what it describes.

    If the study exists already, its settings must agree with the file.
    """
    (text,) = leading_study(arguments)
    _check_ending(text)
    study_file = read_study_file(existing_file(text))
    source = Source(text, name, study_file)
    kept = "not yet"
    if source.is_begun:
        completed = sum(trial.status == "completed" for trial in source.stored().trials)
        kept = f"with {counted(completed, 'evaluation')}"
    rows = [
        ("study", f"{name or study_file.name}, {study_file.direction} by {study_file.method}"),
        *parameter_rows(study_file.space.to_dict()),
        *limit_rows(study_file.record),
        ("kept in", f"{study_file.storage}, {kept}"),
    ]
    click.echo(as_columns(rows))
    click.echo(f"{text} is right.")


def _check_ending(source: str) -> None:
    if not is_study_file(source):
        raise click.UsageError(f"A study file ends in .toml, but got '{source}'.")


def _evaluation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add to a command the options that `run` and `worker` share."""
    options = (
        study_arguments("[STUDY] [OBJECTIVE]"),
        command_option,
        click.option(
            "-n",
            "--evaluations",
            metavar="N",
            type=click.IntRange(1),
            help="Number of completed evaluations of the study, in total; 80 without --budget.",
        ),
        click.option(
            "--budget",
            metavar="COST",
            type=click.FloatRange(0, min_open=True),
            help="What all evaluations of the study may cost together; needs a study with `cost`.",
        ),
        click.option(
            "--max-seconds",
            metavar="SECONDS",
            type=click.FloatRange(0, min_open=True),
            help="Begin no more evaluations after this time.",
        ),
        timeout_option("Seconds that an evaluation may take."),
        click.option(
            "--retries",
            metavar="N",
            type=click.IntRange(0),
            default=0,
            help="Number of times a failed evaluation is repeated.",
        ),
        click.option(
            "--max-lost-workers",
            metavar="N",
            type=click.IntRange(1),
            default=10,
            show_default=True,
            help="A trial fails when this many workers have died while evaluating it.",
        ),
        click.option(
            "--device",
            metavar="NAME",
            default="cpu",
            show_default=True,
            help="Torch device for fitting models and for searches: cpu, or cuda for a GPU.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_evaluation_options
@workers_option
@click.option(
    "--batch",
    metavar="N",
    type=click.IntRange(1),
    help="Number of trials suggested together; all end before the next batch.",
)
@click.option(
    "--stop-below", metavar="GAIN", type=float, help="End when the next evaluation is expected to gain less than this."
)
@click.option(
    "--worth",
    metavar="COST",
    type=float,
    help="Cost that a unit of reward is worth; end when the next evaluation costs more than its gain is worth.",
)
@click.option(
    "--finish",
    type=click.Choice(["best-observed"]),
    help="Spend the last evaluations, one per state, on improving the best observed reward.",
)
@click.option(
    "--on-interrupt",
    type=click.Choice(["wait", "cancel"]),
    default="wait",
    show_default=True,
    help="What Ctrl-C does with running evaluations.",
)
def run(
    arguments: tuple[str, ...],
    name: str | None,
    command: str | None,
    timeout: float | None,
    device: str,
    as_json: bool,
    **settings: Any,
) -> int:
    """Evaluate an objective until the study has N evaluations.

    OBJECTIVE is module:function or path/to/file.py:function. The function takes state and action, both dicts, and
    returns the reward, or a dict with "reward" and the other outcomes. With --command, give a program instead. In its
    command line, {x} is replaced by the value of the state or action parameter x. No shell is involved. The last line
    that the program prints is the reward. With common random numbers, the seed is the third argument of the function,
    or {seed} in the command line.

    With a study file, the first run creates the study, and later runs continue it, however the last one ended.
    """
    text, objective = source_and_objective(arguments, command, timeout)
    source = study_source(text, name)
    needed = source.needed
    if source.file is not None:  # checked before the study is created
        checked(objective, source.file.space, source.file.has_seeds, needed)
    study = source.create_or_resume(device)
    if command is None:
        settings["timeout"] = timeout
    return _run(study, objective, needed, as_json, sys.stderr.isatty() and not as_json, **settings)


@click.command()
@_evaluation_options
@click.option(
    "--lease",
    metavar="SECONDS",
    type=float,
    default=60.0,
    show_default=True,
    help="Seconds without a sign of life after which other workers take over a trial.",
)
def worker(
    arguments: tuple[str, ...],
    name: str | None,
    command: str | None,
    timeout: float | None,
    device: str,
    as_json: bool,
    **settings: Any,
) -> int:
    """Join a study that runs elsewhere, and share its evaluations.

    The study must exist: STUDY is its file, or the storage that all workers reach. Start as many workers as you like,
    on any machine, at any time, and stop them as you like: another worker takes over the trials of a stopped one.
    """
    text, objective = source_and_objective(arguments, command, timeout)
    stored = study_source(text, name).stored()
    study = conbo.open_study(stored.storage, stored.name, device=device)
    if command is None:
        settings["timeout"] = timeout
    return _run(study, objective, stored.needed, as_json, False, **settings)


def _run(
    study: "Study", objective: "AnyObjective", needed: list[str], as_json: bool, progress: bool, **settings: Any
) -> int:
    program = checked(objective, study.space, study.common_random_numbers, needed)
    with exits_as_errors():
        summary = study.run(program, progress=progress, **settings)
    if not progress:  # the progress bar already ends with the summary
        click.echo(json.dumps(asdict(summary)) if as_json else str(summary))
    if summary.failed:
        last = [trial for trial in study.trials if trial.status == "failed"][-1]
        click.echo(f"The last failure was trial {last.number}: {last.error}", err=True)
    if summary.stopped == "interrupted":
        return INTERRUPTED
    return NOTHING_OR_FAILED if summary.failed or not summary.completed else 0
