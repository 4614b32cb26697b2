"""A folder with a study file, and a way to call `conbo` there."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from conbo.cli import main

STUDY_FILE = """
storage = "study.db"
method = "uniform"

[states]
demand = { type = "real", low = 10, high = 100 }

[actions]
stock = { type = "real", low = 0, high = 150 }
"""

SIMULATOR = """
def profit(state, action):
    return 5 * min(state["demand"], action["stock"]) - 2 * action["stock"]

def broken(state, action):
    raise ArithmeticError("no solution")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with study.toml and simulator.py, in which the test runs."""
    (tmp_path / "study.toml").write_text(STUDY_FILE)
    (tmp_path / "simulator.py").write_text(SIMULATOR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # and all that the test adds is forgotten after it
    monkeypatch.delitem(sys.modules, "simulator", raising=False)  # of the test before
    return tmp_path


@pytest.fixture
def conbo() -> Callable[..., Result]:
    """Call a command; its exit code must be the expected one."""

    def call(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, arguments, prog_name="conbo")
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return call
