"""Plots of where one more evaluation would help most, as measured by the knowledge gradient.

The knowledge gradient is how much an evaluation is expected to raise the best posterior mean, in units of the reward.
The study's own method may prefer other points.
"""

import numpy as np
import torch
from plotly import graph_objects as go
from torch import Tensor

from conbo.acquisition.integral_over_states import AveragedAcquisition, ConBO, ConditionalAcquisition
from conbo.acquisition.knowledge_gradient import HybridKG
from conbo.acquisition.remaining_gain import best_gains, stateless_gains
from conbo.plots.axes import ParameterAxis
from conbo.plots.planes import HEIGHT, Plane, plane_of
from conbo.plots.policy_plots import along
from conbo.plots.style import INK, MODEL, POLICY, band, canvas, crowd, dots, line, surface, with_count
from conbo.plots.view import Studied, View, view_of
from conbo.rounding import counted
from conbo.spaces import Array, Point
from conbo.threads import threads_for

STATES = 25  # number of points along the axis of `remaining_gain`
RESOLUTION, COARSE = 25, 11  # points along each axis of `acquisition`; the second for a BoTorch model, which is slow
MOST_EXACT = 200  # largest number of observations for which all points of the plane get exact values, not rough ones
# number of points that are evaluated together, because memory grows with points times states times actions
AT_ONCE = 256
MOST_DRAWN = 6000  # largest number of points of `acquisition` in a report, because more take minutes
STARS = 8  # number of points with the best rough values, among which the exact values decide where the star is


def remaining_gain(study: Studied, state: str | None = None, *, at: Point | None = None) -> go.Figure:
    """Draw, against one state parameter, the expected gain of the best possible evaluation in each state.

    The expected gain is how much the evaluation is expected to raise the policy's reward in that state. Where the line
    is near zero, little is left to learn. Without states, the line shows how much an evaluation at each value of the
    most important action parameter is expected to gain.

    Parameters
    ----------
    study
        The study.
    state
        Name of the state parameter on the horizontal axis; by default the most important one, as in `importance`.
    at
        Values of the other state parameters; by default the middle of P[s].

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
    >>> figure = conbo.plots.remaining_gain(study)
    """
    view = view_of(study)
    view.check_states(state, at)
    if view.space.states:
        axis, states = along(view, view.most_important("states", state), at, STATES)
        column = view.space.state_names.index(axis.name)
        gains, points = best_gains(view.belief, states, view.actions(states))
    else:
        name = view.most_important("actions")
        axis, column = view.axis(name), view.space.action_names.index(name)
        places = torch.from_numpy(axis.places(STATES))
        points = view.actions(view.center()[None]).repeat(len(places), 1)
        points[:, column] = places
        gains = stateless_gains(view.belief, points)
    figure = canvas()
    texts = view.described(points)
    hover = {"text": texts, "hovertemplate": "worth %{y:.4~g}: evaluate<br>%{text}<extra></extra>"}
    x = axis.positions(points[:, column].numpy())
    for trace in _area(axis, x, gains.numpy(), "expected gain", MODEL, **hover):
        figure.add_trace(trace)
    return figure.update_xaxes(axis.layout()).update_yaxes(title_text="expected gain", rangemode="tozero")


def resolution(view: View) -> int:
    """The number of points along each numeric axis of `acquisition`."""
    return RESOLUTION if view.belief.posterior.batches_look_ahead else COARSE


