"""Draws the paper's pictures of how the method works, with the library's own models. Needs the extra `plots`."""

from collections.abc import Callable
from functools import cache
from typing import cast

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from conbo.acquisition.expected_max import expected_max
from conbo.acquisition.integral_over_states import ConBO, ConditionalAcquisition
from conbo.acquisition.knowledge_gradient import DiscreteKG, Estimator, HybridKG, MonteCarloKG
from conbo.acquisition.quadrature_states import GaussianStates
from conbo.belief import Belief, fit_belief
from conbo.bound_states import bind
from conbo.experiments.drawing import DARK, OURS, legend_below, panels, styled
from conbo.gaussian_process import GaussianProcess
from conbo.models.exact_gains import ExactGains, ExactLines
from conbo.observations import Observations
from conbo.policies.gp_argmax import GpArgmax
from conbo.proposals.maximizer import Maximizer
from conbo.proposals.penalized_batch import penalized_batch, penalty
from conbo.quasi_random import sobol
from conbo.spaces import Real, Space

SIDE = 10.0  # states and actions range from 0 to SIDE
NEXT, LINES, PALE = "#c2185b", "#2b6cb0", "#b9bac6"
GRID = 41  # number of points along each axis of a map
LOWEST, HIGHEST = -2.5, 3.5  # ends of the reward axis in the four panels of `draw_knowledge_gradients`
CANDIDATE = 7.0  # action of the candidate in these panels, as in the paper


@styled
def draw_per_state() -> Figure:
    """Draw the posterior mean, policy and next point, and the knowledge gradient of this point in nearby states."""
    belief = plane()
    point = Maximizer(PAPERS_CONBO).search(belief, generator()).points[:1]
    figure, axes = panels(2, 1)
    top, bottom = axes[:, 0]
    draw_map(top, belief.posterior.mean(grid()), "YlGnBu_r")
    states = unit(200)[:, None]
    actions = GpArgmax().build(belief, generator())(states)
    top.plot(
        SIDE * states[:, 0], SIDE * actions[:, 0], ".", color="black", markersize=3, label="best action by the model"
    )
    draw_observed(top, belief)
    top.plot(*(SIDE * point[0]).tolist(), "*", color=NEXT, markeredgecolor="white", markersize=17, label="next point")
    top.set(title="The model: every column is a state", ylabel="action x")
    legend_below(figure, [top])
    acquisition = PAPERS_CONBO.build(belief, generator(3))
    assert isinstance(acquisition, ConditionalAcquisition)  # it is, because the belief has a single model
    chosen = acquisition.states_of(point)
    gains = acquisition.value.at(chosen.states)(point, torch.zeros(1, dtype=torch.long)).values[0]
    inside = chosen.weights[0] > 0
    bottom.stem(SIDE * chosen.states[0, inside, 0], gains[inside], linefmt=LINES, markerfmt="o", basefmt=" ")
    bottom.axvline(SIDE * float(point[0, 0]), color=NEXT, linestyle="--", linewidth=1.2)
    bottom.set(title="What it would tell each state", xlabel="state s", ylabel="knowledge gradient")
    bottom.set_xlim(0, SIDE)
    return figure


@styled
def draw_knowledge_gradients() -> Figure:
    """Draw three estimates of the knowledge gradient of one candidate, and the means μⁿ⁺¹ from which they are computed.

    μⁿ⁺¹ is the posterior mean after a new observation at the candidate. It is drawn for several values z of the
    standardized observation. The estimates are by discretization, by Monte Carlo, and by the hybrid of both.
    """
    belief = line()
    figure, axes = panels(2, 2, legend_rows=0)
    for panel, (title, recipe) in zip(axes.flat, ESTIMATORS.items(), strict=True):
        _draw_estimator(panel, belief, recipe)
        panel.set(title=title, xlabel="action x", xlim=(0, SIDE), ylim=(LOWEST, HIGHEST))
    for panel in axes[:, 0]:
        panel.set_ylabel("expected reward")
    return figure


