"""The assemble-to-order problem with a constraint: the mean number of units in stock must be at most 12.

The constraint is learned: every evaluation measures the stock. The best known base-stock levels of the problem without
the constraint violate it in every state: their mean stock is between 12 and 17 units, and largest at medium demand.
"""

from dataclasses import replace
from functools import cache

import numpy as np

from conbo.outcome_constraints import AtMost
from conbo.problems.assembly_simulator import ACTION_NAMES, STATE_NAME, assemble_to_order, simulate_with_stock
from conbo.problems.near_optimal import NearOptimalTable
from conbo.problems.problem import Problem
from conbo.problems.simulation import draw_seed
from conbo.spaces import Point, Value

NAME = "assemble_to_order_constrained"
MOST_STOCK = 12.0  # largest mean number of units in stock
CHECKING = 400  # replications to decide whether the constraint holds; their mean has a standard error of at most 0.05
CHECKING_SEED = 0  # seed of these replications


def assemble_to_order_constrained() -> Problem:
    """Assemble to order with a learned limit on the mean number of units in stock.

    This is the problem `assemble_to_order` with a constraint: the mean stock must be at most 12 units. The mean stock
    is not known in advance, but every evaluation measures it. The best known base-stock levels without this constraint
    violate it in every state.

    Returns
    -------
    Problem
        The problem, with near-optimal actions from a table.

    Examples
    --------
    >>> list(conbo.problems.assemble_to_order_constrained().outcome_constraints)
    ['stock']
    """
    plain = assemble_to_order()
    space = plain.space

    def simulated(state: Point, action: Point, replications: int, seed: int) -> tuple[float, float]:
        (demand,), levels = space.validate_state(state).values(), list(space.validate_action(action).values())
        reward, stock = simulate_with_stock(demand, levels, replications, seed)
        return float(reward.mean()), float(stock.mean())

    def evaluate(
        state: Point, action: Point, generator: np.random.Generator, seed: int | None = None
    ) -> dict[str, float]:
        reward, stock = simulated(state, action, 1, draw_seed(generator) if seed is None else seed)
        return {"reward": reward, "stock": stock}

    def violates(state: Point, action: Point) -> bool:
        return simulated(state, action, CHECKING, CHECKING_SEED)[1] > MOST_STOCK

    def optimal_action(state: Point) -> dict[str, Value]:
        demand = float(space.validate_state(state)[STATE_NAME])
        return dict(zip(ACTION_NAMES, _levels(demand).tolist(), strict=True))

    def optimal_reward(state: Point) -> float:
        return near_optimal_table().reward(np.array([space.validate_state(state)[STATE_NAME]], dtype=np.float64))

    return replace(
        plain,
        name=NAME,
        evaluate=evaluate,
        optimal_action=optimal_action,
        optimal_reward=optimal_reward,
        description="Base-stock levels of eight items for every level of demand, with at most 12 units in stock.",
        outcome_constraints={"stock": AtMost(MOST_STOCK)},
        violates=violates,
    )


def _levels(demand: float) -> np.ndarray:
    """Return the best known base-stock levels for the highest tabulated demand that is at most `demand`.

    At the tabulated demand, these levels satisfy the constraint, which is an upper limit on the mean stock. They also
    satisfy it at `demand`, because a higher demand means more orders, which take more units out of stock.
    """
    table = near_optimal_table()
    below = np.flatnonzero(table.states[:, 0] <= demand + 1e-9)
    return np.asarray(table.actions[below[-1]])


@cache
def near_optimal_table() -> NearOptimalTable:
    """Load the best known base-stock levels that satisfy the limit on the mean stock, for a grid of demands."""
    return NearOptimalTable.load(f"{NAME}.csv", state_dimensions=1)
