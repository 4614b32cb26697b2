"""Plots of the policy against one state parameter: its actions, their uncertainty, and their predicted rewards."""

from collections.abc import Sequence

import numpy as np
import torch
from plotly import graph_objects as go
from torch import Tensor

from conbo.errors import SettingError
from conbo.plots.axes import ParameterAxis, label
from conbo.plots.style import POLICY, QUIET, TRUTH, band, canvas, dots, line, steps, with_count
from conbo.plots.view import Studied, View, view_of
from conbo.problems import Problem
from conbo.rounding import BAND, NINETY_FIVE, with_margin
from conbo.spaces import Array, Categorical, Point

STATES = 25  # number of points along a numeric state
BINS = 30  # number of bins of a histogram of best actions
BEST_OF_DRAWS = "best action of 80 % of drawn functions"
INSIDE = (0.1, 0.9)  # quantiles of the drawn functions' best actions that bound the band


def policy_map(
    study: Studied, state: str | None = None, actions: Sequence[str] = (), *, at: Point | None = None
) -> go.Figure:
    """Draw the policy's actions against one state parameter, with a panel for each action parameter.

    Functions are sampled from the posterior, and each function has its own best action in every state. A band holds the
    middle 80 % of these actions; for a categorical state, bars replace the band. Where the band is wide, other actions
    may well be better. For a categorical action, each choice has a dot, whose size shows for how many of the functions
    this choice is the best. Without states, each panel is a histogram of the functions' best actions. If the model
    cannot sample functions, or the policy does not simply take the action with the best posterior mean, only the policy
    is drawn.

    Parameters
    ----------
    study
        The study.
    state
        Name of the state parameter on the horizontal axis; by default the most important one, as in `importance`.
    actions
        Names of the action parameters to draw; by default all.
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
    >>> figure = conbo.plots.policy_map(study)
    """
    view = view_of(study)
    view.check_states(state, at)
    for name in actions:
        view.parameter(name, "actions")
    names = tuple(actions) or view.space.action_names
    if not view.space.states:
        return _best_action(view, names)
    axis, states = _with_action_along(view, state, at)
    x = axis.positions(states[:, view.space.state_names.index(axis.name)].numpy())
    best, drawn = view.actions(states), view.best_of_draws(states)
    figure = canvas(len(names), height=_height(names), shared_xaxes=True, vertical_spacing=0.12 / len(names))
    texts = view.described(torch.cat([states, best], -1))
    for row, name in enumerate(names, start=1):
        vertical, column = view.axis(name), view.space.action_names.index(name)
        y = vertical.positions(best[:, column].numpy())
        first = {"showlegend": row == 1}
        if drawn is not None:
            spread = vertical.positions(drawn[..., column].numpy().ravel()).reshape(drawn.shape[:2])
            figure.add_trace(_spread(axis, vertical, x, spread, first), row, 1)
        hover = {"text": texts, "hovertemplate": "%{text}<extra></extra>", **first}
        apart = axis.is_category or vertical.is_category
        mark = dots(x, y, "policy", POLICY, size=9, cliponaxis=False, **hover) if apart else None
        figure.add_trace(mark or line(x, y, "policy", POLICY, width=3, **hover), row, 1)
        figure.update_yaxes(vertical.layout(), row=row, col=1)
        figure.update_xaxes({**axis.layout(), "title": None}, row=row, col=1)
    return figure.update_xaxes(title_text=axis.title, row=len(names), col=1)


def predicted_reward(
    study: Studied, state: str | None = None, *, at: Point | None = None, problem: Problem | None = None
) -> go.Figure:
    """Draw the policy's predicted reward against one state parameter, with intervals of ± 1.96 standard deviations.

    Without states, the predicted reward of the best action is drawn over the distribution of the observed rewards.

    Parameters
    ----------
    study
        The study.
    state
        Name of the state parameter on the horizontal axis; by default the most important one, as in `importance`.
    at
        Values of the other state parameters; by default the middle of P[s].
    problem
        The problem behind the study, if its best rewards are known. They are drawn as well, unless there are no states.

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
    >>> figure = conbo.plots.predicted_reward(study)
    """
    view = view_of(study)
    view.check_states(state, at)
    figure = canvas()
    if not view.space.states:
        states = view.center()[None]
        mean, std = view.predict(torch.cat([states, view.actions(states)], -1))
        share = (np.arange(len(view.rewards)) + 0.5) / len(view.rewards)
        name = with_count("observed rewards", len(view.drawn), len(view.rewards))
        figure.add_trace(dots(np.sort(view.rewards)[view.drawn], share[view.drawn], name, QUIET))
        figure.add_trace(line([mean[0]] * 2, [0, 1], f"best action: {with_margin(mean[0], std[0])}", POLICY))
        ends = [mean[0] - NINETY_FIVE * std[0], mean[0] + NINETY_FIVE * std[0]]
        figure.add_trace(band(ends, [0, 0], [1, 1], BAND, POLICY))
        return figure.update_xaxes(title_text="reward").update_yaxes(title_text="share of observed rewards below")
    axis, states = _with_action_along(view, state, at)
    column = view.space.state_names.index(axis.name)
    x = axis.positions(states[:, column].numpy())
    points = torch.cat([states, view.actions(states)], -1)
    mean, std = view.predict(points)
    low, high = mean - NINETY_FIVE * std, mean + NINETY_FIVE * std
    texts = view.described(points)
    hover = {"text": texts, "hovertemplate": "%{text}<br>reward %{y:.4~g}<extra></extra>"}
    observed_at = axis.positions(view.points[view.drawn, column].numpy())
    name = with_count("observed rewards", len(view.drawn), len(view.rewards))
    observed = dots(observed_at, view.rewards[view.drawn], name, QUIET, size=5, opacity=0.6)
    figure.add_trace(observed)
    if axis.is_category:
        figure.add_trace(dots(x, mean, f"policy, {BAND}", POLICY, size=9, low=low, high=high, **hover))
    else:
        figure.add_trace(band(x, low, high, BAND, POLICY))
        figure.add_trace(line(x, mean, "policy", POLICY, **hover))
    if problem is not None and problem.optimal_reward is not None:
        best = [problem.optimal_reward(values) for values in view.space.decode_states(states.numpy())]
        known = dots(x, best, "best possible", TRUTH, symbol="diamond") if axis.is_category else None
        figure.add_trace(known or line(x, best, "best possible", TRUTH, dash="dash"))
    return figure.update_xaxes(axis.layout()).update_yaxes(title_text="reward", range=around(view.rewards, low, high))


