"""Draw the pictures of docs/how_conbo_works.md from the library itself; takes about a minute.

    python scripts/draw_how_conbo_works.py           all of them
    python scripts/draw_how_conbo_works.py bounds    some: knowledge_gradient, states, bounds, batch

It also prints the numbers that the page cites.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from math import pi, sqrt
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from PIL import Image
from torch import Tensor

from conbo.acquisition.convex_integral import CORNER, SMOOTH
from conbo.acquisition.expected_max import expected_max
from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.knowledge_gradient import DiscreteKG, Estimator, HybridKG, MonteCarloKG
from conbo.acquisition.knowledge_gradient_bounds import Bounds, knowledge_gradient_bounds
from conbo.acquisition.quadrature_states import GaussianStates, WeightedStates
from conbo.belief import Belief, fit_belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models.action_functions import look_ahead_functions, state_rows
from conbo.models.columns import Columns
from conbo.models.exact import ExactPosterior, condition
from conbo.models.exact_gains import ExactGains, ExactLines
from conbo.models.kernels import Factor, ProductKernel
from conbo.models.neighboring_nodes import neighbor_similarity
from conbo.observations import Observations
from conbo.plots.style import INK as DARK
from conbo.plots.style import POLICY as LEARNED
from conbo.policies.gp_argmax import GpArgmax
from conbo.proposals.maximizer import Maximizer, Search
from conbo.proposals.penalized_batch import penalized_batch, penalty
from conbo.quasi_random import sobol
from conbo.spaces import Real, Space

FOLDER = Path(__file__).parents[1] / "docs/pictures"
DOTS_PER_INCH = 130
NEW, LOWER, UPPER, BEST, PALE = "#c2185b", "#2b6cb0", "#8661c1", "#2a9d5c", "#b9bac6"
MEAN_COLORS, ACQUISITION_COLORS, PENALTY_COLORS = "YlGnBu_r", "Purples", "Greys_r"
Z_COLORS = LinearSegmentedColormap.from_list("z", [LOWER, "#8d8fa3", "#e4572e"])
Z_RANGE = 2.1  # absolute z at which the color scale ends
OUTLINE = [withStroke(linewidth=3, foreground="white")]
GRID = 41  # points along each axis of a map
SEEDS = 50  # number of seeds over which the error of an integral over states is averaged
SIDE = 10.0  # states and actions of all pictures are from 0 to 10
STYLE = {
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": DARK,
    "axes.labelcolor": DARK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": DARK,
    "xtick.color": DARK,
    "ytick.color": DARK,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def even(n: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return torch.linspace(low, high, n, dtype=torch.float64)


def color(z: float) -> tuple[float, ...]:
    return Z_COLORS(0.5 + z / (2 * Z_RANGE))


def save(figure: Figure, name: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    memory = BytesIO()
    figure.savefig(memory, dpi=DOTS_PER_INCH)
    Image.open(memory).convert("RGB").quantize(256).save(FOLDER / f"{name}.png", optimize=True)
    plt.close(figure)


# One action and no state: what a new observation at x = 7 is worth


@dataclass(frozen=True)
class Line:
    """A belief over one action, and candidates, for which V(z) is computed accurately, on dense grids of actions and z.

    V(z) is the highest posterior mean of all actions after a reward at the candidate that is z standard deviations
    above its prediction. The knowledge gradient is E[V(z)] - V(0), where z is standard normal.
    """

    belief: Belief
    candidates: Tensor  # (c, 1)

    @property
    def posterior(self) -> ExactPosterior:
        assert isinstance(self.belief.posterior, ExactPosterior)
        return self.belief.posterior

    @property
    def actions(self) -> Tensor:
        return even(1001)[:, None]

    @property
    def z(self) -> Tensor:
        return even(1601, -8, 8)

    def mean(self) -> Tensor:
        return self.posterior.mean(self.actions)

    def slopes(self) -> Tensor:
        return self.posterior.look_ahead_slopes(self.candidates, self.actions)

    def best_means(self) -> Tensor:
        """Return V(z) of c candidates on the grid of q values z, as a tensor (c, q).

        V(z) is the highest posterior mean after a reward that is z standard deviations above its prediction.
        """
        return torch.stack([(self.mean()[:, None] + s[:, None] * self.z).amax(0) for s in self.slopes()])

    def truth(self) -> Tensor:
        """Return the knowledge gradients (c,) of the candidates, by quadrature on dense grids."""
        return expectation(self.z, self.best_means()) - self.mean().amax()

    def gains(self, recipe: Estimator) -> ExactGains:
        kg = recipe.build(self.belief, generator())
        assert isinstance(kg, ExactGains)
        return kg

    def estimate(self, recipe: Estimator) -> tuple[ExactGains, Tensor, ExactLines]:
        """Return the estimator, its knowledge gradients (c,) of the candidates, and the look-ahead lines it used."""
        kg = self.gains(recipe)
        gains = kg.at(self.states)(self.candidates, torch.arange(len(self.candidates)))
        assert isinstance(gains.lines, ExactLines)
        return kg, gains.values[:, 0], gains.lines

    def bounds(self) -> Bounds:
        """Return bounds on the knowledge gradients of the candidates, with the nodes of the default estimator."""
        return knowledge_gradient_bounds(self.gains(HybridKG()), self.candidates, self.states)

    @property
    def states(self) -> Tensor:
        """One state without any parameters for each of c candidates, as a tensor (c, 1, 0)."""
        return torch.zeros(len(self.candidates), 1, 0, dtype=torch.float64)


def expectation(z: Tensor, values: Tensor) -> Tensor:
    """Return the expectations (...) over a standard normal z of `values` (..., q), given on an even grid `z` (q,)."""
    return (values * torch.exp(-z.square() / 2)).sum(-1) * (z[1] - z[0]) / sqrt(2 * pi)


def line(*candidates: float) -> Line:
    space = Space(actions={"x": Real(0, SIDE)})
    kernel = ProductKernel(Factor(Columns(()), vector()), Factor(Columns((0,)), vector(0.22)))
    points, rewards = vector(0.5, 2.4, 3.9, 4.9)[:, None] / SIDE, vector(0.6, 0.8, -1.3, 0.68)
    posterior = condition(kernel, 0.0, 0.01, points, rewards)
    observations = Observations(points, rewards, points[:0])
    belief = Belief(space, bind(None, space), observations, posterior, shift=0.0, scale=1.0)
    return Line(belief, vector(*candidates)[:, None] / SIDE)


def unscaled(posterior: ExactPosterior, features: Tensor) -> Tensor:
    return SIDE * features[..., 0] / posterior.kernel.actions.feature_scales


def draw_mean(axes: Axes, case: Line, spread: bool = False) -> None:
    x, mean = SIDE * case.actions[:, 0], case.mean()
    if spread:
        sd = case.posterior.variance(case.actions).sqrt()
        axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=DARK, alpha=0.07, linewidth=0)
    axes.plot(x, mean, color=DARK, linewidth=2, zorder=3)
    axes.axvline(SIDE * float(case.candidates[0]), color=NEW, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
    observed = case.belief.observations
    axes.scatter(SIDE * observed.points, observed.rewards, s=22, color=DARK, edgecolor="white", zorder=5)


def draw_look_ahead(axes: Axes, case: Line, z: Tensor, **style: float) -> None:
    for value in z.tolist():
        ahead = case.mean() + case.slopes()[0] * value
        axes.plot(SIDE * case.actions[:, 0], ahead, color=color(value), **style)


def draw_truth(axes: Axes, case: Line) -> None:
    axes.plot(case.z, case.best_means()[0], color=PALE, linewidth=6, solid_capstyle="round", zorder=1)


def draw_density(axes: Axes, z: Tensor) -> None:
    """Draw the standard normal density of z along the lower edge of the axes."""
    low, high = axes.get_ylim()
    bell = low + 0.17 * (high - low) * torch.exp(-z.square() / 2)
    axes.fill_between(z, low, bell, color=DARK, alpha=0.08, linewidth=0, zorder=0)


def draw_knowledge_gradient() -> None:
    case = line(7.0)
    figure, axes = plt.subplots(2, 4, figsize=(10.6, 5.6), sharex="row", sharey="row", layout="constrained")
    truth = float(case.truth())
    z = even(201, -3, 3)
    for column, title in enumerate(
        (
            "One more observation",
            r"$\mathrm{KG}_d$: a fixed set of x",
            r"$\mathrm{KG}_{MC}$: many random z",
            r"$\mathrm{KG}_h$: five chosen z",
        )
    ):
        draw_mean(axes[0, column], case, spread=column == 0)
        axes[0, column].set(title=title, xlabel="action x", xlim=(0, SIDE), ylim=(-1.75, 3.7))
        axes[1, column].set(xlabel="z, the surprise of the new reward", xlim=(-3, 3), ylim=(-1.2, 5.3))
        draw_density(axes[1, column], z)
        if column:
            draw_truth(axes[1, column], case)
    axes[0, 0].set_ylabel("expected reward")
    axes[1, 0].set_ylabel("expected reward after it")
    said = [
        draw_linearity(axes[:, 0], case),
        draw_discrete(axes[:, 1], case),
        draw_monte_carlo(axes[:, 2], case),
        draw_hybrid(axes[:, 3], case),
    ]
    for column, text in enumerate(said):
        axes[1, column].text(0.05, 0.95, text, transform=axes[1, column].transAxes, va="top", fontsize=9)
    legend = [
        Line2D([], [], color=DARK, linewidth=2, label="posterior mean now (z = 0)"),
        Line2D([], [], color=NEW, linewidth=1.2, linestyle=(0, (4, 2)), label="candidate"),
        Line2D([], [], color=color(-1.5), label="look-ahead mean, low z"),
        Line2D([], [], color=color(1.5), label="high z"),
        Line2D([], [], color=PALE, linewidth=6, label=f"V(z), the truth: KG = {truth:.4f}"),
    ]
    figure.legend(handles=legend, loc="outside lower center", ncols=5, handlelength=1.6, columnspacing=1.4)
    save(figure, "knowledge_gradient")


def draw_linearity(axes: np.ndarray, case: Line) -> str:
    draw_look_ahead(axes[0], case, vector(-1.5, -0.75, 0.75, 1.5), linewidth=1.2)
    z = even(2, -3, 3)
    for x, style in ((1.8, ":"), (5.8, "--"), (7.0, "-")):
        row = round(x / SIDE * (len(case.actions) - 1))
        mean, slope = case.mean()[row], case.slopes()[0, row]
        axes[0].plot(x, mean, "D", color="white", markeredgecolor=DARK, markersize=5.5, zorder=6)
        axes[1].plot(z, mean + slope * z, color=DARK, linewidth=1.5, linestyle=style, label=f"at x = {x:.1f}")
    axes[1].legend(loc="upper left", bbox_to_anchor=(0.0, 0.89), borderaxespad=0.2, handlelength=2.2)
    return "a straight line in z"


def draw_discrete(axes: np.ndarray, case: Line) -> str:
    kg, value, lines = case.estimate(DiscreteKG(12))
    mean, slope = lines.mean[0, 0], lines.slope[0, 0]
    useful = (expected_max(mean, slope).probability > 0.001).tolist()
    z = even(2, -3, 3)
    for x, a, b, used in zip(SIDE * kg.pool.actions[:, 0], mean, slope, useful, strict=True):
        look = {"color": LOWER, "linewidth": 1.6} if used else {"color": PALE, "linewidth": 0.8}
        axes[0].plot([x, x], [-1.75, a], zorder=2, **look)
        axes[0].plot(x, a, "o", color=look["color"], markeredgecolor="white", markersize=6, zorder=4)
        axes[1].plot(z, a + b * z, zorder=3 if used else 2, **look)
    report("KG_d, 12 actions", value, case)
    return f"KG = {float(value):.4f}\n{sum(useful)} of {len(useful)} lines matter"


def draw_monte_carlo(axes: np.ndarray, case: Line) -> str:
    kg, value, lines = case.estimate(MonteCarloKG(40))
    nodes = kg.rule.nodes
    assert nodes is not None
    z = nodes[:-1]  # the last is zero, for the present mean
    draw_look_ahead(axes[0], case, z, linewidth=0.6, alpha=0.65)
    best = (lines.mean + lines.slope * nodes)[0, 0, :-1]
    colors = [color(value) for value in z.tolist()]
    dots = {"c": colors, "s": 20, "edgecolor": "white", "linewidth": 0.6, "zorder": 5}
    axes[0].scatter(unscaled(case.posterior, lines.actions[0, 0, :-1]), best, **dots)
    axes[1].scatter(z, best, **dots)
    report("KG_MC, 40 samples", value, case)
    print(f"  standard error {float(best.std()) / sqrt(len(best)):.4f}")
    return f"KG = {float(value):.4f}\n{len(z)} maximizations"


def draw_hybrid(axes: np.ndarray, case: Line) -> str:
    kg, value, lines = case.estimate(HybridKG(5, spread=1.0, estimate="lower"))
    nodes = kg.rule.nodes
    assert nodes is not None
    draw_look_ahead(axes[0], case, nodes, linewidth=1.2)
    best = (lines.mean + lines.slope * nodes)[0, 0]
    places = unscaled(case.posterior, lines.actions[0, 0])
    z = even(601, -3, 3)
    ends = even(2, -3, 3)
    for node, x, top, a, b in zip(nodes.tolist(), places, best, lines.mean[0, 0], lines.slope[0, 0], strict=True):
        axes[0].plot(x, top, "*", color=color(node), markeredgecolor="white", markersize=12, zorder=6)
        axes[1].plot(ends, a + b * ends, color=color(node), linewidth=0.9, zorder=2)
        axes[1].plot(node, top, "*", color=color(node), markeredgecolor="white", markersize=12, zorder=6)
    envelope = (lines.mean[0, 0, :, None] + lines.slope[0, 0, :, None] * z).amax(0)
    axes[1].plot(z, envelope, color=LOWER, linewidth=2, zorder=4)
    report("KG_h, 5 quantiles", value, case)
    return f"KG = {float(value):.4f}\n5 maximizations"


def report(name: str, value: Tensor, case: Line) -> None:
    truth = float(case.truth())
    error = 100 * (float(value) / truth - 1)
    print(f"{name:<22} {float(value):.4f}   truth {truth:.4f}   error {error:+.1f} %")


# The same, integrated better


@dataclass(frozen=True)
class Pieces:
    """The function D(z) = V(z) - V(0) - V'(0) z at the nodes, and curves through these values.

    V(z) is the highest posterior mean after a reward that is z standard deviations above its prediction. The mean of
    D(z) over a standard normal z is the knowledge gradient. The curves are the lower bound, the upper bound and the
    best estimate of D.
    """

    nodes: Tensor
    gain: Tensor  # (q,), D at the nodes
    slope: Tensor  # (q,)
    smooth: Tensor  # (q-1,), how much of a cubic is in each interval

    def tangents(self, z: Tensor) -> Tensor:
        return (self.gain[:, None] + self.slope[:, None] * (z - self.nodes[:, None])).amax(0)

    def chords(self, z: Tensor, steepest: Tensor) -> Tensor:
        """Return the upper bound of D at points z.

        It consists of chords between the nodes, and of lines with the slopes `steepest` (2,) below and above them.
        """
        left, right = self._interval(z)
        share = (z - self.nodes[left]) / (self.nodes[right] - self.nodes[left])
        inside = (1 - share) * self.gain[left] + share * self.gain[right]
        below = self.gain[0] + steepest[0] * (z - self.nodes[0])
        above = self.gain[-1] + steepest[1] * (z - self.nodes[-1])
        return torch.where(z < self.nodes[0], below, torch.where(z > self.nodes[-1], above, inside))

    def best(self, z: Tensor) -> Tensor:
        """Return the best estimate of D at points z.

        Between two nodes, it is a cubic if V is smooth there, the maximum of two tangents if V has a corner, or a
        mixture. Beyond the outer nodes, it continues the tangents with the curvature of the nearest cubic.
        """
        left, right = self._interval(z)
        h = self.nodes[right] - self.nodes[left]
        t = (z - self.nodes[left]) / h
        rise = t * t * (3 - 2 * t)
        cubic = (1 - rise) * self.gain[left] + rise * self.gain[right]
        cubic = cubic + h * t * (1 - t) * ((1 - t) * self.slope[left] - t * self.slope[right])
        inside = self.smooth[left] * cubic + (1 - self.smooth[left]) * self._two_tangents(z, left, right)
        outside = self.tangents(z) + self._bend(z, 0, 1, 0) + self._bend(z, -1, -2, -1)
        return torch.where((z < self.nodes[0]) | (z > self.nodes[-1]), outside, inside)

    def _interval(self, z: Tensor) -> tuple[Tensor, Tensor]:
        left = (torch.searchsorted(self.nodes, z, right=True) - 1).clamp(0, len(self.nodes) - 2)
        return left, left + 1

    def _two_tangents(self, z: Tensor, left: Tensor, right: Tensor) -> Tensor:
        ends = (self.gain[i] + self.slope[i] * (z - self.nodes[i]) for i in (left, right))
        return torch.maximum(*ends)

    def _bend(self, z: Tensor, outer: int, inner: int, interval: int) -> Tensor:
        h = self.nodes[inner] - self.nodes[outer]
        rise = self.gain[inner] - self.gain[outer]
        curvature = 6 * rise / h**2 - (4 * self.slope[outer] + 2 * self.slope[inner]) / h
        beyond = (z - self.nodes[outer]) * (1 if outer else -1)
        return 0.5 * self.smooth[interval] * curvature.clamp_min(0) * beyond.clamp_min(0) ** 2


def pieces(case: Line) -> tuple[Pieces, float]:
    """Return the pieces of which the library's best estimate of the knowledge gradient consists, and this estimate."""
    kg, value, lines = case.estimate(HybridKG())
    nodes = kg.rule.nodes
    assert nodes is not None
    ahead = case.posterior.look_ahead(case.candidates)
    functions = look_ahead_functions(case.posterior, ahead, state_rows(case.posterior, case.states))
    likeness = neighbor_similarity(functions, lines.actions[0], nodes)[0]
    middle = len(nodes) // 2
    slope = lines.slope[0, 0] - lines.slope[0, 0, middle]
    gain = lines.mean[0, 0] - lines.mean[0, 0, middle] + slope * nodes
    smooth = ((likeness - CORNER) / (SMOOTH - CORNER)).clamp(0, 1)
    return Pieces(nodes, gain, slope, smooth), float(value)