@styled
def draw_penalization() -> Figure:
    """Draw how a batch is chosen: the acquisition function, the penalty near the first point, and their product.

    The maximum of the product is the second point.
    """
    belief = plane()
    acquisition = PAPERS_CONBO.build(belief, generator())
    values = torch.cat([acquisition(points) for points in grid().split(64)])
    first, second = penalized_batch(belief, grid(), values, 2)
    factor = penalty(belief, grid(), first[None])[:, 0]
    figure, axes = panels(1, 3, legend_rows=0)
    levels = np.linspace(0, float(values.amax()), 13)
    maps = {"Acquisition": values, "× penalty": factor, "= product": values * factor}
    for panel, (title, data) in zip(axes.flat, maps.items(), strict=True):
        draw_map(panel, data, "Greys_r" if data is factor else "Purples", 10 if data is factor else levels)
        panel.plot(*(SIDE * first).tolist(), "*", color=NEXT, markeredgecolor="white", markersize=17)
        panel.set(title=title, xlabel="state s")
    axes[0, 2].plot(*(SIDE * second).tolist(), "*", color=OURS, markeredgecolor="white", markersize=17)
    axes[0, 0].set_ylabel("action x")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "per-state": draw_per_state,
    "knowledge-gradients": draw_knowledge_gradients,
    "penalization": draw_penalization,
}

PAPERS_MODEL = GaussianProcess(
    relative_actions="none", main_effects="none", output_warping="none", members=1
)  # a single Gaussian process, without relative actions, main effects and output warping
PAPERS_CONBO = ConBO(HybridKG(n_z=5, spread=1.0, estimate="lower"), GaussianStates())
ESTIMATORS: dict[str, Estimator | None] = {
    "μⁿ⁺¹ for several z": None,
    "KG by discretization": DiscreteKG(12),
    "KG by Monte Carlo": MonteCarloKG(30),
    "Hybrid KG": PAPERS_CONBO.value,
}


def _draw_estimator(axes: Axes, belief: Belief, recipe: Estimator | None) -> None:
    posterior, x = belief.posterior, unit(401)[:, None]
    candidate = torch.tensor([[CANDIDATE / SIDE]], dtype=torch.float64)
    mean, slope = posterior.mean(x), posterior.look_ahead_slopes(candidate, x)[0]
    axes.axvline(CANDIDATE, color=NEXT, linestyle="--", linewidth=1.2)
    draw_observed(axes, belief)
    if recipe is None:
        z = [-1.5, -0.75, 0.75, 1.5]
    else:
        kg, value, lines = estimate(belief, recipe, candidate)
        axes.text(0.04, 0.95, f"KG = {value:.3f}", transform=axes.transAxes, va="top")
        z = [] if kg.rule.nodes is None else kg.rule.nodes.tolist()
        _draw_maximizers(axes, kg, lines)
    for number in z:
        axes.plot(SIDE * x, mean + slope * number, color=LINES, linewidth=0.8, alpha=0.6)
    axes.plot(SIDE * x, mean, color=DARK, linewidth=2)


def _draw_maximizers(axes: Axes, kg: ExactGains, lines: ExactLines) -> None:
    """Draw the actions from which a knowledge gradient is estimated, as dots.

    - A discrete knowledge gradient has a fixed set of actions. Each is drawn at its posterior mean.
    - The other estimates have several values z of the standardized new observation. For each z, they use the action
      with the highest posterior mean after this observation. It is drawn at this mean.
    """
    mean, slope = lines.mean[0, 0], lines.slope[0, 0]
    if kg.rule.nodes is None:
        useful = expected_max(mean, slope).probability > 1e-3
        for place, height, used in zip(SIDE * kg.pool.actions[:, 0], mean, useful, strict=True):
            color = OURS if used else PALE
            axes.vlines(place, LOWEST, height, color=color, linewidth=1)
            axes.plot(place, height, "o", color=color, markeredgecolor="white", markersize=6, zorder=5)
        return
    places = SIDE * kg.posterior.kernel.actions.unscaled(lines.actions[0, 0])[:, 0]
    axes.plot(places, mean + slope * kg.rule.nodes, "o", color=OURS, markeredgecolor="white", markersize=6, zorder=5)


