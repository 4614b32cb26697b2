import math
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from without_numba import load_without_numba

from conbo.errors import PointError, SettingError, SpaceError
from conbo.problems import ambulances, opportunity_cost
from conbo.problems.ambulance_simulator import (
    ACTION_NAMES,
    AMBULANCES,
    CITY,
    DAY,
    SCENE_SCALE,
    SCENE_SHAPE,
    SPEED_HOME,
    SPEED_TO_CALL,
    CallLog,
    near_optimal_table,
    simulate,
    trace,
)
from conbo.state_distributions import Normal, Product

STANDARD_ERRORS = 4.0
DAYS = 100_000
REFERENCE_ERROR = 0.008
ROUNDING = 1e-9

# ../shared/problems.md: bases → mean response time in minutes for each mode
MODES = ((15.0, 15.0), (24.0, 24.0), (0.0, 0.0))
REFERENCES: dict[tuple[float, ...], tuple[float, ...]] = {
    (15, 15, 15, 15, 15, 15): (15.455, 16.003, 16.363),
    (10, 10, 20, 10, 15, 20): (13.099, 13.955, 13.352),
    (5, 5, 25, 5, 15, 25): (14.931, 15.624, 14.274),
}
CRUDE_OPTIMA = (12.94, 12.69, 11.92)
# They are means with the standard error of the reference values, and have two decimals.
CRUDE_ERROR = REFERENCE_ERROR + 0.005

coordinates = st.floats(0.0, CITY)
modes = st.tuples(coordinates, coordinates)
bases = st.lists(coordinates, min_size=2 * AMBULANCES, max_size=2 * AMBULANCES)
seeds = st.integers(0, 2**64 - 1)


def state_of(mode: tuple[float, float]) -> dict[str, float]:
    return {"mode_x": mode[0], "mode_y": mode[1]}


@pytest.mark.parametrize("base", REFERENCES)
@pytest.mark.parametrize("mode", MODES)
def test_reference_values(base: tuple[float, ...], mode: tuple[float, float]) -> None:
    problem = ambulances()
    assert problem.mean_reward is not None
    action = dict(zip(ACTION_NAMES, base, strict=True))
    estimate = problem.mean_reward(state_of(mode), action, DAYS, 3)
    tolerance = STANDARD_ERRORS * math.hypot(estimate.standard_error, REFERENCE_ERROR)
    assert -estimate.mean == pytest.approx(REFERENCES[base][MODES.index(mode)], abs=tolerance)


def test_closed_form_when_ambulances_are_never_busy() -> None:
    rewards = simulate((15, 15), [15] * 6, 1_500_000, seed=4, calls_per_hour=1e-3)
    assert -rewards.mean() == pytest.approx(30 * (0.8 - 7 / 24) / 1.1, abs=0.02)


@settings(max_examples=200, deadline=None)
@given(modes, bases, seeds)
def test_a_day_obeys_the_rules(mode: tuple[float, float], base: list[float], seed: int) -> None:
    log = trace(mode, base, seed)
    assert np.all(np.diff(log.times) > 0)
    assert 0 < log.times[0] <= log.times[-1] <= DAY
    assert np.all((log.places >= 0) & (log.places <= CITY))
    assert log.reward == simulate(mode, base, 1, seed)[0, 0]
    assert -log.reward == pytest.approx(np.mean(log.arrivals - log.times))
    check_no_call_is_served_before_it_arrives(log)
    for ambulance in range(AMBULANCES):
        check_it_is_never_in_two_places(log, ambulance)
    check_the_nearest_free_or_the_first_to_finish_goes(log)


def check_no_call_is_served_before_it_arrives(log: CallLog) -> None:
    assert np.all(log.departures >= log.times)
    way = np.abs(log.places - log.departure_places).sum(axis=1)
    assert log.arrivals - log.departures == pytest.approx(way / SPEED_TO_CALL, abs=ROUNDING)
    assert np.all(log.done > log.arrivals)


def check_it_is_never_in_two_places(log: CallLog, ambulance: int) -> None:
    trips = np.flatnonzero(log.ambulances == ambulance)
    if len(trips) == 0:
        return
    assert log.departure_places[trips[0]] == pytest.approx(log.bases[ambulance])
    for before, after in pairwise(trips):
        assert log.departures[after] >= log.done[before]
        way_home = np.abs(log.bases[ambulance] - log.places[before]).sum()
        driven = np.abs(log.departure_places[after] - log.places[before]).sum()
        left = np.abs(log.bases[ambulance] - log.departure_places[after]).sum()
        at_most = SPEED_HOME * (log.departures[after] - log.done[before])
        assert driven == pytest.approx(min(at_most, way_home), abs=ROUNDING)
        assert driven + left == pytest.approx(way_home, abs=ROUNDING)  # no detour
        north_south_left = abs(log.bases[ambulance, 1] - log.departure_places[after, 1])
        east_west_driven = abs(log.departure_places[after, 0] - log.places[before, 0])
        assert min(north_south_left, east_west_driven) == pytest.approx(0.0, abs=ROUNDING)


