"""Ambulances in a square (AMB): where to base three ambulances, given where the population is densest.

The model (SimOpt library; Dong, Eckman, Zhao, Henderson & Poloczek 2017). The city is a square with sides of 30 km.
Streets run north-south and east-west, so that all distances are Manhattan distances.

  - Calls for help are a Poisson process, with one call an hour on average. Their places follow the density of
    the population: a pyramid, highest at its mode and falling with Manhattan distance from it.
  - A call goes to the free ambulance that is nearest at this moment. An ambulance is free when it is at its
    base or on its way back to it; it drives north or south first, then east or west.
  - If no ambulance is free, the call waits for the ambulance that finishes first, which then comes straight from
    its last patient. Calls are served in order of arrival.
  - The time at the scene is gamma distributed. Then the ambulance heads home, more slowly than it came.
  - The reward is minus the mean response time, from call to arrival at the scene, over the calls of one
    day.

State: the mode of the population density. Action: the three bases. Ambulances are interchangeable, so the
bases are sorted first, and their order does not change the reward.

Units are kilometers and minutes.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conbo.problems.near_optimal import NearOptimalTable
from conbo.problems.problem import MeanReward, Problem
from conbo.problems.random_streams import compiled, erlang, exponential, substream, uniform
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
from conbo.state_distributions import Normal, Product

AMBULANCES = 3
CITY = 30.0  # length of a side, in km
CENTER = CITY / 2
MINUTES_PER_HOUR = 60.0
DAY = 24 * MINUTES_PER_HOUR
CALLS_PER_HOUR = 1.0
SPEED_TO_CALL = 60.0 / MINUTES_PER_HOUR  # km per minute
SPEED_HOME = 40.0 / MINUTES_PER_HOUR  # km per minute
SCENE_SHAPE, SCENE_SCALE = 9, 5.0  # the time at the scene is gamma distributed, with mean 45 minutes
# Population density, up to a factor: this minus the Manhattan distance from the mode, on a square of side 1.
DENSITY_PEAK = 1.6

STATE_NAMES = ("mode_x", "mode_y")
ACTION_NAMES = tuple(f"base_{number}_{axis}" for number in range(1, AMBULANCES + 1) for axis in "xy")

# The random streams of a replication.
ARRIVAL_STREAM, LOCATION_STREAM, SCENE_STREAM = 0, 1, 2
UNIFORMS_PER_PLACE = 3  # two coordinates, and one that decides whether to accept them

# The log of a day has one row for each call, with the columns that `trace` names.
LOG_COLUMNS = 9
LOG_ROWS = 200  # more rows than will ever be needed, because the mean number of calls is 24


@compiled
def _distance(x: float, y: float, other_x: float, other_y: float) -> float:
    return abs(x - other_x) + abs(y - other_y)


@compiled
def _toward(start: float, target: float, distance: float) -> float:
    """Return the position on a line after moving from `start` toward `target` by at most `distance`."""
    if distance >= abs(target - start):
        return target
    return start + math.copysign(distance, target - start)


@compiled
def _on_the_way_home(scene: Floats, base: Floats, driven: float) -> tuple[float, float]:
    """Return where an ambulance is after `driven` km of its way from its last scene (2,) to its base (2,).

    It drives north or south first.
    """
    north_south = min(driven, abs(base[1] - scene[1]))
    return _toward(scene[0], base[0], driven - north_south), _toward(scene[1], base[1], driven)


@compiled
def _place_of_call(locations: np.uint64, tried: int, mode_x: float, mode_y: float) -> tuple[float, float, int]:
    """Draw the place of a call from the population density, by rejection sampling; return x, y and the new `tried`.

    `tried` is the number of places that were proposed so far on this day; the returned number includes those of this
    call. `locations` is the key of a random stream.
    """
    while True:
        x = CITY * uniform(locations, UNIFORMS_PER_PLACE * tried)
        y = CITY * uniform(locations, UNIFORMS_PER_PLACE * tried + 1)
        height = DENSITY_PEAK * uniform(locations, UNIFORMS_PER_PLACE * tried + 2)
        tried += 1
        if height <= DENSITY_PEAK - _distance(x, y, mode_x, mode_y) / CITY:
            return x, y, tried


@compiled
def _simulate_day(
    mode_x: float, mode_y: float, bases: Floats, calls_per_minute: float, key: np.uint64, log: Floats
) -> float:
    """Simulate one day with `bases` (AMBULANCES, 2); return its reward, and fill `log`, one row per call.

    `mode_x` and `mode_y` are the coordinates of the population density's mode. `key` is the key of the random stream of
    the day.
    """
    arrivals = substream(key, ARRIVAL_STREAM)
    locations = substream(key, LOCATION_STREAM)
    scenes = substream(key, SCENE_STREAM)

    # Each ambulance is busy at its last scene until this time; then it drives to its base. All begin at their bases.
    last_scene = bases.copy()
    busy_until = np.zeros(AMBULANCES)

    gaps = 0
    time = exponential(arrivals, gaps) / calls_per_minute
    while time > DAY:  # a day without calls is redrawn
        gaps += 1
        time = exponential(arrivals, gaps) / calls_per_minute

    calls = 0
    places_tried = 0
    total_response = 0.0
    while time <= DAY:
        call_x, call_y, places_tried = _place_of_call(locations, places_tried, mode_x, mode_y)

        # If no ambulance is free, the first one to finish comes directly from its last scene ...
        sent = int(np.argmin(busy_until))
        departure = busy_until[sent]
        from_x, from_y = last_scene[sent]
        way = _distance(call_x, call_y, from_x, from_y)
        # ... otherwise, the nearest of the free ambulances comes from where it is.
        if departure <= time:
            departure = time
            way = np.inf
            for ambulance in range(AMBULANCES):
                if busy_until[ambulance] <= time:
                    driven = SPEED_HOME * (time - busy_until[ambulance])
                    x, y = _on_the_way_home(last_scene[ambulance], bases[ambulance], driven)
                    distance = _distance(call_x, call_y, x, y)
                    if distance < way:
                        sent, from_x, from_y, way = ambulance, x, y, distance

        arrival = departure + way / SPEED_TO_CALL
        done = arrival + SCENE_SCALE * erlang(scenes, calls, SCENE_SHAPE)
        total_response += arrival - time
        busy_until[sent] = done
        last_scene[sent, 0], last_scene[sent, 1] = call_x, call_y

        if calls < len(log):
            row = (time, call_x, call_y, float(sent), departure, from_x, from_y, arrival, done)
            log[calls] = np.array(row)
        calls += 1
        gaps += 1
        time += exponential(arrivals, gaps) / calls_per_minute
    return -total_response / calls


@compiled
def _simulate_range(
    first: int,
    last: int,
    modes: Floats,  # (pairs, 2)
    bases: Floats,  # (pairs, AMBULANCES, 2)
    calls_per_minute: float,
    seeds: Seeds,  # (pairs,)
    rewards: Floats,  # (pairs, replications), filled here
    log: Floats,  # (rows, LOG_COLUMNS), filled here; without rows nothing is logged
) -> None:
    replications = rewards.shape[1]
    for run in range(first, last):
        pair = run // replications
        replication = run % replications
        key = substream(seeds[pair], replication)
        rewards[pair, replication] = _simulate_day(
            modes[pair, 0], modes[pair, 1], bases[pair], calls_per_minute, key, log
        )


def _in_order(bases: ArrayLike) -> Floats:
    """Convert n actions to an array (n, AMBULANCES, 2) with the bases of each action sorted from west to east.

    An action consists of the bases of all ambulances. Without sorting, their order would affect the reward: if two
    ambulances are equally near to a call, the first of them is sent, and such ties are common with Manhattan distances.
    """
    rows = np.array(bases, dtype=np.float64).reshape(-1, AMBULANCES, 2)
    order = np.lexsort((rows[:, :, 1], rows[:, :, 0]))
    return np.take_along_axis(rows, order[:, :, np.newaxis], axis=1)


def simulate(
    modes: ArrayLike,
    bases: ArrayLike,
    replications: int,
    seed: int | Seeds = 0,
    calls_per_hour: float = CALLS_PER_HOUR,
) -> Floats:
    """Simulate `replications` days for each of m cases; return rewards (m, replications).

    In case i, the mode of the population density is row i of `modes` (m, 2), and the coordinates of the three bases are
    row i of `bases` (m, 6). A single mode (2,) is used for all cases. With one seed, replication r has the same times
    and places of calls, and the same times at the scene, in all cases with the same mode (common random numbers). With
    m seeds, each case has its own seed.
    """
    return _simulate(modes, _in_order(bases), replications, seed, calls_per_hour, log_rows=0)[0]


def _simulate(
    modes: ArrayLike,
    bases: Floats,  # (pairs, AMBULANCES, 2)
    replications: int,
    seed: int | Seeds,
    calls_per_hour: float,
    log_rows: int,
) -> tuple[Floats, Floats]:
    """Simulate `replications` days for each pair of a mode and bases; return rewards and a log of calls.

    Pair i consists of row i of `modes` (pairs, 2) and entry i of `bases`. A single mode (2,) is used for all pairs.
    Rewards are (pairs, replications). The log (calls, LOG_COLUMNS) has the first `log_rows` calls of a day. All days
    write to the same log, so it is meaningful only if a single day is simulated.
    """
    mode_rows = np.array(np.broadcast_to(np.asarray(modes, dtype=np.float64), (len(bases), 2)))
    seeds = seed_per_pair(seed, len(bases))
    rewards = empty_rewards(len(bases), replications)
    log = np.full((log_rows, LOG_COLUMNS), np.nan)
    calls_per_minute = calls_per_hour / MINUTES_PER_HOUR

    def simulate_range(first: int, last: int) -> None:
        _simulate_range(first, last, mode_rows, bases, calls_per_minute, seeds, rewards, log)

    in_threads(simulate_range, rewards.size)
    return rewards, log[~np.isnan(log[:, 0])]


@dataclass(frozen=True)
class CallLog:
    """What happened on one day, with one entry for each call, sorted by time. Units are minutes and km."""

    bases: Floats  # (AMBULANCES, 2), in the order of the ambulances' numbers
    times: Floats  # when the call was made
    places: Floats  # (calls, 2)
    ambulances: NDArray[np.int64]  # number of the ambulance that was sent
    departures: Floats  # when the ambulance left for the call
    departure_places: Floats  # (calls, 2), from where it left
    arrivals: Floats  # when it reached the scene
    done: Floats  # when it left the scene
    reward: float


def trace(mode: ArrayLike, bases: ArrayLike, seed: int = 0) -> CallLog:
    """Return the log of the day that `simulate(mode, bases, 1, seed)` simulates."""
    base_rows = _in_order(bases)
    rewards, log = _simulate(mode, base_rows, 1, seed, CALLS_PER_HOUR, LOG_ROWS)
    times, call_x, call_y, sent, departures, from_x, from_y, arrivals, done = log.T
    return CallLog(
        bases=base_rows[0],
        times=times,
        places=np.column_stack([call_x, call_y]),
        ambulances=sent.astype(np.int64),
        departures=departures,
        departure_places=np.column_stack([from_x, from_y]),
        arrivals=arrivals,
        done=done,
        reward=float(rewards[0, 0]),
    )


def ambulances(state_sd: float = 7.5) -> Problem:
    """Base three ambulances for short response times, given where the population is densest.

    The action consists of the coordinates of three bases. The state is the place where the population is densest. The
    reward is minus the mean response time, in minutes.

    Parameters
    ----------
    state_sd
        Standard deviation of the mode around the center of the city, in km, before truncation to the city. The
        literature does not state it.

    Returns
    -------
    Problem
        The problem, with near-optimal actions from a table.

    Examples
    --------
    >>> conbo.problems.ambulances().space.n_action_dims
    6
    """
    space = Space(
        states={name: Real(0.0, CITY) for name in STATE_NAMES},
        actions={name: Real(0.0, CITY) for name in ACTION_NAMES},
    )

    def mode_of(state: Point) -> Floats:
        return np.array(list(space.validate_state(state).values()), dtype=np.float64)

    def rewards(state: Point, action: Point, replications: int, seed: int) -> Floats:
        bases = list(space.validate_action(action).values())
        return simulate(mode_of(state), bases, replications, seed).ravel()

    def evaluate(state: Point, action: Point, generator: np.random.Generator, seed: int | None = None) -> float:
        drawn = draw_seed(generator) if seed is None else seed
        return float(rewards(state, action, replications=1, seed=drawn)[0])

    def mean_reward(state: Point, action: Point, replications: int, seed: int) -> MeanReward:
        return mean_of(rewards(state, action, replications, seed))

    def optimal_action(state: Point) -> dict[str, Value]:
        mode = mode_of(state)
        bases = near_optimal_table().action(_into_quadrant(mode)).reshape(AMBULANCES, 2)
        return dict(zip(ACTION_NAMES, np.where(mode > CENTER, CITY - bases, bases).ravel().tolist(), strict=True))

    def optimal_reward(state: Point) -> float:
        return near_optimal_table().reward(_into_quadrant(mode_of(state)))

    return Problem(
        name="ambulances",
        space=space,
        state_distribution=Product({name: Normal(CENTER, state_sd) for name in STATE_NAMES}),
        evaluate=evaluate,
        mean_reward=mean_reward,
        optimal_action=optimal_action,
        optimal_reward=optimal_reward,
        description="Bases of three ambulances for every mode of the population; minus the response time.",
    )


def _into_quadrant(mode: Floats) -> Floats:
    """Mirror the population density's mode (2,) into the south-west quadrant, which the table of bases covers."""
    return np.minimum(mode, CITY - mode)


@cache
def near_optimal_table() -> NearOptimalTable:
    """Load the best known bases for a grid of modes of the population density in the south-west quadrant."""
    return NearOptimalTable.load("ambulances.csv", state_dimensions=len(STATE_NAMES))
