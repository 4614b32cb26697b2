"""What it saves to know the price: Branin, whose evaluations cost from 1 to 10, with and without the price.

    python benchmarks/prices.py --seeds 20 --jobs 2

Both methods are 'conbo'.  The blind one evaluates 30 points.  For every seed, the question is what each paid until its
opportunity cost fell, for the last time, below a level; the levels are what the blind one has at the end, in the
median, times 1, 3 and 10.  Sums over the seeds are compared; runs that never get there count with all they paid.
"""

import argparse
import statistics
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from conbo.optimizer import Optimizer
from conbo.problems import branin
from conbo.problems.problem import opportunity_cost

EVALUATIONS = 30
NOISE = 5.0  # standard deviation of a reward


def price(state: dict[str, float], action: dict[str, float]) -> float:
    """From 1 to 10, with the state and with the action."""
    return 10 ** ((state["s"] + 5) / 30 + action["x"] / 30)


def curve(seed: int, aware: bool) -> list[tuple[float, float]]:
    """What was paid, and the opportunity cost of the policy, after every evaluation beyond the initial ones."""
    problem = branin(noise=NOISE)
    optimizer = Optimizer(problem.space, seed=seed, cost=price if aware else None)
    generator = np.random.default_rng(seed)
    paid, points, limit = 0.0, [], _blind_total(seed) if aware else float("inf")
    while (paid < limit) if aware else (len(optimizer.trials) < EVALUATIONS):
        (trial,) = optimizer.ask()
        optimizer.tell(trial, problem.evaluate(trial.state, trial.action, generator))
        paid += price(trial.state, trial.action)
        if optimizer.n_completed >= optimizer.initial:
            points.append((paid, opportunity_cost(problem, optimizer.policy(), n_states=64)))
    return points


def _blind_total(seed: int) -> float:
    """An even budget for both: what thirty evaluations cost on average."""
    return EVALUATIONS * 3.9


def paid_until(points: list[tuple[float, float]], level: float) -> float:
    """What was paid when the curve fell below the level for good; all that was paid if it never did."""
    above = [i for i, (_, cost) in enumerate(points) if cost > level]
    first = above[-1] + 1 if above else 0
    return points[min(first, len(points) - 1)][0]


def both(seed: int) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The curves of the blind and of the aware method."""
    return curve(seed, aware=False), curve(seed, aware=True)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        pairs = list(pool.map(both, range(options.seeds)))
    final = statistics.median(blind[-1][1] for blind, _ in pairs)
    print(
        f"median final opportunity cost: blind {final:.4g}, aware {statistics.median(a[-1][1] for _, a in pairs):.4g}"
    )
    print(f"median paid in all: blind {statistics.median(b[-1][0] for b, _ in pairs):.4g}")
    for factor in (1, 3, 10):
        blind, aware = (sum(paid_until(pair[i], factor * final) for pair in pairs) for i in (0, 1))
        print(f"until opportunity cost {factor * final:.4g}: aware pays {aware / blind:.0%} of blind ({blind:.4g})")


if __name__ == "__main__":
    main()