def check_the_nearest_free_or_the_first_to_finish_goes(log: CallLog) -> None:
    busy_until = np.zeros(AMBULANCES)
    for call, ambulance in enumerate(log.ambulances):
        free = busy_until <= log.times[call]
        if free.any():
            assert free[ambulance]
            assert log.departures[call] == log.times[call]
        else:
            assert busy_until[ambulance] == busy_until.min() == log.departures[call]
        at_base = free & ((log.times[call] - busy_until) * SPEED_HOME > 2 * CITY)  # for sure
        from_base = np.abs(log.bases - log.places[call]).sum(axis=1)
        response = (log.arrivals[call] - log.times[call]) * SPEED_TO_CALL
        assert np.all(response <= from_base[at_base] + ROUNDING)
        busy_until[ambulance] = log.done[call]


@settings(max_examples=50, deadline=None)
@given(modes, bases, seeds)
def test_permuting_the_ambulances_changes_nothing(mode: tuple[float, float], base: list[float], seed: int) -> None:
    orders = [np.reshape(base, (AMBULANCES, 2))[list(order)].ravel() for order in permutations(range(3))]
    rewards = simulate(mode, orders, 20, seed)
    assert np.array_equal(rewards, np.broadcast_to(rewards[0], rewards.shape))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_mirrored_city_is_the_same_city(axis: int) -> None:
    mode, base = np.array([7.0, 20.0]), np.array([[4.0, 9.0], [18.0, 12.0], [11.0, 27.0]])
    mirrored_mode, mirrored_base = mode.copy(), base.copy()
    mirrored_mode[axis], mirrored_base[:, axis] = CITY - mode[axis], CITY - base[:, axis]
    one, other = simulate(mode, base, DAYS, 5), simulate(mirrored_mode, mirrored_base, DAYS, 6)
    assert one.mean() == pytest.approx(other.mean(), abs=STANDARD_ERRORS * one.std() * math.sqrt(2 / DAYS))


def test_times_at_the_scene_are_gamma() -> None:
    logs = [trace((15, 15), [15.0] * 6, seed) for seed in range(400)]
    times = np.concatenate([log.done - log.arrivals for log in logs])
    mean, sd = SCENE_SHAPE * SCENE_SCALE, math.sqrt(SCENE_SHAPE) * SCENE_SCALE
    assert times.mean() == pytest.approx(mean, abs=STANDARD_ERRORS * sd / math.sqrt(times.size))
    assert times.std() == pytest.approx(sd, rel=0.05)
    calls = sum(log.times.size for log in logs)
    assert calls == pytest.approx(24 * len(logs), abs=STANDARD_ERRORS * math.sqrt(24 * len(logs)))


def test_calls_do_not_depend_on_the_action() -> None:
    one, other = trace((3, 8), [15.0] * 6, seed=5), trace((3, 8), [0.0] * 6, seed=5)
    assert np.array_equal(one.times, other.times)
    assert np.array_equal(one.places, other.places)
    assert one.done - one.arrivals == pytest.approx(other.done - other.arrivals)


def test_common_random_numbers_make_differences_less_noisy() -> None:
    pair = np.array([[10, 10, 20, 10, 15, 20], [11, 10, 20, 10, 15, 20]])
    common = simulate((15, 15), pair, 5000, seed=1)
    apart = simulate((15, 15), pair, 5000, seed=np.array([1, 2], dtype=np.uint64))
    assert np.var(common[0] - common[1]) < 0.3 * np.var(apart[0] - apart[1])


def test_same_seed_same_numbers_however_they_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = np.array([[10, 10, 20, 10, 15, 20], [5, 5, 25, 5, 15, 25]])
    in_threads = simulate([(15, 15), (3, 20)], pairs, 501, seed=7)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert np.array_equal(in_threads, simulate([(15, 15), (3, 20)], pairs, 501, seed=7))
    assert np.array_equal(in_threads[1, :100], simulate((3, 20), pairs[1], 100, seed=7)[0])
    assert not np.array_equal(in_threads, simulate([(15, 15), (3, 20)], pairs, 501, seed=8))


