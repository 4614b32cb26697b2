"""Helpers for many replications of a simulator: their seeds, their threads, and the mean of their rewards."""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from conbo.errors import SettingError
from conbo.problems.problem import MeanReward

Floats = NDArray[np.float64]
Seeds = NDArray[np.uint64]

SEED_LIMIT = 2**64  # seeds are 0 to SEED_LIMIT - 1
RUNS_WORTH_A_THREAD = 200  # number of runs below which a thread costs more time than it saves


def seed_per_pair(seed: int | Seeds, pairs: int) -> Seeds:
    """Return seeds (pairs,), one for each pair of a state and an action.

    A single seed is used for all pairs, which then have common random numbers.
    """
    if isinstance(seed, int) and not 0 <= seed < SEED_LIMIT:
        raise SettingError(f"`0 <= seed < 2**64` must hold, but got seed={seed}.")
    return np.array(np.broadcast_to(np.asarray(seed, dtype=np.uint64), (pairs,)))


def draw_seed(generator: np.random.Generator) -> int:
    """Draw the seed of a simulation from a random generator."""
    return int(generator.integers(SEED_LIMIT, dtype=np.uint64))


def empty_rewards(pairs: int, replications: int) -> Floats:
    """Return an uninitialized array (pairs, replications) for rewards; raise SettingError unless replications >= 1."""
    if replications < 1:
        raise SettingError(f"`replications >= 1` must hold, but got replications={replications}.")
    return np.empty((pairs, replications))


def in_threads(simulate_range: Callable[[int, int], None], runs: int) -> None:
    """Call `simulate_range(first, last)` for contiguous pieces of range(runs), in at most one thread per core.

    A piece has the runs from `first` to `last` - 1. Numba's parallel loops are not used, because they conflict with
    torch's threads.
    """

    def simulate_piece(first: int, last: int) -> None:
        with np.errstate(over="ignore"):  # without Numba, NumPy would warn of the overflows in the random streams
            simulate_range(first, last)

    pieces = max(1, min(os.cpu_count() or 1, runs // RUNS_WORTH_A_THREAD))
    if pieces == 1:
        simulate_piece(0, runs)
        return
    edges = [runs * piece // pieces for piece in range(pieces + 1)]
    with ThreadPoolExecutor(pieces) as pool:
        list(pool.map(simulate_piece, edges[:-1], edges[1:]))  # a list, so that an exception reaches the caller


def mean_of(rewards: Floats) -> MeanReward:
    """Return the mean of the rewards (n,) of n replications, and its standard error, which is infinite if n is 1."""
    error = float(rewards.std(ddof=1)) / math.sqrt(rewards.size) if rewards.size > 1 else math.inf
    return MeanReward(mean=float(rewards.mean()), standard_error=error)
