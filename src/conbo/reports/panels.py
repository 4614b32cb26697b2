"""The content of the report: sections of panels, each with figures and a sentence on how to read them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from plotly import graph_objects as go

from conbo.errors import SettingError
from conbo.plots import gain, limits, model_checks, parameters, planes, policy_plots, progress
from conbo.plots.view import View
from conbo.problems import Problem
from conbo.rounding import counted, listed, with_margin
from conbo.validation import Validation
from conbo.value_text import value_text

MOST_PROOFS = 4  # largest number of validations that are shown; the newest ones
MOST_STATES = 3  # largest number of states along which a plot is shown; the most important ones


@dataclass(frozen=True)
class Group:
    """Figures that are shown together, under one name."""

    name: str
    figures: tuple[go.Figure, ...]


@dataclass(frozen=True)
class Panel:
    """A titled box of the report with text and groups of figures, of which one group is shown at a time."""

    key: str
    title: str
    text: str
    groups: tuple[Group, ...] = ()
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """A heading of the report with its panels."""

    key: str
    title: str
    panels: tuple[Panel, ...]
    folded: str = ""  # title of a section that is collapsed at first; empty if the section is open


def sections(view: View, problem: Problem | None) -> list[Section]:
    """All sections of the report, in the order of the page."""
    proofs = tuple(_validation(number, found) for number, found in enumerate(view.validations) if found.evaluations)
    newest = proofs[-MOST_PROOFS:]
    if len(newest) % 2:  # the last panel is alone in its row
        newest = (*newest[:-1], replace(newest[-1], wide=True))
    proven = [Section("proof", "Measured by fresh evaluations", newest)] if newest else []
    return [
        *proven,
        Section(
            "policy",
            "Policy",
            (policy_map_panel(view), _predicted_reward(view, problem), *limits_panel(view), _importance(view)),
        ),
        Section("next", "What is left to learn", (_remaining_gain(view), _acquisition(view))),
        Section(
            "model",
            "Model",
            (_surface(view, problem), _calibration(view), _slices(view)),
            "what it expects, and how well it predicts",
        ),
        Section(
            "progress",
            "How it went",
            (_policy_value(view), _coverage(view), _timeline(view)),
            "the policy along the way, where evaluations were, and what failed",
        ),
    ]


def _validation(number: int, found: Validation) -> Panel:
    beside = f"Beside {found.rule_name}" if found.rule_name else "The best action"
    return Panel(
        f"validation-{number}",
        f"{beside}, after {counted(found.trials, 'evaluation')}",
        str(found),
        _one(model_checks.fresh_evaluations(found)),
    )


def policy_map_panel(view: View) -> Panel:
    """The panel of the policy's actions against each of the most important state parameters.

    Without states, it shows the best action. If functions can be drawn from the posterior (see `View.best_of_draws`),
    the figures also show how the best action varies among them, and the panel's text explains this.
    """
    drawn = view.best_of_draws(view.typical_states[0][:1]) is not None
    if view.space.states:
        band = (
            " The band holds the best action of 80 % of the functions that the data allow: where it is wide, other "
            "actions may be as good."
        )
        text = f"The action for every state.{band if drawn else ''}"
    else:
        text = "The best action, and how often functions that the data allow have their best action nearby."
    groups = tuple(
        Group(name, tuple(policy_plots.policy_map(view, state, [action]) for action in view.space.actions))
        for name, state in _states(view)
    )
    return Panel("policy_map", "Policy map", text + _fixed(view), groups, wide=True)


def _predicted_reward(view: View, problem: Problem | None) -> Panel:
    text = (
        "What the policy should earn in a state, with ± 1.96 standard deviations of that estimate."
        if view.space.states
        else "What the best action should earn, against all rewards that were observed."
    )

    def plot(view: View, state: str | None) -> go.Figure:
        return policy_plots.predicted_reward(view, state, problem=problem)

    return Panel("predicted_reward", "Predicted reward", text, _along(view, plot))


def limits_panel(view: View) -> tuple[Panel, ...]:
    """A tuple with the panel that shows how probably actions satisfy all limits; empty if there are no limits."""
    if not limits.has_limits(view):
        return ()
    over = "one state and one action" if view.space.states else "the actions that matter most"
    text = f"How probably an action satisfies all limits, over {over}; all other actions are at the policy's choice."
    text += f"{_fixed(view)} {_binding(view)}"
    return (Panel("feasibility", "Limits", text, _one(limits.feasibility(view))),)


def _binding(view: View) -> str:
    """A sentence that says which limits bind the policy, and in what percentage of the states each does."""
    states, weights = view.typical_states
    places = limits.binding(view, torch.cat([states, view.actions(states)], -1))
    names = limits.limit_names(view)
    share = {
        name: sum(w for w, k in zip(weights.tolist(), places, strict=True) if k == i) for i, name in enumerate(names)
    }
    often = sorted((-part, name) for name, part in share.items() if part > 0)
    if not often:
        return "No limit that has a name holds the policy back."
    where = " of the states" if view.space.states else ""
    parts = [f"{name} in {-100 * part:.0f} %{where if i == 0 else ''}" for i, (part, name) in enumerate(often)]
    return f"The policy is held back by {listed(parts)}."


def _importance(view: View) -> Panel:
    if not any(view.given_away.values()):
        return Panel("importance", "Importance", "By what is known so far, no state and no action matters.")
    text = "What the policy would give away, in rewards, by mistaking a state or by leaving an action to chance."
    alone = limits.has_limits(view)  # then the two panels before it fill a row
    return Panel("importance", "Importance", text, _one(parameters.importance(view)), wide=alone)


def _surface(view: View, problem: Problem | None) -> Panel:
    over = "one state and one action" if view.space.states else "the two actions that matter most"
    text = f"The model over {over}; all other actions are at the policy's choice.{_fixed(view)}"
    return Panel("posterior_surface", "Expected reward", text, _one(planes.posterior_surface(view, problem=problem)))


def _calibration(view: View) -> Panel:
    try:
        figures = _one(model_checks.calibration(view))
        inside = 100 * model_checks.covered(view).mean()
        text = f"Each reward, predicted from all others: {inside:.0f} % lie inside their 95 % interval."
    except SettingError as error:
        figures, text = (), str(error)
    return Panel("calibration", "Calibration", text, figures)


def _slices(view: View) -> Panel:
    text = "The expected reward when one parameter moves and all others stay, with ± 1.96 standard deviations of it."
    names = (*view.space.state_names, *view.space.action_names)
    figures = tuple(parameters.slices(view, [name]) for name in names)
    return Panel("slices", "Slices", text + _fixed(view), (Group("", figures),), wide=True)


def _remaining_gain(view: View) -> Panel:
    where = "state" if view.space.states else "value"
    text = f"How much one more evaluation at a {where} is expected to raise the reward there (knowledge gradient)."
    return Panel("remaining_gain", "Remaining gain", text, _along(view, gain.remaining_gain))


def _acquisition(view: View) -> Panel:
    text = "The gain over all states from one more evaluation. The star marks the best point"
    text += ", and the panel below shows which states would profit." if view.space.states else "."
    if (n := planes.n_points(view, gain.resolution(view))) > gain.MOST_DRAWN:
        text = (
            f"The picture would have {n} points, one for each combination of the most important parameters: too many."
        )
        return Panel("acquisition", "Where to look next", text)
    return Panel("acquisition", "Where to look next", text, _one(gain.acquisition(view)))


def _coverage(view: View) -> Panel:
    where = "the states that P[s] will bring" if view.space.states else "the range of every action"
    text = f"Where the evaluations were, against {where}."
    # a figure for each, so that long labels of one do not overlap the title of the next
    figures = tuple(model_checks.state_coverage(view, [name]) for name in view.space.states or view.space.actions)
    return Panel("state_coverage", "Coverage", text, (Group("", figures),), wide=len(figures) > 1)


def _policy_value(view: View) -> Panel:
    value, std = view.value
    text = (
        f"What the policy should earn in an average state: now {with_margin(value, std)}. "
        "The solid line is what the model said after each number of evaluations."
    )
    alone = len(view.space.states or view.space.actions) > 1  # the panel beside it is wide
    return Panel("policy_value", "Policy value", text, _one(progress.policy_value(view)), wide=alone)


def _timeline(view: View) -> Panel:
    failures = sum(trial.status == "failed" for trial in view.trials)
    text = f"Who evaluated what, and when. {failures or 'No'} evaluation{'s' * (failures > 1)} failed."
    return Panel("timeline", "Timeline", text, _one(progress.timeline(view)), wide=True)


def _one(figure: go.Figure) -> tuple[Group, ...]:
    return (Group("", (figure,)),)


def _states(view: View) -> list[tuple[str, str | None]]:
    """The most important state parameters, as pairs (name of a `Group` of figures, name of the parameter).

    Each parameter has one group, which is named after it. If there is only one group, its name is empty. In a space
    without states, the only pair is ("", None).
    """
    names = sorted(view.space.states, key=lambda name: -view.given_away[name])[:MOST_STATES]
    return [(name if len(names) > 1 else "", name) for name in names] or [("", None)]


def _along(view: View, plot: Callable[[View, str | None], go.Figure]) -> tuple[Group, ...]:
    """For each of the most important state parameters, a group with one figure, which `plot` draws."""
    return tuple(Group(name, (plot(view, state),)) for name, state in _states(view))


def _fixed(view: View) -> str:
    """A sentence with the values at which plots fix the state parameters that they do not show.

    It lists the values of all state parameters in the middle of P[s]. It is empty if the space has fewer than two state
    parameters.
    """
    if len(view.space.states) < 2:
        return ""
    middle = view.space.decode_states(view.center()[None].numpy())[0]
    values = ", ".join(f"{name} {value_text(view.space.states[name], value)}" for name, value in middle.items())
    return f" States that are not shown are in the middle: {values}."