def test_without_numba_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    mode, base, rare = (3, 20), [5, 5, 25, 5, 15, 25], 0.02  # so rare that some days have to be redrawn
    often, seldom = simulate(mode, base, 100, 11), simulate(mode, base, 100, 11, calls_per_hour=rare)
    plain = load_without_numba("conbo.problems.ambulance_simulator", monkeypatch)
    assert plain.simulate(mode, base, 100, 11) == pytest.approx(often, rel=1e-10)
    assert plain.simulate(mode, base, 100, 11, calls_per_hour=rare) == pytest.approx(seldom, rel=1e-10)
    assert plain.trace(mode, base, 11).reward == pytest.approx(often[0, 0], rel=1e-10)


def test_an_evaluation_is_one_day_drawn_from_the_generator() -> None:
    problem = ambulances()
    action = dict(zip(ACTION_NAMES, (10, 10, 20, 10, 15, 20), strict=True))
    first, again, other = (
        problem.evaluate(state_of((15, 15)), action, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert first == again != other
    generator = np.random.default_rng(3)
    rewards = [problem.evaluate(state_of((15, 15)), action, generator) for _ in range(1000)]
    assert np.mean(rewards) == pytest.approx(-13.099, abs=STANDARD_ERRORS * 3.2 / math.sqrt(len(rewards)))
    assert 2.9 < np.std(rewards) < 3.5


def test_all_randomness_of_an_evaluation_comes_from_its_seed():
    problem, state = ambulances(), state_of((15, 15))
    here, near = (
        dict(zip(ACTION_NAMES, bases, strict=True)) for bases in ((10, 10, 20, 10, 15, 20), (11, 10, 20, 11, 15, 20))
    )
    generators = [np.random.default_rng(i) for i in range(2)]
    assert problem.takes_seed
    first, again = (problem.evaluate(state, here, generator, seed=5) for generator in generators)
    assert first == again != problem.evaluate(state, here, generators[0], seed=6)
    days = np.array(
        [[problem.evaluate(state, action, generators[0], seed=s) for s in range(60)] for action in (here, near)]
    )
    assert np.corrcoef(days)[0, 1] > 0.8  # the days of two actions that are close have most of their luck in common


def test_table_holds_what_it_says() -> None:
    table = near_optimal_table()
    some = slice(None, None, 6)
    rewards = simulate(table.states[some], table.actions[some], 40_000, 99)
    errors = rewards.std(axis=1) / math.sqrt(rewards.shape[1])
    assert np.all(np.abs(rewards.mean(axis=1) - table.rewards[some]) < STANDARD_ERRORS * 1.2 * errors)


@pytest.mark.parametrize("mode", MODES)
def test_yardstick_is_no_worse_than_the_crude_optimum_within_its_error(mode: tuple[float, float]) -> None:
    problem = ambulances()
    assert problem.optimal_reward is not None
    assert -problem.optimal_reward(state_of(mode)) <= CRUDE_OPTIMA[MODES.index(mode)] + CRUDE_ERROR


@pytest.mark.parametrize("mode", [(2.5, 7.5), (27.5, 7.5), (2.5, 22.5), (27.5, 22.5)])
def test_yardstick_is_mirrored_into_every_quadrant(mode: tuple[float, float]) -> None:
    problem = ambulances()
    assert problem.optimal_action is not None
    assert problem.optimal_reward is not None
    base = list(problem.optimal_action(state_of(mode)).values())
    assert all(0 <= float(coordinate) <= CITY for coordinate in base)
    rewards = simulate(mode, base, DAYS, 12)
    tolerance = STANDARD_ERRORS * 1.2 * rewards.std() / math.sqrt(DAYS)
    assert rewards.mean() == pytest.approx(problem.optimal_reward(state_of(mode)), abs=tolerance)


def test_yardstick_between_the_grid_states() -> None:
    problem = ambulances()
    assert problem.optimal_action is not None
    cost = opportunity_cost(problem, problem.optimal_action, n_states=64, replications=5000)
    assert -0.05 < cost < 0.1


def test_states_are_normal_around_the_center() -> None:
    recipe = Normal(15.0, 5.0)
    assert ambulances(state_sd=5.0).state_distribution == Product({"mode_x": recipe, "mode_y": recipe})


def test_bad_input() -> None:
    problem = ambulances()
    generator = np.random.default_rng(0)
    action = dict.fromkeys(ACTION_NAMES, 15.0)
    with pytest.raises(SpaceError, match="sd=0"):
        ambulances(state_sd=0.0)
    with pytest.raises(PointError, match="mode_x=31"):
        problem.evaluate(state_of((31.0, 0.0)), action, generator)
    with pytest.raises(PointError, match="base_3_y"):
        problem.evaluate(state_of((15.0, 15.0)), {**action, "base_3_y": -1.0}, generator)
    with pytest.raises(SettingError, match="replications=0"):
        simulate((15, 15), [15] * 6, 0)