def estimate(belief: Belief, recipe: Estimator, candidate: Tensor) -> tuple[ExactGains, float, ExactLines]:
    """Build the knowledge gradient of a recipe; return it, its value at a candidate (1, d), and its lines.

    The value is computed from the lines. Each line is the look-ahead mean of one action: `mean` + `slope` z, where z is
    the standardized new observation at the candidate.
    """
    kg = cast(ExactGains, recipe.build(belief, generator()))  # the model is a built-in one
    only_state = torch.zeros(1, 1, 0, dtype=torch.float64)
    gains = kg.at(only_state)(candidate, torch.zeros(1, dtype=torch.long))
    return kg, float(gains.values[0, 0]), cast(ExactLines, gains.lines)


@cache
def line() -> Belief:
    """The fitted model of the pictures without states: one action, and six rewards in the first half of its range."""
    space = Space(actions={"x": Real(0, SIDE)})
    points = torch.tensor([0.2, 1.1, 2.0, 3.1, 4.2, 5.0], dtype=torch.float64)[:, None] / SIDE
    rewards = torch.sin(1.4 * SIDE * points[:, 0])
    rewards = (rewards - rewards.mean()) / rewards.std()  # so that the model's units are those of the rewards
    noise = torch.full_like(rewards, 0.01)
    return fit_belief(space, bind(None, space), Observations(points, rewards, points[:0], noise), PAPERS_MODEL)


@cache
def plane() -> Belief:
    """The fitted model of the pictures with states: one state parameter, one action parameter, fourteen rewards."""
    space = Space(states={"s": Real(0, SIDE)}, actions={"x": Real(0, SIDE)})
    points = sobol(14, 2, seed=7)
    state, action = (SIDE * points).unbind(-1)
    hill = torch.exp(-(((action - 1.5 - 0.65 * state) / 2) ** 2))
    rewards = 0.5 * torch.sin(0.9 * action + 0.35 * state) + hill
    noise = torch.full_like(rewards, 0.04)
    return fit_belief(space, bind(None, space), Observations(points, rewards, points[:0], noise), PAPERS_MODEL)


def generator(seed: int = 0) -> torch.Generator:
    """A random generator with a fixed seed, so that a picture is the same every time it is drawn."""
    return torch.Generator().manual_seed(seed)


def unit(n: int) -> Tensor:
    """Evenly spaced numbers (n,) from 0 to 1."""
    return torch.linspace(0, 1, n, dtype=torch.float64)


def grid() -> Tensor:
    """The points (GRID², 2) at which a map is computed: a square grid of GRID by GRID points in the unit cube."""
    return torch.cartesian_prod(unit(GRID), unit(GRID))


def draw_map(axes: Axes, values: Tensor, colors: str, levels: int | np.ndarray = 14) -> None:
    """Draw values (GRID²,) at the points of `grid` as color bands; `levels` is the number of bands, or their limits."""
    axis = SIDE * unit(GRID)
    axes.contourf(axis, axis, values.reshape(GRID, GRID).mT, levels, cmap=colors)
    axes.set(xlim=(0, SIDE), ylim=(0, SIDE))


def draw_observed(axes: Axes, belief: Belief) -> None:
    """Draw the observations as dots: rewards against actions or, if there are states, actions against states."""
    points = SIDE * belief.observations.points
    heights = points[:, 1] if points.shape[1] == 2 else belief.observations.rewards
    axes.scatter(points[:, 0], heights, s=22, color=DARK, edgecolor="white", zorder=4)