def draw_bounds() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.6, 4.5), layout="constrained")
    draw_pieces(left, line(7.0))
    draw_along_candidates(right, line(*even(161, 0, SIDE).tolist()))
    save(figure, "bounds")


def draw_pieces(axes: Axes, case: Line) -> None:
    built, value = pieces(case)
    bounds = case.bounds()
    z, middle = case.z, len(built.nodes) // 2
    best = case.best_means()[0]
    zero = len(z) // 2
    tilt = case.slopes()[0][case.mean().argmax()]
    truth = best - best[zero] - tilt * z
    steepest = torch.stack([case.slopes()[0].amin(), case.slopes()[0].amax()]) - tilt
    curves = built.tangents(z), built.best(z), built.chords(z, steepest)
    for name, curve, known in zip(
        ("lower", "best", "upper"), curves, (float(bounds.lower), value, float(bounds.upper)), strict=True
    ):
        drawn = float(expectation(z, curve))
        assert abs(drawn - known) < 0.002 * known, f"{name}: drawn {drawn}, computed {known}"
    axes.fill_between(z, curves[0], curves[2], color=UPPER, alpha=0.10, linewidth=0)
    axes.plot(z, truth, color=PALE, linewidth=6, label=f"truth, {float(case.truth()):.4f}")
    upper, lower = float(bounds.upper), float(bounds.lower)
    axes.plot(z, curves[2], color=UPPER, linewidth=1.5, linestyle=(0, (5, 2)), label=f"chords, {upper:.4f}")
    axes.plot(z, curves[0], color=LOWER, linewidth=1.5, linestyle=(0, (5, 2)), label=f"tangents, {lower:.4f}")
    axes.plot(z, curves[1], color=BEST, linewidth=2, label=f"best estimate, {value:.4f}")
    dots = {"s": 42, "color": DARK, "edgecolor": "white", "zorder": 6}
    axes.scatter(built.nodes, built.gain, label="five maximizations", **dots)
    axes.set(xlim=(-3.4, 3.4), ylim=(-0.12, 1.38), xlabel="z, the surprise of the new reward")
    axes.set(title="V(z) above its tangent at z = 0, candidate x = 7", ylabel="gain in expected reward")
    draw_density(axes, z)
    handles, labels = axes.get_legend_handles_labels()
    order = [1, 0, 3, 2, 4]
    axes.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        title="Each with its knowledge gradient",
        alignment="left",
        loc="upper center",
    )
    assert float(built.nodes[middle]) == 0.0
    for name, number in (("tangents, 5 nodes", lower), ("best, 5 nodes", value), ("chords, 5 nodes", upper)):
        report(name, vector(number), case)


