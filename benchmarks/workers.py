"""How much time many workers save, and how much time it takes to store a study in a database.

    python benchmarks/workers.py                       everything, in about half an hour
    python benchmarks/workers.py overhead              one part only
    python benchmarks/workers.py --quick --json        fewer evaluations and seeds, as JSON

Parts: speedup (in wall time, with evaluations that sleep) and learning (in opportunity cost), both on the noisy Branin
function and compared with perfect scaling; overhead (time per trial of each storage). PostgreSQL is started by the
package `pgserver`, unless `--postgresql URL` names a server.
"""

import heapq
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from parts import Parts, Row, command_line, run
from suggestion_cost import timed

from conbo import Optimizer, Real, Space, Study
from conbo.problems import branin, opportunity_cost
from conbo.spaces import Point

PROBLEM = branin(noise=5.0)
WORKERS = (1, 2, 4, 8, 64)
TIMED = 50  # number of timed trials, few enough that the study hardly grows meanwhile
SERVER: str | None = None  # URL of a PostgreSQL server; None if one is to be started


def speedup(quick: bool) -> Iterable[Row]:
    """Measure the wall time of a fixed number of evaluations, which sleep, for growing numbers of workers."""
    evaluations, mean_seconds = (32, 0.5) if quick else (128, 2.0)
    alone = None
    for n_workers in WORKERS:
        wall, slept = _wall_time(n_workers, evaluations, mean_seconds)
        alone = alone or wall
        perfect = slept / n_workers  # wall time if evaluations were divided equally and nothing else took time
        yield {
            "workers": n_workers,
            "evaluations": evaluations,
            "wall_s": wall,
            "perfect_s": perfect,
            "share_of_perfect": perfect / wall,
            "speed_up": alone / wall,
        }


def _wall_time(n_workers: int, evaluations: int, mean_seconds: float) -> tuple[float, float]:
    """Return the wall time of a run, and the sum of the times of its evaluations."""
    slept: list[float] = []

    def evaluate(state: Point, action: Point) -> float:
        generator = _generator(0, state, action)
        seconds = mean_seconds * _duration(generator)
        slept.append(seconds)
        time.sleep(seconds)
        return PROBLEM.evaluate(state, action, generator)

    study = Study(PROBLEM.space, state_distribution=PROBLEM.state_distribution)
    with ThreadPoolExecutor(n_workers) as workers:
        wall = timed(lambda: study.run(evaluate, evaluations, executor=workers, progress=False))
    return wall, sum(slept)


def learning(quick: bool) -> Iterable[Row]:
    """Measure the opportunity cost after a fixed number of evaluations, in simulated time, by number of workers.

    Perfect scaling means that the opportunity cost is as low as with one worker.
    """
    evaluations, seeds = (32, 2) if quick else (128, 5)
    alone = None
    for n_workers in WORKERS:
        costs = [_simulated_cost(n_workers, evaluations, seed) for seed in range(seeds)]
        alone = alone or costs
        yield {
            "workers": n_workers,
            "evaluations": evaluations,
            "opportunity_cost": statistics.mean(costs),
            "standard_error": statistics.stdev(costs) / seeds**0.5,
            "cost_of_one_worker": statistics.mean(alone),
        }


def _simulated_cost(n_workers: int, evaluations: int, seed: int) -> float:
    optimizer = Optimizer(PROBLEM.space, PROBLEM.state_distribution, seed=seed)
    now, running = 0.0, []  # a heap of (end, number, trial, reward)

    def finish_one() -> float:
        end, _, trial, reward = heapq.heappop(running)
        optimizer.tell(trial, reward)
        return end

    for number in range(evaluations):
        if len(running) == n_workers:
            now = finish_one()
        (trial,) = optimizer.ask()
        generator = _generator(seed, trial.state, trial.action)
        end = now + _duration(generator)
        heapq.heappush(running, (end, number, trial, PROBLEM.evaluate(trial.state, trial.action, generator)))
    while running:
        finish_one()
    return opportunity_cost(PROBLEM, optimizer.policy())


def _generator(seed: int, state: Point, action: Point) -> np.random.Generator:
    """Return a random generator that depends only on the seed and on the point."""
    return np.random.default_rng(list(repr((seed, state, action)).encode()))


def _duration(generator: np.random.Generator) -> float:
    """Draw the duration of an evaluation, with mean one."""
    return float(generator.uniform(0.5, 1.5))


def overhead(quick: bool) -> Iterable[Row]:
    """Measure the milliseconds per trial, without its evaluation, for each storage and for growing studies.

    Each figure is the lowest of a few runs.
    """
    space = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)})
    sizes = (100,) if quick else (100, 500, 1000)
    with tempfile.TemporaryDirectory() as folder, _postgresql(folder) as server:
        for kind, storage in {"memory": None, "SQLite": f"{folder}/studies.db", "PostgreSQL": server}.items():
            per_trial: dict[int, list[float]] = {n: [] for n in sizes}
            for repeat in range(2 if quick else 3):
                study = Study(space, method="uniform", name=f"run {repeat} at {time.time()}", storage=storage)
                for n in sizes:
                    study.run(_nothing, n - TIMED, progress=False)
                    seconds = timed(lambda study=study, n=n: study.run(_nothing, n, progress=False))
                    per_trial[n].append(1e3 * seconds / TIMED)
            yield {"storage": kind} | {f"ms_at_{n}_trials": min(values) for n, values in per_trial.items()}


def _nothing(state: Point, action: Point) -> float:
    return 0.0


@contextmanager
def _postgresql(folder: str) -> Iterator[str]:
    if SERVER is not None:
        yield SERVER
        return
    import pgserver

    server = pgserver.get_server(Path(folder) / "postgresql", cleanup_mode="delete")
    yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    server.cleanup()


PARTS: Parts = {part.__name__: part for part in (speedup, learning, overhead)}


def main() -> None:
    parser = command_line(__doc__, PARTS)
    parser.add_argument("--postgresql", metavar="URL", help="a server to use instead of starting one")
    arguments = parser.parse_args()
    global SERVER
    SERVER = arguments.postgresql
    warnings.simplefilter("ignore")
    run(PARTS, arguments.parts, arguments.quick, arguments.json)


if __name__ == "__main__":
    main()
