"""The quick version of the paper's synthetic figure, as a user runs it: about two minutes on two cores."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conbo.experiments.run_file import read_folder
from conbo.experiments.summary import compare


@pytest.mark.soak
def test_the_quick_synthetic_figure_is_drawn_and_conbo_leads(tmp_path):
    command = [Path(sys.executable).with_name("conbo"), "reproduce", "synthetic", "--quick", "--jobs", "2"]
    done = subprocess.run([*command, "--out", "figures"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "30 runs are complete, 0 are paused, 0 failed" in done.stdout
    assert (tmp_path / "figures/synthetic.png").stat().st_size > 10_000
    comparisons = compare(read_folder(tmp_path / "figures").values())
    assert [comparison.problem for comparison in comparisons] == ["branin", "rosenbrock"]
    for comparison in comparisons:
        assert comparison.mean("conbo")[-1] < 0.2 * comparison.mean("conbo")[0]
        assert comparison.methods[-1] == "knn"  # by far the worst
    # six pairs of runs: the mean logarithm of the ratio of costs is about -1.8, with a standard error of about 0.5
    ratios = [np.log(c.costs["conbo"][:, -1] / c.costs["uniform"][:, -1]) for c in comparisons]
    assert np.mean(ratios) < 0