def draw_along_candidates(axes: Axes, case: Line) -> None:
    x, truth = SIDE * case.candidates[:, 0], case.truth()
    bounds = case.bounds()
    best, paper = case.estimate(HybridKG())[1], case.estimate(HybridKG(5, 1.0, "lower"))[1]
    axes.fill_between(
        x,
        bounds.lower[:, 0],
        bounds.upper[:, 0],
        color=UPPER,
        alpha=0.15,
        linewidth=0,
        label="between the bounds",
    )
    axes.plot(x, truth, color=PALE, linewidth=6, label="truth")
    axes.plot(x, paper, color=LOWER, linewidth=1.5, linestyle=(0, (5, 2)), label=r"paper's $\mathrm{KG}_h$")
    axes.plot(x, best, color=BEST, linewidth=2, label="best estimate")
    axes.axvline(7.0, color=NEW, linewidth=1.2, linestyle=(0, (4, 2)), zorder=0)
    axes.set(xlim=(0, SIDE), ylim=(0, None), xlabel="candidate's action x", ylabel="knowledge gradient")
    axes.set_title("Five nodes each, all candidates")
    axes.legend(loc="upper left")
    for name, value in (("best", best), ("KG_h", paper)):
        error = (value - truth).abs() / truth.amax()
        print(f"all candidates, {name}: worst error {100 * float(error.amax()):.1f} % of the largest value")


