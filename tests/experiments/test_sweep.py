from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from distributed import Client

from conbo.errors import SettingError
from conbo.experiments.run_file import pack, read_folder
from conbo.experiments.scoring import Scoring
from conbo.experiments.sweep import Sweep, recipe_of, sweep
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


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (replace(SMALL, problems=["brainin"]), "unknown problem 'brainin'"),
        (replace(SMALL, methods=[METHODS["scot"]]), "must have finitely many of them"),
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
