"""Draws plotly figures with matplotlib, so that image files need no browser.

Only the kinds of traces that the plots of this package use are supported, with their panels, axes, titles and legend.
"""

import io
from html import unescape
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray
from plotly import graph_objects as go

from conbo.files import ending, write_whole

PIXELS = 100  # pixels of plotly's layout per inch of matplotlib's figure
POINTS = 0.75  # points of matplotlib's font and marker sizes per pixel of plotly
SHARPNESS = 2  # dots of a PNG per pixel of plotly
PAD = 0.1  # inches around the panels, so that a star at a corner is not cut
WIDTH, HEIGHT = 760, 420
LETTERS = 15  # number of letters of a legend's text that fit into an inch
DASHES: dict[str, Any] = {"dash": (0, (4, 2)), "dot": ":"}
SYMBOLS = {"diamond": "D", "diamond-open": "D", "star": "*", "line-ns-open": "|"}
FONTS: dict[Any, Any] = {"font.family": "sans-serif", "font.size": 13 * POINTS, "svg.fonttype": "none"}


def write(figure: go.Figure, path: Path) -> None:
    """Draw a plotly figure with matplotlib, and save it in the format that the file's ending names."""
    content = io.BytesIO()
    with rc_context(FONTS):
        draw(figure).savefig(content, format=ending(path).removeprefix("."), dpi=PIXELS * SHARPNESS)
    write_whole(path, content.getvalue())


def draw(figure: go.Figure) -> Figure:
    """Convert a plotly figure to a matplotlib figure."""
    layout = figure.layout
    size = (layout.width or WIDTH) / PIXELS, (layout.height or HEIGHT) / PIXELS
    result = Figure(size, layout=ConstrainedLayoutEngine(h_pad=PAD, w_pad=PAD))
    panels = _panels(figure, result)
    for order, trace in enumerate(figure.data):
        axes = panels[_ends(trace)]
        if trace.type in ("contour", "heatmap"):
            image = _surface(axes, trace)
            _color_bar(result, axes, trace, image)
        elif trace.type == "bar":
            _bars(axes, trace)
        else:
            _scatter(axes, trace, 2 + order / 100)
    _legend(result, figure)
    return result


def _ends(trace: Any) -> tuple[str, str]:
    return trace.xaxis or "x", trace.yaxis or "y"


def _panels(figure: go.Figure, result: Figure) -> dict[tuple[str, str], Axes]:
    """The matplotlib axes for every pair of plotly axes in use, placed in rows and columns as plotly places them."""
    pairs = list(dict.fromkeys(_ends(trace) for trace in figure.data))
    sides = {pair: (_axis(figure, pair[0]), _axis(figure, pair[1])) for pair in pairs}
    lefts = sorted({_domain(x)[0] for x, _ in sides.values()})
    tops = sorted({_domain(y)[1] for _, y in sides.values()}, reverse=True)
    heights = {_domain(y)[1]: _domain(y)[1] - _domain(y)[0] for _, y in sides.values()}
    grid = result.add_gridspec(len(tops), len(lefts), height_ratios=[heights[top] for top in tops])
    panels: dict[tuple[str, str], Axes] = {}
    for pair, (x, y) in sides.items():
        axes = result.add_subplot(grid[tops.index(_domain(y)[1]), lefts.index(_domain(x)[0])])
        template = figure.layout.template.layout
        axes.set_axisbelow(True)
        axes.spines[:].set_color(template.xaxis.gridcolor)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(color=template.xaxis.gridcolor, length=0)
        _style_axis(axes, "x", x, template.xaxis.gridcolor)
        _style_axis(axes, "y", y, template.yaxis.gridcolor)
        panels[pair] = axes
    return panels


def _axis(figure: go.Figure, name: str) -> Any:
    return figure.layout[f"{name[0]}axis{name[1:]}"]


def _domain(axis: Any) -> tuple[float, float]:
    return tuple(round(end, 6) for end in axis.domain or (0.0, 1.0))  # type: ignore[return-value]


def _style_axis(axes: Axes, which: Literal["x", "y"], axis: Any, grid: str) -> None:
    """Give one axis the scale, range, ticks and title of plotly's `axis`, and grid lines of the color `grid`."""
    logarithmic = axis.type == "log"
    scaled: Any = axes.xaxis if which == "x" else axes.yaxis
    if logarithmic:
        axes.set(**{f"{which}scale": "log"})
    if axis.range is not None:
        axes.set(**{f"{which}lim": [10.0**end if logarithmic else end for end in axis.range]})
    if axis.tickvals is not None:
        scaled.set_ticks(list(axis.tickvals), labels=[_plain(text) for text in axis.ticktext])
    if axis.tickformat and axis.tickformat.endswith("%"):
        scaled.set_major_formatter(lambda value, _: f"{value:.0%}")
    if axis.showgrid is not False:
        axes.grid(axis=which, color=grid, linewidth=0.8)
    if axis.title.text:
        axes.set(**{f"{which}label": _plain(axis.title.text)})
    if axis.rangemode == "tozero":
        axes.update_datalim([(0, 0)], updatex=which == "x", updatey=which == "y")


