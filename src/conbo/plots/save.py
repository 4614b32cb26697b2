"""Saves figures as PNG, SVG, PDF or HTML files."""

from pathlib import Path

from plotly import graph_objects as go

from conbo.errors import SettingError
from conbo.files import ending, write_whole

KINDS = ("bar", "contour", "heatmap", "scatter")  # kinds of traces that can be saved
ENDINGS = (".png", ".svg", ".pdf")


def save(figure: go.Figure, path: str | Path) -> None:
    """Write a figure of this package to a file.

    Parameters
    ----------
    figure
        A figure that a function of `conbo.plots` returned.
    path
        A file whose name ends in .png, .svg, .pdf or .html. An existing file is overwritten.

    Raises
    ------
    SettingError
        If the file's name has another ending. For files other than .html, also if the figure has a kind of trace that
        `conbo.plots` does not use.
    StorageError
        If the file is an SQLite database.

    Examples
    --------
    >>> conbo.plots.save(conbo.plots.state_coverage(study), "coverage.svg")  # doctest: +SKIP
    """
    path = Path(path)
    check_ending(path)
    if ending(path) == ".html":
        write_whole(path, figure.to_html())
        return
    if other := [trace.type for trace in figure.data if trace.type not in KINDS]:
        raise SettingError(f"a figure must be made of {', '.join(KINDS)} traces to be saved, but got '{other[0]}'.")
    from conbo.plots import matplotlib_figures  # imported here, because it takes a second and reports do not need it

    matplotlib_figures.write(figure, path)


def check_ending(path: Path) -> None:
    """Raise SettingError unless a figure can be saved to a file with this ending, in any case."""
    if ending(path) not in (*ENDINGS, ".html"):
        raise SettingError(f"a figure must be saved as {', '.join(ENDINGS)} or .html, but got '{path}'.")
