import json
from dataclasses import replace

import pytest

from conbo.errors import RecordError
from conbo.experiments.run_file import (
    Checkpoint,
    Run,
    RunSettings,
    Seconds,
    append,
    lines_of,
    open_run,
    pack,
    read_file,
    read_folder,
)
from conbo.trials import Outcomes, Trial

SETTINGS = RunSettings("branin:width=0.5", "conbo-5", "recipe", 3, 2, 1, 5, 16, 1)


def a_run(settings=SETTINGS, trials=3, complete=0):
    rewards = [0.1 * i for i in range(trials)]
    run = Run(settings, complete=complete)
    run.trials = [
        Trial(i, {"s": i / 7}, {"x": 0.3}, status="completed", outcomes=Outcomes(r)) for i, r in enumerate(rewards)
    ]
    run.seconds = {2: Seconds(0.01, 0.25)} if trials > 2 else {}
    run.checkpoints = [Checkpoint(2, 1.5, "opportunity cost")]
    if trials > 2:
        run.checkpoints.append(Checkpoint(trials, 0.5, "opportunity cost", 0.01, 0.25))
    return run


def edited(path, line, **changes):
    """A run whose line (from 1) says something else; a field is removed by None."""
    lines = [json.loads(json.dumps(line)) for line in lines_of(a_run(complete=3))]
    lines[line - 1] = {key: value for key, value in (lines[line - 1] | changes).items() if value is not None}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_what_is_written_is_what_is_read(tmp_path):
    path = tmp_path / SETTINGS.file_name
    append(path, *lines_of(a_run()))
    (run,) = read_file(path)
    assert run == a_run()
    assert run.evaluations == 3
    assert not run.is_complete


def test_lines_are_plain_and_versioned(tmp_path):
    path = tmp_path / "run.jsonl"
    append(path, *lines_of(a_run()))
    first, second, *_ = map(json.loads, path.read_text().splitlines())
    assert (first["format"], first["version"], first["problem"]) == ("conbo-run", 1, "branin:width=0.5")
    assert second == {"trial": 0, "state": {"s": 0.0}, "action": {"x": 0.3}, "reward": 0.0}


def test_file_names_are_readable_and_harmless():
    assert SETTINGS.file_name == "branin_width=0.5~conbo-5~003.jsonl"
    other = RunSettings("../a b.py:f", "kg n_z=3", "", 0, 2, 4, 5, 16, 1)
    assert other.file_name == ".._a_b.py_f~kg_n_z=3~batch-4~000.jsonl"


