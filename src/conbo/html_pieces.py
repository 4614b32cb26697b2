"""Pieces of HTML for notebooks: tables and line plots."""

from collections.abc import Iterable, Sequence
from html import escape

WIDTH, HEIGHT = 360, 140  # size of a line plot in CSS pixels
MARGIN = 8  # between the frame and the edge of a line plot, in CSS pixels


def text(value: object) -> str:
    """Return a value as a string that is escaped for HTML.

    A float has up to twelve significant digits, because it may belong to a parameter with a narrow range.
    """
    return escape(f"{value:.12g}" if isinstance(value, float) else str(value))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return an HTML table with a heading for every column."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def pairs(rows: Iterable[tuple[str, object]], caption: str = "") -> str:
    """Return an HTML table with one row for each pair of a name and a value."""
    body = "".join(f"<tr><th>{escape(name)}</th><td>{text(value)}</td></tr>" for name, value in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<tbody>{body}</tbody></table>"


def line(places: Sequence[float], heights: Sequence[float], description: str) -> str:
    """Return a framed line plot as SVG.

    The line connects points with the x-coordinates `places` and the y-coordinates `heights`, all between 0 and 1.
    `description` is the plot's text alternative.
    """
    width, height = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN
    points = " ".join(
        f"{MARGIN + width * x:.1f},{MARGIN + height * (1 - y):.1f}" for x, y in zip(places, heights, strict=True)
    )
    frame = f'<rect x="{MARGIN}" y="{MARGIN}" width="{width}" height="{height}" fill="none" stroke="#999"/>'
    drawn = f'<polyline points="{points}" fill="none" stroke="#1f6fb4" stroke-width="2"/>'
    label = escape(description, quote=True)
    return f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">{frame}{drawn}</svg>'
