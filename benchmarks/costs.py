"""How much is saved if the method knows what evaluations cost, on Branin, with costs from 1 to 10.

    python benchmarks/costs.py --seeds 20 --first-seed 400 --jobs 2

The method 'conbo' runs with the cost function (aware) and without it (blind), each until it has paid 100.  The
opportunity costs of their policies are geometric means over the seeds.  For several amounts that the blind method paid,
the table shows how much the aware method paid until its opportunity cost was as low, and stayed so.

There are two cost functions, which rise with the state.  One also rises with the action; it is about 3 at the best
action of every state.  The other falls with the action; it is between 1.4 and 8 at the best actions.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from conbo.optimizer import Optimizer
from conbo.problems import branin
from conbo.problems.problem import opportunity_cost

BUDGET = 100.0  # total cost of a run
PAYMENTS = np.arange(22.0, BUDGET, 2.0)  # total costs at which runs are compared; the initial design costs about 21
SHOWN = (50.0, 60.0, 70.0, 80.0, 90.0, 98.0)  # those in the table

Curve = Sequence[tuple[float, float]]  # total cost so far, and the opportunity cost of the policy then
Point = Mapping[str, float]


def rising(state: Point, action: Point) -> float:
    """Return a cost that rises with the state and with the action."""
    return 10 ** ((state["s"] + 5 + action["x"]) / 30)


def falling(state: Point, action: Point) -> float:
    """Return a cost that rises with the state and falls with the action."""
    return 10 ** ((state["s"] + 20 - action["x"]) / 30)


def curve(cost: Callable[[Point, Point], float], aware: bool, noise: float, seed: int) -> Curve:
    """Run the method once, and return the total cost and the policy's opportunity cost after each trial.

    The curve begins with the last trial of the initial design.
    """
    problem = branin(noise=noise)
    optimizer = Optimizer(problem.space, seed=seed, cost=cost if aware else None)
    generator = np.random.default_rng(seed)
    paid, points = 0.0, []
    while paid < BUDGET:
        (trial,) = optimizer.ask()
        optimizer.tell(trial, problem.evaluate(trial.state, trial.action, generator))
        paid += cost(trial.state, trial.action)
        if optimizer.n_completed >= optimizer.initial:
            points.append((paid, opportunity_cost(problem, optimizer.policy(), n_states=64)))
    return points


def typical(curves: Sequence[Curve]) -> dict[float, float]:
    """Return the geometric mean of the opportunity costs, by total cost, over the runs that have a policy by then."""
    means = {}
    for payment in PAYMENTS.tolist():
        reached = [[cost for paid, cost in points if paid <= payment] for points in curves]
        means[payment] = float(np.exp(np.mean([np.log(costs[-1]) for costs in reached if costs])))
    return means


def paid_until(means: Mapping[float, float], level: float) -> float:
    """Return the total cost from which on the opportunity cost stays at or below `level`; infinite if there is none."""
    last_above = max((payment for payment, cost in means.items() if cost > level), default=0.0)
    return min((payment for payment in means if payment > last_above), default=float("inf"))


def main() -> None:
    """Run the method with and without knowledge of each cost function, and print a table for each function."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with ProcessPoolExecutor(options.jobs) as pool:
        for cost in (rising, falling):
            blind, aware = (
                typical(list(pool.map(partial(curve, cost, knows, options.noise), seeds))) for knows in (False, True)
            )
            print(f"cost {cost.__name__} with the action:")
            for payment in SHOWN:
                needed = paid_until(aware, blind[payment])
                share = needed / payment
                print(f"  blind pays {payment:3.0f} for {blind[payment]:7.2g}, aware {needed:3.0f}: {share:.0%}")


if __name__ == "__main__":
    main()
