"""Plots that check the model and its data: calibration, validated rewards, and how evaluations cover P[s]."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from plotly import graph_objects as go

from conbo.errors import SettingError
from conbo.plots.axes import label
from conbo.plots.style import INK, MODEL, POLICY, QUIET, canvas, dots, line, steps, with_count
from conbo.plots.view import Studied, View, view_of
from conbo.quasi_random import sobol
from conbo.rounding import NINETY_FIVE
from conbo.validation import Validation

BINS = 12
LONGEST_RULE = 60  # number of characters of a decision rule's name in the legend
SAMPLES = 4096  # number of states drawn from P[s]


def covered(view: View) -> NDArray[np.bool_]:
    """Whether each observed reward is inside the 95 % interval of its leave-one-out prediction, as booleans (n,)."""
    mean, std = view.leave_one_out
    return np.abs(view.rewards - mean) <= NINETY_FIVE * std


def calibration(study: Studied) -> go.Figure:
    """Draw the leave-one-out prediction of every observed reward against the reward itself.

    The whiskers are 95 % prediction intervals, which include the noise of a single reward. If the model is right, about
    95 % of them cross the diagonal.

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
    SettingError
        If the model has no leave-one-out predictions. BoTorch models have none. With output warping or a
        `reward_range`, built-in models have none for more than 5,000 rewards.
    ConboError
        If no trial is completed yet.

    Examples
    --------
    >>> figure = conbo.plots.calibration(study)
    """
    view = view_of(study)
    mean, std = view.leave_one_out
    inside = covered(view)
    ends = np.array([min(mean.min(), view.rewards.min()), max(mean.max(), view.rewards.max())])
    texts = view.texts
    figure = canvas(height=420)
    figure.add_trace(line(ends, ends, "prediction = reward", QUIET, dash="dash", width=1.5, hoverinfo="skip"))
    for own, name, color in ((inside, "inside its 95 % interval", MODEL), (~inside, "outside", POLICY)):
        chosen = view.drawn[own[view.drawn]]
        if len(chosen):
            m, s = mean[chosen], std[chosen]
            low, high = m - NINETY_FIVE * s, m + NINETY_FIVE * s
            hover = {
                "text": [texts[i] for i in chosen],
                "hovertemplate": "%{text}<br>predicted %{y:.4~g}<extra></extra>",
            }
            legend = with_count(f"{name}: {own.sum()}", len(chosen), int(own.sum()))
            figure.add_trace(dots(view.rewards[chosen], m, legend, color, low=low, high=high, size=6, **hover))
    return figure.update_xaxes(title_text="reward observed").update_yaxes(title_text="predicted from all others")


def fresh_evaluations(found: Validation) -> go.Figure:
    """Draw the rewards of a validation (vertical axis) and the rewards that the model expected (horizontal axis).

    On the dashed diagonal, both are equal. Points below it are rewards that were lower than expected, which is bad if
    rewards are maximized and good if they are minimized.
    """
    named = [("policy", [check.policy for check in found.checks], POLICY)]
    if found.rule_name is not None:
        named.append(
            (
                label(found.rule_name, LONGEST_RULE),
                [check.rule for check in found.checks if check.rule is not None],
                MODEL,
            )
        )
    figure, known = canvas(height=420), [m for _, own, _ in named for m in own if m.reward is not None]
    ends = np.array([min(m.predicted for m in known), max(m.predicted for m in known)])
    figure.add_trace(line(ends, ends, "as expected", QUIET, dash="dash", width=1.5, hoverinfo="skip"))
    for name, own, color in named:
        measured = [m for m in own if m.reward is not None]
        x, y = np.array([m.predicted for m in measured]), np.array([m.reward for m in measured], dtype=float)
        figure.add_trace(dots(x, y, name, color, size=7))
    return figure.update_xaxes(title_text="reward expected by the model").update_yaxes(title_text="reward measured")


def state_coverage(study: Studied, names: Sequence[str] = ()) -> go.Figure:
    """Draw how the evaluations are distributed along each state parameter, compared with P[s].

    Without states, the distribution along each action parameter is drawn.

    Parameters
    ----------
    study
        The study.
    names
        Names of the state parameters to draw (in a space without states, of the action parameters); by default all.

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
    >>> figure = conbo.plots.state_coverage(study)
    """
    view = view_of(study)
    space, d_s = view.space, view.space.n_state_dims
    parameters = list(space.states or space.actions)
    names = names or parameters
    if unknown := [name for name in names if name not in parameters]:
        raise SettingError(f"`names` must be of {', '.join(parameters)}, but got {unknown[0]!r}.")
    expected = view.belief.states.from_uniform(sobol(SAMPLES, d_s, seed=0)).numpy() if d_s else None
    figure = canvas(len(names), height=100 + 190 * len(names), vertical_spacing=0.4 / max(len(names), 2))
    for row, name in enumerate(names, 1):
        axis, column = view.axis(name), parameters.index(name)
        edges = axis.bins(BINS)
        observed = np.histogram(view.points[:, column].numpy(), edges)[0] / max(len(view.points), 1)
        first = {"showlegend": row == 1}
        figure.add_trace(steps(axis, edges, observed, "evaluations", MODEL, opacity=0.45, **first), row, 1)
        if expected is not None:
            share = np.histogram(expected[:, column], edges)[0] / SAMPLES
            x = axis.edges((edges[1:] + edges[:-1]) / 2)
            figure.add_trace(dots(x, share, "P[s]", INK, size=8, symbol="diamond", **first), row, 1)
        figure.update_xaxes(axis.layout(), row=row, col=1)
        figure.update_yaxes(title_text="share", tickformat=".0%", rangemode="tozero", row=row, col=1)
    return figure