def _surface(axes: Axes, trace: Any) -> ScalarMappable:
    x, y, z = (_array(part) for part in (trace.x, trace.y, trace.z))
    colors = LinearSegmentedColormap.from_list("surface", [tuple(pair) for pair in trace.colorscale])
    norm = Normalize(trace.zmin, trace.zmax)
    if trace.type == "heatmap":
        return axes.pcolormesh(x, y, z, cmap=colors, norm=norm, shading="nearest", rasterized=True)
    half = trace.contours.size / 2
    levels = np.arange(trace.contours.start, trace.contours.end + half, trace.contours.size)
    return axes.contourf(x, y, z, levels, cmap=colors, norm=norm)


def _color_bar(result: Figure, axes: Axes, trace: Any, image: ScalarMappable) -> None:
    bar = result.colorbar(image, ax=axes, pad=0.02, aspect=30, ticks=list(trace.colorbar.tickvals))
    bar.set_ticklabels([_plain(text) for text in trace.colorbar.ticktext])
    bar.ax.tick_params(length=0)
    bar.outline.set_visible(False)
    bar.set_label(_plain(trace.colorbar.title.text or ""))


def _bars(axes: Axes, trace: Any) -> None:
    x, y = _array(trace.x), _array(trace.y)
    style = {"color": _color(trace.marker.color), "label": _plain(trace.name or "")}
    if trace.orientation == "h":
        axes.barh(y, x, height=_array(trace.width), left=None if trace.base is None else _array(trace.base), **style)
    else:
        axes.bar(x, y, width=trace.width, **style)


def _scatter(axes: Axes, trace: Any, order: float) -> None:
    x, y = _array(trace.x), _array(trace.y)
    label = _plain(trace.name or "") if trace.showlegend is not False else "_"
    if trace.fill == "toself":
        axes.fill(x, y, color=_color(trace.fillcolor), linewidth=0, label=label, zorder=order)
    elif trace.mode == "lines":
        style: dict[str, Any] = {"solid_capstyle": "butt"}
        style |= {"linestyle": DASHES.get(trace.line.dash, "-"), "linewidth": trace.line.width * POINTS}
        axes.plot(x, y, color=trace.line.color, alpha=trace.opacity, label=label, zorder=order, **style)
    else:
        _dots(axes, trace, x, y, label, order)


def _dots(axes: Axes, trace: Any, x: NDArray[Any], y: NDArray[Any], label: str, order: float) -> None:
    marker = trace.marker
    symbol = SYMBOLS.get(marker.symbol, "o")
    if trace.error_y.array is not None:
        ends = [_array(trace.error_y.arrayminus), _array(trace.error_y.array)]
        color = _color(trace.error_y.color)
        axes.errorbar(x, y, ends, fmt="none", ecolor=color, elinewidth=1.5, capsize=2, zorder=order)
    area = (np.asarray(marker.size, dtype=np.float64) * POINTS) ** 2  # matplotlib measures markers by their area
    style: dict[str, Any] = {
        "color": marker.color,
        "edgecolor": marker.line.color,
        "linewidth": marker.line.width * POINTS,
    }
    if symbol == "|":
        style = {"color": marker.color, "linewidth": 1.5}
    elif "open" in (marker.symbol or ""):
        style = {"facecolor": "none", "edgecolor": marker.color, "linewidth": 1.2}
    axes.scatter(
        x,
        y,
        s=area,
        marker=symbol,
        alpha=marker.opacity,
        label=label,
        zorder=order,
        clip_on=trace.cliponaxis is not False,
        **style,
    )


def _legend(result: Figure, figure: go.Figure) -> None:
    """Draw one legend above all panels, in which each name appears once."""
    found: dict[str, Any] = {}
    for axes in result.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    shown = {trace.name for trace in figure.data if trace.name and trace.showlegend is not False}
    if len(shown) > 0:
        handles = {name: handle for name, handle in found.items() if name in {_plain(n) for n in shown}}
        longest = max(map(len, handles)) + 6
        columns = max(1, min(4, int(result.get_figwidth() * LETTERS / longest)))
        result.legend(handles.values(), handles, loc="outside upper left", ncols=columns, frameon=False)


def _array(values: Any) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)


def _color(text: str) -> Any:
    if not text.startswith("rgba("):
        return text
    red, green, blue, opacity = (float(part) for part in text[5:-1].split(","))
    return red / 255, green / 255, blue / 255, opacity


def _plain(text: str) -> str:
    """Convert plotly's markup for matplotlib: replace HTML escapes and line breaks, and escape dollar signs."""
    return unescape(text.replace("<br>", "\n")).replace("$", r"\$")
