"""What it saves to know the price: Branin, whose evaluations cost from 1 to 10, with and without the price.

    python benchmarks/prices.py --seeds 20 --jobs 2

Both methods are 'conbo' and pay 100 in all.  Opportunity costs are geometric means over the seeds after every payment.
For several payments of the method that does not know the price (blind), the table says what the one that does (aware)
paid until its opportunity cost was as low, for good.

Two prices rise with the state.  The one that also rises with the action is nearly the same, about 3, at all the best
actions.  The one that falls with the action goes from 1.4 to 8 there.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from conbo.optimizer import Optimizer
from conbo.problems import branin
from conbo.problems.problem import opportunity_cost

BUDGET = 100.0
PAYMENTS = np.arange(22.0, BUDGET, 2.0)  # the initial design costs about 21
SHOWN = (50.0, 60.0, 70.0, 80.0, 90.0, 98.0)

Curve = Sequence[tuple[float, float]]  # what was paid, and the opportunity cost of the policy then
Point = Mapping[str, float]


def rising(state: Point, action: Point) -> float:
    """The price rises with the state and with the action."""
    return 10 ** ((state["s"] + 5 + action["x"]) / 30)


def falling(state: Point, action: Point) -> float:
    """The price rises with the state and falls with the action."""
    return 10 ** ((state["s"] + 20 - action["x"]) / 30)


def curve(price: Callable[[Point, Point], float], aware: bool, noise: float, seed: int) -> Curve:
    """One run, from the end of its initial design on."""
    problem = branin(noise=noise)
    optimizer = Optimizer(problem.space, seed=seed, cost=price if aware else None)
    generator = np.random.default_rng(seed)
    paid, points = 0.0, []
    while paid < BUDGET:
        (trial,) = optimizer.ask()
        optimizer.tell(trial, problem.evaluate(trial.state, trial.action, generator))
        paid += price(trial.state, trial.action)
        if optimizer.n_completed >= optimizer.initial:
            points.append((paid, opportunity_cost(problem, optimizer.policy(), n_states=64)))
    return points


def typical(curves: Sequence[Curve]) -> dict[float, float]:
    """The geometric mean of the opportunity costs after each payment, over the runs that have a policy by then."""
    means = {}
    for payment in PAYMENTS.tolist():
        reached = [[cost for paid, cost in points if paid <= payment] for points in curves]
        means[payment] = float(np.exp(np.mean([np.log(costs[-1]) for costs in reached if costs])))
    return means


def paid_until(means: Mapping[float, float], level: float) -> float:
    """The payment from which on the opportunity cost is at most the level; infinite if there is none."""
    last_above = max((payment for payment, cost in means.items() if cost > level), default=0.0)
    return min((payment for payment in means if payment > last_above), default=float("inf"))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        for price in (rising, falling):
            blind, aware = (
                typical(list(pool.map(partial(curve, price, knows, options.noise), range(options.seeds))))
                for knows in (False, True)
            )
            print(f"price {price.__name__} with the action:")
            for payment in SHOWN:
                needed = paid_until(aware, blind[payment])
                share = needed / payment
                print(f"  blind pays {payment:3.0f} for {blind[payment]:7.2g}, aware {needed:3.0f}: {share:.0%}")


if __name__ == "__main__":
    main()
