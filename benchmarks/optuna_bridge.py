"""Compares conbo's Optuna sampler with a conbo study on Branin: opportunity costs by seed, and the sampler's own time.

python benchmarks/optuna_bridge.py [--seeds 5] [--evaluations 30]
"""

import argparse
import math
import statistics
import time
from typing import Any

import numpy as np
import optuna

from conbo.integrations.optuna import ConboSampler, policy
from conbo.optimizer import Optimizer
from conbo.problems import branin, opportunity_cost
from conbo.state_distributions import Uniform
from conbo.study import Study

PROBLEM = branin()
STATES = dict.fromkeys(PROBLEM.space.states, PROBLEM.state_distribution or Uniform())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=30)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    differences, asking, suggesting = [], 0.0, 0.0
    print("seed   conbo.Study   ConboSampler")
    for seed in range(options.seeds):
        own = by_study(seed, options.evaluations)
        other, asked, suggested = by_sampler(seed, options.evaluations)
        differences.append(math.log10(other) - math.log10(own))
        asking, suggesting = asking + asked, suggesting + suggested
        print(f"{seed:4d} {own:13.4f} {other:14.4f}", flush=True)
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
    print(f"mean difference of log10: {statistics.mean(differences):.2f} ± {error:.2f} (standard error)")
    print(f"asks took {asking:.1f} s, of which the bridge {asking - suggesting:.2f} s: {1 - suggesting / asking:.1%}")


def by_study(seed: int, evaluations: int) -> float:
    generator = np.random.default_rng(seed)
    study = Study(PROBLEM.space, state_distribution=PROBLEM.state_distribution, seed=seed)
    study.run(lambda s, x: PROBLEM.evaluate(s, x, generator), evaluations, progress=False)
    return opportunity_cost(PROBLEM, study.policy())


def by_sampler(seed: int, evaluations: int) -> tuple[float, float, float]:
    """Return the opportunity cost, the seconds spent in Optuna's asks, and those spent in conbo's suggestions."""
    generator, spent = np.random.default_rng(seed), {"ask": 0.0, "suggest": 0.0}
    sampler = ConboSampler(STATES, seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    suggest = Optimizer.suggest

    def timed(self: Optimizer, *arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return suggest(self, *arguments, **named)
        finally:
            spent["suggest"] += time.perf_counter() - began

    def objective(trial: optuna.Trial) -> float:
        began = time.perf_counter()
        state, action = (
            {name: trial.suggest_float(name, p.low, p.high) for name, p in part.items()}  # type: ignore[union-attr]
            for part in (PROBLEM.space.states, PROBLEM.space.actions)
        )
        spent["ask"] += time.perf_counter() - began
        return PROBLEM.evaluate(state, action, generator)

    Optimizer.suggest = timed  # type: ignore[method-assign]
    try:
        study.optimize(objective, n_trials=evaluations)
    finally:
        Optimizer.suggest = suggest  # type: ignore[method-assign]
    return opportunity_cost(PROBLEM, policy(study)), spent["ask"], spent["suggest"]


if __name__ == "__main__":
    main()
