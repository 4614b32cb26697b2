"""All methods on Branin and Rosenbrock: the opportunity cost of their policies, as a table.

    python benchmarks/rivals.py                                    10 seeds, 40 evaluations, every method
    python benchmarks/rivals.py --methods conbo uniform --seeds 3  some of it
    python benchmarks/rivals.py --results rivals.jsonl             keep single runs, go on where they ended

Rewards are exact and states uniform; the first 6 evaluations of every run are the same quasi-random design.
`scot` needs finitely many states and is left out.  A cell is the mean over seeds with its standard error, and
`better` counts the seeds with a lower cost than random search with the same model.
"""

import argparse
import json
import statistics
import time
import warnings
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from conbo.method_table import METHODS
from conbo.optimizer import Optimizer
from conbo.problems import branin, opportunity_cost, rosenbrock

PROBLEMS = {"branin": branin, "rosenbrock": rosenbrock}
CHECKPOINTS = (20, 30, 40)
Run = dict[str, Any]


def run(task: tuple[str, str, int, int]) -> Run:
    """One study."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    name, method, seed, evaluations = task
    problem = PROBLEMS[name]()
    optimizer = Optimizer(problem.space, problem.state_distribution, method, seed=seed)
    costs, seconds, generator = {}, [], np.random.default_rng(seed)
    for done in range(1, evaluations + 1):
        start = time.perf_counter()
        (trial,) = optimizer.ask()
        seconds.append(time.perf_counter() - start)
        optimizer.tell(trial, problem.evaluate(trial.state, trial.action, generator))
        if done in CHECKPOINTS or done == evaluations:
            costs[str(done)] = opportunity_cost(problem, optimizer.policy())
    return {
        "problem": name,
        "method": method,
        "seed": seed,
        "cost": costs,
        "seconds": statistics.median(seconds[optimizer.initial :] or seconds),
    }


def table(runs: list[Run]) -> str:
    lines = []
    for problem in dict.fromkeys(r["problem"] for r in runs):
        rows = [r for r in runs if r["problem"] == problem]
        counts = sorted({int(k) for r in rows for k in r["cost"]})
        last = str(counts[-1])
        baseline = {r["seed"]: r["cost"][last] for r in rows if r["method"] == "uniform"}
        lines += ["", f"### {problem}", ""]
        lines += ["| method | seeds | " + " | ".join(f"cost at {k}" for k in counts) + " | better | s per ask |"]
        lines += ["|---" * (len(counts) + 4) + "|"]
        by_method = {m: [r for r in rows if r["method"] == m] for m in dict.fromkeys(r["method"] for r in rows)}
        for method, mine in sorted(by_method.items(), key=lambda item: mean(item[1], last)):
            cells = [f"{mean(mine, str(k)):.3g} ± {error(mine, str(k)):.2g}" for k in counts]
            better = sum(r["cost"][last] < baseline.get(r["seed"], -1) for r in mine)
            asked = statistics.median(r["seconds"] for r in mine)
            lines.append(f"| `{method}` | {len(mine)} | " + " | ".join(cells) + f" | {better} | {asked:.2g} |")
    return "\n".join(lines)


def mean(runs: list[Run], at: str) -> float:
    return statistics.mean(r["cost"][at] for r in runs)


def error(runs: list[Run], at: str) -> float:
    return statistics.stdev(r["cost"][at] for r in runs) / len(runs) ** 0.5 if len(runs) > 1 else 0.0


def main() -> None:
    conditional = [m for m in METHODS if not METHODS[m].needs_finite_states]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", default=conditional, metavar="NAME")
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--results", type=Path, help="a file of single runs, one JSON record a line")
    parser.add_argument("--table-only", action="store_true", help="print what the file holds")
    options = parser.parse_args()
    known = options.results.read_text().splitlines() if options.results and options.results.exists() else []
    runs: list[Run] = [json.loads(line) for line in known]
    done = {(r["problem"], r["method"], r["seed"]) for r in runs}
    tasks = [
        (problem, method, seed, options.evaluations)
        for seed in range(options.seeds)
        for method in options.methods
        for problem in options.problems
        if (problem, method, seed) not in done
    ]
    if not options.table_only:
        with get_context("spawn").Pool(options.jobs) as pool:
            for result in pool.imap_unordered(run, tasks):
                runs.append(result)
                if options.results:
                    with options.results.open("a") as file:
                        file.write(json.dumps(result) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