# One state and one action


def reward(state: Tensor, action: Tensor) -> Tensor:
    hill = torch.exp(-(((action - 1.5 - 0.65 * state) / 2) ** 2))
    return 0.5 * torch.sin(0.9 * action + 0.35 * state) + hill


@cache
def plane() -> Belief:
    """Return a belief over one state and one action parameter, fitted to fourteen rewards with known noise variance."""
    space = Space(states={"s": Real(0, SIDE)}, actions={"x": Real(0, SIDE)})
    points, sd = sobol(14, 2, seed=7), 0.2
    noise = sd * torch.randn(len(points), generator=generator(1), dtype=torch.float64)
    rewards = reward(*(SIDE * points).unbind(-1)) + noise
    known = torch.full_like(rewards, sd**2)
    return fit_belief(
        space, bind(None, space), Observations(points, rewards, points[:0], known), GaussianProcess(members=1)
    )


@cache
def searched() -> Search:
    """Search for the next point; the result has all points that the search evaluated."""
    return Maximizer(ConBO(HybridKG())).search(plane(), generator())


def grid() -> Tensor:
    return torch.cartesian_prod(even(GRID), even(GRID))


@cache
def acquisition_map() -> Tensor:
    """Return the values of the acquisition function ConBO on the grid, in units of the reward."""
    acquisition = ConBO(HybridKG()).build(plane(), generator())
    return plane().scale * torch.cat([acquisition(points) for points in grid().split(64)])


