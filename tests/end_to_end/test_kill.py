"""Workers killed with SIGKILL at random moments: nothing acknowledged is lost, and nothing is stuck."""

import json
import random
import sqlite3
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from worker_processes import PATIENCE, Processes, wait_for_growth, wait_until
from worker_programs import (
    LEASE,
    SPACE,
    reward,
    run_for_ever,
    run_in_processes,
    run_programs_in_processes,
    tell_for_ever,
)

from conbo import Study, open_study

ROUNDS_OF_A_STUDY = 10
PAIRS = ((run_for_ever, run_for_ever), (tell_for_ever, tell_for_ever), (run_for_ever, tell_for_ever))
ROUNDS = (
    pytest.param("sqlite", 20),
    pytest.param("postgresql", 5),
    pytest.param("sqlite", 200, marks=pytest.mark.soak),
    pytest.param("postgresql", 50, marks=pytest.mark.soak),
)


@pytest.mark.parametrize(("kind", "rounds"), ROUNDS)
def test_killed_at_random_moments(
    kind: str, rounds: int, new_storage: Callable[[str], str], processes: Processes, tmp_path: Path
) -> None:
    chance = random.Random(f"{kind} {rounds}")
    for first in range(0, rounds, ROUNDS_OF_A_STUDY):
        storage, journal = new_storage(kind), tmp_path / f"{first}.journal"
        pair = PAIRS[first // ROUNDS_OF_A_STUDY % len(PAIRS)]
        workers = [processes.start(program, storage, "uniform", journal) for program in pair]
        killed_by_hand = 0
        for _ in range(min(ROUNDS_OF_A_STUDY, rounds - first)):
            wait_for_a_random_moment(chance, journal, processes)
            which = chance.randrange(2)
            kill(workers[which])
            killed_by_hand += pair[which] is tell_for_ever
            workers[which] = processes.start(pair[which], storage, "uniform", journal)
        wait_for_growth(journal, processes)
        for worker in workers:
            kill(worker)
        killed_by_hand += pair.count(tell_for_ever)
        check(storage, journal, killed_by_hand)


@pytest.mark.parametrize("rounds", [3, pytest.param(30, marks=pytest.mark.soak)])
def test_a_lone_worker_that_is_killed_and_restarted_suggests_what_one_never_killed_does(
    rounds: int, new_storage: Callable[[str], str], processes: Processes, tmp_path: Path
) -> None:
    storage, journal = new_storage("sqlite"), tmp_path / "journal"
    chance = random.Random(rounds)
    for _ in range(rounds):
        worker = processes.start(run_for_ever, storage, "expected-improvement", journal)
        wait_for_growth(journal, processes)
        time.sleep(0.5 * chance.random())
        kill(worker)
    worker = processes.start(run_for_ever, storage, "expected-improvement", journal)
    wait_for_growth(journal, processes)
    kill(worker)

    killed = open_study(storage).trials
    never_killed = Study(SPACE, method="expected-improvement")
    never_killed.run(reward, evaluations=len(killed), progress=False)
    assert [(t.state, t.action) for t in killed] == [(t.state, t.action) for t in never_killed.trials]


def test_the_processes_of_a_killed_run_end_too(processes: Processes, tmp_path: Path) -> None:
    evaluated = tmp_path / "evaluated"
    worker = processes.start(run_in_processes, str(tmp_path / "study.db"), evaluated)
    wait_for_growth(evaluated, processes)
    wait_for_growth(evaluated, processes)
    kill(worker)
    wait_until_ended({int(pid) for pid in evaluated.read_text().split()})


def test_the_programs_of_a_killed_run_end_too(processes: Processes, tmp_path: Path) -> None:
    started = tmp_path / "started"
    worker = processes.start(run_programs_in_processes, str(tmp_path / "study.db"), started)
    wait_until(lambda: started.exists() and len(started.read_text().splitlines()) == 2, processes)
    kill(worker)
    wait_until_ended({int(pid) for pid in started.read_text().split()})


def wait_until_ended(children: set[int]) -> None:
    deadline = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < deadline, f"of {children} some live on"
        time.sleep(0.05)


def wait_for_a_random_moment(chance: random.Random, journal: Path, processes: Processes) -> None:
    """Soon after a start, which may be before the study is open, or soon after something was acknowledged."""
    if chance.random() < 0.5:
        time.sleep(0.2 * chance.random())
    else:
        wait_for_growth(journal, processes)
        time.sleep(0.03 * chance.random())


def kill(worker: ForkServerProcess) -> None:
    assert worker.is_alive(), f"a worker ended by itself with status {worker.exitcode}"
    worker.kill()
    worker.join()


def check(storage: str, journal: Path, killed_by_hand: int) -> None:
    if not storage.startswith("postgresql"):
        with sqlite3.connect(storage) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    acknowledged = dict(json.loads(line) for line in journal.read_text().splitlines())
    study = open_study(storage)
    before = study.trials
    assert [trial.number for trial in before] == list(range(len(before)))
    rewards = {trial.number: trial.reward for trial in before if trial.status == "completed"}
    assert acknowledged.items() <= rewards.items(), "an acknowledged reward is lost"

    # what the dead left behind is taken over, where a lease ended; what was asked for by hand waits to be told
    study.run(reward, evaluations=len(before) + 1, lease=LEASE, progress=False)
    waiting = [trial for trial in study.trials if trial.status == "running"]
    assert len(waiting) <= killed_by_hand
    for trial in waiting:
        study.tell(trial.number, reward(trial.state, trial.action))
    after = study.trials
    assert [(t.state, t.action) for t in before] == [(t.state, t.action) for t in after[: len(before)]]
    assert all(t.status == "completed" and t.reward == reward(t.state, t.action) for t in after)
    assert len({(t.state["s"], t.action["x"]) for t in after}) == len(after), "two trials at one point"
