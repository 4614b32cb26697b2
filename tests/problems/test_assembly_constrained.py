"""Assemble to order with a limit on the mean stock."""

import numpy as np
import pytest

from conbo.problems import assemble_to_order, assemble_to_order_constrained, violation
from conbo.problems.assembly_constrained import MOST_STOCK, near_optimal_table
from conbo.problems.assembly_simulator import ACTION_NAMES, MEASURED_TIME, WARM_UP, simulate_with_stock, trace

LEVELS = (4.0, 2.0, 3.0, 6.5, 4.0, 4.0, 4.0, 2.0)
ACTION = dict(zip(ACTION_NAMES, LEVELS, strict=True))


def test_the_reward_is_that_without_a_limit_and_the_stock_is_its_mean_over_time() -> None:
    limited, plain = assemble_to_order_constrained(), assemble_to_order()
    told = limited.evaluate({"demand": 1.2}, ACTION, np.random.default_rng(0), seed=7)
    assert isinstance(told, dict)
    assert told["reward"] == plain.evaluate({"demand": 1.2}, ACTION, np.random.default_rng(0), seed=7)
    log = trace(1.2, LEVELS, seed=7)
    waits = np.diff(log.times, prepend=0.0)
    held = (log.stock.sum(axis=1) * waits)[log.times >= WARM_UP].sum()
    assert told["stock"] == pytest.approx(held / MEASURED_TIME, rel=1e-9)


def test_the_best_known_levels_keep_the_limit() -> None:
    table, free = near_optimal_table(), assemble_to_order()
    assert np.array_equal(table.actions, np.rint(table.actions))
    some = slice(0, None, 5)
    rewards, stock = simulate_with_stock(table.states[some, 0], table.actions[some], 1000, 99)
    assert np.all(stock.mean(axis=1) <= MOST_STOCK + 0.1)
    assert rewards.mean(axis=1) == pytest.approx(table.rewards[some], abs=1.0)
    assert free.optimal_reward is not None
    best = [free.optimal_reward({"demand": demand}) for demand in table.states[:, 0]]
    assert np.all(table.rewards <= np.array(best) + 0.2)


def test_what_is_best_without_the_limit_breaks_it() -> None:
    limited, plain = assemble_to_order_constrained(), assemble_to_order()
    assert plain.optimal_action is not None
    assert limited.optimal_action is not None
    assert violation(limited, plain.optimal_action, n_states=4) == 1.0
    assert violation(limited, limited.optimal_action, n_states=4) == 0.0
    assert limited.optimal_action({"demand": 0.99}) == limited.optimal_action({"demand": 0.95})
