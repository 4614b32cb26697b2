"""`conbo bench`, which compares methods, and `conbo reproduce`, which makes the paper's figures.

Both write one file per run to a folder, and continue the runs that an earlier call left there.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from conbo.files import ending

if TYPE_CHECKING:
    from conbo.experiments.runner import Task
    from conbo.experiments.sweep import Changed

Command = TypeVar("Command", bound=Callable[..., Any])

FOLDER = click.Path(path_type=Path, file_okay=False)
EXISTING_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)
FILE = click.Path(path_type=Path, dir_okay=False)
SOME_FAILED = 3
_HOW_TO_READ = (
    "Means over the complete runs ± standard error; mean rank at the last checkpoint (1 is best);{compared} the\n"
    "median time of a fit and of a suggestion."
)
_COMPARED = (
    " how much a method\n"
    "costs above `{against}` at the same seeds (positive is worse), with a bootstrap interval and the p-value of a\n"
    "sign-flip test; the share of the method's evaluations from which on `{against}` stays at its final cost;"
)

_SHARED = (
    click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes; default: all cores."),
    click.option(
        "--minutes", type=click.FloatRange(0), help="Pause after this many minutes; the same call continues later."
    ),
    click.option(
        "--changed",
        type=click.Choice(["stop", "keep", "again"]),
        default="stop",
        show_default=True,
        help="What to do with earlier runs whose method has changed since.",
    ),
    click.option("--pack", type=FILE, help="Also write all runs of the folder to one compressed file (.jsonl.xz)."),
)


def _shared_options(command: Command) -> Command:
    for option in reversed(_SHARED):
        command = option(command)
    return command


@click.command()
@click.argument("problems", metavar="PROBLEM...", nargs=-1)
@click.option(
    "--method",
    "-m",
    "methods",
    multiple=True,
    default=("conbo", "uniform"),
    help="A method to compare; may be repeated.",
)
@click.option("--evaluations", "-n", type=click.IntRange(1), default=40, show_default=True)
@click.option("--initial", type=click.IntRange(1), help="Quasi-random evaluations first; default: 2 d + 2, at most 20.")
@click.option("--seeds", type=click.IntRange(1), default=10, show_default=True, help="Number of runs of each method.")
@click.option(
    "--batch", type=click.IntRange(1), default=1, show_default=True, help="Number of points suggested together."
)
@click.option(
    "--every", type=click.IntRange(1), default=5, show_default=True, help="Number of evaluations between two scores."
)
@click.option(
    "--test-states",
    type=click.IntRange(1),
    default=128,
    show_default=True,
    help="Number of states in which policies are scored.",
)
@click.option(
    "--replications",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Number of simulations in each test state.",
)
@click.option("--out", type=FOLDER, default=Path("out/bench"), show_default=True, help="Folder of the runs.")
@click.option(
    "--summary", type=EXISTING_FOLDER, metavar="DIR", help="Run nothing; compare the runs that are in a folder."
)
@click.option("--against", default="conbo", show_default=True, help="The method that the others are compared with.")
@click.option("--plot", type=FILE, help="Draw scores against evaluations.")
@_shared_options
def bench(
    problems: Sequence[str],
    methods: Sequence[str],
    evaluations: int,
    initial: int | None,
    seeds: int,
    batch: int,
    every: int,
    test_states: int,
    replications: int,
    out: Path,
    summary: Path | None,
    against: str,
    plot: Path | None,
    jobs: int,
    minutes: float | None,
    changed: "Changed",
    pack: Path | None,
) -> None:
    """Compare methods on a test problem.

    PROBLEM is a built-in problem such as branin; a variant of one, such as branin:width=0.5,noise=1; or a
    conbo.problems.Problem of your own, as path/to/file.py:name. With the same seed, all methods begin with the same
    points and get the same noise. Policies are scored by their opportunity cost over P[s], or by their mean reward if
    the best policy is unknown. If a problem has constraints, policies are also scored by the share of states in which
    they violate a constraint.

    \b
      conbo bench branin -m conbo -m revi --seeds 20 --out out/branin
      conbo bench --summary out/branin --against conbo --plot out/branin.png
    """
    if plot is not None:
        _check_picture(plot)
    if summary is not None and problems:
        raise click.UsageError("--summary runs nothing: leave PROBLEM out.")
    if summary is None and not problems:
        raise click.UsageError("a PROBLEM is missing, or --summary DIR.")
    failed = 0
    if summary is None:
        from conbo.experiments.problem_names import load_problem
        from conbo.experiments.scoring import Scoring
        from conbo.experiments.sweep import Sweep
        from conbo.method_table import method
        from conbo.optimizer import Optimizer

        tasks = []
        for name in problems:
            first = initial or Optimizer(load_problem(name).space).initial
            recipes = [method(m) for m in dict.fromkeys(methods)]
            scoring = Scoring(test_states, replications)
            tasks += Sweep([name], recipes, evaluations, first, seeds, batch, every, scoring).tasks()
        failed = _make(sorted(tasks, key=lambda task: task.settings.seed), out, jobs, minutes, changed)
    _show(summary or out, against, plot, problems)
    if pack is not None:
        _pack(summary or out, pack)
    if failed:
        raise SystemExit(SOME_FAILED)


@click.command()
@click.argument("figures", metavar="FIGURE...", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="List the figures.")
@click.option("--quick", is_flag=True, help="A smaller version: minutes instead of hours.")
@click.option("--seeds", type=click.IntRange(1), help="Make only the runs of the first seeds; default: of all seeds.")
@click.option("--stale", is_flag=True, help="Run nothing; list the runs whose code or settings have changed since.")
@click.option(
    "--out", type=FOLDER, help="Folder of runs and figures; default: out/reproduction, or out/reproduction-quick."
)
@_shared_options
def reproduce(
    figures: Sequence[str],
    listed: bool,
    quick: bool,
    seeds: int | None,
    stale: bool,
    out: Path | None,
    jobs: int,
    minutes: float | None,
    changed: "Changed",
    pack: Path | None,
) -> None:
    """Run the experiments of the paper.

    FIGURE is a name that --list shows, or `all`. Runs that are already in the folder are not made again: if you copy
    the packed runs from results/ to the folder, the figures are drawn without any new run. Every run records the
    version, the platform and a fingerprint of the code that it depends on. --stale lists the runs whose code or
    settings have changed since, or whose code was not recorded. A run whose code has changed is not listed if the new
    code has reproduced the scores of runs with the same settings, possibly with other seeds.

    \b
      conbo reproduce --list
      conbo reproduce synthetic --quick
      conbo reproduce --stale --out results
    """
    from conbo.experiments.paper_figures import FIGURES, PICTURES, known_name

    if stale:
        _show_stale([known_name(name) for name in figures if name != "all"], out or Path("out/reproduction"))
        return
    if listed or not figures:
        titles = PICTURES | {name: f"{figure.title} ({len(figure.tasks())} runs)" for name, figure in FIGURES.items()}
        width = max(map(len, titles))
        for name, title in titles.items():
            click.echo(f"{name:<{width}}  {title}")
        return
    folder = out or Path("out/reproduction-quick" if quick else "out/reproduction")
    names = [*PICTURES, *FIGURES] if "all" in figures else [known_name(name) for name in figures]
    chosen = [FIGURES[name] for name in names if name in FIGURES]
    tasks = {task.settings.key: task for figure in chosen for task in figure.tasks(quick, seeds)}
    failed = _make(list(tasks.values()), folder, jobs, minutes, changed) if tasks else 0
    if pack is not None:
        _pack(folder, pack)
    for name in names:
        _draw(name, folder, quick)
    if failed:
        raise SystemExit(SOME_FAILED)


def _show_stale(names: Sequence[str], folder: Path) -> None:
    from conbo.experiments.paper_figures import FIGURES
    from conbo.experiments.run_file import read_folder
    from conbo.experiments.staleness import stale_table

    chosen = [FIGURES[name] for name in names or FIGURES if name in FIGURES]
    click.echo(stale_table(chosen, read_folder(folder)))


def _draw(name: str, folder: Path, quick: bool) -> None:
    from conbo.experiments.paper_figures import FIGURES
    from conbo.experiments.run_file import read_folder

    try:
        from conbo.experiments.drawing import save
        from conbo.experiments.figure_drawings import DRAWINGS
        from conbo.experiments.method_pictures import PICTURES
    except ImportError as error:
        click.echo(f"{name} is not drawn: {error}. `pip install conbo[plots]` helps.", err=True)
        return
    path = folder / f"{name}.png"
    if name in PICTURES:
        save(PICTURES[name](), path)
        click.echo(f"{name}: {path}")
        return
    figure = FIGURES[name]
    runs = [run for run in figure.select(read_folder(folder), quick) if run.is_complete]
    if runs:
        save(DRAWINGS[name](runs), path)
    click.echo(f"{name}: {path if runs else 'not drawn'}, from {len(runs)} of {len(figure.tasks(quick))} runs")


def _make(tasks: "Sequence[Task]", folder: Path, jobs: int, minutes: float | None, changed: "Changed") -> int:
    """Make or continue all runs, and return how many failed; `sweep` explains the arguments."""
    from conbo.experiments.sweep import sweep

    report = sweep(tasks, folder, jobs, minutes=minutes, changed=changed)
    click.echo(f"{report.complete} runs are complete, {report.paused} are paused, {report.failed} failed: {folder}")
    if report.failed:
        click.echo(
            f"The first failure, kept in its run's file; the same call tries again:\n{report.first_failure}", err=True
        )
    return report.failed


def _check_picture(path: Path) -> None:
    """Raise UsageError if scores cannot be drawn in a file with this ending."""
    from conbo.experiments.drawing import endings

    if ending(path) not in endings():
        raise click.UsageError(f"a picture must be saved as one of {', '.join(endings())}, but got '{path}'.")


def _show(folder: Path, against: str, plot: Path | None, problems: Sequence[str]) -> None:
    from conbo.experiments.run_file import read_folder
    from conbo.experiments.summary import caution, compare, table
    from conbo.method_list import DEFAULT_METHOD

    runs = list(read_folder(folder).values())
    comparisons = compare(runs)
    if not comparisons:
        click.echo(f"No run in '{folder}' has a score yet.")
        return
    known = dict.fromkeys(method for comparison in comparisons for method in comparison.costs)
    if against not in known and against != DEFAULT_METHOD:
        raise click.UsageError(f"--against must be one of {', '.join(known)}, but got '{against}'.")
    violations = compare([run for run in runs if any(c.violation is not None for c in run.checkpoints)], "violation")
    for comparison in sorted([*comparisons, *violations], key=lambda one: (one.problem, one.batch)):
        click.echo(f"\n{table(comparison, against)}")
        if comparison in violations:
            continue
        if truth := _truth(comparison.problem, problems):
            click.echo(f"\n{truth}")
    compared = _COMPARED.format(against=against) if against in known else ""
    click.echo(f"\n{_HOW_TO_READ.format(compared=compared)}")
    if warning := caution(comparisons, against):
        click.echo(warning)
    if failed := [run for run in runs if run.failure is not None]:
        click.echo(f"{len(failed)} runs have failed; the last line of their files says why.")
    if plot is not None:
        from conbo.experiments.drawing import draw_comparisons, save

        save(draw_comparisons(comparisons), plot)
        click.echo(f"The picture is in {plot}")


def _truth(name: str, named: Sequence[str]) -> str | None:
    """Return a sentence on how much it is worth to know the state in the problem `name`; None if that is unknown.

    A problem that is defined in a Python file is loaded only if it is in `named`, the problems that the user gave to
    this command. Loading executes the file, and the runs in a folder may come from somebody else.
    """
    from conbo.experiments.problem_names import load_problem
    from conbo.problems.value_of_state import value_of_state
    from conbo.rounding import number

    if name not in named and ".py:" in name:
        return None
    worth = value_of_state(load_problem(name))
    if worth is None:
        return None
    return (
        f"In truth, the best policy earns {number(worth.policy)} and the best single action for all states "
        f"{number(worth.single)}: knowing the state is worth {number(worth.difference)}."
    )


def _pack(folder: Path, path: Path) -> None:
    from conbo.experiments.run_file import pack, read_folder

    runs = read_folder(folder)
    pack(runs.values(), path)
    click.echo(f"{len(runs)} runs are in {path}, {path.stat().st_size / 1024:.0f} KiB")
