"""The wheel works outside the checkout."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
TEN_LINES = """
import conbo
assert "site" in conbo.__file__, conbo.__file__
space = conbo.Space(states={"s": conbo.Real(0, 1)}, actions={"x": conbo.Real(0, 1)})
study = conbo.Study(space, method="uniform")
study.run(lambda state, action: -((action["x"] - state["s"]) ** 2), evaluations=20, progress=False)
policy = study.policy()
policy.save("policy.json")
assert abs(conbo.load_policy("policy.json")({"s": 0.5})["x"] - 0.5) < 0.2
assert conbo.problems.ambulances().name == "ambulances"
"""


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("conbo-*.whl")
    ZipFile(wheel).extractall(site)  # as pip does
    assert (site / "conbo" / "py.typed").exists()
    # before the checkout, which is installed editable; what is in the wheel does not depend on compiled loops
    environment = {**os.environ, "PYTHONPATH": str(site), "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", TEN_LINES], check=True, cwd=tmp_path, env=environment)
