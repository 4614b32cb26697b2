"""A Dask cluster of separate processes, one of which dies in the middle of an evaluation."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from worker_programs import SPACE, reward

from conbo import Study

N_WORKERS = 3
EVALUATIONS = 30
PATIENCE = 60.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
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
            yield client
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_worker_that_dies_costs_no_trial(client: Client, tmp_path: Path) -> None:
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
    study.run(objective, evaluations=EVALUATIONS, executor=client.get_executor(), progress=False)
    killer.join()

    assert [t.status for t in study.trials] == ["completed"] * EVALUATIONS
    assert all(t.reward == reward(t.state, t.action) for t in study.trials)
    assert len({pid for pid, *_ in calls()}) == N_WORKERS
    assert len(client.scheduler_info()["workers"]) == N_WORKERS - 1
    evaluated = {(float(s), float(x)) for _, s, x in calls()}
    assert evaluated == {(t.state["s"], t.action["x"]) for t in study.trials}, "the same points, again where need be"


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
