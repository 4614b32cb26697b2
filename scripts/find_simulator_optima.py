"""Find near-optimal actions of a simulator on a grid of states, by brute force, and write its table.

    python scripts/find_simulator_optima.py assemble_to_order
    python scripts/find_simulator_optima.py assemble_to_order_production_time
    python scripts/find_simulator_optima.py assemble_to_order_constrained
    python scripts/find_simulator_optima.py ambulances

A sweep visits every state of the grid. In each state, it compares random actions and the best actions found so far in
all states, and improves the best of these by a local search. All comparisons use common random numbers. The reward
that goes into the table is measured on replications that no search has used, so that it is unbiased. A table of the
warehouse takes about ten minutes on two cores, and the table of the ambulances about an hour.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from pathlib import Path

import numpy as np

from conbo.problems.ambulance_simulator import ACTION_NAMES as BASE_NAMES
from conbo.problems.ambulance_simulator import CENTER, CITY, STATE_NAMES
from conbo.problems.ambulance_simulator import simulate as simulate_ambulances
from conbo.problems.assembly_constrained import MOST_STOCK
from conbo.problems.assembly_simulator import ACTION_NAMES as LEVEL_NAMES
from conbo.problems.assembly_simulator import (
    CAPACITY,
    HIGHEST_DEMAND,
    ITEMS,
    LOWEST_DEMAND,
    STATE_NAME,
    DemandEnters,
    simulate_with_stock,
)
from conbo.problems.assembly_simulator import simulate as simulate_warehouse
from conbo.problems.simulation import Floats

DATA = Path(__file__).parents[1] / "src/conbo/problems/data"

RANDOM_STARTS = 200
STOCK_MARGIN = 0.04  # least distance of the mean stock from its limit, on the replications of a search
DECIMALS = 2  # number of decimals of an action in the table
SEARCH_SEED = 1  # seed of the replications on which actions are compared
FRESH_SEED = 2  # seed of the replications for the table
ITERATION_SEEDS = 1000  # first seed of a search in which each iteration has its own seed


@dataclass(frozen=True)
class Task:
    """A simulator to optimize on a grid of states, and the effort to spend."""

    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    states: Floats  # (n, state dimensions)
    simulate: Callable[..., Floats]
    random_actions: Callable[[np.random.Generator], Floats]  # (RANDOM_STARTS, action dimensions)
    improve: Callable[["Task", Floats, Floats], Floats]  # (task, state, action) → a better action
    sweeps: int  # over the grid
    screening: int  # replications for a rough ranking of many actions
    choosing: int  # replications for a choice among few actions
    measuring: int  # replications for the table
    measure: Callable[..., Floats] | None = None  # in place of `simulate` for the table

    def rewards(self, state: Floats, actions: Floats, replications: int, seed: int = SEARCH_SEED) -> Floats:
        """Simulate n actions (n, d_x) in one state, and return their rewards (n, replications)."""
        return self.simulate(state, actions, replications, seed)

    def best(self, state: Floats, actions: Floats, keep: int) -> Floats:
        """Return the best `keep` of many actions, best first.

        All actions are ranked with few replications, and the best of them again with more.
        """
        for replications, kept in ((self.screening, 2 * keep), (self.choosing, keep)):
            means = self.rewards(state, actions, replications).mean(axis=1)
            actions = actions[np.argsort(-means)[:kept]]
        return actions


def climb(task: Task, state: Floats, levels: Floats) -> Floats:
    """Improve integer stock levels by steepest ascent; return the levels at which it ends.

    A step changes one level by one or, if no such step helps, two levels.
    """
    steps = np.vstack([np.eye(ITEMS), -np.eye(ITEMS)])
    double_steps = np.array([a + b for a, b in combinations(steps, 2) if np.any(a + b)])
    while True:
        for moves in (steps, double_steps):
            neighbors = np.clip(levels + moves, 0, CAPACITY)
            finalists = np.vstack([levels, task.best(state, neighbors, keep=3)])
            means = task.rewards(state, finalists, task.choosing).mean(axis=1)
            if means.argmax() > 0:
                levels = finalists[means.argmax()]
                break
        else:
            return levels


def concentrate(task: Task, state: Floats, bases: Floats) -> Floats:
    """Improve the places of bases by cross-entropy search, and return them.

    Each iteration samples around a mean, and moves the mean and the variance toward those of the best samples. It
    simulates new days, and later iterations simulate more days, so that the result does not overfit a few days.
    """
    samples, elite = 40, 10
    first_variance = 3.0**2
    haste = 0.5  # weight of the new variance; with 1, the search would stop too early
    generator = np.random.default_rng(SEARCH_SEED)
    mean, variance = bases, np.full(bases.shape, first_variance)
    days_per_iteration = np.geomspace(task.screening / 2, task.screening * 20, num=24).astype(int)
    for iteration, days in enumerate(days_per_iteration):
        candidates = np.clip(generator.normal(mean, np.sqrt(variance), (samples, len(bases))), 0.0, CITY)
        means = task.rewards(state, candidates, days, ITERATION_SEEDS + iteration).mean(axis=1)
        best = candidates[np.argsort(-means)[:elite]]
        mean = best.mean(axis=0)
        variance = (1.0 - haste) * variance + haste * best.var(axis=0)
    return mean


def find_optima(task: Task) -> Floats:
    """Return near-optimal actions (n, d_x) for the n states of the grid."""
    generator = np.random.default_rng(SEARCH_SEED)
    found: dict[int, Floats] = {}
    for sweep, number in product(range(task.sweeps), range(len(task.states))):
        began, state = time.perf_counter(), task.states[number]
        known = np.vstack([*found.values(), task.random_actions(generator)])
        start = task.best(state, known, keep=1)[0]
        improved = task.improve(task, state, start)
        found[number] = task.best(state, np.vstack([start, improved]), keep=1)[0].round(DECIMALS)
        seconds = time.perf_counter() - began
        print(f"sweep {sweep + 1}, state {state}: {found[number]}, {seconds:.1f} s", flush=True)
    return np.array([found[number] for number in range(len(task.states))])


def write_table(name: str, task: Task, actions: Floats) -> None:
    """Write the table of states, actions and rewards; the rewards come from fresh replications.

    The first line of the file is a comment with the command that makes it.
    """
    header = ",".join([*task.state_names, *task.action_names, "reward", "standard_error"])
    lines = [f"# python scripts/find_simulator_optima.py {name}", header]
    for state, action in zip(task.states, actions, strict=True):
        simulate = task.measure or task.simulate
        rewards = simulate(state, action[np.newaxis], task.measuring, FRESH_SEED)[0]
        error = rewards.std(ddof=1) / np.sqrt(rewards.size)
        place = [f"{value:g}" for value in (*state, *action)]
        lines.append(",".join([*place, f"{rewards.mean():.4f}", f"{error:.4f}"]))
    (DATA / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def warehouse(demand_enters: DemandEnters) -> Task:
    """Return the task of the assemble-to-order warehouse.

    Only integer stock levels are searched, because a fraction of a unit is never sold, but has holding costs.
    """
    return Task(
        state_names=(STATE_NAME,),
        action_names=LEVEL_NAMES,
        states=np.linspace(LOWEST_DEMAND, HIGHEST_DEMAND, 21)[:, np.newaxis],
        simulate=partial(simulate_warehouse, demand_enters=demand_enters),
        random_actions=lambda generator: generator.integers(1, 12, (RANDOM_STARTS, ITEMS)).astype(np.float64),
        improve=climb,
        sweeps=1,  # a second one changed nothing
        screening=150,
        choosing=2000,
        measuring=40_000,
    )


def limited(state: Floats, levels: Floats, replications: int, seed: int) -> Floats:
    """Return the rewards (n, replications) of n actions (n, 8), minus a penalty for a mean stock above its limit.

    The limit is tightened by `STOCK_MARGIN`.
    """
    rewards, stock = simulate_with_stock(state, levels, replications, seed)
    beyond = np.maximum(stock.mean(axis=1, keepdims=True) - MOST_STOCK + STOCK_MARGIN, 0.0)
    return rewards - 1000.0 * beyond


def measured(state: Floats, levels: Floats, replications: int, seed: int) -> Floats:
    """Return the rewards of stock levels; raise ValueError if the mean stock is above its limit."""
    rewards, stock = simulate_with_stock(state, levels, replications, seed)
    if stock.mean() > MOST_STOCK:
        raise ValueError(f"the mean stock must be at most {MOST_STOCK}, but is {stock.mean():.3f} for demand {state}.")
    return rewards


def small_warehouse() -> Task:
    """Return the task of the warehouse with a limit on the mean stock.

    It uses fewer replications, because the limit leaves few actions to choose from.
    """
    return replace(
        warehouse("arrival_rate"),
        simulate=limited,
        random_actions=lambda generator: generator.integers(1, 6, (RANDOM_STARTS, ITEMS)).astype(np.float64),
        screening=60,
        choosing=400,
        measuring=10_000,
        measure=measured,
    )


def city() -> Task:
    """Return the task of the ambulances, for population modes in the south-west quadrant.

    The best bases for the other quadrants are mirror images.
    """
    axis = np.linspace(0.0, CENTER, 11)
    return Task(
        state_names=STATE_NAMES,
        action_names=BASE_NAMES,
        states=np.array(list(product(axis, axis))),
        simulate=simulate_ambulances,
        random_actions=lambda generator: generator.uniform(0.0, CITY, (RANDOM_STARTS, len(BASE_NAMES))),
        improve=concentrate,
        sweeps=2,
        screening=1000,
        choosing=20_000,
        measuring=1_000_000,
    )


TASKS: dict[str, Callable[[], Task]] = {
    "assemble_to_order": lambda: warehouse("arrival_rate"),
    "assemble_to_order_production_time": lambda: warehouse("production_time"),
    "assemble_to_order_constrained": small_warehouse,
    "ambulances": city,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=TASKS)
    name = parser.parse_args().name
    task = TASKS[name]()
    write_table(name, task, find_optima(task))