def along(view: View, name: str, at: Point | None, most: int = STATES) -> tuple[ParameterAxis, Tensor]:
    """The axis of one state parameter, and states (m, d_s) along it.

    Every other state parameter has its value in `at` or, if `at` does not name it, its value in the middle of P[s].
    """
    axis = view.axis(name)
    places = axis.places(most)
    states = view.center(at).repeat(len(places), 1)
    states[:, view.space.state_names.index(name)] = torch.from_numpy(places)
    return axis, states


def _with_action_along(view: View, state: str | None, at: Point | None) -> tuple[ParameterAxis, Tensor]:
    """The result of `along` for this or the most important state parameter, without states that have no action.

    If no state is left, because few have a feasible action, the result has typical states of P[s].
    """
    axis, states = along(view, view.most_important("states", state), at)
    kept = view.with_action(states)
    if not len(kept) and at is None:
        typical, _ = view.typical_states
        kept = typical[typical[:, view.space.state_names.index(axis.name)].argsort()]
    if not len(kept):
        rule = f"a state along '{axis.name}' must have a feasible action"
        raise SettingError(f"{rule}, but none has with the values of other states in `at`.")
    return axis, kept


def _best_action(view: View, names: Sequence[str]) -> go.Figure:
    """For a space without states, draw the policy's action over a histogram of actions that may be the best.

    These are the best actions of functions that are sampled from the posterior. There is no histogram if the model
    cannot sample functions, or if the policy does not simply take the action with the best posterior mean.
    """
    state = view.center()[None]
    best, drawn = view.actions(state)[0], view.best_of_draws(state)
    figure = canvas(len(names), height=_height(names), vertical_spacing=0.5 / max(len(names), 2))
    for row, name in enumerate(names, start=1):
        axis, column = view.axis(name), view.space.action_names.index(name)
        first, top = {"showlegend": row == 1}, 1.0
        if drawn is not None:
            edges = axis.bins(BINS)
            share = np.histogram(drawn[0, :, column].numpy(), edges)[0] / drawn.shape[1]
            top = float(share.max())
            figure.add_trace(
                steps(axis, edges, share, "how often the best, by drawn functions", POLICY, **first), row, 1
            )
        place = best[column : column + 1].numpy()
        text = f"{label(name)} {axis.text(axis.parameter.decode(place)[0])}"
        hover = {"text": [text] * 2, "hovertemplate": "%{text}<extra></extra>", **first}
        figure.add_trace(line(axis.positions(place).repeat(2), [0, top], "policy", POLICY, **hover), row, 1)
        figure.update_xaxes(axis.layout(), row=row, col=1)
        figure.update_yaxes(title_text="share", rangemode="tozero", row=row, col=1)
    return figure


def _height(names: Sequence[str]) -> int:
    return max(300, 60 + 170 * len(names))


def _spread(
    axis: ParameterAxis, vertical: ParameterAxis, x: Array, drawn: Array, options: dict[str, bool]
) -> go.Scatter:
    """Plotly trace that shows how much the best action varies among functions sampled from the posterior.

    `drawn` (states, functions) holds the best value of one action parameter in each state for each function, as a
    position on the axis `vertical`. The states are at the positions `x` (states,) on `axis`.
    """
    # a dot for every choice, whose size shows how often the choice is the best
    if isinstance(vertical.parameter, Categorical):
        counts = np.stack([(drawn == choice).mean(1) for choice in range(vertical.parameter.n_levels)], 1)
        places, choices = np.nonzero(counts)
        share = counts[places, choices]
        texts = [f"best in {100 * part:.0f} % of the draws" for part in share]
        hover = {"text": texts, "hovertemplate": "%{text}<extra></extra>", "cliponaxis": False, "showlegend": False}
        return dots(x[places], choices, BEST_OF_DRAWS, POLICY, size=4 + 18 * share, opacity=0.3, rim=0, **hover)
    low, high = np.quantile(drawn, INSIDE, axis=1)
    if not axis.is_category:
        return band(x, low, high, BEST_OF_DRAWS, POLICY, **options)
    gaps = np.full_like(x, np.nan)  # between one bar and the next
    ends = np.stack([x, x, gaps], 1).ravel(), np.stack([low, high, gaps], 1).ravel()
    return line(*ends, BEST_OF_DRAWS, POLICY, width=10, opacity=0.3, hoverinfo="skip", **options)


def around(observed: Array, *curves: Array) -> list[float]:
    """The range of an axis that contains all curves, and those observed rewards that are not far from the curves."""
    low, high = (float(end) for end in (min(c.min() for c in curves), max(c.max() for c in curves)))
    least, most = float(observed.min(initial=low)), float(observed.max(initial=high))
    far = high - low or most - least or 1.0
    return [max(low - far, least) - 0.05 * far, min(high + far, most) + 0.05 * far]
