"""Figures as files, without a browser."""

from pathlib import Path

import pytest
from plotly import graph_objects as go

from conbo import plots
from conbo.errors import SettingError
from conbo.plots.matplotlib_figures import draw
from learned_studies import view

BEGINNINGS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml", ".html": b"<!doctype html>"}


@pytest.mark.parametrize("ending", BEGINNINGS)
def test_endings(ending: str, tmp_path: Path) -> None:
    for path in (tmp_path / f"figure{ending}", tmp_path / f"FIGURE{ending.upper()}"):
        plots.save(plots.slices(view("one_action")), path)
        assert path.read_bytes().startswith(BEGINNINGS[ending])


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    figure = plots.slices(view("one_action"))
    with pytest.raises(SettingError, match=r"must be saved as .png, .svg, .pdf or .html, but got 'figure.bmp'"):
        plots.save(figure, "figure.bmp")
    figure.add_trace(go.Violin(y=[1, 2]))
    with pytest.raises(
        SettingError, match=r"must be made of bar, contour, heatmap, scatter traces .* but got 'violin'"
    ):
        plots.save(figure, tmp_path / "figure.png")


def test_panels_axes_and_legend_are_those_of_the_figure() -> None:
    figure = plots.policy_map(view("mixed"), "load")
    drawn = draw(figure)
    assert [axes.get_ylabel() for axes in drawn.axes] == [f"action {name}" for name in view("mixed").space.actions]
    assert [axes.get_xscale() for axes in drawn.axes] == ["log"] * 4
    assert drawn.axes[1].get_yscale() == "log"
    assert drawn.axes[0].get_xlim() == pytest.approx((1, 1000))
    assert drawn.axes[2].get_yticklabels()[0].get_text() == "fast"
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == ["best action of 80 % of drawn functions", "policy"]
    (policy,) = (line for line in drawn.axes[0].lines if line.get_label() == "policy")
    assert policy.get_ydata() == pytest.approx(figure.data[1].y)
