"""Plots of a study's history: the policy's value as evaluations were added, and the times of all evaluations."""

import re
from dataclasses import replace
from datetime import datetime

import numpy as np
import torch
from plotly import graph_objects as go

from conbo.belief import Belief, ModelLike, fit_belief, standardized
from conbo.plots.axes import label
from conbo.plots.policy_plots import around
from conbo.plots.style import FAILED, MODEL, POLICY, QUIET, WAITING, band, canvas, dots, evenly, line, with_count
from conbo.plots.view import Studied, View, view_of
from conbo.policies.gp_argmax import GpArgmax
from conbo.rounding import BAND, NINETY_FIVE, number
from conbo.study.workers import process_of
from conbo.threads import threads_for
from conbo.trials import Trial

CHECKPOINTS = 8  # largest number of checkpoints, which are numbers of evaluations after which the policy is judged
FEWEST = 3  # number of evaluations at the first checkpoint
MOST_FITTED = 300  # largest number of observations for which the model of a checkpoint is fitted anew
MOST_PROCESSES = 24  # largest number of processes that have a row each; with more, each machine has one
MOST_LANES = 8  # largest number of lanes for evaluations in one row that overlap
BY_HAND = "by hand"
COLORS = {"completed": MODEL, "failed": FAILED, "running": WAITING}


def policy_value(study: Studied) -> go.Figure:
    """Draw how the policy's expected reward over P[s] changed as evaluations were added.

    At each of several checkpoints (numbers of evaluations), a policy is learned from the rewards up to then, as if the
    study had ended there. The solid line is the value of each policy under the model of its own checkpoint, with a band
    of ± 1.96 standard deviations. The dashed line is the value of the same policies under the model of all rewards.
    Both lines say more than the best observed reward, which means little if rewards are noisy and depend on the state.

    At a checkpoint with more than 300 rewards, the hyperparameters are not fitted again, but are those of the model of
    all rewards. Learned constraints are always fitted to all evaluations. With a BoTorch model, or a model that is
    fitted jointly to this study and an earlier one, there is only the last checkpoint.

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
    >>> figure = conbo.plots.policy_value(study)  # doctest: +SKIP
    """
    view = view_of(study)
    known = ((n, _value_after(view, n)) for n in checkpoints(len(view.points)))
    values = {n: value for n, value in known if value is not None}
    counts = list(values)
    value, std, hindsight = (np.array(column) for column in zip(*values.values(), strict=True))
    figure = canvas(height=340)
    n, shown = len(view.points), view.drawn
    name = with_count("observed rewards", len(shown), n)
    figure.add_trace(dots(shown + 1, view.rewards[shown], name, QUIET, size=4, opacity=0.5, rim=0))
    low, high = value - NINETY_FIVE * std, value + NINETY_FIVE * std
    if len(counts) == 1:
        figure.add_trace(dots(counts, value, f"policy value, {BAND}", POLICY, low=low, high=high))
    else:
        figure.add_trace(band(counts, low, high, BAND, POLICY))
        figure.add_trace(line(counts, value, "policy value, as estimated then", POLICY))
        figure.add_trace(line(counts, hindsight, "the same policy, judged by all rewards", MODEL, dash="dash"))
    figure.update_yaxes(title_text="reward", range=around(view.rewards, low, high, hindsight))
    return figure.update_xaxes(title_text="evaluations", range=[0, n + 1], exponentformat="none")


def checkpoints(n: int) -> list[int]:
    """The numbers of evaluations, up to n, after which the policy's value is drawn.

    If n is large, the distance between successive numbers grows, because they are geometrically spaced.
    """
    steps = np.geomspace(min(FEWEST, n), n, CHECKPOINTS) if n > CHECKPOINTS else np.arange(min(FEWEST, n), n + 1)
    return sorted({round(step) for step in steps.tolist()} | {n})


def _value_after(view: View, n: int) -> tuple[float, float, float] | None:
    """Estimate the value of the policy that is learned from the first n rewards.

    Return the value under a model of only these n rewards, the standard deviation of this estimate, and the value of
    the same policy under the model of all rewards. Return None if the model cannot be conditioned on the first n
    rewards alone.
    """
    if n == len(view.points):
        return *view.value, view.value[0]
    states, weights = view.typical_states
    belief = earlier(view.belief, n, view.model)
    if belief is None:
        return None
    recipe = view.policy.recipe or GpArgmax(candidates=64)
    with threads_for(n), torch.no_grad():
        points = torch.cat([states, recipe.build(belief, torch.Generator().manual_seed(0))(states)], -1)
    return *view.value_of(belief, points), float(weights.numpy() @ view.mean(points))


def earlier(belief: Belief, n: int, model: ModelLike) -> Belief | None:
    """The belief given only the first n rewards; None if the model cannot be conditioned on them alone.

    If n is at most `MOST_FITTED`, `model` is fitted to these rewards; otherwise the hyperparameters stay those of
    `belief`. Learned constraints stay as they are in `belief`, fitted to all evaluations.
    """
    first = belief.observations.first(n)
    seen = standardized(first, belief.shift, belief.scale)
    with threads_for(n):
        seeds = None if seen.seeds is None else seen.seeds.values
        known = belief.posterior.conditioned_on(seen.points, seen.rewards, seen.noise, seeds)
        if known is None:
            return None
        if n <= MOST_FITTED:
            return replace(fit_belief(belief.space, belief.states, first, model), constraints=belief.constraints)
    return replace(belief, observations=first, posterior=known, average=None)


