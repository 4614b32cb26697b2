"""Every example runs, in short, in a folder of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": PATH}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda script: script.stem)
def test_scripts(script: Path, tmp_path: Path) -> None:
    lines = _run(tmp_path, sys.executable, str(script), "--evaluations", "16").splitlines()
    assert len(lines) >= 3, lines  # a table of what was learned


@pytest.mark.slow
def test_a_simulator_that_reads_and_writes_files(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / "external_simulator", tmp_path / "example")
    output = _run(folder, "sh", "learn.sh", "2")
    assert "8 completed, 0 running, 0 failed" in output
    *_, header, low, _, high = output.splitlines()
    assert header == "calls,servers,predicted_reward,predicted_std"
    assert int(low.split(",")[1]) <= int(high.split(",")[1])  # more calls need more servers
