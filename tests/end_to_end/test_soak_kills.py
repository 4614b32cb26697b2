"""Kills with SIGKILL at moments spread over a worker's life: nothing lost, nothing doubled, lone studies exact.

CONBO_SOAK_KILLS=200 make soak
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest
from killed_workers import Chunk, DaskCluster, dask_cluster, start
from worker_processes import Processes, wait_for_growth
from worker_programs import SPACE, reward

from conbo import Study, open_study

KILLS = int(os.environ.get("CONBO_SOAK_KILLS", "1000"))
KILLS_OF_A_STUDY = 10
MOMENTS = ("start-up", "suggestion", "evaluation", "telling")
START_UP = {"forked": 0.3, "program": 3.0, "dask": 2.0}  # seconds, about
SHARES = {"forked": 2, "program": 1, "dask": 1}  # of the kills: the first are the fastest
CELLS = [(database, kind) for kind in SHARES for database in ("sqlite", "postgresql")]


def kills_of(total: int) -> dict[tuple[str, str], int]:
    """The kills of every cell, which add up to the total."""
    edges, weight = [0], 2 * sum(SHARES.values())
    for i in range(len(CELLS)):
        edges.append(round(total * sum(SHARES[kind] for _, kind in CELLS[: i + 1]) / weight))
    return {cell: edges[i + 1] - edges[i] for i, cell in enumerate(CELLS)}


PARAMETERS = [(*cell, n) for cell, n in kills_of(12).items()]
PARAMETERS += [pytest.param(*cell, n, marks=pytest.mark.soak) for cell, n in kills_of(KILLS).items()]  # type: ignore


@pytest.mark.parametrize(("database", "kind", "kills"), PARAMETERS)
def test_killed_at_every_moment(
    database: str,
    kind: str,
    kills: int,
    new_storage: Callable[[str], str],
    processes: Processes,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    chance, killed = random.Random(f"{database} {kind} {kills}"), Counter[str]()
    coming = islice(cycle(MOMENTS), CELLS.index((database, kind)), None)  # every cell begins with another one
    with dask_cluster(kind, tmp_path) as cluster:
        for i, first in enumerate(range(0, kills, KILLS_OF_A_STUDY)):
            lone = (i + (database == "postgresql")) % 2 == 0
            chunk = Chunk(new_storage(database), "expected-improvement" if lone else "uniform", tmp_path / str(i))
            chunk.folder.mkdir()
            chunk.width = 1 if lone else 2
            if cluster is not None:
                chunk.scheduler = cluster.address
            moments = list(islice(coming, min(KILLS_OF_A_STUDY, kills - first)))
            kill(chunk, kind, moments, chance, processes, cluster)
            check(chunk, lone)
            killed.update(chunk.kills)
    assert killed.total() == kills
    record_property("kills", {"of": f"{kind}, {database}", **killed})


def kill(
    chunk: Chunk,
    kind: str,
    moments: list[str],
    chance: random.Random,
    processes: Processes,
    cluster: DaskCluster | None,
) -> None:
    """Kill workers at these moments and start others; in the end none is left."""
    n = 1 if kind == "dask" else chunk.width
    workers = [start(kind, chunk, processes) for _ in range(n)]
    for moment in moments:
        if cluster is not None and moment == "evaluation":
            wait_for_growth(chunk.evaluated, processes)
            cluster.kill_one(chunk.lines(chunk.evaluated)[-1][0])
            chunk.kills.append(moment)
            continue
        which = chance.randrange(len(workers))
        chunk.kills.append(workers[which].kill_in(moment, chance, START_UP[kind]))
        workers[which] = start(kind, chunk, processes)
    wait_for_growth(chunk.told, processes)
    for worker in workers:
        worker.kill()


def check(chunk: Chunk, lone: bool) -> None:
    """Nothing is lost or doubled, and a lone study is what it would be without the kills."""
    study = open_study(chunk.storage)
    before = study.trials
    assert [trial.number for trial in before] == list(range(len(before)))
    rewards = {trial.number: trial.reward for trial in before if trial.status == "completed"}
    acknowledged = dict(chunk.lines(chunk.told))
    assert acknowledged.items() <= rewards.items(), "an acknowledged reward is lost"
    assert len(acknowledged) == len(chunk.lines(chunk.told)), "a reward was told twice"

    study.run(reward, evaluations=len(before) + 1, max_lost_workers=10**6, progress=False)
    after = study.trials
    assert [trial.status for trial in after] == ["completed"] * (len(before) + 1), "a trial is lost"
    assert all(trial.reward == reward(trial.state, trial.action) for trial in after)
    points = [(trial.state["s"], trial.action["x"]) for trial in after]
    assert points[: len(before)] == [(trial.state["s"], trial.action["x"]) for trial in before]
    assert len(set(points)) == len(points), "two trials at one point"
    evaluated = Counter((s, x) for _, s, x in chunk.lines(chunk.evaluated))
    assert set(evaluated) <= set(points), "a point was evaluated that no trial has"
    repeated = sum(evaluated.values()) - len(evaluated)
    assert repeated <= chunk.width * (len(chunk.kills) + chunk.width), "evaluations were repeated without need"
    if lone:
        never_killed = Study(SPACE, method=chunk.method, initial=4)
        never_killed.run(reward, evaluations=len(after), progress=False)
        assert points == [(trial.state["s"], trial.action["x"]) for trial in never_killed.trials]