def timeline(study: Studied) -> go.Figure:
    """Draw when each trial was evaluated, by which worker, and whether it failed.

    If no times are recorded, or all are the same, the trials are drawn in the order of their numbers instead.

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
    >>> figure = conbo.plots.timeline(study)
    """
    trials = view_of(study).trials
    timed = [trial for trial in trials if trial.started is not None]
    moments = {moment for trial in timed for moment in (trial.started, trial.finished) if moment is not None}
    # results that were imported together all have the same time
    return _by_worker(timed) if len(moments) > 1 else _by_number(trials)


def _by_worker(trials: list[Trial]) -> go.Figure:
    first = min(trial.started for trial in trials if trial.started is not None)
    last = max(moment for trial in trials for moment in (trial.started, trial.finished) if moment is not None)
    unit, seconds = _unit((last - first).total_seconds())

    def since(moment: datetime | None) -> float:
        return ((moment or last) - first).total_seconds() / seconds

    least = since(last) / 400  # smallest length of a bar, so that quick evaluations are visible
    spans = [(since(t.started), max(since(t.finished), since(t.started) + least)) for t in trials]
    whose = _evaluators(trials)
    workers = list(dict.fromkeys(whose))
    place, thickness = np.zeros(len(trials)), np.zeros(len(trials))
    for row, worker in enumerate(workers):
        own = [i for i, name in enumerate(whose) if name == worker]
        lanes = np.array(_lanes([spans[i] for i in own]))
        n = lanes.max() + 1
        place[own], thickness[own] = row - 0.4 + 0.8 * (lanes + 0.5) / n, 0.7 / n
    figure = canvas(height=130 + max(108, min(36 * len(workers), 400 + 12 * len(workers))))
    for status, color in COLORS.items():
        own = [i for i, trial in enumerate(trials) if trial.status == status]
        if own:
            chosen = [own[i] for i in evenly(len(own))]
            figure.add_trace(
                go.Bar(
                    base=[spans[i][0] for i in chosen],
                    x=[spans[i][1] - spans[i][0] for i in chosen],
                    y=place[chosen],
                    width=thickness[chosen],
                    orientation="h",
                    name=with_count(f"{status}: {len(own)}", len(chosen), len(own)),
                    marker={"color": color},
                    text=[_told(trials[i]) for i in chosen],
                    textposition="none",
                    hovertemplate="%{text}<extra></extra>",
                )
            )
    ticks = {"tickvals": list(range(len(workers))), "ticktext": [label(worker, 16) for worker in workers]}
    figure.update_yaxes(**ticks, range=[len(workers) - 0.4, -0.6], showgrid=False)
    return figure.update_layout(barmode="overlay").update_xaxes(title_text=f"{unit} since the first start")


def _evaluators(trials: list[Trial]) -> list[str]:
    """The name of whoever evaluated each trial: a process or a client, or a machine if there are many processes."""
    processes = [process_of(trial.worker or BY_HAND) for trial in trials]
    return processes if len(set(processes)) <= MOST_PROCESSES else [re.sub(r":\d+$", "", name) for name in processes]


def _lanes(spans: list[tuple[float, float]]) -> list[int]:
    """Assign each time span (begin, end) to a lane of the plot, so that spans in the same lane do not overlap.

    If more than MOST_LANES spans overlap, those for which no lane is free are all put into the last lane.
    """
    free = [-np.inf]  # time at which each lane becomes free
    lanes = [0] * len(spans)
    for i in sorted(range(len(spans)), key=lambda i: spans[i]):
        lane = next((k for k, end in enumerate(free) if end <= spans[i][0]), len(free))
        lanes[i] = min(lane, MOST_LANES - 1)
        free = [*free, -np.inf] if lane == len(free) < MOST_LANES else free
        free[lanes[i]] = spans[i][1]
    return lanes


def _by_number(trials: tuple[Trial, ...]) -> go.Figure:
    order = list(COLORS)
    figure = canvas(height=220)
    for status, color in COLORS.items():
        own = [trial for trial in trials if trial.status == status]
        if own:
            chosen = [own[i] for i in evenly(len(own))]
            texts = {"text": [_told(trial) for trial in chosen], "hovertemplate": "%{text}<extra></extra>"}
            numbers, row = [trial.number for trial in chosen], [order.index(status)] * len(chosen)
            name = with_count(f"{status}: {len(own)}", len(chosen), len(own))
            figure.add_trace(dots(numbers, row, name, color, size=12, symbol="line-ns-open", **texts))
    ticks = {"tickvals": list(range(len(order))), "ticktext": order}
    figure.update_yaxes(**ticks, range=[len(order) - 0.4, -0.6], showgrid=False)
    return figure.update_xaxes(title_text="trial")


def _told(trial: Trial) -> str:
    outcome = f"reward {number(trial.reward)}" if trial.reward is not None else trial.status
    error = [label(trial.error, 60)] if trial.error else []
    return "<br>".join([f"trial {trial.number}: {outcome}", *error])


def _unit(span: float) -> tuple[str, float]:
    """Choose a time unit for a span of this many seconds, and return its name and its length in seconds.

    The unit is the longest of days, hours and minutes that fits into the span more than three times; if none does, it
    is seconds.
    """
    for unit, seconds in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if span > 3 * seconds:
            return unit, seconds
    return "seconds", 1.0
