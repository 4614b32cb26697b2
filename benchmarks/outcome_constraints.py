"""How much a learned constraint costs: compares Branin with a limit on a load to plain Branin, after 40 evaluations.

    python benchmarks/outcome_constraints.py --seeds 20 --first-seed 500 --noise 5 --jobs 2

In the constrained problem, opportunity costs are differences from the best action that satisfies the constraint. The
violation is the fraction of states in which the policy's action truly violates the constraint.
"""

import argparse
import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from conbo.optimizer import Optimizer
from conbo.problems import Problem, branin, branin_constrained, opportunity_cost, violation

EVALUATIONS = 40


def scores(make: Callable[..., Problem], noise: float, seed: int) -> tuple[float, float]:
    """Return the opportunity cost and the violation of the policy after all evaluations."""
    problem = make(noise=noise)
    optimizer = Optimizer(problem.space, seed=seed, outcome_constraints=problem.outcome_constraints)
    generator = np.random.default_rng(seed)
    for _ in range(EVALUATIONS):
        (trial,) = optimizer.ask()
        told = problem.evaluate(trial.state, trial.action, generator)
        measured = dict(told) if isinstance(told, Mapping) else {"reward": told}
        optimizer.tell(trial, measured.pop("reward"), outcomes=measured)
    policy = optimizer.policy()
    return opportunity_cost(problem, policy), 0.0 if problem.violates is None else violation(problem, policy)


def main() -> None:
    """Run both problems with all seeds, and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--noise", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    means, seeds = [], range(options.first_seed, options.first_seed + options.seeds)
    with ProcessPoolExecutor(options.jobs) as pool:
        for make in (branin, branin_constrained):
            found = list(pool.map(partial(scores, make, options.noise), seeds))
            for seed, (cost, broken) in zip(seeds, found, strict=True):
                print(f"{make.__name__}, seed {seed}: opportunity cost {cost:.4g}, violation {broken:.1%}")
            cost, broken = (statistics.mean(column) for column in zip(*found, strict=True))
            print(f"{make.__name__}: mean opportunity cost {cost:.4g}, violation in {broken:.1%} of states")
            means.append(cost)
    print(f"ratio of the opportunity costs: {means[1] / means[0]:.2f}")


if __name__ == "__main__":
    main()