def draw_map(axes: Axes, values: Tensor, colors: str, levels: np.ndarray | int = 12) -> object:
    axis = SIDE * even(GRID)
    surface = axes.contourf(axis, axis, values.reshape(GRID, GRID).mT, levels, cmap=colors)
    axes.set(xlim=(0, SIDE), ylim=(0, SIDE))
    for spine in axes.spines.values():
        spine.set_visible(True)
    return surface


def draw_observed(axes: Axes) -> None:
    axes.scatter(*(SIDE * plane().observations.points).mT, s=30, color=DARK, edgecolor="white", zorder=4)


def draw_star(axes: Axes, point: Tensor, text: str = "") -> None:
    s, x = (SIDE * point).tolist()
    axes.plot(s, x, "*", color=NEW, markeredgecolor="white", markeredgewidth=1.2, markersize=19, zorder=7)
    if text:
        axes.annotate(text, (s, x), (8, 7), textcoords="offset points", weight="bold", path_effects=OUTLINE, zorder=8)


def draw_states() -> None:
    belief = plane()
    heights = {"height_ratios": (0.07, 1.5, 1)}
    figure, axes = plt.subplots(3, 2, figsize=(10.6, 8.2), layout="constrained", gridspec_kw=heights)
    (model_bar, value_bar), (model, value), (ours, papers) = axes
    mean = belief.to_reward(belief.posterior.mean(grid()))
    surface = draw_map(model, mean, MEAN_COLORS, 14)
    figure.colorbar(surface, cax=model_bar, orientation="horizontal", label="expected reward (posterior mean)")
    states = even(400)[:, None]
    actions = GpArgmax().build(belief, generator())(states)
    line_style = {
        "color": LEARNED,
        "linewidth": 3,
        "path_effects": [withStroke(linewidth=5, foreground="white")],
    }
    jump = torch.cat([(actions[1:] - actions[:-1]).abs()[:, 0] > 0.05, torch.zeros(1, dtype=torch.bool)])
    policy = torch.where(jump, torch.nan, SIDE * actions[:, 0])
    model.plot(SIDE * states[:, 0], policy, **line_style)
    surface = draw_map(value, acquisition_map(), ACQUISITION_COLORS)
    figure.colorbar(
        surface,
        cax=value_bar,
        orientation="horizontal",
        label="ConBO(s, x), the expected gain over all states",
    )
    point = searched().points[:1]
    for top in (model, value):
        draw_observed(top)
        draw_star(top, point[0])
        top.set(xlabel="state s", ylabel="action x")
    model_bar.set_title("The model: one column per state", pad=8)
    value_bar.set_title("Where to look next", pad=8)
    draw_per_state(ours, papers, point)
    handles = [
        Line2D([], [], color=LEARNED, linewidth=3, label="policy"),
        Line2D([], [], marker="o", color=DARK, markeredgecolor="white", linestyle="none", label="observed"),
        Line2D(
            [],
            [],
            marker="*",
            color=NEW,
            markeredgecolor="white",
            markersize=16,
            linestyle="none",
            label="next",
        ),
        Line2D([], [], color=DARK, linewidth=1.6, label=r"$\mathrm{KG}_c$ of every state, given the next point"),
        (Patch(color=BEST, alpha=0.35), Patch(color=LOWER, alpha=0.35)),
    ]
    labels = [handle.get_label() for handle in handles[:-1]] + ["one state: its KG times its weight"]
    figure.legend(
        handles,
        labels,
        handler_map={tuple: HandlerTuple(ndivide=None)},
        loc="outside lower center",
        ncols=5,
        columnspacing=1.4,
        handlelength=1.9,
    )
    save(figure, "states")


