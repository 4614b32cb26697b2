"""Names and tables for the comparison with alternatives to conbo: random search, BoTorch, and grids of states.

On a grid of k states, another library (Optuna or Ax) searches for the best action of each state on its own; see
`grid_search`. Several values of k are tried, and only the best grid of each library is shown.
"""

from dataclasses import replace

from conbo.experiments.grid_search import Library
from conbo.experiments.summary import Comparison, markdown, with_error
from conbo.rounding import counted

OURS = "conbo, default"  # label of conbo's default method in this figure, which has runs of its own
RANDOM, CONTEXTUAL = "uniform/auto", "botorch EI at drawn states"
LIBRARIES: tuple[Library, ...] = ("optuna", "ax")
NAMES = {OURS: "conbo", RANDOM: "random search with conbo's model", CONTEXTUAL: "BoTorch: EI at states drawn from P[s]"}
GRIDS = {"optuna": "Optuna: k states, each on its own", "ax": "Ax: k states, each on its own"}

# numbers k of grid states that are tried, by problem; the one with the lowest final cost is shown
GRID_SIZES = {
    "branin": (3, 5, 8, 12),
    "ambulances": (1, 4, 9),
    "assemble_to_order": (1, 2, 4, 8),
    "cifar_cnn_table": (1, 5),
}


def best_grid(comparison: Comparison, library: str) -> str | None:
    """The label of the library's best grid of states, by final mean cost; None if the library has no runs."""
    mine = [label for label in comparison.methods if label.startswith(f"{library} k=")]  # the best first
    return mine[0] if mine else None


def in_words(comparison: Comparison) -> Comparison:
    """The same comparison, with names in words instead of labels, and with only each library's best grid of states."""
    shown = {label: name for label, name in NAMES.items() if label in comparison.costs}
    for library, name in GRIDS.items():
        if (best := best_grid(comparison, library)) is not None:
            shown[best] = name.replace("k states", f"{best.partition('=')[2]} states")
    return replace(
        comparison,
        costs={name: comparison.costs[label] for label, name in shown.items()},
        fit_seconds={name: comparison.fit_seconds[label] for label, name in shown.items()},
        suggest_seconds={name: comparison.suggest_seconds[label] for label, name in shown.items()},
    )


def final_costs(comparison: Comparison) -> str:
    """A Markdown table of the final opportunity costs of conbo and its alternatives.

    Only the best grid of states of each library is in the table.
    """
    shown = in_words(comparison)
    seeds, evaluations = shown.runs(NAMES[OURS]), shown.evaluations[-1]
    rows = [
        [
            f"{comparison.problem.capitalize()}, {evaluations:.0f} evaluations, {counted(seeds, 'seed')}",
            "opportunity cost",
        ]
    ]
    for name in shown.methods:
        rows.append([name, with_error(float(shown.mean(name)[-1]), float(shown.error(name)[-1]))])
    return markdown(rows)
