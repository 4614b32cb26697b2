"""A process that compiles and one that finds what is compiled make the same numbers, to the last bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conbo.models import compiled

CLIMB = """
import torch
from conbo.models.action_functions import state_functions
from random_beliefs import belief_with, posterior_of, product_kernel, reals, uniform

space = reals(1, 6)
posterior = posterior_of(belief_with(space, product_kernel(space, 0.5, 0.8), n=40))
functions = state_functions(posterior, uniform(6, 1))
starts = posterior.kernel.actions.scaled(uniform(6, 4, 6, seed=1))
maxima = functions.maximize(starts, torch.zeros(1, dtype=torch.float64), 10)
moments = posterior.moments(uniform(5, 7, seed=2))
print([maxima.actions.tolist(), maxima.mean.tolist(), moments.mean_gradient.tolist()])
"""


@pytest.mark.skipif(not compiled.AVAILABLE, reason="needs the extra `fast`")
def test_compiling_changes_no_bit(tmp_path: Path) -> None:
    search = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": search}

    def climb() -> str:
        return subprocess.run(
            [sys.executable, "-c", CLIMB], env=environment, check=True, capture_output=True
        ).stdout.decode()

    first = climb()
    assert list(tmp_path.rglob("*.nbi"))
    assert climb() == first
