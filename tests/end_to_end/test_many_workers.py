"""Eight processes share one study: every trial is evaluated once, and pending points keep apart."""

import json
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from worker_processes import Processes
from worker_programs import SPACE, Part, hilly_reward, share

from conbo import open_study
from conbo.proposals.penalized_batch import DISTINCT
from conbo.trials import Trial

N_WORKERS = 8
INITIAL = 4


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize(("method", "evaluations"), [("pei", 24), pytest.param("conbo", 200, marks=pytest.mark.soak)])
def test_eight_workers(
    kind: str,
    method: str,
    evaluations: int,
    new_storage: Callable[[str], str],
    processes: Processes,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    storage, evaluated, suggested = new_storage(kind), tmp_path / "evaluated", tmp_path / "suggested"
    part = Part(storage, method, evaluations, 0.2, N_WORKERS // 2, evaluated, suggested)
    start = processes.barrier(N_WORKERS + 1)  # together, on an empty database
    workers = [processes.start(share, part, start) for _ in range(N_WORKERS)]
    start.wait()
    began = time.monotonic()
    processes.finish(workers)
    wall = f"{time.monotonic() - began:.1f} s"
    record_property(f"{N_WORKERS} workers, {evaluations} trials of {method}, {kind}", wall)

    trials = open_study(storage).trials
    assert len(trials) == evaluations
    assert all(t.status == "completed" and t.reward == hilly_reward(t.state, t.action) for t in trials)
    calls = [json.loads(line) for line in evaluated.read_text().splitlines()]
    assert sorted(point for *point, _ in calls) == sorted([t.state["s"], t.action["x"]] for t in trials), "each once"
    assert len({pid for *_, pid in calls}) > N_WORKERS / 2, "most took part"
    check_that_pending_points_keep_apart(trials, suggested)


def check_that_pending_points_keep_apart(trials: tuple[Trial, ...], suggested: Path) -> None:
    """Every suggestion of the model saw all trials that were pending then, and was far enough from each."""
    pending_of = defaultdict(list)
    for line in suggested.read_text().splitlines():
        seen = json.loads(line)
        assert min(seen["factors"], default=1.0) >= DISTINCT
        for point in seen["points"]:
            pending_of[rounded(point)].append({rounded(p) for p in seen["pending"] + seen["points"]})
    points = [rounded(encoded(trial)) for trial in trials]
    assert sum(point in pending_of for point in points) >= len(trials) - INITIAL - N_WORKERS
    pairs = [(i, j) for i, j in combinations(range(len(trials)), 2) if pending_together(trials[i], trials[j])]
    assert all(points[i] != points[j] for i, j in pairs)
    by_model = [(i, j) for i, j in pairs if points[j] in pending_of]
    assert len(by_model) > len(trials) / 2
    for i, j in by_model:
        assert any(points[i] in seen for seen in pending_of[points[j]]), f"{j} was suggested without a look at {i}"


def pending_together(earlier: Trial, later: Trial) -> bool:
    assert earlier.finished is not None
    assert later.started is not None
    return earlier.finished > later.started


def encoded(trial: Trial) -> list[float]:
    return [*SPACE.encode_states([trial.state])[0], *SPACE.encode_actions([trial.action])[0]]


def rounded(point: list[float]) -> tuple[float, ...]:
    return tuple(round(value, 9) for value in point)
