"""Draws comparisons of methods with matplotlib: styles, panels, cost curves and legends. Needs the extra `plots`."""

import io
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from conbo.experiments.problem_names import readable
from conbo.experiments.summary import Comparison
from conbo.files import ending, write_whole

DARK = "#22223b"
OURS = "#f26419"
# color and line style of each method, the same in every picture
STYLES = {
    "conbo": (OURS, "-"),
    "conbo-5": (DARK, "-"),
    "conbo-3": ("#6f73a8", "--"),
    "revi": ("#2b6cb0", "-"),
    "mts": ("#2a9d5c", "-"),
    "peqi": ("#8661c1", "-"),
    "expected-improvement": ("#c2185b", "-"),
    "kg-hybrid": ("#2b6cb0", "--"),
    "kg-monte-carlo": ("#8661c1", "--"),
    "kg-discrete": ("#9a8c98", "--"),
    "thompson": ("#2a9d5c", "--"),
    "uniform": ("#8d8fa3", "-"),
    "policy-gradient": ("#a0703c", "--"),
    "knn": ("#c9a227", "-"),
    "transfer-ei": ("#c2185b", "--"),
    "scot": ("#457b9d", "--"),
    "gp-c-ocba": ("#5f0f40", "-"),
    "pmto": ("#0f4c5c", "-"),
    "ps-bax": ("#606c38", "-"),
    "ae-lsvi": ("#bc6c25", "-"),
}
OTHERS = ("#457b9d", "#bc6c25", "#606c38", "#7f5539", "#5f0f40", "#0f4c5c")
PAGE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": DARK,
    "axes.labelcolor": DARK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": DARK,
    "xtick.color": DARK,
    "ytick.color": DARK,
    "legend.frameon": False,
}
Draw = TypeVar("Draw", bound=Callable[..., Figure])
FEW_DECADES = 30.0  # ratio of the ends of a log axis below which labels between the decades are added
PANEL = (3.7, 3.0)  # width and height of a panel, in inches
LETTERS, LETTERS_OF_LINE = 60, 8  # letters of a legend that fit below a panel, and the width of a line in letters
DOTS_PER_INCH = 150


def styled(draw: Draw) -> Draw:
    """Decorate a function that draws a figure, so that all figures have the same matplotlib settings."""

    @wraps(draw)
    def drawn(*arguments: Any, **options: Any) -> Figure:
        with mpl.rc_context(PAGE):
            return draw(*arguments, **options)

    return cast(Draw, drawn)


def style_of(method: str, methods: Sequence[str] = ()) -> dict[str, Any]:
    """The color and line style of a method, as options of matplotlib.

    Methods in the dict `STYLES` have fixed styles, also with a setting, as in `kg-hybrid n_z=5`. With another model, as
    in `revi/auto`, the line is dotted, and with another prior on the noise, as in `revi noise=auto`, it is dash-dotted.
    All other methods get solid lines in the colors `OTHERS`, by their order in `methods`, which are the methods of all
    panels of the figure.
    """
    name = _base(method)
    if name in STYLES:
        color, dashes = STYLES[name]
        dashes = ":" if "/" in method else "-." if "noise=" in method else dashes
    else:
        unknown = [label for label in methods if _base(label) not in STYLES]
        color, dashes = OTHERS[unknown.index(method) % len(OTHERS)], "-"
    ours = method == "conbo"
    return {"color": color, "linestyle": dashes, "linewidth": 2.4 if ours else 1.4, "zorder": 4 if ours else 3}


def _base(label: str) -> str:
    """The name of the method in a label such as `method/model` or `method noise=auto`."""
    return label.replace("/", " ").split()[0]


def panels(rows: int, columns: int, legend_rows: int = 1) -> tuple[Figure, np.ndarray]:
    """An empty figure with room for a legend below, and its axes (rows, columns)."""
    size = PANEL[0] * columns, PANEL[1] * rows + 0.25 * legend_rows + 0.2
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def methods_of(comparisons: Iterable[Comparison]) -> list[str]:
    """The methods of all comparisons, in alphabetical order."""
    return sorted({method for comparison in comparisons for method in comparison.costs})


def draw_costs(axes: Axes, comparison: Comparison, among: Sequence[str] = ()) -> None:
    """Draw the mean costs of all methods against evaluations, with their standard errors as bands.

    Costs that are negated rewards are drawn as rewards. Other costs get a logarithmic axis if all means are positive.
    Methods without a fixed color (see `style_of`) get one by their order in `among`, by default the methods of this
    comparison. To give a method the same color in every panel of a figure, pass the methods of all panels.
    """
    lowest = min(float(np.nanmin(comparison.mean(method))) for method in comparison.methods)
    for method in comparison.methods:
        mean, error = comparison.mean(method), comparison.error(method)
        style = style_of(method, among or sorted(comparison.methods))
        axes.plot(comparison.evaluations, comparison.sign * mean, label=method, **style)
        low, high = mean - error, mean + error
        if lowest > 0:
            low = np.maximum(low, mean / 3)  # a log axis cannot show zero
        band = comparison.sign * low, comparison.sign * high
        axes.fill_between(comparison.evaluations, *band, color=style["color"], alpha=0.15, linewidth=0)
    if lowest > 0 and comparison.sign > 0:
        log_costs(axes)
    axes.set_xlim(comparison.evaluations[0], comparison.evaluations[-1])
    axes.set_xlabel("evaluations")
    axes.set_ylabel(comparison.measure)


def log_costs(axes: Axes, direction: Literal["x", "y"] = "y") -> None:
    """Make the cost axis logarithmic; add minor labels if its ends differ by less than a factor of `FEW_DECADES`.

    Minor labels are those between the powers of ten. Call this after everything is drawn.
    """
    axes.set(**{f"{direction}scale": "log"})
    axis = axes.xaxis if direction == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axis.set_major_formatter(plain)
    axis.set_minor_formatter(NullFormatter())
    if high / low < FEW_DECADES:
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_minor_formatter(plain)


def legend_below(figure: Figure, axes: Iterable[Axes], columns: int = 5) -> None:
    """Draw one legend for all panels, below them."""
    lines = {label: line for panel in axes for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=columns)


@styled
def draw_comparisons(comparisons: Sequence[Comparison], columns: int = 2) -> Figure:
    """A figure of cost curves, with a panel for each comparison."""
    columns = min(columns, len(comparisons))
    rows = -(-len(comparisons) // columns)
    methods = methods_of(comparisons)
    widest = max(map(len, methods))
    legend_columns = max(2, min(5, columns * LETTERS // (widest + LETTERS_OF_LINE)))
    figure, axes = panels(rows, columns, legend_rows=-(-len(methods) // legend_columns))
    for panel, comparison in zip(axes.flat, comparisons, strict=False):
        draw_costs(panel, comparison, methods)
        batches = f", batches of {comparison.batch}" if comparison.batch > 1 else ""
        panel.set_title(f"{readable(comparison.problem)}{batches}")
    for panel in axes.flat[len(comparisons) :]:
        panel.set_axis_off()
    legend_below(figure, axes.flat, legend_columns)
    return figure


def endings() -> list[str]:
    """The endings of the files in which figures can be saved."""
    kinds = set(Figure().canvas.get_supported_filetypes()) - {"pgf"}  # would be several files, and needs LaTeX
    return [f".{kind}" for kind in sorted(kinds)]


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file, in the format given by the file's extension."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(content := io.BytesIO(), format=ending(path).removeprefix("."), dpi=DOTS_PER_INCH)
    write_whole(path, content.getvalue())
