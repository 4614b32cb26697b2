import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from without_numba import load_without_numba

from conbo.errors import PointError, SettingError
from conbo.problems import assemble_to_order, opportunity_cost
from conbo.problems.assembly_simulator import (
    ACTION_NAMES,
    HORIZON,
    IS_KEY,
    ITEMS,
    NAMES,
    ORDER_RATE,
    USES,
    DemandEnters,
    near_optimal_table,
    simulate,
    trace,
)

VARIANTS = tuple(NAMES)
REPLICATIONS = 10_000
STANDARD_ERRORS = 4.0
REFERENCE_REPLICATIONS = 100_000

# ../shared/problems.md: (level of every item, demand) → mean reward in the default and the second variant
REFERENCES: dict[tuple[float, float], tuple[float, float]] = {
    (20, 0.5): (-199.309, -92.222),
    (20, 1.0): (-37.210, -37.350),
    (20, 1.5): (-22.583, -73.972),
    (10, 1.0): (79.794, 79.651),
    (5, 0.5): (39.592, 145.365),
    (5, 1.0): (127.177, 126.928),
    (5, 1.5): (146.703, 83.962),
    (2, 1.0): (115.739, 114.945),
}
CRUDE_OPTIMA = {0.5: 68.7, 1.0: 138.6, 1.5: 167.1}

demands = st.floats(0.5, 1.5)
levels = st.lists(st.floats(0.0, 20.0), min_size=ITEMS, max_size=ITEMS)
seeds = st.integers(0, 2**64 - 1)


def action_of(stock: float) -> dict[str, float]:
    return dict.fromkeys(ACTION_NAMES, stock)


@pytest.mark.parametrize(("stock", "demand"), REFERENCES)
@pytest.mark.parametrize("variant", range(2))
def test_reference_values(stock: float, demand: float, variant: int) -> None:
    problem = assemble_to_order(VARIANTS[variant])
    assert problem.mean_reward is not None
    estimate = problem.mean_reward({"demand": demand}, action_of(stock), REPLICATIONS, 3)
    reference_error = estimate.standard_error * math.sqrt(REPLICATIONS / REFERENCE_REPLICATIONS)
    tolerance = STANDARD_ERRORS * math.hypot(estimate.standard_error, reference_error)
    assert estimate.mean == pytest.approx(REFERENCES[stock, demand][variant], abs=tolerance)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("demand", [0.5, 1.0, 1.5])
def test_an_empty_warehouse_earns_nothing(variant: DemandEnters, demand: float) -> None:
    assert np.all(simulate(demand, np.zeros(ITEMS), 20, demand_enters=variant) == 0.0)


@settings(max_examples=60, deadline=None)
@given(demands, levels, seeds, st.sampled_from(VARIANTS))
def test_stock_obeys_its_laws(demand: float, level: list[float], seed: int, variant: DemandEnters) -> None:
    log = trace(demand, level, seed, variant)
    assert np.all(np.diff(log.times) > 0)
    assert log.times[-1] <= HORIZON
    assert np.all(log.stock >= 0.0)
    assert np.all(log.stock <= np.array(level) + 1e-9)
    in_production = np.array(level) - log.stock
    assert in_production == pytest.approx(np.rint(in_production), abs=1e-9)
    assert log.reward == simulate(demand, level, 1, seed, variant)[0, 0]


@settings(max_examples=30, deadline=None)
@given(demands, levels, seeds)
def test_a_fraction_of_a_unit_only_costs_its_holding(demand: float, level: list[float], seed: int) -> None:
    whole, given_levels = trace(demand, np.floor(level), seed), trace(demand, level, seed)
    assert np.array_equal(whole.sold, given_levels.sold)
    assert whole.reward >= given_levels.reward - 1e-9


def test_a_missing_key_item_loses_the_order_and_a_missing_other_item_does_not() -> None:
    no_item_7 = [20.0] * 6 + [0.0, 20.0]
    assert trace(0.5, no_item_7).sold.all()
    strict = trace(0.5, no_item_7, demand_enters="production_time")
    assert not strict.sold[USES[strict.products, 6]].any()
    for item in np.flatnonzero(IS_KEY):
        no_key_item = np.where(np.arange(ITEMS) == item, 0.0, 20.0)
        log = trace(0.5, no_key_item)
        assert not log.sold[USES[log.products, item]].any()
        assert log.sold[~USES[log.products, item]].all()


def test_orders_come_at_their_rates() -> None:
    logs = [trace(1.5, np.zeros(ITEMS), seed) for seed in range(200)]
    counts = np.bincount(np.concatenate([log.products for log in logs]), minlength=len(ORDER_RATE))
    expected = 1.5 * ORDER_RATE * HORIZON * len(logs)
    assert np.all(np.abs(counts - expected) < STANDARD_ERRORS * np.sqrt(expected))