def test_a_half_written_line_is_forgotten(tmp_path):
    path = tmp_path / SETTINGS.file_name
    append(path, *lines_of(a_run(trials=2)))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"trial": 2, "state": {"s"')
    (seen,) = read_file(path)
    assert len(seen.trials) == 2
    assert open_run(path, SETTINGS).trials == seen.trials
    assert path.read_bytes() == whole


def test_an_empty_file_becomes_a_new_run(tmp_path):
    path = tmp_path / SETTINGS.file_name
    path.write_text('{"format": "conbo-')
    assert open_run(path, SETTINGS) == Run(SETTINGS)
    assert next(read_file(path)).settings == SETTINGS


def test_a_failure_is_forgotten_once_the_run_goes_on(tmp_path):
    path = tmp_path / "run.jsonl"
    append(path, *lines_of(a_run(trials=2)), {"failure": "broken"})
    assert next(read_file(path)).failure == "broken"
    append(path, {"trial": 2, "state": {}, "action": {}, "reward": 1.0})
    assert next(read_file(path)).failure is None


def test_a_pack_keeps_the_trials_of_incomplete_runs_only(tmp_path):
    other = RunSettings("branin", "conbo", "recipe", 0, 2, 1, 5, 16, 1)
    pack([a_run(), a_run(other, complete=3)], tmp_path / "runs.jsonl.xz")
    runs = read_folder(tmp_path)
    assert runs[SETTINGS.key] == a_run()
    assert runs[other.key].trials == []
    assert runs[other.key].checkpoints == a_run().checkpoints
    assert runs[other.key].is_complete


def test_packs_of_the_same_runs_are_equal(tmp_path):
    first, second = tmp_path / "a.jsonl.xz", tmp_path / "b.jsonl.xz"
    pack([a_run()], first)
    pack([a_run()], second)
    assert first.read_bytes() == second.read_bytes()


def test_a_file_counts_more_than_a_pack_and_the_longer_of_two_packs_counts(tmp_path):
    pack([a_run(trials=3)], tmp_path / "later.jsonl.xz")
    pack([a_run(trials=5)], tmp_path / "earlier.jsonl.xz")
    assert read_folder(tmp_path)[SETTINGS.key].evaluations == 5
    append(tmp_path / SETTINGS.file_name, *lines_of(a_run(trials=2)))
    assert read_folder(tmp_path)[SETTINGS.key].evaluations == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"trial": 0}\n', "line 1 of '.*other.jsonl': a run must begin with its settings"),
        ('{"format": "conbo-run", "version": 99}\n', "line 1 of .* must be of format conbo-run, version 1"),
        ("not json\n", "line 1 of '.*other.jsonl': a record must be JSON"),
        ("[1, 2]\n", "line 1 of .*: a record must be an object with names, but got"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    path = tmp_path / "other.jsonl"
    path.write_text(text)
    with pytest.raises(RecordError, match=message):
        list(read_file(path))


@pytest.mark.parametrize(
    ("line", "changes", "message"),
    [
        (1, {"seed": "3"}, "line 1 of .*: `seed` must be a whole number from 0 to .*, but got '3'"),
        (1, {"every": None}, "line 1 of .*: `every` must be there, but is missing"),
        (1, {"evry": 5}, "line 1 of .*: `evry` must not be there"),
        (2, {"reward": "high"}, "line 2 of .*: `reward` must be a finite number, but got 'high'"),
        (2, {"state": [1]}, r"line 2 of .*: `state` must be an object with names, but got \[1\]"),
        (
            3,
            {"trial": 0},
            "line 3 of .*: trials must be numbered 0, 1, 2, …, but trial 0 is there twice: two processes",
        ),
        (3, {"trial": 2}, "line 3 of .*: .* but trial 1 is missing: two processes"),
        (4, {"seconds": [0.1]}, r"line 4 of .*: `seconds` must be a list of 2 numbers, but got \[0.1\]"),
        (5, {"score": None}, "line 5 of .*: `score` must be there, but is missing"),
        (6, {"checkpoint": 2}, "line 6 of .*: checkpoints must follow each other, but 2 comes after 2: two processes"),
        (6, {"checkpoint": 4}, "line 6 of .*: a checkpoint must come after its trials, but 4 comes after 3"),
        (7, {"complete": 4}, "line 7 of .*: `complete` must be a whole number from 1 to 3, but got 4"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, line, changes, message):
    with pytest.raises(RecordError, match=message):
        list(read_file(edited(tmp_path / "run.jsonl", line, **changes)))


def test_nan_is_no_reward(tmp_path):
    path = edited(tmp_path / "run.jsonl", 2, reward=float("nan"))
    with pytest.raises(RecordError, match=r"line 2 of .*: a record must hold finite numbers, but got NaN"):
        list(read_file(path))


def test_a_damaged_pack_is_refused(tmp_path):
    path = tmp_path / "runs.jsonl.xz"
    pack([a_run()], path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RecordError, match=r"runs.jsonl.xz' must be a file of runs, but is damaged"):
        list(read_file(path))


def test_the_file_of_another_run_is_not_continued(tmp_path):
    path = tmp_path / "run.jsonl"
    append(path, *lines_of(a_run()))
    with pytest.raises(RecordError, match=r"must hold the run .*seed=4.*, but holds .*seed=3"):
        open_run(path, replace(SETTINGS, seed=4))
    append(path, *lines_of(a_run()))
    with pytest.raises(RecordError, match="must hold one run, but holds 2"):
        open_run(path, SETTINGS)
