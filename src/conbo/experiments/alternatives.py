"""Names and tables for the comparison with alternatives to conbo: random search, BoTorch, and grids of states.

On a grid of k states, another library (Optuna or Ax) searches for the best action of each state on its own; see
`grid_search`. Several values of k are tried, and only the best grid of each library is shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from conbo.experiments.grid_search import Library
from conbo.experiments.problem_names import readable
from conbo.experiments.summary import Comparison, markdown, with_error
from conbo.method_list import DEFAULT_METHOD

RANDOM, CONTEXTUAL = "uniform/auto", "botorch EI at drawn states"
NAMES = {
    DEFAULT_METHOD: "conbo",
    RANDOM: "random search with conbo's model",
    CONTEXTUAL: "BoTorch: EI at states drawn from P[s]",
}
GRIDS = {"optuna": "Optuna: k states, each on its own", "ax": "Ax: k states, each on its own"}

# The numbers k of grid states that are tried, by library and problem. The one with the lowest final cost is shown.
# A run of Ax with noisy rewards takes up to a quarter of an hour, so fewer k are tried: those that are best for Optuna.
GRID_SIZES: Mapping[Library, Mapping[str, Sequence[int]]] = {
    "optuna": {
        "branin": (3, 5, 8, 12),
        "ambulances": (1, 4, 9),
        "assemble_to_order": (1, 2, 4, 8),
        "cifar_cnn_table": (1, 5),
    },
    "ax": {"branin": (3, 5, 8, 12), "ambulances": (4,), "assemble_to_order": (2,), "cifar_cnn_table": (1, 5)},
}


def best_grid(comparison: Comparison, library: str) -> str | None:
    """The label of the grid of states on which the library has the lowest final mean cost.

    Grids that were not run with all seeds are left out. The result is None if no grid is left.
    """
    seeds = max(map(comparison.runs, comparison.methods))
    mine = [label for label in comparison.methods if label.startswith(f"{library} k=")]  # the best first
    return next((label for label in mine if comparison.runs(label) == seeds), None)


def in_words(comparison: Comparison) -> Comparison:
    """Restrict a comparison to conbo and its alternatives, and replace their labels by readable names.

    Optuna and Ax are run on several grids of states. Only the best grid of each library is kept.
    """
    shown = {label: name for label, name in NAMES.items() if label in comparison.costs}
    for library, name in GRIDS.items():
        if (best := best_grid(comparison, library)) is not None:
            k = best.partition("=")[2]
            alone = name.replace("k states, each on its own", "one action for all states")
            shown[best] = alone if k == "1" else name.replace("k states", f"{k} states")
    return replace(
        comparison,
        costs={name: comparison.costs[label] for label, name in shown.items()},
        fit_seconds={name: comparison.fit_seconds[label] for label, name in shown.items()},
        suggest_seconds={name: comparison.suggest_seconds[label] for label, name in shown.items()},
    )


def places_of(comparison: Comparison) -> list[str]:
    """The names of conbo and its alternatives, in the same order for every comparison.

    This order gives each alternative the same color in all panels of a figure. `comparison` is a result of `in_words`,
    with names such as "Optuna: 5 states, each on its own". If it lacks an alternative, the list has a short name in its
    place, such as "Optuna".
    """
    firsts = [name.partition(":")[0] for name in (*NAMES.values(), *GRIDS.values())]
    present = {name.partition(":")[0]: name for name in comparison.costs}
    return [present.get(first, first) for first in firsts]


def final_costs(comparisons: Sequence[Comparison]) -> str:
    """A Markdown table of the final opportunity costs of conbo and its alternatives, with a column for each problem.

    Optuna and Ax are run on several grids of states. Only the best grid of each library is in the table, with its
    number of states in parentheses.
    """
    rows = [["opportunity cost", *(_evaluations(comparison) for comparison in comparisons)]]
    for label, name in NAMES.items():
        rows.append([name, *(_final_cost(comparison, label) for comparison in comparisons)])
    for library, name in GRIDS.items():
        rows.append([name, *(_final_cost(comparison, best_grid(comparison, library)) for comparison in comparisons)])
    return markdown(rows)


def _evaluations(comparison: Comparison) -> str:
    """The heading of a column: the readable name of the problem, and the number of evaluations in a complete run."""
    return f"{readable(comparison.problem)}, {comparison.evaluations[-1]:.0f} evaluations"


def _final_cost(comparison: Comparison, label: str | None) -> str:
    """The final mean cost of a method with its standard error, or "not run"; for a grid, also its number of states."""
    if label is None or label not in comparison.costs:
        return "not run"
    cost = with_error(float(comparison.mean(label)[-1]), float(comparison.error(label)[-1]))
    states = label.partition(" k=")[2]
    return f"{cost} ({states})" if states else cost
