"""The plot of the probability that actions satisfy all limits, and functions that find which limit binds.

Known limits belong to the space. Learned limits are constraints on measured outcomes, and the constraint that
evaluations must not fail.
"""

from dataclasses import replace

import numpy as np
import torch
from plotly import graph_objects as go
from torch import Tensor

from conbo.errors import SettingError
from conbo.feasible_set import FeasibleSet
from conbo.linear_limits import LinearLimits
from conbo.models.snapping import contains
from conbo.parameters import Integer
from conbo.plots.planes import HEIGHT, RESOLUTION, Plane, add_policy, plane_of
from conbo.plots.style import FAILED, INK, MODEL, POLICY, canvas, crowd, dots, line, surface, with_count
from conbo.plots.view import Studied, View, view_of
from conbo.policies.gp_argmax import GpArgmax
from conbo.rounding import counted
from conbo.spaces import Array, Point
from conbo.threads import threads_for

TITLE = "probability to keep all limits"
TOUCHED = 1e-6  # slack, as a share of the limit's range over the space, below which a limit binds
RANGE = (-0.02, 1.02)  # range of an axis of probabilities


def feasibility(
    study: Studied, state: str | None = None, action: str | None = None, *, at: Point | None = None
) -> go.Figure:
    """Draw the probability that all limits are satisfied, over one state parameter and one action parameter.

    The observations and the policy are drawn as well. If the space has no states and only one action parameter, the
    figure is a curve over this action, without observations.

    Where a known limit is violated, the probability is zero. Elsewhere it is the probability that all learned
    limits are satisfied. Other state parameters have the values in `at`, and other action parameters have the values
    that the policy chooses. Without states, the horizontal axis is the most important other action parameter.

    Parameters
    ----------
    study
        A study with limits, known or learned.
    state
        Name of the state parameter on the horizontal axis; by default the most important one, as in `importance`. It
        must be None if the space has no states.
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
        If a name is unknown, or the study has no limits.
    ConboError
        If no trial is completed yet.

    Examples
    --------
    >>> figure = conbo.plots.feasibility(study)  # doctest: +SKIP
    """
    view = view_of(study)
    if not has_limits(view):
        raise SettingError("`feasibility` needs a study with constraints, known or learned, but this one has none.")
    plane = plane_of(view, state, action, at, RESOLUTION)
    if plane is None:
        return _along_action(view)
    kept = probability(view, plane.points.flatten(0, 1)).reshape(plane.points.shape[:2])
    figure = canvas(height=HEIGHT)
    figure.add_trace(surface(plane.x, plane.y, kept, TITLE, smooth=plane.smooth, ends=(0.0, 1.0)))
    _add_observations(figure, view, plane)
    add_policy(figure, view, plane, None)
    return figure.update_xaxes(plane.horizontal.layout()).update_yaxes(plane.vertical.layout())


def has_limits(view: View) -> bool:
    """Whether the space has known limits, or limits are learned from measured outcomes or from failed evaluations."""
    return view.space.feasible_set is not None or view.belief.constraints is not None


def probability(view: View, points: Tensor) -> Array:
    """Probabilities (m,) that points (m, d) satisfy all limits, known and learned."""
    inside = contains(view.space, points).numpy()
    learned = view.probability(points)
    return inside.astype(np.float64) if learned is None else np.where(inside, learned, 0.0)


def limit_names(view: View) -> list[str]:
    """The names of all limits except the user's function `feasible`.

    A linear constraint is named by the string that defines it, and a constraint on an outcome by the outcome. The
    learned constraint that evaluations must not fail is named "success".
    """
    learned = view.belief.constraints
    outcomes = [] if learned is None else [one.name for one in learned.all]
    return [*view.space.constraints, *outcomes]


