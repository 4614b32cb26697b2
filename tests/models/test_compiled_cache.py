"""What is compiled once is found again, never when it is outdated, and makes the same numbers to the last bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conbo import compiler

# Tells whether this process compiled anything, for how many signatures each loop is compiled, and what came out.
RUN = """
import torch
from numba.core import event

import conbo
from conbo.loops import compiling
from conbo.models.action_functions import state_functions
from random_beliefs import belief_with, posterior_of, product_kernel, reals, uniform

space = conbo.Space(states={"s": conbo.Real(0, 1)}, actions={"x": conbo.Real(0, 1)})
study = conbo.Study(space, seed=0, initial=3)
with event.install_recorder("numba:compile") as recorder:
    study.run(lambda state, action: -(state["s"] - action["x"]) ** 2, 5)
print(len(recorder.buffer) > 0, {len(loop.signatures) for loop in compiling.all_loops()})

space = reals(1, 6)
posterior = posterior_of(belief_with(space, product_kernel(space, 0.5, 0.8), n=40))
functions = state_functions(posterior, uniform(6, 1))
starts = posterior.kernel.actions.scaled(uniform(6, 4, 6, seed=1))
maxima = functions.maximize(starts, torch.zeros(1, dtype=torch.float64), 10)
moments = posterior.moments(uniform(5, 7, seed=2))
print([trial.action for trial in study.trials], maxima.actions.tolist(), maxima.mean.tolist())
print(moments.mean_gradient.tolist())
"""

INNER = """
from conbo.compiler import compiled_with

@compiled_with()
def inner(x):
    return x + 1.0
"""
OUTER = """
from conbo.compiler import compiled_with
from inner import inner

@compiled_with()
def outer(x):
    return inner(x)

print(outer(1.0), sum(outer.stats.cache_hits.values()))
"""

pytestmark = pytest.mark.skipif(not compiler.AVAILABLE, reason="needs the extra `fast`")


def python(folder: Path, cache: Path, *arguments: str) -> tuple[list[str], str]:
    """The lines that a new process prints, and what it says on the other stream."""
    search = os.pathsep.join([str(folder), str(Path(__file__).parents[1]), *sys.path])
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": search}
    done = subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True)
    return done.stdout.decode().splitlines(), done.stderr.decode()


def test_a_run_compiles_every_loop_once_says_so_and_makes_the_same_numbers(tmp_path: Path) -> None:
    (_, compiled, *cold), said = python(tmp_path, tmp_path, "-c", RUN)
    assert compiled == "True {1}"
    assert said.count("Compiling inner loops for this machine; this happens once.") == 1
    (_, compiled, *warm), said = python(tmp_path, tmp_path, "-c", RUN)
    assert compiled == "False {1}"
    assert "Compiling" not in said
    assert warm == cold


def test_a_change_of_any_file_of_the_folder_is_noticed(tmp_path: Path) -> None:
    """Numba looks at the file of the outer function only."""
    cache = tmp_path / "cache"
    outer = tmp_path / "outer.py"
    outer.write_text(OUTER)
    (tmp_path / "inner.py").write_text(INNER)
    assert python(tmp_path, cache, str(outer))[0] == ["2.0 0"]
    assert python(tmp_path, cache, str(outer))[0] == ["2.0 1"]
    (tmp_path / "inner.py").write_text(INNER.replace("1.0", "2.0"))
    assert python(tmp_path, cache, str(outer))[0] == ["3.0 0"]
