from dataclasses import replace

import pytest

from conbo.experiments.confirmation import confirm
from conbo.experiments.origin import is_stale
from conbo.experiments.run_file import Checkpoint, Origin, Run, RunSettings, pack, read_file

SETTINGS = RunSettings("branin", "conbo", "recipe", 0, 2, 1, 5, 16, 1)


def a_run(seed=0, code="old", score=0.5, seconds=0.1, complete=3, platform="Linux x86_64", **settings):
    checkpoints = [Checkpoint(2, 1.5, "opportunity cost"), Checkpoint(3, score, "opportunity cost", 0.01, seconds)]
    origin = Origin("0.2.0", platform, code)
    return Run(replace(SETTINGS, seed=seed, **settings), [origin], checkpoints=checkpoints, complete=complete)


def test_a_run_made_again_with_the_same_scores_confirms_its_row():
    row = [a_run(seed) for seed in range(3)]
    others = [a_run(3, code="older"), a_run(4, method="revi"), a_run(5, batch=4), a_run(6, recipe="another")]
    confirm([*row, *others], [a_run(1, code="new", seconds=9.0)])
    assert not any(is_stale(run, "new") for run in row)
    assert all(is_stale(run, "new") for run in others)
    assert all(is_stale(run, "newer") for run in row)


@pytest.mark.parametrize(
    "again",
    [
        [a_run(1, "new", score=0.5000001)],
        [a_run(1, "new", complete=0)],
        [a_run(0, "new"), a_run(1, "new", score=0.6)],
        [a_run(9, "new")],
        [],
    ],
)
def test_a_row_is_not_confirmed_if_a_run_differs_or_none_is_recorded(again):
    row = [a_run(seed) for seed in range(3)]
    confirm(row, again)
    assert all(is_stale(run, "new") for run in row)


def test_code_that_differs_at_one_seed_says_nothing_about_other_code():
    row = [a_run(0, code="older"), a_run(1), a_run(2)]
    confirm(row, [a_run(0, "new", score=0.6), a_run(1, "new")])
    assert [is_stale(run, "new") for run in row] == [True, False, False]


def test_a_row_is_confirmed_again_after_one_of_its_runs_was_replaced():
    row = [a_run(seed) for seed in range(3)]
    confirm(row, [first := a_run(0, "new")])
    row[0] = first
    confirm(row, [a_run(0, "newer")])
    assert not any(is_stale(run, "newer") for run in row)


def test_code_that_only_continued_a_run_confirms_nothing():
    continued = a_run(0, "old")
    continued.origins.append(Origin("0.2.0", "Linux x86_64", "new"))
    row = [a_run(seed) for seed in range(2)]
    confirm(row, [continued])
    assert all(is_stale(run, "new") for run in row)


def test_runs_of_another_platform_say_nothing():
    row = [a_run(seed) for seed in range(3)]
    confirm(row, [a_run(0, "new", score=0.6, platform="Linux aarch64"), a_run(1, "new")])
    assert not any(is_stale(run, "new") for run in row)
    confirm(row, [a_run(0, "newer", platform="Linux aarch64")])
    assert all(is_stale(run, "newer") for run in row)


def test_confirmations_are_kept_in_packs_and_made_once(tmp_path):
    row = [a_run(seed) for seed in range(2)]
    for _ in range(2):
        confirm(row, [a_run(0, "new"), a_run(1, "new")])
    pack(row, tmp_path / "runs.jsonl.xz")
    assert [run.confirmed for run in read_file(tmp_path / "runs.jsonl.xz")] == [["new"], ["new"]]
    confirm([new := a_run(0, "new")], [a_run(0, "new")])  # the same run from another file
    assert new.confirmed == []