def weighted_gains(recipe: ConBO, point: Tensor, seed: int) -> tuple[WeightedStates, Tensor]:
    """Return the weighted states of the quadrature over states for a point (1, d), and the point's gain in each.

    Gains (m,) are knowledge gradients in the m states, in units of the reward.
    """
    acquisition = recipe.build(plane(), generator(seed))
    chosen = acquisition.states_of(point)
    gains = acquisition.value.at(chosen.states)(point, torch.zeros(1, dtype=torch.long)).values[0]
    return chosen, plane().scale * gains


def integral(recipe: ConBO, point: Tensor, seed: int) -> float:
    chosen, gains = weighted_gains(recipe, point, seed)
    return float((chosen.weights[0] * gains).sum())


def draw_per_state(ours: Axes, papers: Axes, point: Tensor) -> None:
    belief = plane()
    states = even(401)[None, :, None]
    rows = torch.zeros(1, dtype=torch.long)
    dense = belief.scale * HybridKG(27).build(belief, generator()).at(states)(point, rows).values[0]
    truth = float(torch.trapezoid(dense, states[0, :, 0]))
    print(f"ConBO at the next point: dense {truth:.4f}")
    for axes, name, recipe, tint in (
        (ours, "Ours: 20 cells of equal importance", ConBO(HybridKG()), BEST),
        (papers, "The paper's: 20 draws around the candidate", ConBO(HybridKG(), GaussianStates()), LOWER),
    ):
        chosen, gains = weighted_gains(recipe, point, seed=3)
        inside = chosen.weights[0] > 0
        kept = SIDE * chosen.states[0, inside, 0], gains[inside], SIDE * chosen.weights[0, inside]
        axes.bar(kept[0], kept[1], kept[2], color=tint, alpha=0.3, edgecolor=tint, linewidth=0.8)
        axes.scatter(*kept[:2], s=14, color=tint, edgecolor="white", linewidth=0.5, zorder=4)
        axes.plot(SIDE * states[0, :, 0], dense, color=DARK, linewidth=1.6, zorder=3)
        axes.axvline(SIDE * float(point[0, 0]), color=NEW, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
        axes.set(xlim=(0, SIDE), ylim=(0, 1.3 * float(dense.amax())), xlabel="state s", title=name)
        axes.set_ylabel(r"$\mathrm{KG}_c(s)$")
        again = [integral(recipe, point, seed) for seed in range(SEEDS)]
        error = 100 * float((vector(*again) / truth - 1).square().mean().sqrt())
        lost = len(inside) - int(inside.sum())
        note = f"area {float((chosen.weights[0] * gains).sum()):.4f}, truth {truth:.4f}"
        note += f"\n{SEEDS} seeds: RMS error {error:.0f} %" + (f"\n{lost} draws outside S" if lost else "")
        axes.text(0.98, 0.96, note, transform=axes.transAxes, va="top", ha="right")
        print(f"  {name}; {note}".replace("\n", "; "))


# Batches


def draw_batch() -> None:
    belief, search = plane(), searched()
    # the history has rough values where points were only screened: the picture has full ones everywhere
    acquisition = ConBO(HybridKG()).build(belief, generator())
    full = torch.cat([acquisition(points) for points in search.points.split(64)])
    first, second = penalized_batch(belief, search.points, full, 2)
    factor = penalty(belief, grid(), first[None])[:, 0]
    values = acquisition_map()
    levels = np.arange(0.0, float(values.amax()) + 0.002, 0.002)
    heights = {"height_ratios": (0.06, 1)}
    figure, axes = plt.subplots(2, 3, figsize=(10.6, 4.7), layout="constrained", gridspec_kw=heights)
    shown = (
        ("Acquisition", "ConBO(s, x)", values, ACQUISITION_COLORS, levels),
        ("× penalty", "φ, small where the first point tells", factor, PENALTY_COLORS, np.linspace(0, 1, 11)),
        ("= what is left", "ConBO(s, x) · φ", values * factor, ACQUISITION_COLORS, levels),
    )
    for column, (title, label, data, colors, steps) in enumerate(shown):
        bar, axis = axes[:, column]
        surface = draw_map(axis, data, colors, steps)
        ticks = steps[::2] if colors == PENALTY_COLORS else steps[::4]
        figure.colorbar(surface, cax=bar, orientation="horizontal", label=label, ticks=ticks)
        bar.set_title(title, pad=8)
        axis.set(xlabel="state s")
        if column != 1:
            axis.scatter(*(SIDE * search.points).mT, s=4, color=LEARNED, linewidth=0, alpha=0.65, zorder=3)
        draw_star(axis, first, "1")
    axes[1, 0].set_ylabel("action x")
    draw_star(axes[1, 2], second, "2")
    product = values * factor
    nearest = (grid() - second).square().sum(-1).argmin()
    share = float(product[nearest] / product.amax())
    print(f"second point {(SIDE * second).tolist()}: {share:.2f} of the product's maximum")
    handles = [
        Line2D([], [], marker="o", color=LEARNED, markersize=4, linestyle="none", label="evaluated by the search"),
        Line2D(
            [],
            [],
            marker="*",
            color=NEW,
            markeredgecolor="white",
            markersize=16,
            linestyle="none",
            label="batch",
        ),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    save(figure, "batch")


PICTURES: dict[str, Callable[[], None]] = {
    "knowledge_gradient": draw_knowledge_gradient,
    "states": draw_states,
    "bounds": draw_bounds,
    "batch": draw_batch,
}


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    plt.switch_backend("agg")
    plt.rcParams.update(STYLE)
    for name in names or PICTURES:
        PICTURES[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
