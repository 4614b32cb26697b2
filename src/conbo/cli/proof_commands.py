"""Commands that measure what a policy is worth by fresh evaluations, and compare it with another decision rule."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import conbo
from conbo.cli.exit_codes import NOTHING_OR_FAILED
from conbo.cli.objectives import (
    Program,
    checked,
    command_option,
    exits_as_errors,
    load_function,
    refuse_options,
    source_and_objective,
    timeout_option,
    workers_option,
)
from conbo.cli.study_source import (
    Command,
    is_policy_file,
    leading_study,
    parse_pairs,
    parse_row,
    study_arguments,
    study_source,
)
from conbo.cli.tables import from_rows, read_rows
from conbo.files import ending

if TYPE_CHECKING:
    from conbo.spaces import Space, Value
    from conbo.study.executors import AnyObjective

_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
_EVALUATIONS = 20
FEWEST = 4  # least number of evaluations of two rules, because an interval needs two of each


def _fresh_evaluations(least: int, meaning: str) -> Callable[[Command], Command]:
    """A decorator that adds the options that `validate` and `compare` share.

    The option `--evaluations` is at least `least` and has the help text `meaning`.
    """
    number = click.IntRange(least)
    options = (
        command_option,
        click.option(
            *("-n", "--evaluations"), metavar="N", type=number, default=_EVALUATIONS, show_default=True, help=meaning
        ),
        click.option("--states", "path", type=_EXISTING, help="A .csv or .json file with the states to evaluate in."),
        workers_option,
        timeout_option("Seconds that a program of --command may take."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command()
@study_arguments("[STUDY] [OBJECTIVE]")
@_fresh_evaluations(
    2, f"Number of evaluations, in total; in a space with states, at least {FEWEST}, half of them the policy's."
)
def validate(
    arguments: tuple[str, ...],
    name: str | None,
    command: str | None,
    timeout: float | None,
    evaluations: int,
    path: Path | None,
    workers: int,
    as_json: bool,
) -> int:
    """Measure what the policy is worth, by fresh evaluations.

    OBJECTIVE is the same as for `conbo run`. It is evaluated in fresh states that follow P[s], with the policy's action
    and with the best single action. The results are stored with the study, but not as trials.
    """
    if command is None:
        refuse_options("--command", "timeout")
    source, objective = source_and_objective(arguments, command, timeout)
    study = study_source(source, name).open_existing()
    if study.space.states and evaluations < FEWEST:
        raise click.UsageError(f"-n must be at least {FEWEST} in a space with states, but got {evaluations}.")
    states = _states(study.space, path)
    program = checked(objective, study.space, study.common_random_numbers, list(study.outcome_constraints))
    with exits_as_errors():
        found = study.validate(program, evaluations, states=states, workers=workers, progress=not as_json)
    click.echo(json.dumps(found.to_dict()) if as_json else str(found))
    return NOTHING_OR_FAILED if found.failed else 0


@click.command()
@study_arguments("[STUDY] [RULE]")
@click.option("--action", "pairs", multiple=True, metavar="NAME=VALUE", help="One action for all states, as the RULE.")
@click.option("--objective", metavar="FUNCTION", help="Evaluate module:function or file.py:function in fresh states.")
@_fresh_evaluations(FEWEST, "Number of evaluations, in total; half of them are the policy's.")
@click.option("--label", default="your rule", show_default=True, help="What the rule is called.")
def compare(
    arguments: tuple[str, ...],
    name: str | None,
    pairs: tuple[str, ...],
    objective: str | None,
    command: str | None,
    timeout: float | None,
    evaluations: int,
    path: Path | None,
    workers: int,
    as_json: bool,
    label: str,
) -> int:
    """Compare the policy with a rule of your own, such as what is done today.

    RULE is file.py:function or module:function, a function of the state that returns the action; a .csv file with a
    column for every state and action, in which the row with the nearest state gives the action; or a policy.json. By
    default, the model predicts what the policy and the rule earn; with --objective or --command, both are evaluated in
    the same fresh states.
    """
    if objective is not None and command is not None:
        raise click.UsageError("What to evaluate must be given once: --objective or --command.")
    if objective is None and command is None:
        refuse_options("--objective or --command", "evaluations", "path", "workers")
    if command is None:
        refuse_options("--command", "timeout")
    source, *rules = leading_study(arguments) if pairs else leading_study(arguments, "RULE")
    study = study_source(source, name).open_existing()
    rule = parse_pairs("An action", study.space.actions, pairs) if pairs else _rule(study.space, rules[0])
    evaluated: AnyObjective | None = Program(command, timeout) if command is not None else None
    if objective is not None:
        evaluated = load_function(objective)
    if evaluated is not None:
        needed = list(study.outcome_constraints)
        evaluated = checked(evaluated, study.space, study.common_random_numbers, needed)
    states = _states(study.space, path)
    with exits_as_errors():
        found = study.compare(
            rule, evaluated, evaluations, name=label, states=states, workers=workers, progress=not as_json
        )
    click.echo(json.dumps(found.to_dict()) if as_json else str(found))
    return NOTHING_OR_FAILED if found.validation is not None and found.validation.failed else 0


def _rule(space: "Space", text: str) -> Any:
    if is_policy_file(text):
        return conbo.load_policy(text)
    if ending(path := Path(text)) == ".csv":
        return from_rows(path, read_rows(path), partial(_rule_row, space))
    return load_function(text)


def _rule_row(space: "Space", row: dict[str, Any]) -> "dict[str, Value]":
    state, action = (parse_row(parameters, row) for parameters in (space.states, space.actions))
    return {**space.validate_state(state), **space.validate_action(action)}


def _states(space: "Space", path: Path | None) -> "list[dict[str, Value]] | None":
    if path is None:
        return None
    return from_rows(path, read_rows(path), lambda row: space.validate_state(parse_row(space.states, row)))
