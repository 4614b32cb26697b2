"""The command-line interface `conbo`: the list of commands, how they are loaded and run, and their exit codes.

The module of a command is imported only when the command is called, and torch only when it is needed, so that
`conbo --help` is quick. The exit code is 0 for success, 1 for an error, 2 for wrong usage, 3 if there was nothing to do
or evaluations failed, and 130 after an interruption.
"""

import atexit
import gc
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

import conbo
from conbo.cli.exit_codes import INTERRUPTED
from conbo.errors import ConboError
from conbo.notices import listening

# from sections to commands; for each its module and the first line of its help, which a test compares with the command
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Learn": {
        "init": ("study_commands", "Write a commented study.toml to begin with."),
        "check": ("study_commands", "Check a study file, and print what it describes."),
        "run": ("study_commands", "Evaluate an objective until the study has N evaluations."),
        "worker": ("study_commands", "Join a study that runs elsewhere, and share its evaluations."),
    },
    "Learn by hand": {
        "ask": ("trial_commands", "Ask for the points to evaluate next."),
        "tell": ("trial_commands", "Tell the reward of a trial, or the rewards in a file."),
        "fail": ("trial_commands", "Record that a trial will have no reward."),
        "import": ("trial_commands", "Add earlier results from a CSV file."),
        "export": ("trial_commands", "Write all trials as a table, or copy the database."),
    },
    "Look": {
        "status": ("view_commands", "Show a study: its space and its trials; with --model, what the policy is worth."),
        "policy": ("view_commands", "Show the best action for a state, or for a CSV file of states."),
        "plot": ("view_commands", "Draw one picture of a study."),
        "report": ("view_commands", "Write a study as one self-contained HTML page."),
    },
    "Serve": {
        "serve": ("server_commands", "Serve the studies of a database over HTTP, with a dashboard."),
        "token": ("server_commands", "Make a token for the service, or list or revoke tokens."),
    },
    "Prove": {
        "validate": ("proof_commands", "Measure what the policy is worth, by fresh evaluations."),
        "compare": ("proof_commands", "Compare the policy with a rule of your own, such as what is done today."),
    },
    "Try": {
        "demo": ("view_commands", "Learn a policy for the Branin function and draw it."),
        "methods": ("view_commands", "List the methods, or describe one."),
        "problems": ("view_commands", "List the test problems, or describe one."),
        "bench": ("experiment_commands", "Compare methods on a test problem."),
        "reproduce": ("experiment_commands", "Run the experiments of the paper."),
    },
}
# Higher than Python's default thresholds, with which garbage collection takes a tenth of the time of imports.
GC_THRESHOLDS = 200_000, 30, 30
_HOME = {name: home for commands in SECTIONS.values() for name, (home, _) in commands.items()}


class Commands(click.Group):
    """The group of all commands; a command is imported when it is called, and an error is printed as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order in which the help lists them."""
        return list(_HOME)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command and return the command."""
        if cmd_name not in _HOME:
            return None
        members = vars(import_module(f"{__name__}.{_HOME[cmd_name]}")).values()
        return next(m for m in members if isinstance(m, click.Command) and m.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings into the help, without importing them."""
        width = max(map(len, _HOME))
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), line) for name, (_, line) in commands.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run one command and exit with its exit code.

        If `--debug` is anywhere in the arguments, an error other than wrong usage is raised with its traceback instead
        of being printed.
        """
        gc.set_threshold(*GC_THRESHOLDS)
        atexit.register(gc.freeze)  # otherwise the last collections, of what ends anyway, take a tenth of a second
        given = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in given
        arguments = [argument for argument in given if argument != "--debug"]
        color = False if os.environ.get("NO_COLOR") else None  # None stands for color on a terminal only
        with warnings.catch_warnings(), listening(_say):
            warnings.showwarning = _show_warning  # type: ignore[assignment]
            try:
                settings: Any = {"standalone_mode": False, "color": color, **extra}
                code = super().main(arguments, prog_name or "conbo", complete_var, **settings)
            except click.ClickException as error:
                error.show()
                code = error.exit_code
            except click.Abort:
                click.echo("Interrupted.", err=True)
                code = INTERRUPTED
            except Exception as error:
                if debug:
                    raise
                click.echo(f"{click.style('Error:', fg='red')} {_in_words(error)}", err=True, color=color)
                code = 1
        sys.exit(code)


def _in_words(error: Exception) -> str:
    if isinstance(error, ConboError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first} (--debug shows where)"


def _say(line: str) -> None:
    click.echo(line, err=True)


def _show_warning(message: Warning | str, *_: object) -> None:
    click.echo(f"{click.style('Warning:', fg='yellow')} {message}", err=True)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error; for every command.")
@click.version_option(conbo.__version__, "-V", "--version", prog_name="conbo")
def main() -> None:
    """Conditional Bayesian optimization: the best action for every state.

    Commands that need a study find it in study.toml of the current folder, unless their first argument STUDY names
    another study file, or a storage: an SQLite file or a database URL.
    """