def binding(view: View, points: Tensor) -> list[int]:
    """For each of m points (m, d) that the policy chooses, the index in `limit_names` of the limit that binds, or -1.

    A known limit binds if its slack is nearly zero. If no known limit binds, a learned limit may bind. To find it, take
    the action that would be best in the same state if there were no learned limits. If this action does not satisfy all
    learned limits with the required confidence, the learned limit that it is least likely to satisfy binds.
    """
    found = np.full(len(points), -1)
    learned = view.belief.constraints
    if learned is not None:
        tempting = _without_learned(view, points[:, : view.space.n_state_dims])
        margins = torch.stack([one.margins(tempting) for one in learned.all])  # (constraints, m)
        sure = learned.is_sure(torch.special.log_ndtr(margins).sum(0)).numpy()
        found = np.where(sure, found, margins.argmin(0).numpy() + len(view.space.constraints))
    known = view.space.feasible_set
    if known is not None and known.limits is not None:
        slack = known.limits.slack(points.numpy()) - known.limits.margins
        touched = slack <= _tolerances(known, known.limits)
        owner = known.limits.owner[touched.argmax(-1)]
        found = np.where(touched.any(-1), owner, found)
    return [int(place) for place in found]


def _without_learned(view: View, states: Tensor) -> Tensor:
    """The points (m, d) that would be best in states (m, d_s) if no constraint had been learned."""
    belief = replace(view.belief, constraints=None)
    with threads_for(len(view.points)), torch.no_grad():
        actions = GpArgmax().build(belief, torch.Generator().manual_seed(0))(states)
        return torch.cat([states, belief.feasible_actions(states, actions)], -1)


def _tolerances(known: FeasibleSet, limits: LinearLimits) -> Array:
    """For each of J linear limits, the largest slack (J,) at which it still counts as binding.

    If all action parameters in a limit are integers, its slack is rarely zero. Such a limit counts as binding if
    changing any of these parameters by 1 toward the limit would violate it.
    """
    coefficients = np.abs(np.where(known.actions, limits.coefficients, 0.0))
    whole = np.array([isinstance(parameter, Integer) for parameter in known.parameters])
    steps = np.where(coefficients > 0, coefficients, np.inf).min(-1) * (1 - TOUCHED)
    only_integers = ~(coefficients[:, ~whole] > 0).any(-1)
    return np.where(only_integers & np.isfinite(steps), np.maximum(steps, TOUCHED), TOUCHED)


def _along_action(view: View) -> go.Figure:
    """For a space whose only parameter is an action, draw the probability that the action satisfies all limits."""
    (name,) = view.space.actions
    axis = view.axis(name)
    places = axis.places(4 * RESOLUTION)
    kept = probability(view, torch.from_numpy(places)[:, None])
    best = view.actions(view.center()[None])
    figure = canvas()
    figure.add_trace(line(axis.positions(places), kept, TITLE, MODEL))
    there = axis.positions(best[:, 0].numpy())
    figure.add_trace(dots(there, probability(view, best), "policy", POLICY, size=11, cliponaxis=False))
    return figure.update_xaxes(axis.layout()).update_yaxes(title_text=TITLE, range=list(RANGE))


def _add_observations(figure: go.Figure, view: View, plane: Plane) -> None:
    """Draw the evaluations in two colors: those that satisfied all limits, and those that violated at least one."""
    x, y = plane.project(view.points)
    kept = contains(view.space, view.points).numpy()
    for one in view.belief.constraints.outcomes if view.belief.constraints is not None else ():
        kept = kept & (one.observations.rewards >= one.threshold).numpy()
    shown = np.zeros(len(kept), dtype=bool)
    shown[view.drawn] = True
    look, texts = crowd(int(shown.sum())), np.array(view.texts)
    for which, meaning, color in ((kept, "with all limits kept", INK), (~kept, "with one broken", FAILED)):
        dotted = which & shown
        if dotted.any():
            hover = {"text": texts[dotted].tolist(), "hovertemplate": "%{text}<extra></extra>"}
            label = with_count(
                f"{counted(int(which.sum()), 'evaluation')} {meaning}", int(dotted.sum()), int(which.sum())
            )
            figure.add_trace(dots(x[dotted], y[dotted], label, color, cliponaxis=False, **look, **hover))
