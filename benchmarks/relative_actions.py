"""How much models of relative actions save where the best action follows the state: with and without them.

    python benchmarks/relative_actions.py --seeds 10 --jobs 2

In the problems, the best stock follows the demand, or three actions follow two states.  `fixed` is for comparison: its
best action does not follow the state, so both models should learn equally fast.  Every line has the mean opportunity
cost over the seeds after a third, two thirds and all of the evaluations, and the mean time of a suggestion and its fit.
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from time import perf_counter

import numpy as np
import torch

import conbo
from conbo.bound_states import bind
from conbo.optimizer import Optimizer
from conbo.quasi_random import sobol

FOLLOWS = np.array([[0.6, 0.2], [-0.5, 0.4], [0.1, 0.1]])  # how three actions follow two states
STATES = 128  # number of states in which policies are scored


@dataclass(frozen=True)
class Example:
    """A problem whose best action is known in every state."""

    space: conbo.Space
    reward: Callable[[dict, dict], float]
    best: Callable[[dict], float]  # the highest expected reward in a state
    noise: float  # standard deviation
    evaluations: int
    scored: list[dict] = field(init=False)  # states

    def __post_init__(self) -> None:
        numbers = bind(None, self.space).from_uniform(sobol(STATES, self.space.n_state_dims, seed=7))
        object.__setattr__(self, "scored", self.space.decode_states(numbers.numpy()))

    def cost(self, policy: conbo.Policy) -> float:
        """Return the mean opportunity cost of a policy."""
        pairs = zip(self.scored, policy.many(self.scored), strict=True)
        return float(np.mean([self.best(state) - self.reward(state, action) for state, action in pairs]))


def stock(noise: float, evaluations: int = 60) -> Example:
    """Return the example of the README."""
    space = conbo.Space(states={"demand": conbo.Real(10, 100)}, actions={"stock": conbo.Real(0, 150)})

    def profit(state: dict, action: dict) -> float:
        return 5 * min(state["demand"], action["stock"]) - 2 * action["stock"]

    return Example(space, profit, lambda state: 3 * state["demand"], noise, evaluations)


def two_items() -> Example:
    """Return an example of whole numbers, in which what is left of one item replaces some of what the other lacks."""
    demands = {"first": conbo.Integer(5, 60), "second": conbo.Integer(5, 60)}
    space = conbo.Space(states=demands, actions={"a": conbo.Integer(0, 80), "b": conbo.Integer(0, 80)})

    def profit(state: dict, action: dict) -> float:
        a, b, first, second = action["a"], action["b"], state["first"], state["second"]
        replaced = min(max(a - first, 0), max(second - b, 0))
        return 5 * min(first, a) - 2 * a + 4 * min(second, b) - 2 * b + replaced

    return Example(space, profit, lambda state: 3 * state["first"] + 2 * state["second"], 5.0, 60)


def three_actions() -> Example:
    """Return an example of three actions that follow two states, with a kink in one of them."""
    unit = conbo.Real(0, 1)
    space = conbo.Space(states={"s": unit, "t": unit}, actions={"x": unit, "y": unit, "z": unit})

    def reward(state: dict, action: dict) -> float:
        wanted = np.array([0.1, 0.5, 0.4]) + FOLLOWS @ [state["s"], state["t"]]
        a, b, c = np.array([action["x"], action["y"], action["z"]]) - wanted
        return float(-abs(a) - 2 * b**2 - c**2 - 0.5 * a * c)

    return Example(space, reward, lambda state: 0.0, 0.05, 80)


def fixed() -> Example:
    """Return an example whose best action is the same in all states."""
    unit = conbo.Real(0, 1)
    space = conbo.Space(states={"s": unit, "t": unit}, actions={"x": unit})

    def best(state: dict) -> float:
        return float(state["s"] + 0.3 * np.cos(5 * state["t"]))

    def reward(state: dict, action: dict) -> float:
        return best(state) - (action["x"] - 0.3) ** 2 * (1 + state["s"])

    return Example(space, reward, best, 0.03, 40)


EXAMPLES: dict[str, Callable[[], Example]] = {
    "stock": lambda: stock(0.0),
    "stock, noise 10": lambda: stock(10.0),
    "two items": two_items,
    "three actions": three_actions,
    "fixed": fixed,
}


def costs(name: str, relative_actions: str, seed: int) -> list[float]:
    """Return the opportunity costs after a third, two thirds and all evaluations, and the seconds per suggestion."""
    torch.set_num_threads(1)
    example, generator = EXAMPLES[name](), np.random.default_rng(seed)
    optimizer = Optimizer(example.space, seed=seed, model=conbo.GaussianProcess(relative_actions=relative_actions))
    found, seconds = [], 0.0
    for count in range(1, example.evaluations + 1):
        began = perf_counter()
        (trial,) = optimizer.ask()
        seconds += perf_counter() - began
        reward = example.reward(trial.state, trial.action) + example.noise * generator.standard_normal()
        optimizer.tell(trial, reward)
        if count in (example.evaluations // 3, 2 * example.evaluations // 3, example.evaluations):
            found.append(example.cost(optimizer.policy()))
    return [*found, seconds / example.evaluations]


def main() -> None:
    """Print a table of all examples."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=700)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    columns = f"{'example':16s} {'evaluations':>14s} {'relative_actions':>17s}"
    print(f"{columns}   mean opportunity cost ± standard error, time of a suggestion")
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for name, setting in product(EXAMPLES, ("none", "auto")):
            rows = np.array(list(pool.map(costs, [name] * len(seeds), [setting] * len(seeds), seeds)))
            runs, seconds = rows[:, :-1], float(rows[:, -1].mean())
            errors = runs.std(0, ddof=1) / len(runs) ** 0.5
            n = EXAMPLES[name]().evaluations
            row = "   ".join(f"{mean:.3g} ± {error:.2g}" for mean, error in zip(runs.mean(0), errors, strict=True))
            print(
                f"{name:16s} {f'{n // 3}, {2 * n // 3}, {n}':>14s} {setting:>17s}   {row}   {1000 * seconds:.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
