"""`make demo`, in small."""

import sys
from pathlib import Path

import pytest

from conbo import demo
from conbo.errors import SettingError
from conbo.report.plots import draw_surface
from conbo.spaces import Real, Space


def test_the_demo_prints_costs_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "out" / "demo.png"
    arguments = ["--method", "uniform", "--evaluations", "12", "--picture", str(picture)]
    monkeypatch.setattr(sys, "argv", ["demo", *arguments])
    demo.main()
    out = capsys.readouterr().out
    assert "Opportunity cost" in out
    assert "(random search)" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_only_one_state_and_one_action_can_be_drawn() -> None:
    space = Space(actions={"x": Real(0, 1)})
    with pytest.raises(SettingError, match=r"one state and one action, both Real, but got states \[\]"):
        draw_surface(None, space, None)  # type: ignore[arg-type]
