"""Update results/, and the pictures and tables of the docs, from the runs of experiments.

    python scripts/update_reproduction.py                       use the runs in results/
    python scripts/update_reproduction.py out/runs.jsonl.xz ... first add runs from packs or folders to results/

Of several versions of a run, the one made with the method's current settings is kept, and among equals the one that
got farther.  If runs that were made again by changed code have the same scores, the runs of other seeds are confirmed
and do not count as stale any more.  The text of the pages is written by hand, and its few numbers are those of the
tables.  This script writes the blocks between `<!-- name -->` and `<!-- end -->`: those of docs/reproduction.md, the
figure of docs/methods.md, the table of docs/entropy.md, and two blocks of README.md.
"""

import json
import lzma
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from conbo.experiments.alternatives import final_costs
from conbo.experiments.claims import claims_table
from conbo.experiments.confirmation import confirm
from conbo.experiments.drawing import save
from conbo.experiments.figure_drawings import DRAWINGS
from conbo.experiments.goal import goal_table, standing_sentence
from conbo.experiments.method_pictures import PICTURES
from conbo.experiments.paper_figures import FIGURES
from conbo.experiments.run_file import PACK_SUFFIX, Key, Run, pack, read_file, read_folder
from conbo.experiments.staleness import state_counts
from conbo.experiments.suggestion_times import read_times
from conbo.experiments.summary import Comparison, compare, markdown, table, with_error
from conbo.method_table import DEFAULT_METHOD
from conbo.rounding import counted

ROOT = Path(__file__).parents[1]
RESULTS, PICTURES_FOLDER = ROOT / "results", ROOT / "docs/pictures/reproduction"
PAGE, METHODS_PAGE, README = ROOT / "docs/reproduction.md", ROOT / "docs/methods.md", ROOT / "README.md"
ENTROPY_PAGE, ENTROPY = ROOT / "docs/entropy.md", RESULTS / "entropy.json.xz"
TIMES = RESULTS / "suggestion_times.json"
LEAST_NATS = 0.02  # errors of smaller mutual informations are shown in nats, not in percent
README_PROBLEMS = {
    "branin": "Branin (1 + 1)",
    "rosenbrock": "Rosenbrock (1 + 1)",
    "assemble_to_order": "assemble to order (1 + 8)",
    "ambulances": "ambulances (2 + 6)",
}
ALTERNATIVES = """\
Another way is to use another library: Optuna or Ax for a few states one by one, or BoTorch at states drawn from their
distribution P[s]. All get the same number of evaluations. For Optuna and Ax, the table shows the result with the
number of states, in parentheses, that was best in hindsight, which favors them; on the ambulances and on assemble to
order, Ax, which is slow if rewards are noisy, was run only with Optuna's number. Costs are means ± standard errors of
{seeds} (`conbo reproduce alternatives`). These are fewer than in the table above, so the costs of `conbo` differ from
those there, and only large differences are significant: the [reproduction](docs/reproduction.md) has the tests."""
README_METHODS = {"conbo": "`conbo`", "expected-improvement": "expected improvement", "uniform": "random search"}
REFERENCES = {"methods": "uniform"}  # with which method others in a figure are compared, if not with the default
# figures with one table of final costs, instead of one for each of many problems
SUMMARIZED = ("widths", "global", "fresh-functions")


def gathered(sources: Iterable[Path]) -> dict[Key, Run]:
    """Return the runs in results/ and in `sources`.

    Of several versions of a run, the one made with the method's current settings is kept, and among equals the one that
    got farther.
    """
    recipes = {task.settings.key: task.settings.recipe for figure in FIGURES.values() for task in figure.tasks()}

    def worth(run: Run) -> tuple[bool, bool, int]:
        return run.settings.recipe == recipes.get(run.settings.key), run.is_complete, run.evaluations

    runs = read_folder(RESULTS)
    for source in sources:
        found = list(read_folder(source).values() if source.is_dir() else read_file(source))
        confirm(list(runs.values()), found)
        for run in found:
            known = runs.get(run.settings.key)
            if known is None or worth(run) >= worth(known):
                runs[run.settings.key] = run
    old = Counter(run.settings.method for run in runs.values() if not worth(run)[0])
    for method, count in old.items():
        print(f"{count} runs of {method} were made before the method was changed")
    return runs


