"""How long a first run takes in a new process: with an empty cache of compiled code, a full one, and without Numba.

    python benchmarks/first_run.py [--evaluations 30] [--method conbo] [--json]

Each process runs a study of the Branin function. Seconds are counted from the start of the process, imports included;
CPU seconds include those of processes that it waited for.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASES = ("cold", "warm", "without numba")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=30)
    parser.add_argument("--method", default="conbo")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)  # set in the processes that are measured
    options = parser.parse_args()
    if options.case:
        print(json.dumps(_measure(options.case, options.method, options.evaluations)))
        return
    with tempfile.TemporaryDirectory() as cache:
        rows = [_in_new_process(case, cache, options.method, options.evaluations) for case in CASES]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"Seconds (CPU seconds) until a point of Branin is evaluated, {options.method}\n")
    last = f"evaluation {options.evaluations}"
    print(f"{'':16}{'initial design':>18}{'first suggestion':>18}{last:>18}")
    for row in rows:
        cells = (f"{row[key]:.1f} ({row[f'{key}_cpu']:.1f})" for key in ("initial", "suggestion", "last"))
        print(f"{row['case']:16}" + "".join(f"{cell:>18}" for cell in cells))


def _in_new_process(case: str, cache: str, method: str, evaluations: int) -> dict[str, float | str]:
    command = [sys.executable, str(Path(__file__)), "--case", case]
    command += ["--method", method, "--evaluations", str(evaluations)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    return {"case": case, **json.loads(done.stdout.splitlines()[-1])}


def _measure(case: str, method: str, evaluations: int) -> dict[str, float]:
    began = time.perf_counter()
    if case == "without numba":
        sys.modules["numba"] = None  # type: ignore[assignment]  # so that importing it raises ImportError
    import numpy as np

    import conbo
    from conbo.problems import branin

    problem, generator = branin(), np.random.default_rng(0)
    moments: list[tuple[float, float]] = []

    def objective(state: dict[str, conbo.spaces.Value], action: dict[str, conbo.spaces.Value]) -> float:
        moments.append((time.perf_counter() - began, sum(os.times()[:4])))
        return problem.evaluate(state, action, generator)

    study = conbo.Study(problem.space, method=method, seed=0)
    study.run(objective, evaluations, progress=False)
    points = {"initial": moments[0], "suggestion": moments[conbo.Optimizer(problem.space).initial], "last": moments[-1]}
    return {name: wall for name, (wall, _) in points.items()} | {
        f"{name}_cpu": cpu for name, (_, cpu) in points.items()
    }


if __name__ == "__main__":
    main()
