"""Verbs that need no model do not wait for torch, SciPy or Numba, and those that need no design not for NumPy.

None of them waits for a last garbage collection.
"""

import json
import subprocess
import sys
from pathlib import Path

# Calls one command after the other, of which none may import what is slow; the first argument says what that is.
WHETHER_TORCH_CAME = """
import json, sys
from conbo.cli import main
for command in json.loads(sys.argv[2]):
    try:
        main(command)
    except SystemExit as end:
        assert not end.code, (command, end.code)
    assert not {*json.loads(sys.argv[1])} & {*sys.modules}, command
    print("done")
"""
SLOW = ["torch", "numba", "scipy", "tqdm"]

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


def conbo(folder: Path, *commands: str, slow: list[str] = SLOW) -> list[str]:
    """What each of the commands prints, which are all called in one new process."""
    words = [json.dumps(slow), json.dumps([command.split() for command in commands])]
    words = [sys.executable, "-c", WHETHER_TORCH_CAME, *words]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *printed, rest = done.stdout.split("done\n")
    assert not rest
    return printed


def test_lists(tmp_path: Path) -> None:
    assert all(conbo(tmp_path, "methods", "methods conbo", "problems"))


def test_a_study_by_hand_up_to_its_initial_design(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY_FILE)
    (tmp_path / "earlier.csv").write_text("demand,shop,stock,reward\n20,a,30,1.5\n")
    asked, *_ = conbo(tmp_path, "ask -n 2", "ask --state demand=50 --state shop=a", "import earlier.csv")
    assert asked.splitlines()[1].startswith("1  demand=")
    told = ("tell study.db 0 2.5", "fail study.db 1 --error broken", "status study.db", "export study.db")
    *_, status, exported = conbo(tmp_path, *told, slow=[*SLOW, "numpy"])
    assert "2 completed, 1 running, 1 failed" in status
    assert len(exported.splitlines()) == 5


def test_a_policy_says_what_takes_long(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY_FILE)
    conbo(tmp_path, "ask", "tell 0 2.5")
    words = [sys.executable, "-c", "from conbo.cli import main; main()", "policy", "--state", "demand=50"]
    done = subprocess.run([*words, "--state", "shop=a"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("Loading torch for the model; this takes a few seconds.\n")
    assert done.stdout.startswith("stock ")
