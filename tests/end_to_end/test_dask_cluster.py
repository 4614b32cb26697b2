"""A Dask cluster of separate processes, any of which may die, or hang, in the middle of an evaluation."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster
from worker_programs import SPACE, reward

from conbo import Study
from conbo.errors import ConboError

N_WORKERS = 3
EVALUATIONS = 30
PATIENCE = 60.0


@dataclass(frozen=True)
class Cluster:
    client: Client
    scheduler: "subprocess.Popen[bytes]"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler and its workers, which find each other through a file, as on several hosts."""
    address = tmp_path / "scheduler.json"
    common = ["--scheduler-file", str(address), "--no-dashboard"]
    commands = [["dask_scheduler", *common, "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]]
    commands += [["dask_worker", *common, "--nthreads", "1", "--no-nanny"]] * N_WORKERS
    with (tmp_path / "cluster.log").open("wb") as log:
        started = [
            subprocess.Popen([sys.executable, "-m", f"distributed.cli.{command}", *options], stdout=log, stderr=log)
            for command, *options in commands
        ]
    try:
        wait_until(address.exists)
        with Client(scheduler_file=str(address)) as client:
            client.wait_for_workers(N_WORKERS, timeout=PATIENCE)
            yield Cluster(client, started[0])
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_worker_that_dies_costs_no_trial(cluster: Cluster, tmp_path: Path) -> None:
    journal = tmp_path / "journal"

    def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
        with journal.open("a") as stream:
            stream.write(f"{os.getpid()} {state['s']!r} {action['x']!r}\n")
        time.sleep(0.1)
        return -((action["x"] - state["s"]) ** 2)

    def calls() -> list[list[str]]:
        return [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []

    def kill_a_worker_in_the_middle() -> None:
        wait_until(lambda: len(calls()) > EVALUATIONS // 2)
        os.kill(int(calls()[-1][0]), signal.SIGKILL)

    killer = threading.Thread(target=kill_a_worker_in_the_middle)
    killer.start()
    study = Study(SPACE, method="uniform", storage=str(tmp_path / "dask.db"))
    study.run(objective, evaluations=EVALUATIONS, executor=cluster.client.get_executor(), progress=False)
    killer.join()

    assert [t.status for t in study.trials] == ["completed"] * EVALUATIONS
    assert all(t.reward == reward(t.state, t.action) for t in study.trials)
    assert len({pid for pid, *_ in calls()}) == N_WORKERS
    assert len(cluster.client.scheduler_info()["workers"]) == N_WORKERS - 1
    evaluated = {(float(s), float(x)) for _, s, x in calls()}
    assert evaluated == {(t.state["s"], t.action["x"]) for t in study.trials}, "the same points, again where need be"


def test_a_trial_that_kills_its_workers_fails_but_teaches_nothing() -> None:
    def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
        if action["x"] > 0.5:
            os.kill(os.getpid(), signal.SIGKILL)  # as for lack of memory
        return -((action["x"] - state["s"]) ** 2)

    study, impatient = Study(SPACE, method="uniform"), {"distributed.scheduler.allowed-failures": 0}
    with (
        dask.config.set(impatient),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as workers,
        Client(workers) as client,
    ):
        study.run(objective, evaluations=1, executor=client.get_executor(), progress=False)
        while all(trial.status == "completed" for trial in study.trials):
            n = len(study.trials) + 1
            study.run(objective, evaluations=n, executor=client.get_executor(), progress=False)
    (failed,) = [trial for trial in study.trials if trial.status == "failed"]
    assert "KilledWorker" in failed.error
    assert not failed.teaches_failure


def test_a_scheduler_that_dies_ends_the_run_and_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
        time.sleep(0.1)
        return -((action["x"] - state["s"]) ** 2)

    study = Study(SPACE, method="uniform", storage=str(tmp_path / "dask.db"))

    def kill_the_scheduler_in_the_middle() -> None:
        wait_until(lambda: len(study.trials) > EVALUATIONS // 2)
        cluster.scheduler.kill()

    killer = threading.Thread(target=kill_the_scheduler_in_the_middle)
    killer.start()
    with pytest.raises(ConboError, match="the executor"):
        study.run(objective, evaluations=EVALUATIONS, executor=cluster.client.get_executor(), progress=False)
    killer.join()

    kept = study.trials
    assert {trial.status for trial in kept} == {"completed", "running"}
    summary = study.run(reward, evaluations=EVALUATIONS, progress=False)
    assert summary.completed == EVALUATIONS - sum(trial.status == "completed" for trial in kept)
    assert [t.status for t in study.trials] == ["completed"] * EVALUATIONS
    assert [t.action for t in study.trials[: len(kept)]] == [t.action for t in kept], "the same points again"
    assert all(t.reward == reward(t.state, t.action) for t in study.trials)


def test_a_worker_is_given_nothing_while_its_evaluation_goes_on_after_a_time_out(
    cluster: Cluster, tmp_path: Path
) -> None:
    go_on = tmp_path / "go_on"

    def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
        while not go_on.exists():
            time.sleep(0.01)
        return -((action["x"] - state["s"]) ** 2)

    study = Study(SPACE, method="uniform")
    asked: list[int] = []

    def let_them_go_on() -> None:
        wait_until(lambda: sum(trial.status == "failed" for trial in study.trials) == N_WORKERS)
        time.sleep(0.5)
        asked.append(len(study.trials))
        go_on.touch()

    waker = threading.Thread(target=let_them_go_on)
    waker.start()
    executor = cluster.client.get_executor()
    study.run(objective, evaluations=6, executor=executor, timeout=2.0, progress=False)
    waker.join()
    assert asked == [N_WORKERS]
    assert [trial.status for trial in study.trials] == ["failed"] * N_WORKERS + ["completed"] * 6


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