def acquisition(
    study: Studied, state: str | None = None, action: str | None = None, *, at: Point | None = None
) -> go.Figure:
    """Draw, over one state and one action parameter, how much an evaluation is expected to raise the policy value.

    Other action parameters have the values that the policy chooses. The star marks the drawn point with the highest
    expected gain, and the panel below shows what an evaluation at the star is expected to gain in each state.
    Points that the limits of the space forbid are drawn with zero gain. With more than 200 observations, or with a
    BoTorch model, the colors show only a rough approximation of the gain. Without states, the axes are two action
    parameters, and there is no panel below.

    Parameters
    ----------
    study
        The study.
    state
        Name of the state parameter on the horizontal axis; by default the most important one, as in `importance`.
    action
        Name of the action parameter on the vertical axis; by default the most important one, as in `importance`.
    at
        Values of the other state parameters; by default the middle of P[s].

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
    >>> figure = conbo.plots.acquisition(study)  # doctest: +SKIP
    """
    view = view_of(study)
    plane = plane_of(view, state, action, at, resolution(view))
    if plane is None:
        return remaining_gain(view)
    points, shape = plane.points.flatten(0, 1), plane.points.shape[:2]
    with threads_for(len(view.points)), torch.no_grad():
        function = ConBO(HybridKG()).build(view.belief, torch.Generator().manual_seed(0))
        exact = view.belief.posterior.batches_look_ahead and len(view.points) <= MOST_EXACT
        evaluate = function.integral if exact else function.screen
        values = torch.cat([evaluate(part) for part in points.split(AT_ONCE)])
        allowed = view.belief.contains(points)
        if not allowed.any():  # for example if an equation limits the actions
            allowed = torch.ones_like(allowed)
        values = torch.where(allowed, values, 0.0)
        finalists = points[allowed][values[allowed].topk(min(STARS, int(allowed.sum()))).indices]
        star = finalists[int(function(finalists).argmax())][None]
    rows = 2 if view.space.states else 1
    figure = canvas(
        rows, height=HEIGHT + 200 * (rows - 1), row_heights=[0.65, 0.35][:rows], vertical_spacing=0.32 / rows
    )
    gains = (values * view.belief.scale).reshape(shape)
    figure.add_trace(surface(plane.x, plane.y, gains, "expected gain", smooth=plane.smooth), 1, 1)
    low, high = figure.layout.yaxis.domain
    figure.data[0].colorbar.update(len=high - low, y=high, yanchor="top")
    shown = view.points[view.drawn]
    observed = with_count(counted(len(view.points), "evaluation"), len(shown), len(view.points))
    figure.add_trace(dots(*plane.project(shown), observed, INK, cliponaxis=False, **crowd(len(shown), 0.5)), 1, 1)
    text = {"text": view.described(star), "hovertemplate": "%{text}<extra></extra>"}
    (x,), (y,) = plane.project(star)
    figure.add_trace(dots([x], [y], "worth most", POLICY, size=15, symbol="star", cliponaxis=False, **text), 1, 1)
    figure.update_xaxes(plane.horizontal.layout(), row=1, col=1).update_yaxes(plane.vertical.layout(), row=1, col=1)
    if view.space.states:
        _add_gain_by_state(figure, view, function, plane, star)
    return figure


def _add_gain_by_state(
    figure: go.Figure, view: View, function: ConditionalAcquisition | AveragedAcquisition, plane: Plane, star: Tensor
) -> None:
    states = plane.points[0, :, : view.space.n_state_dims]
    with threads_for(len(view.points)), torch.no_grad():
        gains = function.value.at(states[None])(star, torch.zeros(1, dtype=torch.long)).values[0] * view.belief.scale
    for trace in _area(plane.horizontal, plane.x, gains.numpy(), "its gain in each state", POLICY):
        figure.add_trace(trace, 2, 1)
    figure.update_xaxes(plane.horizontal.layout(), row=2, col=1)
    figure.update_yaxes(title_text="gain", rangemode="tozero", row=2, col=1)


def _area(
    axis: ParameterAxis, x: Array, y: Array, name: str, color: str, **hover: object
) -> list[go.Scatter] | list[go.Bar]:
    """Plotly traces that fill the area from zero to the values y, or that draw bars if the parameter is categorical."""
    if axis.is_category:
        return [go.Bar(x=x, y=y, name=name, width=0.5, marker={"color": color}, textposition="none", **hover)]
    return [band(x, np.zeros_like(y), y, "", color, showlegend=False), line(x, y, name, color, **hover)]
