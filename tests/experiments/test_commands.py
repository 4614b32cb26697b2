import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from conbo.cli import main
from conbo.experiments.run_file import read_folder

OWN = Path(__file__).parent / "own_problems.py"
SMALL = ["-n", "6", "--initial", "4", "--seeds", "2", "--jobs", "1", "--test-states", "8", "--replications", "2"]


@pytest.fixture
def conbo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


def test_bench_compares_methods_and_tells_the_result(conbo):
    result = conbo("bench", "branin", "-m", "uniform", "-m", "knn", *SMALL, "--out", "runs", "--against", "uniform")
    assert result.exit_code == 0, result.output
    assert "4 runs are complete, 0 are paused, 0 failed: runs" in result.output
    assert "### branin: opportunity cost after 6 evaluations" in result.output
    assert "above uniform [95 %]" in result.output
    assert "In truth, the best policy earns -9." in result.output
    assert "Caution: intervals from 2 pairs of runs are too narrow to rely on" in result.output
    assert len(list(Path("runs").glob("*.jsonl"))) == 4


def test_bench_refuses_a_picture_that_it_cannot_draw_before_it_runs(conbo):
    result = conbo("bench", "branin", "-m", "uniform", *SMALL, "--out", "runs", "--plot", "runs.foo")
    assert result.exit_code == 2
    assert "a picture must be saved as one of" in result.output
    assert "but got 'runs.foo'." in result.output.replace("\n", " ")
    assert not Path("runs").exists()


def test_bench_takes_a_problem_of_ones_own(conbo):
    result = conbo("bench", f"{OWN}:noisy", "-m", "uniform", *SMALL, "--out", "runs")
    assert "mean reward after 6 evaluations" in result.output
    assert "In truth" not in result.output  # its best rewards are not known
    assert "Caution" not in result.output  # one method has no interval


def test_bench_of_a_method_for_finitely_many_states_and_actions(conbo):
    result = conbo("bench", "branin_grid", "-m", "gp-c-ocba", *SMALL, "--out", "runs")
    assert "2 runs are complete, 0 are paused, 0 failed: runs" in result.output
    assert "### branin_grid: opportunity cost after 6 evaluations" in result.output
    refused = conbo("bench", "branin", "-m", "gp-c-ocba", *SMALL, "--out", "others")
    assert "'gp-c-ocba' must have finitely many states, but 's' is Real" in refused.output


def test_summary_runs_nothing_plots_and_packs(conbo):
    conbo("bench", "branin", "-m", "uniform", "-m", "knn", *SMALL, "--out", "runs")
    assert "costs above" not in conbo("bench", "--summary", "runs").output  # there is no run of conbo
    assert "costs above `knn` at the same seeds" in conbo("bench", "--summary", "runs", "--against", "knn").output
    refused = conbo("bench", "--summary", "runs", "--against", "nope")
    assert (refused.exit_code, "--against must be one of" in refused.output) == (2, True)
    result = conbo("bench", "--summary", "runs", "--plot", "costs.png", "--pack", "packed/runs.jsonl.xz")
    assert result.exit_code == 0, result.output
    assert "The picture is in costs.png" in result.output
    assert Path("costs.png").read_bytes()[1:4] == b"PNG"
    assert (
        conbo("bench", "--summary", "packed").output.splitlines()[1]
        == "### branin: opportunity cost after 6 evaluations"
    )
    assert read_folder(Path("packed")).keys() == read_folder(Path("runs")).keys()


def test_a_failure_is_told_and_tried_again_on_the_next_call(conbo):
    command = ["bench", f"{OWN}:fragile", "-m", "uniform", *SMALL, "--out", "runs"]
    broken = conbo(*command)
    assert broken.exit_code == 3
    assert "No run in 'runs' has a score yet" in broken.output
    assert "the simulator broke" in broken.output
    Path("repaired").touch()
    assert "2 runs are complete, 0 are paused, 0 failed" in conbo(*command).output


def test_a_sweep_is_made_in_pieces(conbo):
    command = ["bench", "branin", "-m", "uniform", *SMALL, "--out", "runs"]
    assert "0 runs are complete, 2 are paused" in conbo(*command, "--minutes", "0").output
    assert "2 runs are complete, 0 are paused" in conbo(*command).output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bench"], 2, "a PROBLEM is missing, or --summary DIR"),
        (["bench", "branin", "--summary", "."], 2, "leave PROBLEM out"),
        (["bench", "--summary", "."], 0, "No run in '.' has a score yet"),
        (["bench", "--summary", "nowhere"], 2, "Directory 'nowhere' does not exist."),
        (["bench", "branin", "-m", "conbow"], 1, "unknown method 'conbow': did you mean 'conbo'?"),
        (["bench", "brannin"], 1, "unknown problem 'brannin'"),
        (["reproduce", "sintetic"], 1, "unknown figure 'sintetic': did you mean 'synthetic'?"),
    ],
)
def test_wrong_usage_is_told(conbo, arguments, code, message):
    result = conbo(*arguments)
    assert (result.exit_code, message in result.output) == (code, True), result.output


def test_reproduce_lists_its_figures(conbo):
    lines = conbo("reproduce", "--list").output.splitlines()
    assert [line.split()[0] for line in lines] == [
        "per-state", "knowledge-gradients", "penalization", "synthetic", "methods", "models", "noise-priors", "widths",
        "global", "ambulances", "assemble-to-order", "batches", "common-random-numbers", "cnn", "finite",
        "newer-rivals", "alternatives", "fresh-seeds", "fresh-functions",
    ]  # fmt: skip


def test_stale_runs_are_listed_and_nothing_is_run(conbo):
    conbo("bench", "branin", "-m", "uniform", *SMALL, "--out", "runs")
    result = conbo("reproduce", "synthetic", "--stale", "--out", "runs")
    assert result.exit_code == 0, result.output
    assert result.output == "0 of 2 recorded runs are stale.\n"  # they were made just now
    path = Path("runs/branin~uniform~000.jsonl")
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"origin"' not in line))
    assert "no record of the code that made them" in conbo("reproduce", "--stale", "--out", "runs").output


def test_reproduce_draws_pictures_without_runs(conbo):
    result = conbo("reproduce", "knowledge-gradients", "--out", "figures")
    assert result.exit_code == 0, result.output
    assert Path("figures/knowledge-gradients.png").exists()


def test_reproduce_pauses_and_says_what_it_could_draw(conbo):
    result = conbo("reproduce", "widths", "--quick", "--minutes", "0", "--jobs", "1", "--pack", "runs.jsonl.xz")
    assert "0 runs are complete, 24 are paused" in result.output
    assert "widths: not drawn, from 0 of 24 runs" in result.output
    assert Path("out/reproduction-quick").is_dir()
    first = conbo("reproduce", "widths", "--quick", "--seeds", "1", "--minutes", "0", "--jobs", "1")
    assert "0 runs are complete, 12 are paused" in first.output


def test_run_files_are_plain_json_lines(conbo):
    conbo("bench", "branin", "-m", "uniform", *SMALL, "--out", "runs")
    records = [json.loads(line) for line in Path("runs/branin~uniform~000.jsonl").read_text().splitlines()]
    assert [next(iter(record)) for record in records] == [
        "format", "origin", *["trial"] * 4, "checkpoint", "trial", "checkpoint", "trial", "checkpoint", "complete"
    ]  # fmt: skip