def test_orders_do_not_depend_on_the_action() -> None:
    few, many = trace(1.0, np.full(ITEMS, 2.0), seed=5), trace(1.0, np.full(ITEMS, 9.0), seed=5)
    assert np.array_equal(few.times, many.times)
    assert np.array_equal(few.products, many.products)


def test_common_random_numbers_make_differences_less_noisy() -> None:
    pair = np.array([[5.0] * 8, [5.0] * 7 + [4.0]])
    common = simulate(1.0, pair, 2000, seed=1)
    apart = simulate(1.0, pair, 2000, seed=np.array([1, 2], dtype=np.uint64))
    assert np.var(common[0] - common[1]) < 0.3 * np.var(apart[0] - apart[1])


def test_same_seed_same_numbers_however_they_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = np.array([[5.0] * 8, [3.0] * 8, [0.5] * 8])
    in_threads = simulate([0.5, 1.0, 1.5], pairs, 500, seed=7)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    in_one = simulate([0.5, 1.0, 1.5], pairs, 500, seed=7)
    one_by_one = simulate(1.0, pairs[1], 100, seed=7)
    assert np.array_equal(in_threads, in_one)
    assert np.array_equal(in_threads[1, :100], one_by_one[0])
    assert not np.array_equal(in_threads, simulate([0.5, 1.0, 1.5], pairs, 500, seed=8))


def test_without_numba_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = np.array([[4.5] * 8, [2.0] * 8])
    compiled = simulate(1.3, pairs, 2, 11, "production_time")
    plain = load_without_numba("conbo.problems.assembly_simulator", monkeypatch)
    assert plain.simulate(1.3, pairs, 2, 11, "production_time") == pytest.approx(compiled, rel=1e-10)
    assert plain.trace(1.3, pairs[0], 11).reward == pytest.approx(trace(1.3, pairs[0], 11).reward, rel=1e-10)


def test_an_evaluation_is_one_replication_drawn_from_the_generator() -> None:
    problem = assemble_to_order()
    state, action = {"demand": 1.0}, action_of(5.0)
    first, again, other = (problem.evaluate(state, action, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again != other
    generator = np.random.default_rng(3)
    rewards = [problem.evaluate(state, action, generator) for _ in range(400)]
    assert np.mean(rewards) == pytest.approx(127.177, abs=STANDARD_ERRORS * 5.1 / math.sqrt(len(rewards)))
    assert np.std(rewards) == pytest.approx(5.1, rel=0.2)


def test_all_randomness_of_an_evaluation_comes_from_its_seed():
    problem, generators = assemble_to_order(), [np.random.default_rng(i) for i in range(2)]
    assert problem.takes_seed
    first, again = (problem.evaluate({"demand": 1.0}, action_of(10.0), generator, seed=5) for generator in generators)
    assert first == again != problem.evaluate({"demand": 1.0}, action_of(10.0), generators[0], seed=6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_table_holds_what_it_says(variant: DemandEnters) -> None:
    table = near_optimal_table(variant)
    some = slice(None, None, 5)
    rewards = simulate(table.states[some, 0], table.actions[some], 4000, 99, variant)
    errors = rewards.std(axis=1) / math.sqrt(rewards.shape[1])
    assert np.all(np.abs(rewards.mean(axis=1) - table.rewards[some]) < STANDARD_ERRORS * 1.2 * errors)
    assert np.array_equal(table.actions, np.floor(table.actions))


@pytest.mark.parametrize("demand", CRUDE_OPTIMA)
def test_yardstick_beats_the_crude_optimum(demand: float) -> None:
    problem = assemble_to_order()
    assert problem.optimal_reward is not None
    assert problem.optimal_reward({"demand": demand}) >= CRUDE_OPTIMA[demand]


@pytest.mark.parametrize("variant", VARIANTS)
def test_yardstick_between_the_grid_states(variant: DemandEnters) -> None:
    problem = assemble_to_order(variant)
    assert problem.optimal_action is not None
    cost = opportunity_cost(problem, problem.optimal_action, n_states=32, replications=400)
    assert -0.2 < cost < 0.8


def test_bad_input() -> None:
    problem = assemble_to_order()
    generator = np.random.default_rng(0)
    with pytest.raises(SettingError, match="'arrival_rate' or 'production_time', but got 'sales'"):
        assemble_to_order("sales")  # type: ignore[arg-type]
    with pytest.raises(PointError, match="demand=2"):
        problem.evaluate({"demand": 2.0}, action_of(5.0), generator)
    with pytest.raises(PointError, match="stock_1=21"):
        problem.evaluate({"demand": 1.0}, action_of(21.0), generator)
    with pytest.raises(SettingError, match="replications=0"):
        simulate(1.0, [5.0] * 8, 0)
    with pytest.raises(SettingError, match="seed=-1"):
        simulate(1.0, [5.0] * 8, 1, seed=-1)
    with pytest.raises(ValueError, match="broadcast"):
        simulate([1.0, 1.0, 1.0], np.full((2, 8), 5.0), 1)
