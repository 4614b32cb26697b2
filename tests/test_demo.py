"""`make demo`, in small."""

import sys
from pathlib import Path

import pytest

from conbo import demo


def test_the_demo_prints_costs_draws_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, storage = tmp_path / "out" / "demo.png", tmp_path / "out" / "demo.db"
    arguments = ["--method", "uniform", "--evaluations", "12", "--picture", str(picture), "--storage", str(storage)]
    monkeypatch.setattr(sys, "argv", ["demo", *arguments])
    demo.main()
    first = capsys.readouterr().out
    assert "Opportunity cost" in first
    assert "(random search)" in first
    assert picture.read_bytes().startswith(b"\x89PNG")
    demo.main()
    second = capsys.readouterr().out
    assert f"uniform: goes on from the 12 evaluations in {storage}" in second
    assert next(line for line in second.splitlines() if "(random search)" in line) in first
