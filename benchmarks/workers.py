"""What many workers gain, and what keeping a study in a database costs.

    python benchmarks/workers.py                       everything, in about twenty minutes
    python benchmarks/workers.py overhead              one part only
    python benchmarks/workers.py --quick --json        fewer workers, evaluations and seeds, as JSON

Parts: speedup (simulated workers, whose evaluations sleep, against perfect scaling), overhead (of each storage,
per trial). PostgreSQL is started by the package `pgserver`, or is the server of `--postgresql URL`.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from suggestion_cost import Row, show, timed

from conbo import Real, Space, Study
from conbo.problems import branin, opportunity_cost
from conbo.spaces import Point

TIMED = 50  # trials, so that a study hardly grows while the clock runs
SERVER: str | None = None  # where PostgreSQL is, unless it is to be started


def speedup(quick: bool) -> Iterable[Row]:
    """Noisy Branin with conbo: the same number of evaluations, which sleep, shared by more and more workers."""
    evaluations, mean_seconds, seeds = (32, 0.5, 1) if quick else (128, 2.0, 2)
    alone: dict[str, float] = {}
    for n_workers in (1, 2, 8) if quick else (1, 2, 4, 8, 64):
        runs = [_shared_run(n_workers, evaluations, mean_seconds, seed) for seed in range(seeds)]
        wall, slept, cost = (statistics.mean(column) for column in zip(*runs, strict=True))
        alone = alone or {"wall": wall, "cost": cost}
        yield {
            "workers": n_workers,
            "evaluations": evaluations,
            "wall_s": wall,
            "perfect_s": slept / n_workers,  # all sleeps, shared equally, and nothing else
            "speed_up": alone["wall"] / wall,
            "share_of_perfect": slept / n_workers / wall,
            "opportunity_cost": cost,
            "cost_of_one_worker": alone["cost"],  # who has every reward before the next suggestion
        }


def _shared_run(n_workers: int, evaluations: int, mean_seconds: float, seed: int) -> tuple[float, float, float]:
    """Wall time, the sum of all sleeps, and the opportunity cost of what was learned."""
    problem, slept = branin(noise=5.0), []

    def evaluate(state: Point, action: Point) -> float:
        generator = np.random.default_rng(
            list(repr((seed, state, action)).encode())
        )  # by the point, whoever evaluates it
        seconds = mean_seconds * generator.uniform(0.5, 1.5)
        slept.append(seconds)
        time.sleep(seconds)
        return problem.evaluate(state, action, generator)

    study = Study(problem.space, state_distribution=problem.state_distribution, seed=seed)
    with ThreadPoolExecutor(n_workers) as workers:
        wall = timed(lambda: study.run(evaluate, evaluations, executor=workers, progress=False))
    return wall, sum(slept), opportunity_cost(problem, study.policy())


def overhead(quick: bool) -> Iterable[Row]:
    """Milliseconds per trial, beside the evaluation, for each storage as the study grows; the best of some runs."""
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


PARTS: dict[str, Callable[[bool], Iterable[Row]]] = {part.__name__: part for part in (speedup, overhead)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--postgresql", metavar="URL", help="a server to use instead of starting one")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    global SERVER
    SERVER = arguments.postgresql
    warnings.simplefilter("ignore")
    results = {}
    for name in arguments.parts or PARTS:
        part = PARTS[name]
        if arguments.json:
            results[name] = list(part(arguments.quick))
        else:
            print(f"\n{name}: {part.__doc__}")
            show(part(arguments.quick))
    if arguments.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
