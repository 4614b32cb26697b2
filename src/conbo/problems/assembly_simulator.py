"""Assemble to order (ATO): how much stock of each item to keep, for every level of demand.

The model (Hong & Nelson 2006; Xie, Frazier & Chick 2016). A warehouse keeps eight items in stock and
assembles five products from them, on order. When a unit is taken out of stock, its replacement is ordered at
once. Each item has one machine, which produces one unit at a time. So stock plus units on order is always the
base-stock level.

  - Orders for each product are a Poisson process. An order is lost if less than one unit of a *key* item of
    the product is in stock. Otherwise one unit of each of its key items is taken, and one unit of each of its
    other items that is in stock.
  - Each unit taken earns the profit of its item; each unit in stock costs 2 per unit of time.
  - The reward is profit per unit of time over 50 units of time, after a warm-up of 20.

State: the demand level. It multiplies the order rates. In a second variant, it multiplies the mean
production times, and every item of a product is a key item. Action: the eight base-stock levels. They are
real numbers, and the stock begins at these levels. A fraction of a unit can never be sold but costs money
to hold, so the best levels are whole numbers.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conbo.errors import SettingError
from conbo.problems.near_optimal import NearOptimalTable
from conbo.problems.problem import MeanReward, Problem
from conbo.problems.random_streams import compiled, exponential, normal, substream, uniform
from conbo.problems.simulation import (
    Floats,
    Seeds,
    draw_seed,
    empty_rewards,
    in_threads,
    mean_of,
    seed_per_pair,
)
from conbo.spaces import Point, Real, Space, Value
from conbo.state_distributions import Uniform

DemandEnters = Literal["arrival_rate", "production_time"]
NAMES: dict[DemandEnters, str] = {
    "arrival_rate": "assemble_to_order",
    "production_time": "assemble_to_order_production_time",
}

ITEMS = 8
CAPACITY = 20  # highest base-stock level of an item
# Slots for finish times of one item's units in production. They are at most CAPACITY; a power of two is faster.
RING = 32
LOWEST_DEMAND, HIGHEST_DEMAND = 0.5, 1.5
STATE_NAME = "demand"
ACTION_NAMES = tuple(f"stock_{item}" for item in range(1, ITEMS + 1))

PROFIT = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])  # profit of one unit of each item
HOLDING_COST = 2.0  # cost of one unit of stock for one unit of time
PRODUCTION_MEAN = np.array([0.15, 0.40, 0.25, 0.15, 0.25, 0.08, 0.13, 0.40])  # mean production time of each item
PRODUCTION_SD = 0.15 * PRODUCTION_MEAN

WARM_UP = 20.0  # time at which the measurement begins
HORIZON = 70.0  # time at which it ends
MEASURED_TIME = HORIZON - WARM_UP

ORDER_RATE = np.array([3.6, 3.0, 2.4, 1.8, 1.2])  # orders per unit of time for each product, at demand 1
TOTAL_ORDER_RATE = float(ORDER_RATE.sum())
# cumulative probabilities of the products: an order is for the first product whose entry is above a uniform draw
PRODUCT_UP_TO = np.cumsum(ORDER_RATE) / TOTAL_ORDER_RATE
LAST_PRODUCT = len(ORDER_RATE) - 1
USES = np.array(  # (products, items): 1 if the product needs one unit of the item
    [
        # 1  2  3  4  5  6  7  8
        [1, 0, 0, 1, 0, 1, 1, 0],
        [1, 0, 0, 0, 1, 1, 1, 0],
        [0, 1, 0, 1, 0, 1, 0, 0],
        [0, 0, 1, 1, 0, 1, 0, 1],
        [0, 0, 1, 0, 1, 1, 1, 0],
    ],
    dtype=np.bool_,
)
IS_KEY = np.array([1, 1, 1, 1, 1, 1, 0, 0], dtype=np.bool_)

# The random streams of a replication. Item i has its production times in stream FIRST_PRODUCTION_STREAM + i.
ARRIVAL_STREAM = 0
PRODUCT_STREAM = 1
FIRST_PRODUCTION_STREAM = 2

# Columns of the log of a replication, which has one row for each order. The last ones are the stock after the order.
LOG_TIME, LOG_PRODUCT, LOG_SOLD, LOG_STOCK = 0, 1, 2, 3
LOG_COLUMNS = LOG_STOCK + ITEMS
LOG_ROWS = 4000  # more rows than will ever be needed, because the mean number of orders is at most 1260


@compiled
def _product_ordered(draw: float) -> int:
    product = 0
    while product < LAST_PRODUCT and draw > PRODUCT_UP_TO[product]:
        product += 1
    return product


@compiled
def _replicate(
    order_rate: float,
    production_mean: Floats,
    required: NDArray[np.bool_],
    levels: Floats,
    key: np.uint64,
    log: Floats,
) -> tuple[float, float]:
    """Simulate one replication; return the reward and the mean stock, and fill `log`, one row per order.

    `production_mean` (ITEMS,) are the mean production times, `levels` (ITEMS,) are the base-stock levels, and `key` is
    the key of a random stream. An order for a product is lost if an item with `required[product, item]` is out of
    stock.
    """
    arrivals = substream(key, ARRIVAL_STREAM)
    products = substream(key, PRODUCT_STREAM)
    production = np.empty(ITEMS, dtype=np.uint64)
    for item in range(ITEMS):
        production[item] = substream(key, FIRST_PRODUCTION_STREAM + item)

    stock = levels.copy()
    started = np.zeros(ITEMS, dtype=np.int64)  # units of each item whose production has begun
    finished = np.zeros(ITEMS, dtype=np.int64)  # units of them that are back in stock
    # Slot k % RING holds the time at which unit k of an item will be finished, while it is in production, else
    # infinity.
    finish_time = np.full((ITEMS, RING), np.inf)
    machine_free_at = np.zeros(ITEMS)

    earned = 0.0
    held = 0.0  # units of stock times units of time
    time = 0.0
    order = 0
    while True:
        previous_time = time
        time += exponential(arrivals, order) / order_rate
        if time > HORIZON:
            return earned / MEASURED_TIME, held / MEASURED_TIME
        product = _product_ordered(uniform(products, order))

        for item in range(ITEMS):
            while finish_time[item, finished[item] % RING] <= time:
                finish_time[item, finished[item] % RING] = np.inf
                finished[item] += 1
                stock[item] += 1.0

        sold = True
        for item in range(ITEMS):
            if required[product, item] and stock[item] < 1.0:
                sold = False

        for item in range(ITEMS):
            if sold and USES[product, item] and stock[item] >= 1.0:
                stock[item] -= 1.0
                if time >= WARM_UP:
                    earned += PROFIT[item]
                draw = normal(production[item], started[item])
                # If demand scales only the means, a time may be drawn negative (1 in 2,300 at demand 0.5).
                duration = max(0.0, production_mean[item] + PRODUCTION_SD[item] * draw)
                machine_free_at[item] = max(time, machine_free_at[item]) + duration
                finish_time[item, started[item] % RING] = machine_free_at[item]
                started[item] += 1

        if time >= WARM_UP:
            earned -= HOLDING_COST * stock.sum() * (time - previous_time)
            held += stock.sum() * (time - previous_time)

        if order < len(log):
            log[order, LOG_TIME] = time
            log[order, LOG_PRODUCT] = product
            log[order, LOG_SOLD] = sold
            log[order, LOG_STOCK:] = stock
        order += 1


@compiled
def _replicate_range(
    first: int,
    last: int,
    order_rates: Floats,  # (pairs,)
    production_means: Floats,  # (pairs, ITEMS)
    required: NDArray[np.bool_],  # (products, ITEMS)
    levels: Floats,  # (pairs, ITEMS)
    seeds: Seeds,  # (pairs,)
    rewards: Floats,  # (pairs, replications), filled here
    stocks: Floats,  # (pairs, replications), mean stocks, filled here
    log: Floats,  # (rows, LOG_COLUMNS), filled here; without rows nothing is logged
) -> None:
    replications = rewards.shape[1]
    for run in range(first, last):
        pair = run // replications
        replication = run % replications
        key = substream(seeds[pair], replication)
        rewards[pair, replication], stocks[pair, replication] = _replicate(
            order_rates[pair], production_means[pair], required, levels[pair], key, log
        )


class _Inputs(NamedTuple):
    """The inputs of the compiled simulation, for pairs of a demand and base-stock levels.

    The problem's two variants (the demand multiplies order rates or production times) differ only in these inputs.
    """

    order_rates: Floats  # (pairs,), orders for all products per unit of time
    production_means: Floats  # (pairs, ITEMS), mean production times
    required: NDArray[np.bool_]  # (products, ITEMS), whether an order is lost if the item is out of stock
    levels: Floats  # (pairs, ITEMS), base-stock levels


def _inputs(demand: ArrayLike, levels: ArrayLike, demand_enters: DemandEnters) -> _Inputs:
    stock_levels = np.array(levels, dtype=np.float64).reshape(-1, ITEMS)
    demands = np.array(np.broadcast_to(np.asarray(demand, dtype=np.float64), (len(stock_levels),)))
    ones = np.ones_like(demands)
    if demand_enters == "arrival_rate":
        order_rates, production_factors, required = TOTAL_ORDER_RATE * demands, ones, USES & IS_KEY
    else:
        order_rates, production_factors, required = TOTAL_ORDER_RATE * ones, demands, USES
    return _Inputs(order_rates, np.outer(production_factors, PRODUCTION_MEAN), required, stock_levels)


def simulate(
    demands: ArrayLike,
    levels: ArrayLike,
    replications: int,
    seed: int | Seeds = 0,
    demand_enters: DemandEnters = "arrival_rate",
) -> Floats:
    """Simulate the warehouse in m cases; return rewards (m, replications).

    Case i combines entry i of `demands` (m,) with the base-stock levels in row i of `levels` (m, 8). A single demand
    is used for all cases. With one seed, replication r uses the same random numbers in every case (common random
    numbers). With m seeds, each case has its own seed. `demand_enters` says what the demand multiplies: the
    "arrival_rate" of orders, or the mean "production_time" of items.
    """
    return _simulate(demands, levels, replications, seed, demand_enters, log_rows=0)[0]


def simulate_with_stock(
    demands: ArrayLike, levels: ArrayLike, replications: int, seed: int | Seeds = 0
) -> tuple[Floats, Floats]:
    """Simulate the warehouse in m cases; return rewards and mean numbers of units in stock, both (m, replications).

    Case i combines entry i of `demands` (m,), which multiplies the order rates, with the base-stock levels in row i of
    `levels` (m, 8). A single demand is used for all cases. With one seed, replication r uses the same random numbers in
    every case (common random numbers). With m seeds, each case has its own seed.
    """
    return _simulate(demands, levels, replications, seed, "arrival_rate", log_rows=0)[:2]


def _simulate(
    demands: ArrayLike,
    levels: ArrayLike,
    replications: int,
    seed: int | Seeds,
    demand_enters: DemandEnters,
    log_rows: int,
) -> tuple[Floats, Floats, Floats]:
    """Simulate each demand with its own base-stock levels; return rewards, mean stocks and a log.

    A pair is a demand with its levels. Rewards and mean stocks are (pairs, replications). The log (orders, LOG_COLUMNS)
    has the first `log_rows` orders. All simulations write to the same log, so it is meaningful only for one pair and
    one replication.
    """
    inputs = _inputs(demands, levels, demand_enters)
    seeds = seed_per_pair(seed, len(inputs.levels))
    rewards, stocks = (empty_rewards(len(inputs.levels), replications) for _ in range(2))
    log = np.full((log_rows, LOG_COLUMNS), np.nan)

    def simulate_range(first: int, last: int) -> None:
        _replicate_range(first, last, *inputs, seeds, rewards, stocks, log)

    in_threads(simulate_range, rewards.size)
    return rewards, stocks, log[~np.isnan(log[:, LOG_TIME])]


@dataclass(frozen=True)
class OrderLog:
    """What happened in one replication, with one entry for each order, sorted by time."""

    times: Floats
    products: NDArray[np.int64]  # number of the ordered product, 0 to 4
    sold: NDArray[np.bool_]  # whether the order was served, not lost
    stock: Floats  # (orders, ITEMS), after the order
    reward: float


def trace(demand: float, levels: ArrayLike, seed: int = 0, demand_enters: DemandEnters = "arrival_rate") -> OrderLog:
    """Return the log of the replication that `simulate(demand, levels, 1, seed, demand_enters)` simulates."""
    rewards, _, log = _simulate(demand, levels, 1, seed, demand_enters, LOG_ROWS)
    return OrderLog(
        times=log[:, LOG_TIME],
        products=log[:, LOG_PRODUCT].astype(np.int64),
        sold=log[:, LOG_SOLD].astype(np.bool_),
        stock=log[:, LOG_STOCK:],
        reward=float(rewards[0, 0]),
    )


def assemble_to_order(demand_enters: DemandEnters = "arrival_rate") -> Problem:
    """Set eight base-stock levels of a warehouse for high profit, given the demand.

    The state is the demand, and the action consists of the eight levels. The reward is the profit per unit of time.

    Parameters
    ----------
    demand_enters
        What the demand multiplies: the "arrival_rate" of orders, or the mean "production_time" of items.

    Returns
    -------
    Problem
        The problem, with near-optimal actions from a table.

    Raises
    ------
    SettingError
        If `demand_enters` is unknown.

    Examples
    --------
    >>> conbo.problems.assemble_to_order().space.n_action_dims
    8
    """
    if demand_enters not in NAMES:
        known = " or ".join(f"'{variant}'" for variant in NAMES)
        raise SettingError(f"`demand_enters` must be {known}, but got {demand_enters!r}.")
    space = Space(
        states={STATE_NAME: Real(LOWEST_DEMAND, HIGHEST_DEMAND)},
        actions={name: Real(0.0, CAPACITY) for name in ACTION_NAMES},
    )

    def demand_of(state: Point) -> Floats:
        return np.array(list(space.validate_state(state).values()), dtype=np.float64)

    def rewards(state: Point, action: Point, replications: int, seed: int) -> Floats:
        levels = list(space.validate_action(action).values())
        return simulate(demand_of(state), levels, replications, seed, demand_enters).ravel()

    def evaluate(state: Point, action: Point, generator: np.random.Generator, seed: int | None = None) -> float:
        drawn = draw_seed(generator) if seed is None else seed
        return float(rewards(state, action, replications=1, seed=drawn)[0])

    def mean_reward(state: Point, action: Point, replications: int, seed: int) -> MeanReward:
        return mean_of(rewards(state, action, replications, seed))

    def optimal_action(state: Point) -> dict[str, Value]:
        levels = near_optimal_table(demand_enters).action(demand_of(state))
        return dict(zip(ACTION_NAMES, levels.tolist(), strict=True))

    def optimal_reward(state: Point) -> float:
        return near_optimal_table(demand_enters).reward(demand_of(state))

    return Problem(
        name=NAMES[demand_enters],
        space=space,
        state_distribution=Uniform(),
        evaluate=evaluate,
        mean_reward=mean_reward,
        optimal_action=optimal_action,
        optimal_reward=optimal_reward,
        description="Base-stock levels of eight items for every level of demand; profit per unit of time.",
    )


@cache
def near_optimal_table(demand_enters: DemandEnters) -> NearOptimalTable:
    """Load the best known base-stock levels for a grid of demands."""
    return NearOptimalTable.load(f"{NAMES[demand_enters]}.csv", state_dimensions=1)
