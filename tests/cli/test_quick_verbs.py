"""Verbs that need no model do not wait for torch, SciPy or Numba, and those that need no design not for NumPy.

None of them waits for a last garbage collection.
"""

import subprocess
import sys
from pathlib import Path

import pytest

WHETHER_TORCH_CAME = """
import atexit, gc, os, sys
from conbo.cli import main
atexit.register(lambda: gc.get_freeze_count() or os._exit(9))
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
slow = {"torch", "numba", "scipy", "tqdm"} | ({"numpy"} if "study.db" in sys.argv else set())
assert not slow & {*sys.modules}
"""

STUDY_FILE = """
method = "conbo"

[states]
demand = { type = "real", low = 10, high = 100 }
shop = { type = "categorical", choices = ["a", "b"] }

[actions]
stock = { type = "real", low = 0, high = 150 }

[distribution]
demand = { type = "normal", mean = 60, sd = 15 }
shop = { type = "weights", weights = { a = 1, b = 2 } }
"""


def conbo(folder: Path, *arguments: str) -> str:
    words = [sys.executable, "-c", WHETHER_TORCH_CAME, *arguments]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("words", [["methods"], ["methods", "conbo"], ["problems"]], ids=" ".join)
def test_lists(tmp_path: Path, words: list[str]) -> None:
    assert conbo(tmp_path, *words)


def test_a_study_by_hand_up_to_its_initial_design(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY_FILE)
    (tmp_path / "earlier.csv").write_text("demand,shop,stock,reward\n20,a,30,1.5\n")
    assert conbo(tmp_path, "ask", "-n", "2").splitlines()[1].startswith("1  demand=")
    conbo(tmp_path, "ask", "--state", "demand=50", "--state", "shop=a")
    conbo(tmp_path, "tell", "study.db", "0", "2.5")
    conbo(tmp_path, "fail", "study.db", "1", "--error", "broken")
    conbo(tmp_path, "import", "earlier.csv")
    assert "2 completed, 1 running, 1 failed" in conbo(tmp_path, "status", "study.db")
    assert len(conbo(tmp_path, "export", "study.db").splitlines()) == 5


def test_a_policy_says_what_takes_long(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY_FILE)
    conbo(tmp_path, "ask")
    conbo(tmp_path, "tell", "0", "2.5")
    words = [sys.executable, "-c", "from conbo.cli import main; main()", "policy", "--state", "demand=50"]
    done = subprocess.run([*words, "--state", "shop=a"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("Loading torch for the model; this takes a few seconds.\n")
    assert done.stdout.startswith("stock ")
