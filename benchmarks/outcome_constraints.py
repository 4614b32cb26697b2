"""What a learned constraint costs: Branin with a limit on a load, and Branin itself, after 40 evaluations.

    python benchmarks/outcome_constraints.py --seeds 3 --noise 5

The opportunity cost of the constrained problem counts against the best action that keeps the constraint; the violation
is the share of states in which the policy breaks it in truth.
"""

import argparse
import statistics
from collections.abc import Mapping

import numpy as np
import torch

from conbo.optimizer import Optimizer
from conbo.problems import Problem, branin, branin_constrained, opportunity_cost, violation

EVALUATIONS = 40


def scores(problem: Problem, seed: int) -> tuple[float, float]:
    """The opportunity cost and the violation of the policy at the end."""
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
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--noise", type=float, default=5.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    means = {}
    for problem in (branin(noise=options.noise), branin_constrained(noise=options.noise)):
        found = [scores(problem, seed) for seed in range(options.seeds)]
        for seed, (cost, broken) in enumerate(found):
            print(f"{problem.name}, seed {seed}: opportunity cost {cost:.4g}, violation {broken:.1%}")
        means[problem.name] = statistics.mean(cost for cost, _ in found)
    print(f"mean opportunity costs: {means}, ratio {means['branin_constrained'] / means['branin']:.2f}")


if __name__ == "__main__":
    main()
