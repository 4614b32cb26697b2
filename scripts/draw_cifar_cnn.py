"""Draw docs/problems/cifar_cnn.png: the surrogate of the CIFAR-10 problem, and how well it predicts.

python scripts/draw_cifar_cnn.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from scipy.special import expit

from conbo.problems.cifar_cnn_surrogate import COLLAPSED, Surrogate, cross_validated, load_surrogate
from conbo.problems.cifar_cnn_training import DATA_SETS, cifar_cnn_space

FILE = Path(__file__).parents[1] / "docs/problems/cifar_cnn.png"
COLORS = plt.colormaps["Dark2"](range(len(DATA_SETS)))
DOTS_PER_INCH = 120


def draw_slices(axes: Axes, surrogate: Surrogate) -> None:
    """Draw the surrogate's reward against the learning rate, with the other hyperparameters at their best values."""
    space = cifar_cnn_space()
    column = space.action_names.index("learning_rate")
    unit = np.linspace(0.0, 1.0, 101)
    rates = space.actions["learning_rate"].decode(unit)
    for number, (name, color) in enumerate(zip(DATA_SETS, COLORS, strict=True)):
        actions = np.repeat(surrogate.best_actions[[number]], len(unit), axis=0)
        actions[:, column] = unit
        states = np.full(len(unit), number)
        logits = surrogate.logit_mean(states, actions)
        noise = np.sqrt(surrogate.kernel.noise_variance(states, actions))
        axes.fill_between(rates, expit(logits - noise), expit(logits + noise), color=color, alpha=0.2, linewidth=0)
        axes.plot(rates, expit(logits), color=color, label=name)
    axes.set(xscale="log", xlabel="learning rate", ylabel="validation accuracy")
    axes.set_title("The surrogate, other hyperparameters at their best;\nband: noise of one training (± 1 sd)")
    axes.legend(loc="lower left", fontsize=9)


def draw_predictions(axes: Axes, surrogate: Surrogate) -> None:
    predicted = surrogate.kernel.mean_accuracy(cross_validated(surrogate), surrogate.states, surrogate.actions)
    for number, color in enumerate(COLORS):
        rows = surrogate.states == number
        axes.plot(predicted[rows], surrogate.rewards[rows], ".", color=color, markersize=3, alpha=0.6)
    axes.plot([0.5, 1.0], [0.5, 1.0], color="black", linewidth=0.8)
    collapsed = np.sum(surrogate.rewards < COLLAPSED)
    axes.set(xlabel="accuracy predicted from other points", ylabel="accuracy measured on a GPU", aspect="equal")
    axes.set_title(f"Cross-validation on {len(predicted)} trainings,\n{collapsed} of which collapsed")


if __name__ == "__main__":
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    draw_slices(left, load_surrogate())
    draw_predictions(right, load_surrogate())
    figure.savefig(FILE, dpi=DOTS_PER_INCH)