def by_key(runs: Iterable[Run]) -> dict[Key, Run]:
    return {run.settings.key: run for run in runs}


def write_results(runs: dict[Key, Run]) -> None:
    """Write the runs of each figure to its pack in results/, unless the pack already holds the same runs.

    A run that several figures share is written to the pack of the first of them. A figure without runs of its own has
    no pack.
    """
    left = dict(runs)
    for figure in FIGURES.values():
        mine, path = figure.select(left), RESULTS / f"{figure.name}{PACK_SUFFIX}"
        if not mine:
            path.unlink(missing_ok=True)
        elif not (path.exists() and by_key(mine) == by_key(read_file(path))):
            pack(mine, path)
        left = {key: run for key, run in left.items() if key not in {run.settings.key for run in mine}}
    for key in left:
        print(f"belongs to no figure and is left out: {key}")


def draw(runs: dict[Key, Run]) -> None:
    for name, drawing in PICTURES.items():
        shrink_to(PICTURES_FOLDER / f"{name}.png", drawing())
    for figure in FIGURES.values():
        if complete := figure.shown(runs):
            shrink_to(PICTURES_FOLDER / f"{figure.name}.png", DRAWINGS[figure.name](complete))


def shrink_to(path: Path, figure: object) -> None:
    save(figure, path)
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


def settings_table() -> str:
    rows = [
        [
            "figure",
            "problem",
            "methods",
            "evaluations",
            "of these initial",
            "batch",
            "seeds",
            "test states, at most",
            "times",
        ]
    ]
    for figure in FIGURES.values():
        for sweep in figure.sweeps:
            numbers = sweep.evaluations, sweep.initial, sweep.batch, sweep.seeds, *vars(sweep.scoring).values()
            problems = ", ".join(f"`{problem}`" for problem in sweep.problems)
            rows.append([figure.name, problems, str(len(sweep.methods)), *map(str, numbers)])
    return markdown(rows)


def made_table(runs: dict[Key, Run]) -> str:
    """Return a table of how many runs of each figure are complete, what the current code says of them, and their time.

    The time, in hours, is the wall time of fits and suggestions, without evaluations and scores.
    """
    rows = [["figure", "complete runs", "of", "made by this code", "confirmed", "stale", "hours"]]
    for figure in FIGURES.values():
        mine, states = figure.select(runs), state_counts(figure, runs)
        numbers = [sum(run.is_complete for run in mine), len(figure.tasks())]
        numbers += [states[state] for state in ("made", "confirmed", "stale")]
        rows.append([figure.name, *map(str, numbers), f"{sum(map(seconds_of, mine)) / 3600:.1f}"])
    return markdown(rows)


def seconds_of(run: Run) -> float:
    """Return the seconds that all fits and suggestions of a run took."""
    places = [0, *(checkpoint.evaluations for checkpoint in run.checkpoints)]
    return sum(
        (c.fit_seconds + c.suggest_seconds) * (c.evaluations - before) / run.settings.batch
        for c, before in zip(run.checkpoints, places, strict=False)
        if c.fit_seconds is not None and c.suggest_seconds is not None
    )


def summary_of(comparisons: Iterable[Comparison]) -> str:
    """Return a table of final opportunity costs, by method and problem; the more numerous of these two are its rows."""
    listed = list(comparisons)
    rows = [["final opportunity cost", *(comparison.problem for comparison in listed)]]
    methods = {method for comparison in listed for method in comparison.methods}
    for method in sorted(methods, key=lambda label: re.sub(r"\d+", lambda number: number[0].zfill(3), label)):
        rows.append([method, *(last_cost(c, method) if method in c.costs else "" for c in listed)])
    return markdown(rows if len(methods) >= len(listed) else list(zip(*rows, strict=True)))


def readme_table(runs: dict[Key, Run]) -> str:
    """Return the table of README.md: opportunity costs of three methods on four problems, over shared seeds."""
    rows = [["problem (state + action parameters)", "evaluations", *README_METHODS.values()]]
    found = {(c.problem, c.batch): c for c in compare(run for run in runs.values() if run.is_complete)}
    for problem, words in README_PROBLEMS.items():
        comparison = found[problem, 1].between(*README_METHODS)
        rows.append([words, f"{comparison.evaluations[-1]:.0f}", *(last_cost(comparison, m) for m in README_METHODS)])
    return markdown(rows)


