import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import get_context

import pytest
from distributed import Client

from conbo.errors import SettingError
from conbo.experiments.run_file import pack, read_folder
from conbo.experiments.run_lock import run_lock
from conbo.experiments.scoring import Scoring
from conbo.experiments.sweep import Sweep, _prepare, recipe_of, sweep
from conbo.method_table import METHODS
from conbo.policies.nearest_neighbors import NearestNeighbors

SMALL = Sweep(["branin", "rosenbrock"], [METHODS["uniform"], METHODS["knn"]], 6, 4, seeds=2, scoring=Scoring(16, 1))


def run(plan, folder, **options):
    return sweep(plan.tasks(), folder, progress=False, **options)


def test_every_problem_meets_every_method_at_every_seed(tmp_path):
    report = run(SMALL, tmp_path)
    assert (report.complete, report.paused, report.failed) == (8, 0, 0)
    assert len(list(tmp_path.glob("*.jsonl"))) == 8
    assert all(r.is_complete for r in read_folder(tmp_path).values())


def test_seeds_come_first_so_that_a_stopped_sweep_compares_all_methods():
    tasks = SMALL.tasks()
    assert [task.settings.seed for task in tasks] == [0] * 4 + [1] * 4
    assert len({task.settings.key for task in tasks}) == 8


def test_processes_and_other_executors_make_the_same_runs(tmp_path):
    run(SMALL, tmp_path / "one")
    run(SMALL, tmp_path / "two", jobs=2)
    with ThreadPoolExecutor(2) as pool:
        run(SMALL, tmp_path / "threads", executor=pool)
        assert pool.submit(int, "1").result() == 1  # it was left open
    trials = [{key: r.trials for key, r in read_folder(tmp_path / name).items()} for name in ("one", "two", "threads")]
    assert trials[0] == trials[1] == trials[2]


def test_a_dask_cluster_makes_the_same_runs(tmp_path):
    run(SMALL, tmp_path / "here")
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        report = run(SMALL, tmp_path / "there", executor=client.get_executor())
    assert report.complete == 8
    here, there = (read_folder(tmp_path / name) for name in ("here", "there"))
    assert {key: r.trials for key, r in here.items()} == {key: r.trials for key, r in there.items()}


