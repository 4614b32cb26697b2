"""Draw the pictures of the simulators in docs/problems.

python scripts/draw_problem_pictures.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from conbo.problems.ambulance_simulator import CITY, DENSITY_PEAK, CallLog
from conbo.problems.ambulance_simulator import near_optimal_table as best_bases
from conbo.problems.ambulance_simulator import trace as trace_day
from conbo.problems.assembly_simulator import IS_KEY, ITEMS, ORDER_RATE, PRODUCTION_MEAN, PROFIT, USES
from conbo.problems.assembly_simulator import near_optimal_table as best_levels

FOLDER = Path(__file__).parents[1] / "docs/problems"
COLORS = plt.colormaps["Dark2"](range(8))
DOTS_PER_INCH = 120
DAY_TO_DRAW = 4  # a seed


def draw_density(axes: Axes, mode: np.ndarray) -> None:
    axis = np.linspace(0.0, CITY, 200)
    x, y = np.meshgrid(axis, axis)
    density = DENSITY_PEAK - (np.abs(x - mode[0]) + np.abs(y - mode[1])) / CITY
    axes.contourf(x, y, np.maximum(density, 0.0), levels=12, cmap="Greys", alpha=0.45)
    axes.plot(*mode, "*", color="black", markersize=16)
    axes.set(xlim=(0, CITY), ylim=(0, CITY), xlabel="km east", ylabel="km north", aspect="equal")


def draw_day(axes: Axes, mode: np.ndarray, log: CallLog) -> None:
    draw_density(axes, mode)
    for place, start, ambulance in zip(log.places, log.departure_places, log.ambulances, strict=True):
        corner = (place[0], start[1])
        axes.plot(*zip(start, corner, place, strict=True), color=COLORS[ambulance], linewidth=0.9, alpha=0.7)
        axes.plot(*place, "o", color=COLORS[ambulance], markersize=6)
    for ambulance, base in enumerate(log.bases):
        axes.plot(*base, "s", color=COLORS[ambulance], markersize=13, markeredgecolor="black")
    axes.set_title(f"One day: {log.times.size} calls, mean response {-log.reward:.1f} minutes")


def draw_best_bases(axes: Axes) -> None:
    table = best_bases()
    ends = np.array([(0.0, 0.0), (7.5, 7.5), (15.0, 15.0)])
    for color, state in zip(COLORS[3:], ends, strict=False):
        bases = table.action(state).reshape(-1, 2)
        axes.plot(*np.vstack([bases, bases[:1]]).T, color=color, linewidth=0.8, linestyle=":")
        axes.plot(*bases.T, "s", color=color, markersize=11, markeredgecolor="black", linestyle="none")
        axes.plot(*state, "*", color=color, markersize=18, markeredgecolor="black", clip_on=False)
    axes.set(xlim=(0, CITY), ylim=(0, CITY), xlabel="km east", ylabel="km north", aspect="equal")
    axes.set_title("Best known bases for three modes")


def draw_city() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 6.8), layout="constrained")
    mode = np.array([7.5, 10.0])
    draw_day(left, mode, trace_day(mode, best_bases().action(mode), DAY_TO_DRAW))
    draw_best_bases(right)
    marks = [
        Line2D(
            [],
            [],
            marker="*",
            color="black",
            linestyle="none",
            markersize=13,
            label="mode of the population (state)",
        ),
        Line2D([], [], marker="s", color="grey", linestyle="none", markersize=10, label="base (action)"),
        Line2D([], [], marker="o", color="grey", label="call, and the way of the ambulance that was sent to it"),
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(FOLDER / "ambulances.png", dpi=DOTS_PER_INCH)


def draw_network(axes: Axes) -> None:
    item_height = np.linspace(1.0, 0.0, ITEMS)
    product_height = np.linspace(0.93, 0.07, len(ORDER_RATE))
    item_x, product_x = 0.0, 1.0
    for product, item in np.argwhere(USES):
        axes.plot(
            [item_x, product_x],
            [item_height[item], product_height[product]],
            color=COLORS[product],
            linestyle="-" if IS_KEY[item] else ":",
            linewidth=2,
        )
    for item, height in enumerate(item_height):
        face = "white" if IS_KEY[item] else "lightgrey"
        axes.plot(item_x, height, "o", markersize=26, color=face, markeredgecolor="black")
        axes.text(item_x, height, str(item + 1), ha="center", va="center", fontsize=12)
        label = f"profit {PROFIT[item]:.0f}, made in {PRODUCTION_MEAN[item]:.2f}"
        axes.text(item_x - 0.11, height, label, ha="right", va="center", fontsize=9)
    for product, height in enumerate(product_height):
        axes.plot(product_x, height, "s", markersize=26, color=COLORS[product], markeredgecolor="black")
        axes.text(product_x, height, "ABCDE"[product], ha="center", va="center", fontsize=12, color="white")
        axes.text(product_x + 0.11, height, f"{ORDER_RATE[product]:.1f} × demand", va="center", fontsize=9)
    axes.text(item_x, 1.1, "items in stock", ha="center", fontsize=11)
    axes.text(product_x, 1.1, "products, orders per unit of time", ha="center", fontsize=11)
    axes.set(xlim=(-0.95, 1.5), ylim=(-0.1, 1.17))
    axes.axis("off")


def draw_best_levels(axes: Axes) -> None:
    table = best_levels("arrival_rate")
    shown = slice(None, None, 2)  # every other demand, or the numbers would be too small
    demands, levels = table.states[shown, 0], table.actions[shown].T
    axes.imshow(levels, cmap="Blues", aspect="auto", vmin=0.0)
    for (item, column), level in np.ndenumerate(levels):
        color = "white" if level > levels.max() / 2 else "black"
        axes.text(column, item, f"{level:.0f}", ha="center", va="center", color=color)
    axes.set_xticks(range(len(demands)), [f"{demand:.1f}" for demand in demands])
    axes.set_yticks(range(ITEMS), [f"item {item + 1}" for item in range(ITEMS)])
    axes.set(xlabel="demand (the state)", title="Best known base-stock levels (the action)")


def draw_warehouse() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained", width_ratios=(1.25, 1))
    draw_network(left)
    left.set_title("What each product needs: always (solid), if in stock (dotted)")
    draw_best_levels(right)
    figure.savefig(FOLDER / "assemble_to_order.png", dpi=DOTS_PER_INCH)


if __name__ == "__main__":
    draw_city()
    draw_warehouse()
