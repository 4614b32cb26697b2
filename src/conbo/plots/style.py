"""The common look of all plots: colors, the layout of a figure, and functions that make traces."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from plotly import graph_objects as go
from plotly.subplots import make_subplots

from conbo.plots.axes import ParameterAxis
from conbo.value_text import number_in_steps

POLICY, MODEL, TRUTH = "#f26419", "#2f7ebc", "#0a9f8f"
INK, QUIET, FAILED, WAITING = "#22223b", "#8d93a5", "#d1345b", "#e0a100"
# colors of a surface, from bad values to good ones
SURFACE = ("#081d58", "#253494", "#225ea8", "#1d91c0", "#41b6c4", "#7fcdbb", "#c7e9b4", "#edf8b1", "#ffffd9")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
GRID = "#e6e8ee"

ROW_HEIGHT, MARGIN_HEIGHT = 210, 120  # height of a row of panels, and of title and axes together, in pixels
MOST_DRAWN = 2000  # largest number of dots or bars of one kind in a plot, because browsers are slow with more
MOST_LARGE = 300  # number of points over a surface above which they are drawn small
BANDS = 16  # largest number of bands of a surface's colors
MOST_TICKS = 6  # largest number of ticks of the color scale
TENTHS = 11  # number of edges between color bands if the ends of the scale are given

_AXIS = {
    "gridcolor": GRID,
    "linecolor": GRID,
    "zeroline": False,
    "ticks": "",
    "exponentformat": "power",
    "minexponent": 6,  # smaller exponents are not written: 100400 rather than 1.004×10⁵
    "ticklabelstandoff": 6,  # so that dots on the axis hide no label, and labels do not touch at the corner
    "title": {"font": {"size": 13}, "standoff": 8},
}
_TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        # Margins grow only on the axis's own side. Otherwise a label that sticks out at a corner would move the plot.
        "xaxis": {**_AXIS, "automargin": "height"},
        "yaxis": {**_AXIS, "automargin": "width"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},  # plotly reserves space for this legend
        "margin": {"l": 16, "r": 24, "t": 16, "b": 16},
        "hoverlabel": {"font": {"family": FONT}},
        "barcornerradius": 2,
    }
)


def canvas(rows: int = 1, columns: int = 1, *, height: int | None = None, **options: Any) -> go.Figure:
    """An empty figure with this number of rows and columns of panels; `height` is in pixels."""
    figure: go.Figure = make_subplots(rows, columns, **options)
    return figure.update_layout(template=_TEMPLATE, height=height or ROW_HEIGHT * rows + MARGIN_HEIGHT)


def line(x: ArrayLike, y: ArrayLike, name: str, color: str, **options: Any) -> go.Scatter:
    """Plotly trace of a line; the options `dash` and `width` are as in plotly."""
    style = {"color": color, "width": options.pop("width", 2.5), "dash": options.pop("dash", "solid")}
    return go.Scatter(x=np.asarray(x), y=np.asarray(y), name=name, mode="lines", line=style, **options)


def band(
    x: ArrayLike, low: ArrayLike, high: ArrayLike, name: str, color: str, opacity: float = 0.22, **options: Any
) -> go.Scatter:
    """Plotly trace of a filled area between two lines."""
    x, low, high = np.asarray(x), np.asarray(low), np.asarray(high)
    return go.Scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([high, low[::-1]]),
        name=name,
        fill="toself",
        fillcolor=faint(color, opacity),
        mode="lines",
        line={"width": 0, "color": color},
        hoverinfo="skip",
        **options,
    )


def dots(x: ArrayLike, y: ArrayLike, name: str, color: str, **options: Any) -> go.Scatter:
    """Plotly trace of points.

    The options `size` and `symbol` are as in plotly; `low` and `high` are the ends of error bars.
    """
    x, y = np.asarray(x), np.asarray(y)
    marker = {"color": color, "size": options.pop("size", 7), "symbol": options.pop("symbol", "circle")}
    marker["line"] = {"color": "#ffffff", "width": options.pop("rim", 1)}
    marker["opacity"] = options.pop("opacity", 1.0)
    low, high = options.pop("low", None), options.pop("high", None)
    if low is not None:
        whiskers = {"type": "data", "symmetric": False, "array": high - y, "arrayminus": y - low}
        options["error_y"] = {**whiskers, "color": faint(color, 0.6), "thickness": 2, "width": 4}
    return go.Scatter(x=x, y=y, name=name, mode="markers", marker=marker, **options)


def evenly(n: int, most: int = MOST_DRAWN) -> NDArray[np.intp]:
    """Evenly spaced indices of n items, from the first to the last: `most` of them, or all n if there are fewer."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.intp))


def with_count(name: str, drawn: int, of: int) -> str:
    """A name for a legend. If only some of the items are drawn, it says how many (`drawn`) of how many (`of`)."""
    return name if drawn == of else f"{name} ({drawn} of {of} drawn)"


