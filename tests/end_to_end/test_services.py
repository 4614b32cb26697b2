"""`conbo serve` as it is started by hand: several services over one PostgreSQL database."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import conbo
from running_server import JSON, SPACE, Running, reward

STUDY = "/v1/studies/default"
PROGRAM = [sys.executable, "-c", "from conbo.cli import main; main()", "serve", "--port", "0", "--storage"]

Serve = Callable[[str], tuple["subprocess.Popen[str]", Running]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts `conbo serve` over a database."""
    started: list[subprocess.Popen[str]] = []

    def start(storage: str) -> tuple["subprocess.Popen[str]", Running]:
        process = subprocess.Popen([*PROGRAM, storage], stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Without --token-file, only this machine can reach the service")
        address = next(word for line in process.stderr for word in line.split() if word.startswith("http://"))
        return process, Running(int(address.rstrip("/").rpartition(":")[2]), storage)

    yield start
    for process in started:
        process.terminate()
        process.communicate()


@pytest.mark.slow
def test_services_on_one_database_behave_like_workers(new_storage: Callable[[str], str], serve: Serve) -> None:
    storage = new_storage("postgresql")
    study = conbo.Study(SPACE, method="uniform", storage=storage)
    (_, first), (process, second) = serve(storage), serve(storage)

    # the same key and the same result, here and there
    body = {"key": "a", "lease": 600}
    with ThreadPoolExecutor(6) as pool:
        asked = list(pool.map(lambda i: (first, second)[i % 2].post(f"{STUDY}/ask", body).json, range(6)))
    assert {answer["trials"][0]["number"] for answer in asked} == {0}
    for service in (first, second):
        assert service.post(f"{STUDY}/trials/0/tell", {"reward": 1.5}).json["stands"]
    assert second.post(f"{STUDY}/trials/0/tell", {"reward": 2}).status == 409

    # clients of both stop together
    evaluated: Counter[tuple[float, float]] = Counter()

    def counted(state: dict[str, float], action: dict[str, float]) -> float:
        evaluated[state["demand"], action["stock"]] += 1
        return reward(state, action)

    with ThreadPoolExecutor(6) as pool:
        runs = [pool.submit(conbo.Client((first, second)[i % 2].url).run, counted, 13) for i in range(6)]
    assert sum(run.result().completed for run in runs) == 12
    assert set(evaluated.values()) == {1}
    assert sum(evaluated.values()) == 12
    assert [trial.status for trial in study.trials] == ["completed"] * 13

    # a service that is killed takes nothing with it
    held = second.post(f"{STUDY}/ask", {"lease": 0.01}, headers=JSON).json["trials"][0]
    process.kill()
    process.wait()
    again = first.post(f"{STUDY}/ask", {"lease": 600}).json["trials"][0]
    assert (again["number"], again["state"], again["action"]) == (held["number"], held["state"], held["action"])
    assert first.post(f"{STUDY}/trials/{again['number']}/tell", {"reward": 0}).json["stands"]
    assert first.get(STUDY).json["completed"] == 14
