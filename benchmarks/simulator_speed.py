"""How many replications per second the two simulators run on all cores, after their loops are compiled.

python benchmarks/simulator_speed.py
"""

import os
import time
from collections.abc import Callable

from conbo.problems.ambulance_simulator import simulate as simulate_ambulances
from conbo.problems.assembly_simulator import simulate as simulate_warehouse

WARM_UP = 1000  # number of replications before anything is timed
REPEATS = 5  # the fastest counts, because other processes can only make a run slower


def replications_a_second(simulate: Callable[[int], object], replications: int) -> float:
    simulate(WARM_UP)
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        simulate(replications)
        seconds.append(time.perf_counter() - began)
    return replications / min(seconds)


def main() -> None:
    print(f"{os.cpu_count()} cores")
    speed = replications_a_second(lambda n: simulate_warehouse(1.0, [5.0] * 8, n), 20_000)
    print(f"assemble to order, demand 1, all levels 5: {speed:9,.0f} replications a second (wanted: 10,000)")
    speed = replications_a_second(lambda n: simulate_ambulances((15, 15), [10, 10, 20, 10, 15, 20], n), 200_000)
    print(f"ambulances, mode in the center:            {speed:9,.0f} days a second         (wanted: 20,000)")


if __name__ == "__main__":
    main()