def crowd(n: int, opacity: float = 1.0) -> dict[str, Any]:
    """Options of `dots` for n points over a surface: small and faint if there are many, so that they do not hide it."""
    return {"opacity": opacity} if n <= MOST_LARGE else {"opacity": 0.35, "size": 2.5, "rim": 0}


def steps(
    axis: ParameterAxis, bins: ArrayLike, heights: ArrayLike, name: str, color: str, **options: Any
) -> go.Scatter:
    """Plotly trace of a histogram: heights (n,) of n bins along a parameter's axis.

    `bins` (n + 1,) are the edges of the bins in the unit interval, which is the parameter's encoded range.
    """
    edges, heights = axis.edges(np.asarray(bins)), np.asarray(heights)
    gap = 0.1 if axis.is_category else 0.0
    # every bin goes down to zero and up again, so that bars of categories are separate
    x = np.stack([edges[:-1] + gap, edges[:-1] + gap, edges[1:] - gap, edges[1:] - gap], 1).ravel()
    y = np.stack([np.zeros_like(heights), heights, heights, np.zeros_like(heights)], 1).ravel()
    return band(x, np.zeros_like(y), y, name, color, **options)


def surface(
    x: ArrayLike,
    y: ArrayLike,
    z: ArrayLike,
    title: str,
    *,
    smooth: bool,
    high_is_good: bool = True,
    ends: tuple[float, float] | None = None,
    **options: Any,
) -> go.Contour | go.Heatmap:
    """Plotly trace that shows a table of values z as colors; bright is good.

    z has a row for each y and a column for each x. If `smooth` is True, values are interpolated and drawn as bands of
    color; otherwise each value is a cell. If the `ends` of the color scale are not given, the worst values share one
    color, so that a few very bad values do not use up most of the scale.
    """
    z = np.asarray(z, dtype=np.float64)
    levels, clipped = _levels(z, high_is_good) if ends is None else (np.linspace(*ends, TENTHS), False)
    size = float(levels[1] - levels[0])
    bar = {"title": {"text": title, "side": "right"}, "thickness": 12, "outlinewidth": 0}
    colors = SURFACE if high_is_good else SURFACE[::-1]
    kind = go.Contour if smooth else go.Heatmap
    if smooth:
        edges = {"start": float(levels[0]), "end": float(levels[-1]), "size": size}
        options |= {"contours": {**edges, "coloring": "fill"}, "line": {"width": 0}}
    worst_first = levels if high_is_good else levels[::-1]
    ticks = worst_first[:: -(-len(levels) // MOST_TICKS)]
    texts = [_tick_label(level, size) for level in ticks.tolist()]
    if clipped:
        texts[0] = f"{'≤' if high_is_good else '≥'} {texts[0]}"
    return kind(
        x=np.asarray(x),
        y=np.asarray(y),
        z=np.clip(z, levels[0], levels[-1]),
        zmin=float(levels[0]),
        zmax=float(levels[-1]),
        customdata=z,
        hovertemplate="%{customdata:.4~g}<extra></extra>",
        colorscale=[[i / (len(SURFACE) - 1), color] for i, color in enumerate(colors)],
        colorbar={**bar, "tickvals": ticks.tolist(), "ticktext": texts},
        **options,
    )


def _levels(z: NDArray[np.float64], high_is_good: bool) -> tuple[NDArray[np.float64], bool]:
    """The edges of the color bands for values z, and whether the worst value is more than one band beyond the edges.

    The edges are evenly spaced round numbers. Only extremely bad values can lie beyond them: those that are farther
    from the median than the best value is.
    """
    low, median, high = (float(part) for part in (z.min(), np.median(z), z.max()))
    if high_is_good and high > median:
        low = max(low, 2 * median - high)
    elif not high_is_good and low < median:
        high = min(high, 2 * median - low)
    size = _round_step((high - low) / BANDS, abs(high) + abs(low))
    first, last = np.floor(low / size + 1e-9), np.ceil(high / size - 1e-9)
    levels = size * np.arange(first, max(last, first + 1) + 1)
    return levels, bool(z.min() < levels[0] - size if high_is_good else z.max() > levels[-1] + size)


def _round_step(step: float, size: float) -> float:
    """The smallest number of the form 1, 2 or 5 times a power of ten that is at least `step`.

    `size` is the magnitude of the plotted values. If all these values are equal, `step` is zero; it is therefore raised
    to at least a billionth of `size`.
    """
    least = max(step, 1e-9 * size, 1e-300)
    power = 10.0 ** np.floor(np.log10(least))
    return float(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.999 * least))


def _tick_label(value: float, step: float) -> str:
    """Format an edge of a color band with as many decimals as the step between edges needs.

    Very large numbers, and those with a very small step, are formatted by `number_in_steps`.
    """
    if abs(value) >= 1e6 or step < 1e-4:
        return number_in_steps(value, step, 3)
    return f"{value:.{max(0, -int(np.floor(np.log10(step) + 1e-9)))}f}"


def faint(color: str, opacity: float) -> str:
    """Convert a color `#rrggbb` to one with this opacity, in the notation that plotly reads."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
