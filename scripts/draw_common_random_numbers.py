"""Draw the picture of docs/common_random_numbers.md: days of the ambulances with new and with common seeds.

python scripts/draw_common_random_numbers.py
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from conbo.experiments.drawing import panels, save, styled
from conbo.problems.ambulance_simulator import simulate

PICTURE = Path(__file__).parents[1] / "docs/pictures/common_random_numbers.png"
MODE = (15.0, 15.0)
FIXED = (20.0, 10.0, 15.0, 20.0)  # the bases that stay where they are
SEEDS = 5
MANY = 4000  # days that stand for all


@styled
def days() -> Figure:
    """Draw rewards of single simulated days, and the mean over many days, against the place of the first base."""
    places = np.linspace(0, 15, 31)
    bases = [(place, place, *FIXED) for place in places]
    mean = simulate(MODE, bases, MANY, seed=0).mean(1)
    own = np.arange(1, len(bases) + 1, dtype=np.uint64)
    alone = simulate(MODE, bases, 1, seed=own)[:, 0]
    common = np.stack([simulate(MODE, bases, 1, seed=seed)[:, 0] for seed in range(1, SEEDS + 1)])
    figure, axes = panels(1, 2)
    new, used = axes.flat
    new.plot(places, alone, "o", color="tab:orange", label="a new seed for every day")
    used.plot(places, common.T, color="tab:orange", linewidth=1, label=["the same seed for all places"] + [None] * 4)
    for panel in (new, used):
        panel.plot(places, mean, color="black", linewidth=2, label="mean of all days")
        panel.plot(places[mean.argmax()], mean.max(), "k*", markersize=12)
        panel.set(xlabel="place of the first base, km", ylabel="minus response time, minutes")
        panel.legend(fontsize=8)
    for line in common:
        used.plot(places[line.argmax()], line.max(), "*", color="tab:orange", markersize=9)
    used.set_ylim(new.get_ylim())
    correlation = np.corrcoef(simulate(MODE, [bases[12], bases[16]], MANY, seed=0))[0, 1]
    print(f"days with the first base 2 km farther north and east correlate with {correlation:.2f}")
    return figure


if __name__ == "__main__":
    save(days(), PICTURE)