def test_complete_runs_are_not_made_again(tmp_path):
    run(replace(SMALL, seeds=1), tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert run(SMALL, tmp_path).complete == 8
    assert all((tmp_path / name).stat().st_mtime_ns == time for name, time in before.items())


def test_a_sweep_without_time_leaves_all_runs_for_later(tmp_path):
    report = run(SMALL, tmp_path, minutes=0)
    assert (report.complete, report.paused) == (0, 8)
    assert run(SMALL, tmp_path).complete == 8


def test_incomplete_runs_are_continued_out_of_a_pack(tmp_path):
    one = replace(SMALL, seeds=1, problems=["branin"])
    run(one, tmp_path / "whole")
    run(replace(one, evaluations=5), tmp_path / "begun")
    begun = read_folder(tmp_path / "begun")
    for unfinished in begun.values():
        unfinished.complete = 0
    pack(begun.values(), tmp_path / "later" / "begun.jsonl.xz")
    assert run(one, tmp_path / "later").complete == 2
    later = read_folder(tmp_path / "later")
    assert {key: r.trials for key, r in later.items()} == {
        key: r.trials for key, r in read_folder(tmp_path / "whole").items()
    }


def test_runs_that_were_packed_when_complete_cannot_be_lengthened(tmp_path):
    one = replace(SMALL, seeds=1, problems=["branin"])
    run(one, tmp_path / "whole")
    pack(read_folder(tmp_path / "whole").values(), tmp_path / "packed" / "runs.jsonl.xz")
    assert run(one, tmp_path / "packed").complete == 2
    with pytest.raises(SettingError, match="was packed after 6 evaluations, without its trials, and cannot go on to 7"):
        run(replace(one, evaluations=7), tmp_path / "packed")


def test_other_settings_need_another_folder(tmp_path):
    run(SMALL, tmp_path)
    with pytest.raises(SettingError, match="made with initial=4 and cannot go on with initial=5: use another folder"):
        run(replace(SMALL, initial=5), tmp_path)


def test_runs_of_a_method_that_changed_since_are_kept_or_made_again_on_demand(tmp_path):
    one = replace(SMALL, seeds=1, problems=["branin"])
    changed = replace(one, methods=[METHODS["uniform"], replace(METHODS["knn"], policy=NearestNeighbors(3))])
    run(one, tmp_path)
    with pytest.raises(SettingError, match="or say what to do with changed runs"):
        run(changed, tmp_path)
    key = changed.tasks()[1].settings.key
    first = read_folder(tmp_path)[key]
    assert run(changed, tmp_path, changed="keep").complete == 2
    assert read_folder(tmp_path)[key] == first
    assert run(changed, tmp_path, changed="again").complete == 2
    second = read_folder(tmp_path)[key]
    assert second.settings.recipe == recipe_of(changed.methods[1]) != first.settings.recipe
    assert second.trials == first.trials  # the data are the same, the policy is another
    assert second.checkpoints != first.checkpoints


# Two sweeps in one folder


def sweep_in_another_process(plan, folder):
    """Starts once both are ready, so that they meet in the first run."""
    (folder.parent / str(os.getpid())).touch()
    while len([path for path in folder.parent.iterdir() if path.name.isdigit()]) < 2:
        time.sleep(0.001)
    return run(plan, folder)


def test_two_sweeps_in_one_folder_make_every_run_once(tmp_path):
    run(SMALL, tmp_path / "alone")
    folder = tmp_path / "sweeps" / "shared"
    folder.mkdir(parents=True)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        reports = [pool.submit(sweep_in_another_process, SMALL, folder) for _ in range(2)]
        assert [report.result().complete for report in reports] == [8, 8]
    alone, shared = (read_folder(path) for path in (tmp_path / "alone", folder))
    assert {key: r.trials for key, r in shared.items()} == {key: r.trials for key, r in alone.items()}
    assert all(path.read_text().count("complete") == 1 for path in folder.glob("*.jsonl"))


def test_a_sweep_waits_for_a_run_that_another_process_makes(tmp_path, monkeypatch, caplog):
    one = replace(SMALL, seeds=1, problems=["branin"])
    held = ExitStack()
    path = tmp_path / one.tasks()[0].settings.file_name
    assert held.enter_context(run_lock(path))
    monkeypatch.setattr(time, "sleep", lambda seconds: held.close())  # the other process ends meanwhile
    assert run(one, tmp_path).complete == 2
    assert "1 runs are being made by another process" in caplog.text
    assert all(r.is_complete for r in read_folder(tmp_path).values())


def test_a_sweep_does_not_wait_longer_than_it_may(tmp_path, monkeypatch):
    one = replace(SMALL, seeds=1, problems=["branin"])
    clock = [0.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.append(clock.pop() + 3600))
    with run_lock(tmp_path / one.tasks()[0].settings.file_name) as ours:
        assert ours
        report = run(one, tmp_path, minutes=1)
    assert (report.complete, report.paused) == (1, 1)


def test_a_lock_dies_with_its_process(tmp_path):
    path = tmp_path / "run.jsonl"
    code = f"""
import time
from pathlib import Path
from conbo.experiments.run_lock import run_lock
with run_lock(Path({str(path)!r})) as ours:
    print(ours, flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "True\n"
        with run_lock(path) as ours:
            assert not ours
        process.kill()
    with run_lock(path) as ours:
        assert ours


def test_runs_that_another_sweep_prepared_meanwhile_are_left_alone(tmp_path):
    one = replace(SMALL, seeds=1, problems=["branin"], methods=[METHODS["knn"]])
    changed = replace(one, methods=[replace(METHODS["knn"], policy=NearestNeighbors(3))])
    run(one, tmp_path)
    before = read_folder(tmp_path)
    run(changed, tmp_path, changed="again")  # as another process would, after this one has read the folder
    (task,) = changed.tasks()
    made = (tmp_path / task.settings.file_name).read_text()
    _prepare(task, before, tmp_path, "again")
    assert (tmp_path / task.settings.file_name).read_text() == made
    assert before == {}  # it is to be looked at again, under its lock


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (replace(SMALL, problems=["brainin"]), "unknown problem 'brainin'"),
        (replace(SMALL, methods=[METHODS["scot"]]), "'scot' must have finitely many states, but 's' is Real"),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_runs(tmp_path, plan, message):
    with pytest.raises(SettingError, match=message):
        run(plan, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"initial": 7}, "`1 <= initial <= evaluations` must hold, but got initial=7, evaluations=6"),
        ({"batch": 0}, "must be at least 1, but got seeds=2, batch=0"),
    ],
)
def test_a_sweep_checks_its_settings(settings, message):
    with pytest.raises(SettingError, match=message):
        replace(SMALL, **settings)
