"""The profiles are written once for torch, once for the compiled loops and once for the page: all three agree."""

import json
import shutil
import subprocess
from importlib.resources import files

import numpy as np
import pytest
import torch

from conbo.loops import profiles as loops
from conbo.models.profiles import PROFILES
from missing_tools import skip_without

DISTANCES = np.concatenate([[0.0, 1e-160, 1e-8], np.linspace(0.01, 40, 200)])

SCRIPT = """
const distances = JSON.parse(require("fs").readFileSync(0, "utf8"));
const table = Object.fromEntries(Object.entries(PROFILES).map(([name, { value, slopes }]) => [
  name, distances.map((r) => { const { psi, chi } = slopes(r * r); return [value(r * r), psi, chi]; }),
]));
console.log(JSON.stringify(table));
"""


def in_torch(name: str) -> np.ndarray:
    """φ, ψ and χ at all distances: (distances, 3)."""
    tables = PROFILES[name].tables(torch.from_numpy(DISTANCES**2))
    return torch.stack(tables, -1).numpy()


def test_all_languages_know_the_same_profiles() -> None:
    assert set(loops.PROFILES) == set(PROFILES)


@pytest.mark.parametrize("name", PROFILES)
def test_the_loops_compute_what_torch_computes(name: str) -> None:
    a, b, c, g = loops.coefficients(name)
    r = DISTANCES
    decay = np.exp(-(a * r + b * r**2))
    by_loops = np.stack([(1 + a * r + c * r**2) * decay, g * (1 + a * r) * decay, g * decay], -1)
    np.testing.assert_allclose(by_loops, in_torch(name), rtol=1e-12, atol=1e-300)


def test_the_page_computes_what_torch_computes() -> None:
    node = shutil.which("node") or skip_without("Node.js", "apt-get install nodejs")
    program = files("conbo.reports").joinpath("profiles.js").read_text(encoding="utf-8") + SCRIPT
    done = subprocess.run(
        [node, "-e", program], input=json.dumps(DISTANCES.tolist()), capture_output=True, text=True, check=True
    )
    table = json.loads(done.stdout)
    assert set(table) == set(PROFILES)
    for name, rows in table.items():
        np.testing.assert_allclose(np.array(rows), in_torch(name), rtol=1e-12, atol=1e-300)
