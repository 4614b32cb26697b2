"""Assemble to order (ATO): how much stock of each item to keep, for every level of demand.

The model (Hong & Nelson 2006; Xie, Frazier & Chick 2016). A warehouse keeps eight items in stock and assembles five
products from them, on order. Taking a unit out of stock starts the production of its replacement at once, on the
only machine of that item, one unit after the other: stock plus units in production is always the base-stock level.

  - Orders for each product are a Poisson stream. An order that finds a *key* item short (less than one unit) is lost.
    Otherwise one unit of every key item is taken, and one of the non-key item if it is in stock.
  - Each unit taken earns the profit of its item; each unit in stock costs 2 per unit of time.
  - The reward is profit per unit of time over 50 units of time, after a warm-up of 20.

State: the demand level. It multiplies the order rates, or, in the second variant, the mean production times (and
there every item of a product is key). Action: the eight base-stock levels. They are real numbers, and the stock
begins at the level as given: a fraction of a unit can never be sold but costs its holding, so best levels are whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conbo.errors import SettingError
from conbo.problems.near_optimal import NearOptimalTable
from conbo.problems.problem import MeanReward, Problem
from conbo.problems.random_streams import compiled, exponential, normal, substream, uniform
from conbo.problems.simulation import Floats, Seeds, draw_seed, empty_rewards, in_threads, mean_of, seed_per_pair
from conbo.spaces import Real, Space
from conbo.state_distributions import Uniform

DemandEnters = Literal["arrival_rate", "production_time"]

ITEMS = 8
CAPACITY = 20
RING = 32  # no more than CAPACITY units are in production at once; a power of two makes the remainder cheap
LOWEST_DEMAND, HIGHEST_DEMAND = 0.5, 1.5
STATE_NAME = "demand"
ACTION_NAMES = tuple(f"stock_{item}" for item in range(1, ITEMS + 1))

PROFIT = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])  # of one unit of each item
HOLDING_COST = 2.0  # of one unit of stock for one unit of time
PRODUCTION_MEAN = np.array([0.15, 0.40, 0.25, 0.15, 0.25, 0.08, 0.13, 0.40])
PRODUCTION_SD = 0.15 * PRODUCTION_MEAN

WARM_UP = 20.0
HORIZON = 70.0
MEASURED_TIME = HORIZON - WARM_UP

ORDER_RATE = np.array([3.6, 3.0, 2.4, 1.8, 1.2])  # of each product, at demand 1
TOTAL_ORDER_RATE = float(ORDER_RATE.sum())
PRODUCT_UP_TO = np.cumsum(ORDER_RATE) / TOTAL_ORDER_RATE  # a uniform draw below this is this product or one before
LAST_PRODUCT = len(ORDER_RATE) - 1
USES = np.array(  # product by item: one unit of each item with a 1
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

# Columns of the log that a replication can keep, one row an order; the stock of the items after it comes last.
LOG_TIME, LOG_PRODUCT, LOG_SOLD, LOG_STOCK = 0, 1, 2, 3
LOG_COLUMNS = LOG_STOCK + ITEMS
LOG_ROWS = 4000  # at most: the mean number of orders is 1260 at the highest demand


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
) -> float:
    """Reward of one replication. `required[product, item]`: without this item an order for the product is lost."""
    arrivals = substream(key, ARRIVAL_STREAM)
    products = substream(key, PRODUCT_STREAM)
    production = np.empty(ITEMS, dtype=np.uint64)
    for item in range(ITEMS):
        production[item] = substream(key, FIRST_PRODUCTION_STREAM + item)

    stock = levels.copy()
    started = np.zeros(ITEMS, dtype=np.int64)  # units of each item whose production has begun
    finished = np.zeros(ITEMS, dtype=np.int64)  # units of them that are back in stock
    finish_time = np.full((ITEMS, RING), np.inf)  # of unit k in production, at k % RING; inf where there is none
    machine_free_at = np.zeros(ITEMS)

    earned = 0.0
    time = 0.0
    order = 0
    while True:
        previous_time = time
        time += exponential(arrivals, order) / order_rate
        if time > HORIZON:
            return earned / MEASURED_TIME
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
                # Short means and an unscaled sd can give a negative time (1 in 2,300 at demand 0.5): then it is 0.
                duration = max(0.0, production_mean[item] + PRODUCTION_SD[item] * draw)
                machine_free_at[item] = max(time, machine_free_at[item]) + duration
                finish_time[item, started[item] % RING] = machine_free_at[item]
                started[item] += 1

        if time >= WARM_UP:
            earned -= HOLDING_COST * stock.sum() * (time - previous_time)

        if order < log.shape[0]:
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
) -> None:
    replications = rewards.shape[1]
    no_log = np.empty((0, LOG_COLUMNS))
    for run in range(first, last):
        pair = run // replications
        replication = run % replications
        rewards[pair, replication] = _replicate(
            order_rates[pair],
            production_means[pair],
            required,
            levels[pair],
            substream(seeds[pair], replication),
            no_log,
        )


@dataclass(frozen=True)
class _Inputs:
    """What the kernel needs to know of (state, action) pairs; here, and only here, the two variants differ."""

    order_rates: Floats  # (pairs,)
    production_means: Floats  # (pairs, ITEMS)
    required: NDArray[np.bool_]  # (products, ITEMS)
    levels: Floats  # (pairs, ITEMS)


def _inputs(demand: ArrayLike, levels: ArrayLike, demand_enters: DemandEnters) -> _Inputs:
    demands = np.array(demand, dtype=np.float64).reshape(-1)
    stock_levels = np.array(levels, dtype=np.float64).reshape(-1, ITEMS)
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
    """Rewards of many pairs at once: demands (m,) and levels (m, 8) give rewards (m, replications).

    With one seed, replication r meets the same orders and production times in every pair (common random numbers);
    with an array of m seeds each pair has its own.
    """
    inputs = _inputs(demands, levels, demand_enters)
    pairs = len(inputs.levels)
    seeds = seed_per_pair(seed, pairs)
    rewards = empty_rewards(pairs, replications)

    def simulate_range(first: int, last: int) -> None:
        _replicate_range(
            first,
            last,
            inputs.order_rates,
            inputs.production_means,
            inputs.required,
            inputs.levels,
            seeds,
            rewards,
        )

    in_threads(simulate_range, rewards.size)
    return rewards


@dataclass(frozen=True)
class OrderLog:
    """What happened in one replication: one entry an order, in order of time."""

    times: Floats
    products: NDArray[np.int64]  # 0 to 4
    sold: NDArray[np.bool_]
    stock: Floats  # (orders, ITEMS), after the order
    reward: float


def trace(
    demand: float,
    levels: ArrayLike,
    seed: int = 0,
    demand_enters: DemandEnters = "arrival_rate",
) -> OrderLog:
    """Replication 0 of `simulate(demand, levels, 1, seed)`, order by order."""
    inputs = _inputs(demand, levels, demand_enters)
    log = np.full((LOG_ROWS, LOG_COLUMNS), np.nan)
    with np.errstate(over="ignore"):  # SplitMix64 wraps around on purpose
        key = substream(seed_per_pair(seed, 1)[0], 0)
        reward = _replicate(
            inputs.order_rates[0], inputs.production_means[0], inputs.required, inputs.levels[0], key, log
        )
    log = log[~np.isnan(log[:, LOG_TIME])]
    return OrderLog(
        times=log[:, LOG_TIME],
        products=log[:, LOG_PRODUCT].astype(np.int64),
        sold=log[:, LOG_SOLD].astype(np.bool_),
        stock=log[:, LOG_STOCK:],
        reward=reward,
    )
