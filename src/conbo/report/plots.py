"""Pictures of a study with one state and one action, both real numbers. Needs the extra `plots`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm

from conbo.errors import SettingError
from conbo.policies.policy import Policy
from conbo.spaces import Point, Real, Space
from conbo.trials import Trial

COLOURS = "YlGnBu_r"
LEARNED, DARK = "#f26419", "#22223b"
RESOLUTION = 121  # points along each axis of the surface
BANDS = 14


def draw_surface(axes: Axes, space: Space, policy: Policy) -> ScalarMappable:
    """The expected reward by the model, as a surface over state and action; returned for a colour bar."""
    state, action = _real_names(space)
    states, actions = _values(space.states[state]), _values(space.actions[action])
    rows = [{state: s} for _ in actions for s in states]
    columns = [{action: x} for x in actions for _ in states]
    mean = np.array([prediction.mean for prediction in policy.predict_actions(rows, columns)])
    # bands of equal area: one steep corner would take nearly all colours of an even scale
    levels = np.unique(np.quantile(mean, np.linspace(0, 1, BANDS + 1)))
    surface: ScalarMappable = axes.contourf(
        states, actions, mean.reshape(len(actions), -1), levels, cmap=COLOURS, norm=BoundaryNorm(levels, 256)
    )
    axes.set(xlabel=f"state {state}", ylabel=f"action {action}")
    axes.set(xscale=_scale(space.states[state]), yscale=_scale(space.actions[action]))
    axes.set(xlim=(states[0], states[-1]), ylim=(actions[0], actions[-1]))
    return surface


def draw_evaluations(axes: Axes, space: Space, trials: Sequence[Trial]) -> None:
    """Where the study has looked."""
    state, action = _real_names(space)
    done = [trial for trial in trials if trial.status == "completed"]
    points = [t.state[state] for t in done], [t.action[action] for t in done]
    label = f"{len(done)} evaluations"
    axes.scatter(*points, s=30, color=DARK, edgecolor="white", label=label, clip_on=False, zorder=3)


def draw_policy(axes: Axes, space: Space, policy: Callable[[Point], Point], label: str, **style: Any) -> None:
    """The action of every state as a line."""
    state, action = _real_names(space)
    states = _values(space.states[state])
    axes.plot(states, [policy({state: s})[action] for s in states], label=label, **style)


def _real_names(space: Space) -> tuple[str, str]:
    """The names of the only state and the only action."""
    parameters = (*space.states.values(), *space.actions.values())
    if (space.n_state_dims, space.n_action_dims) != (1, 1) or not all(isinstance(p, Real) for p in parameters):
        given = f"states {list(space.states)} and actions {list(space.actions)}"
        raise SettingError(f"a picture needs one state and one action, both Real, but got {given}.")
    return space.state_names[0], space.action_names[0]


def _values(parameter: object) -> list[float]:
    """Evenly spaced values on the parameter's own scale."""
    assert isinstance(parameter, Real)  # or `_real_names` would have raised
    return parameter.decode(np.linspace(0, 1, RESOLUTION))


def _scale(parameter: object) -> str:
    return "log" if isinstance(parameter, Real) and parameter.log else "linear"