def readme_alternatives(runs: dict[Key, Run]) -> str:
    """Return the comparison with other libraries in README.md; empty if there are no runs.

    It has a table of final opportunity costs, and a picture.
    """
    figure = FIGURES["alternatives"]
    comparisons = compare(figure.shown(runs))
    picture = f"![{figure.title}](docs/pictures/reproduction/{figure.name}.png)"
    seeds = " or ".join(counted(runs, "seed") for runs in sorted({each.runs(DEFAULT_METHOD) for each in comparisons}))
    return "\n\n".join([ALTERNATIVES.format(seeds=seeds), final_costs(comparisons), picture]) if comparisons else ""


def last_cost(comparison: Comparison, method: str) -> str:
    return with_error(float(comparison.mean(method)[-1]), float(comparison.error(method)[-1]))


def blocks(runs: dict[Key, Run]) -> dict[str, str]:
    """Return the generated blocks of docs/reproduction.md, and the block "methods" of docs/methods.md, by name."""
    parts = {"claims": claims_table(runs, read_times(TIMES)), "settings": settings_table(), "made": made_table(runs)}
    parts |= {"goal": goal_table(runs), "goal-as-published": goal_table(runs, as_published=True)}
    parts |= {"standing": standing_sentence(runs), "standing-as-published": standing_sentence(runs, as_published=True)}
    print(parts["made"])
    for figure in FIGURES.values():
        complete = figure.shown(runs)
        against = REFERENCES.get(figure.name, DEFAULT_METHOD)
        compared = compare(complete)
        tables = [summary_of(compared)] if figure.name in SUMMARIZED else [table(c, against) for c in compared]
        picture = f"![{figure.title}](pictures/reproduction/{figure.name}.png)"
        parts[figure.name] = "\n\n".join([picture, *tables]) if complete else "Not run yet."
    return parts


def entropy_table() -> str:
    """Return a table of the errors of the entropy estimates.

    It has separate rows for posteriors like those on which the settings were chosen, and for other posteriors.
    """
    measured = [json.loads(line) for line in lzma.decompress(ENTROPY.read_bytes()).decode().splitlines()]
    half = len(measured) // 2
    head = ["estimate, draws", "posteriors", "cases", "root mean square", "95 % within", "beyond 10 %", "worst"]
    rows = [[*head, f"worst below {LEAST_NATS} nats"]]
    for name in measured[0]["estimates"]:
        for words, some in (("like those for settings", measured[:half]), ("others", measured[half:])):
            about = "y*" if name.startswith("MES") else "x*"
            truth = np.concatenate([np.tile(one["truth"][about], len(one["estimates"][name])) for one in some])
            values = np.concatenate([np.ravel(one["estimates"][name]) for one in some])
            large = truth > LEAST_NATS
            errors = np.abs(values - truth)[large] / truth[large]
            shares = np.sqrt((errors**2).mean()), np.quantile(errors, 0.95), (errors > 0.1).mean(), errors.max()
            small = f"{np.abs(values - truth)[~large].max():.2g}"
            rows.append([name, words, str(large.sum()), *(f"{100 * share:.2g} %" for share in shares), small])
    return markdown(rows)


def write_page(page: Path, parts: dict[str, str]) -> None:
    text = page.read_text(encoding="utf-8")
    for name, content in parts.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, count = pattern.subn(lambda match, c=content: f"{match[1]}{c}\n{match[2]}", text)
        if count != 1:
            sys.exit(f"{page} must have one block `<!-- {name} -->`, but has {count}.")
    page.write_text(text, encoding="utf-8")


def main() -> None:
    runs = gathered(Path(argument) for argument in sys.argv[1:])
    write_results(runs)
    draw(runs)
    parts = blocks(runs)
    write_page(README, {"costs": readme_table(runs), "alternatives": readme_alternatives(runs)})
    write_page(METHODS_PAGE, {"methods": parts.pop("methods")})
    write_page(ENTROPY_PAGE, {"errors": entropy_table() if ENTROPY.exists() else "Not run yet."})
    write_page(PAGE, parts)


if __name__ == "__main__":
    main()
