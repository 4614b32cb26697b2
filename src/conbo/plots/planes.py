"""Plots over two parameters at a time: the plane and its grid of points, and the surface of the expected reward."""

from dataclasses import dataclass

import torch
from plotly import graph_objects as go
from torch import Tensor

from conbo.plots.axes import ParameterAxis
from conbo.plots.parameters import slices
from conbo.plots.policy_plots import along
from conbo.plots.style import INK, POLICY, canvas, crowd, dots, line, surface, with_count
from conbo.plots.view import Studied, View, view_of
from conbo.problems import Problem
from conbo.rounding import counted
from conbo.spaces import Array, Point

RESOLUTION = 61  # number of points along each axis
HEIGHT = 420  # pixels


@dataclass(frozen=True)
class Plane:
    """A grid of points over two parameters.

    Other state parameters are fixed, and other action parameters have the values that the policy chooses.
    """

    horizontal: ParameterAxis
    vertical: ParameterAxis
    columns: tuple[int, int]  # columns of the two parameters in `points`
    points: Tensor  # (rows, columns, d), in the unit cube

    @property
    def x(self) -> Array:
        """Positions (columns,) of the grid's columns on the horizontal axis."""
        return self.horizontal.positions(self.points[0, :, self.columns[0]].numpy())

    @property
    def y(self) -> Array:
        """Positions (rows,) of the grid's rows on the vertical axis."""
        return self.vertical.positions(self.points[:, 0, self.columns[1]].numpy())

    @property
    def smooth(self) -> bool:
        """Whether values may be interpolated between points: True if both axes are numeric with more than 4 points."""
        return not (self.horizontal.is_category or self.vertical.is_category) and min(self.points.shape[:2]) > 4

    def project(self, points: Tensor) -> tuple[Array, Array]:
        """Convert points (n, d) of the unit cube to positions on the two axes: horizontal (n,) and vertical (n,)."""
        pairs = zip((self.horizontal, self.vertical), self.columns, strict=True)
        x, y = (axis.positions(points[:, column].numpy()) for axis, column in pairs)
        return x, y


def plane_of(view: View, state: str | None, action: str | None, at: Point | None, most: int) -> Plane | None:
    """The plane over a state and an action parameter or, in a space without states, over two action parameters.

    The result is None if the space has only one parameter. `most` is the largest number of points along a numeric axis.
    The other state parameters have the values in `at`, or are at the middle of P[s].
    """
    view.check_states(state, at)
    space, d_s = view.space, view.space.n_state_dims
    action = view.most_important("actions", action)
    place = d_s + space.action_names.index(action)
    vertical = view.axis(action)
    if space.states:
        horizontal, states = along(view, view.most_important("states", state), at, most)
        first = torch.cat([states, view.actions(states)], -1)
        column = space.state_names.index(horizontal.name)
    else:
        others = [name for name in space.actions if name != action]
        if not others:
            return None
        horizontal = view.axis(max(others, key=view.given_away.__getitem__))
        column = space.action_names.index(horizontal.name)
        places = torch.from_numpy(horizontal.places(most))
        first = view.actions(view.center()[None]).repeat(len(places), 1)
        first[:, column] = places
    rows = torch.from_numpy(vertical.places(most))
    points = first.expand(len(rows), -1, -1).clone()
    points[..., place] = rows[:, None]
    return Plane(horizontal, vertical, (column, place), points)


def n_points(view: View, most: int) -> int:
    """The number of points of the plane over the most important parameters, with `most` along each numeric axis."""
    plane = plane_of(view, None, None, None, most)
    return 1 if plane is None else plane.points[..., 0].numel()


def posterior_surface(
    study: Studied,
    state: str | None = None,
    action: str | None = None,
    *,
    at: Point | None = None,
    problem: Problem | None = None,
) -> go.Figure:
    """Draw the expected reward over one state parameter and one action parameter, with the observations and the policy.

    Other state parameters have the values in `at`, and other action parameters have the values that the policy chooses.
    Without states, the horizontal axis is the most important other action parameter. If there is only one parameter in
    all, the figure is the curve that `slices` draws.

    Parameters
    ----------
    study
        The study.
    state
        Name of the state parameter on the horizontal axis; by default the most important one, as in `importance`. It
        must be None if the space has no states.
    action
        Name of the action parameter on the vertical axis; by default the most important one, as in `importance`.
    at
        Values of the other state parameters; by default the middle of P[s].
    problem
        The problem behind the study, if its best actions are known. They are drawn as well, unless there are no states.

    Returns
    -------
    plotly.graph_objects.Figure
        The figure.

    Raises
    ------
    SettingError
        If a name is unknown.
    ConboError
        If no trial is completed yet.

    Examples
    --------
    >>> figure = conbo.plots.posterior_surface(study)
    """
    view = view_of(study)
    plane = plane_of(view, state, action, at, RESOLUTION)
    if plane is None:
        return slices(view)
    mean = view.mean(plane.points.flatten(0, 1))
    figure = canvas(height=HEIGHT)
    shape = plane.points.shape[:2]
    figure.add_trace(
        surface(
            plane.x, plane.y, mean.reshape(shape), "expected reward", smooth=plane.smooth, high_is_good=view.sign > 0
        )
    )
    # with more than two parameters, observed points are projected onto the plane
    flat = len(view.space.states) + len(view.space.actions) > 2
    shown = view.points[view.drawn]
    hover = {"text": [view.texts[i] for i in view.drawn], "hovertemplate": "%{text}<extra></extra>"}
    observed = with_count(counted(len(view.points), "evaluation"), len(shown), len(view.points))
    x, y = plane.project(shown)
    look = crowd(len(shown), 0.4 if flat else 1.0) | hover
    figure.add_trace(dots(x, y, observed, INK, cliponaxis=False, **look))
    add_policy(figure, view, plane, problem)
    return figure.update_xaxes(plane.horizontal.layout()).update_yaxes(plane.vertical.layout())


def add_policy(figure: go.Figure, view: View, plane: Plane, problem: Problem | None) -> None:
    """Draw the policy's actions over a plane and, if there are states, the best actions that `problem` defines."""
    if not view.space.states:
        best = torch.cat([view.center(), view.actions(view.center()[None])[0]])[None]
        figure.add_trace(dots(*plane.project(best), "policy", POLICY, size=15, symbol="star", cliponaxis=False))
        return
    d_s = view.space.n_state_dims
    states = view.with_action(plane.points[0, :, :d_s])
    x, y = plane.project(torch.cat([states, view.actions(states)], -1))
    apart = plane.horizontal.is_category or plane.vertical.is_category
    if not apart:
        figure.add_trace(line(x, y, "", "#ffffff", width=6, showlegend=False, hoverinfo="skip"))
    figure.add_trace(
        dots(x, y, "policy", POLICY, size=11, cliponaxis=False) if apart else line(x, y, "policy", POLICY, width=4)
    )
    if problem is not None and problem.optimal_action is not None:
        known = [problem.optimal_action(values) for values in view.space.decode_states(states.numpy())]
        actions = torch.from_numpy(view.space.encode_actions(known))
        x, y = plane.project(torch.cat([states, actions], -1))
        true = dots(x, y, "true policy", INK, symbol="diamond-open") if apart else None
        figure.add_trace(true or line(x, y, "true policy", INK, width=1.6, dash="dash"))
