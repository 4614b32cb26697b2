"""Plots of the parameters: slices of the expected reward along each one, and how much each one matters."""

from collections.abc import Sequence

import torch
from plotly import graph_objects as go
from torch import Tensor

from conbo.plots.axes import ParameterAxis, label
from conbo.plots.style import MODEL, POLICY, band, canvas, dots, line
from conbo.plots.view import Studied, View, view_of
from conbo.rounding import BAND, NINETY_FIVE
from conbo.spaces import Point

PLACES = 61  # number of points along a slice
MOST_COLUMNS = 2  # largest number of panels side by side


def slices(study: Studied, names: Sequence[str] = (), *, at: Point | None = None) -> go.Figure:
    """Draw the expected reward against every parameter, with intervals of ± 1.96 standard deviations of this estimate.

    While one parameter varies, all others are fixed: those of the state at the values in `at`, and those of the action
    at the policy's choice for this state.

    Parameters
    ----------
    study
        The study.
    names
        The parameters to draw; by default all.
    at
        Values at which state parameters are fixed; by default the middle of P[s].

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
    >>> figure = conbo.plots.slices(study)
    """
    view = view_of(study)
    everything = [*view.space.state_names, *view.space.action_names]
    names = names or everything
    axes = [view.axis(name) for name in names]
    state = view.center(at)
    here = torch.cat([state, view.actions(state[None])[0]])
    columns = min(MOST_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    spacing = {"horizontal_spacing": 0.1, "vertical_spacing": 0.4 / max(rows, 2)}
    figure = canvas(rows, columns, height=90 + 200 * rows, **spacing)
    for place, axis in enumerate(axes):
        row, column = place // columns + 1, place % columns + 1
        for trace in _slice(view, axis, everything.index(axis.name), here, showlegend=place == 0):
            figure.add_trace(trace, row, column)
        figure.update_xaxes(axis.layout(), row=row, col=column)
        figure.update_yaxes(title_text="reward" if column == 1 else None, row=row, col=column)
    return figure


def _slice(view: View, axis: ParameterAxis, column: int, here: Tensor, showlegend: bool) -> list[go.Scatter]:
    """Plotly traces of the expected reward along a parameter, with its band, and of the policy's action as a dot.

    `column` is the parameter's column in a point. The other parameters have the values of the point `here` (d,), whose
    action is the policy's.
    """
    places = axis.places(PLACES)
    points = here.repeat(len(places), 1)
    points[:, column] = torch.from_numpy(places)
    mean, std = view.predict(points)
    x, low, high = axis.positions(places), mean - NINETY_FIVE * std, mean + NINETY_FIVE * std
    texts = [axis.text(value) for value in axis.parameter.decode(places)]
    hover = {"text": texts, "hovertemplate": "%{text}: %{y:.4~g}<extra></extra>"}
    if axis.is_category:
        model = [dots(x, mean, "expected reward", MODEL, low=low, high=high, showlegend=False, **hover)]
    else:
        shown = {"showlegend": showlegend}
        curve = line(x, mean, "expected reward", MODEL, **shown, **hover)
        model = [band(x, low, high, BAND, MODEL, **shown), curve]
    chosen, reward = axis.positions(here[column : column + 1].numpy()), view.mean(here[None])
    text = {"text": view.described(here[None]), "hovertemplate": "%{text}<extra></extra>"}
    policy = dots(chosen, reward, "policy", POLICY, size=11, cliponaxis=False, showlegend=showlegend, **text)
    return [*model, policy]


def importance(study: Studied) -> go.Figure:
    """Draw how much reward the policy would lose, on average over P[s], if it got one parameter wrong.

    The bar of a state parameter is the loss from acting as if the parameter had another value, drawn from P[s]. The bar
    of an action parameter is the loss from choosing its value at random.

    Parameters
    ----------
    study
        The study.

    Returns
    -------
    plotly.graph_objects.Figure
        The figure.

    Raises
    ------
    ConboError
        If no trial is completed yet.

    Examples
    --------
    >>> figure = conbo.plots.importance(study)
    """
    view = view_of(study)
    loss = dict(sorted(view.given_away.items(), key=lambda item: item[1]))
    figure = canvas(height=120 + 34 * len(loss))
    groups = (
        ("states: if mistaken", view.space.states, MODEL),
        ("actions: if left to chance", view.space.actions, POLICY),
    )
    order = {name: place for place, name in enumerate(loss)}
    for title, names, color in groups:
        chosen = [name for name in loss if name in names]
        if chosen:
            figure.add_trace(
                go.Bar(
                    x=[loss[name] for name in chosen],
                    y=[order[name] for name in chosen],
                    width=0.62,
                    orientation="h",
                    name=title,
                    marker={"color": color},
                    hovertemplate="%{x:.4~g}<extra></extra>",
                )
            )
    ticks = {"tickvals": list(order.values()), "ticktext": [label(name) for name in order], "showgrid": False}
    figure.update_yaxes(range=[-0.6, len(loss) - 0.4], **ticks)
    return figure.update_xaxes(title_text="reward given away", rangemode="tozero")
