"""Times suggestions of the paper's methods on a quiet machine, for the paper's claims about computing times.

    export OMP_NUM_THREADS=1
    python benchmarks/suggestion_times.py             ten seeds, five minutes; writes results/suggestion_times.json
    python benchmarks/suggestion_times.py --seeds 2   a trial, which writes nothing

The model is fitted to rewards at the points of a Sobol design that all methods share, and the next suggestion is timed
with one thread. The design has a third, two thirds and nine tenths as many points as a recorded run has evaluations.
The methods alternate, and a time is the sum over the three sizes. If the process had to wait for a core, or used more
than one, nothing is written. `scripts/update_reproduction.py` puts the ratios into docs/reproduction.md.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from conbo.experiments.claims import BY_PENALTY, CLAIMS, CONDITIONAL, NETWORK, SIMULATORS
from conbo.experiments.entering import contestant
from conbo.experiments.evaluation import evaluate
from conbo.experiments.evidence import Evidence
from conbo.experiments.origin import platform_name
from conbo.experiments.paper_figures import FIGURES
from conbo.experiments.problem_names import load_problem
from conbo.experiments.runner import Task
from conbo.experiments.suggestion_times import Timed

OUT = Path(__file__).parents[1] / "results/suggestion_times.json"
SEEDS, LARGEST_BATCH = 10, 8
SIZES = (1 / 3, 2 / 3, 0.9)  # shares of a run's evaluations after which a suggestion is timed
SHARES = (0.97, 1.01)  # allowed CPU time, as a share of the wall time: less means waiting, more several threads

NETWORKS = [Timed(NETWORK, method) for method in CONDITIONAL]
BATCHES = [Timed(p, m, batch) for p in SIMULATORS for m in BY_PENALTY for batch in (1, LARGEST_BATCH)]


def seconds_of(task: Task) -> Iterator[tuple[float, float]]:
    """Yield the wall time and the CPU time of a suggestion after each share `SIZES` of the task's evaluations."""
    problem = load_problem(task.settings.problem)
    for share in SIZES:
        settings = replace(task.settings, initial=round(share * task.evaluations))
        optimizer = contestant(task.method, problem, settings, task.evaluations)
        for trial in optimizer.ask(settings.initial):
            optimizer.tell(trial, evaluate(problem, settings.seed, trial).reward)
        optimizer.fit()
        wall, cpu = time.perf_counter(), time.process_time()
        optimizer.ask(settings.batch)
        yield time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS, choices=range(1, SEEDS + 1), metavar="N")
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    tasks = {
        (Timed(task.settings.problem, task.settings.method, task.settings.batch), task.settings.seed): task
        for name in ("cnn", "batches", "ambulances", "assemble-to-order")
        for task in FIGURES[name].tasks()
    }
    times: dict[Timed, list[float]] = {timed: [] for timed in (*NETWORKS, *BATCHES)}
    for timed in times:  # compiles the loops before anything is timed
        list(seconds_of(tasks[timed, 0]))
    all_wall = all_cpu = 0.0
    for seed in range(seeds):
        for timed, seconds in times.items():
            wall, cpu = map(sum, zip(*seconds_of(tasks[timed, seed]), strict=True))
            all_wall, all_cpu = all_wall + wall, all_cpu + cpu
            seconds.append(wall)
            print(f"seed {seed}, {timed}: {wall:.3f} s", flush=True)
    evidence = Evidence({}, {timed: np.array(seconds) for timed, seconds in times.items()})
    for claim in CLAIMS:
        for check in claim.checks(evidence):
            print(check.text)
    share = all_cpu / all_wall
    print(f"The CPU time is {100 * share:.1f} % of the wall time.")
    if seeds < SEEDS:
        return
    if not SHARES[0] <= share <= SHARES[1]:
        allowed = " to ".join(f"{100 * share:.0f}" for share in SHARES)
        sys.exit(f"Nothing is written: it must be {allowed} %. Less means a busy machine, more several threads.")
    rows = [{**timed._asdict(), "seconds": [round(s, 5) for s in seconds]} for timed, seconds in times.items()]
    about = {"version": version("conbo"), "platform": platform_name(), "cpu_time_per_wall_time": round(share, 4)}
    OUT.write_text(json.dumps({**about, "times": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
