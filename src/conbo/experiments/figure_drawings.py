"""Draws each figure of the paper from its recorded runs. Needs the extra `plots`."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from conbo.experiments.alternatives import in_words, places_of
from conbo.experiments.drawing import (
    draw_comparisons,
    draw_costs,
    legend_below,
    log_costs,
    methods_of,
    panels,
    style_of,
    styled,
)
from conbo.experiments.problem_names import readable
from conbo.experiments.run_file import Run
from conbo.experiments.summary import Comparison, compare
from conbo.experiments.variants import KNOWLEDGE_GRADIENTS, WIDTHS, swept_label, width_problem

LEAST = 1e-12  # smallest cost that is drawn; lower ones are drawn here, because a log axis cannot show zero


def draw_sweep(runs: Sequence[Run]) -> Figure:
    """Draw costs against evaluations, with a panel for each problem and batch size."""
    return draw_comparisons(compare(runs))


@styled
def draw_widths(runs: Sequence[Run]) -> Figure:
    """Draw final opportunity costs against the width of the state space, with a panel for each test function."""
    found = {comparison.problem: comparison for comparison in compare(runs)}
    functions = sorted({problem.partition(":")[0] for problem in found})
    figure, axes = panels(1, len(functions))
    for panel, function in zip(axes.flat, functions, strict=True):
        present = {w: found[problem] for w in WIDTHS if (problem := width_problem(function, w)) in found}
        for method in dict.fromkeys(method for comparison in present.values() for method in comparison.methods):
            _draw_finals(panel, method, {w: (c, method) for w, c in present.items() if method in c.costs})
        panel.set(title=readable(function), xlabel="width of the state space", xticks=list(present))
        log_costs(panel)
        panel.set_ylabel(_final_label(next(iter(present.values()))))
    legend_below(figure, axes.flat)
    return figure


@styled
def draw_global(runs: Sequence[Run]) -> Figure:
    """Draw final opportunity costs of knowledge-gradient methods against n_z, with a panel for each test function.

    n_z is the number of actions, or of values of the new observation, from which a knowledge gradient is estimated. The
    costs of other methods are horizontal lines.
    """
    comparisons = compare(runs)
    figure, axes = panels(1, len(comparisons))
    for panel, comparison in zip(axes.flat, comparisons, strict=True):
        ticks: set[int] = set()
        for name, sizes in KNOWLEDGE_GRADIENTS.items():
            present = [n for n in sizes if swept_label(name, n) in comparison.costs]
            _draw_finals(panel, name, {n: (comparison, swept_label(name, n)) for n in present})
            ticks |= set(present)
        for method in ("thompson", "conbo", "kg-hybrid/auto", "thompson/auto"):
            if method in comparison.costs:
                _draw_level(panel, comparison, method)
        log_costs(panel)
        panel.set(title=readable(comparison.problem), xlabel="n_z", xscale="log")
        panel.set_xticks(sorted(ticks), labels=[str(n) for n in sorted(ticks)])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_ylabel(_final_label(comparison))
    legend_below(figure, axes.flat)
    return figure


@styled
def draw_methods(runs: Sequence[Run]) -> Figure:
    """Draw the final mean costs of many methods, with a panel for each problem and the best method at its top."""
    comparisons = compare(runs)
    methods = methods_of(comparisons)
    figure, axes = panels(1, len(comparisons))
    for panel, comparison in zip(axes.flat, comparisons, strict=True):
        for place, method in enumerate(comparison.methods):
            mean, error = max(comparison.mean(method)[-1], LEAST), comparison.error(method)[-1]
            color = style_of(method, methods)["color"]
            panel.errorbar(mean, place, xerr=[[min(error, 2 / 3 * mean)], [error]], fmt="o", color=color, capsize=2)
        panel.set_yticks(range(len(comparison.methods)), labels=comparison.methods)
        panel.invert_yaxis()
        panel.set_title(readable(comparison.problem))
        panel.set_xlabel(_final_label(comparison), loc="right")  # centered, it might be cut off at the figure's end
        log_costs(panel, "x")
    return figure


@styled
def draw_batches(runs: Sequence[Run]) -> Figure:
    """Draw costs against evaluations, with a row for each problem and a column for each batch size."""
    comparisons = sorted(compare(runs), key=lambda comparison: (comparison.problem, comparison.batch))
    rows = [list(group) for _, group in groupby(comparisons, key=lambda comparison: comparison.problem)]
    figure, axes = panels(len(rows), max(map(len, rows)))
    for row, panels_of_row in zip(rows, axes, strict=True):
        for comparison, panel in zip(row, panels_of_row, strict=False):
            draw_costs(panel, comparison, methods_of(comparisons))
            size = "one at a time" if comparison.batch == 1 else f"batches of {comparison.batch}"
            panel.set_title(f"{readable(comparison.problem)}, {size}")
        limits = np.array([panel.get_ylim() for panel in panels_of_row[: len(row)]])
        for panel in panels_of_row:
            panel.set_ylim(limits[:, 0].min(), limits[:, 1].max())
    legend_below(figure, axes.flat)
    return figure


@styled
def draw_alternatives(runs: Sequence[Run]) -> Figure:
    """Draw costs of conbo and its alternatives against evaluations, with a panel for each problem."""
    comparisons = [in_words(comparison) for comparison in compare(runs)]
    names = max(len(comparison.methods) for comparison in comparisons)
    columns = min(2, len(comparisons))
    rows = math.ceil(len(comparisons) / columns)
    figure, axes = panels(rows, columns, legend_rows=names * rows)
    for panel in axes.flat[len(comparisons) :]:
        panel.remove()
    for panel, comparison in zip(axes.flat, comparisons, strict=False):
        draw_costs(panel, comparison, places_of(comparison))
        panel.set_title(readable(comparison.problem))
        panel.legend(loc="upper left", bbox_to_anchor=(0, -0.2))  # the numbers of states differ from panel to panel
    return figure


@styled
def draw_networks(runs: Sequence[Run]) -> Figure:
    """Draw the results on the network problem in four panels.

    The first panel shows the policy's cost. The next two show the best observed validation errors after half of the
    evaluations and after all of them, both with and without a final round (one last evaluation in each state). The
    fourth shows the computing time of a suggestion, without that of fitting the model.
    """
    (policy,), (without,), (with_round,) = compare(runs), compare(runs, "best_observed"), compare(runs, "final_round")
    last = policy.evaluations[-1]
    figure, axes = panels(2, 2, legend_rows=2)
    costs, half, full, overhead = axes.flat
    draw_costs(costs, policy)
    costs.set_title("Policy")
    for panel, budget in ((half, last / 2), (full, last)):
        at = int(np.flatnonzero(policy.evaluations == budget)[0])
        for place, method in enumerate(reversed(policy.methods)):
            for comparison, marker, filled in ((without, "o", False), (with_round, "D", True)):
                error, spread = 1 + comparison.mean(method)[at], comparison.error(method)[at]
                color = style_of(method)["color"]
                face = color if filled else "white"
                look = {"fmt": marker, "color": color, "markerfacecolor": face, "capsize": 2}
                panel.errorbar(100 * error, place, xerr=100 * spread, **look)
        panel.set_yticks(range(len(policy.methods)), labels=list(reversed(policy.methods)))
        panel.set(title=f"After {budget:.0f} evaluations", xlabel="best observed validation error, %")
    half.plot([], [], "o", color="grey", markerfacecolor="white", label="without a final round")
    half.plot([], [], "D", color="grey", label="with a final round")
    for place, method in enumerate(reversed(policy.methods)):
        overhead.barh(place, policy.suggest_seconds[method], color=style_of(method)["color"])
    overhead.set_yticks(range(len(policy.methods)), labels=list(reversed(policy.methods)))
    overhead.set(title="Overhead", xlabel="seconds for one suggestion, model fitted")
    legend_below(figure, axes.flat, columns=4)
    return figure


DRAWINGS: dict[str, Callable[[Sequence[Run]], Figure]] = {
    "synthetic": draw_sweep,
    "methods": draw_methods,
    "models": draw_sweep,
    "noise-priors": draw_methods,
    "widths": draw_widths,
    "global": draw_global,
    "ambulances": draw_sweep,
    "assemble-to-order": draw_sweep,
    "batches": draw_batches,
    "common-random-numbers": draw_sweep,
    "cnn": draw_networks,
    "finite": draw_sweep,
    "newer-rivals": draw_sweep,
    "alternatives": draw_alternatives,
    "fresh-seeds": draw_sweep,
    "fresh-functions": draw_sweep,
}


def _draw_finals(axes: Axes, name: str, points: Mapping[float, tuple[Comparison, str]]) -> None:
    """Draw a curve, called `name`, of final mean costs with standard errors.

    `points` maps each x to a comparison and the label of the method in it.
    """
    means = np.array([max(comparison.mean(label)[-1], LEAST) for comparison, label in points.values()])
    errors = np.array([comparison.error(label)[-1] for comparison, label in points.values()])
    low = np.minimum(errors, 2 / 3 * means)  # a log axis cannot show zero
    axes.errorbar(list(points), means, (low, errors), marker="o", markersize=4, capsize=2, label=name, **style_of(name))


def _draw_level(axes: Axes, comparison: Comparison, method: str) -> None:
    """Draw the final mean cost of a method as a horizontal line, with its standard error as a band."""
    mean, error, style = comparison.mean(method)[-1], comparison.error(method)[-1], style_of(method)
    axes.axhline(mean, label=method, **style)
    axes.axhspan(max(mean - error, mean / 3), mean + error, color=style["color"], alpha=0.15, linewidth=0)


def _final_label(comparison: Comparison) -> str:
    return f"{comparison.measure} after {comparison.evaluations[-1]:.0f}"
