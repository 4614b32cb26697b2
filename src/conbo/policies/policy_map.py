"""Shows a policy in a notebook, as HTML: a line plot for every action parameter, or a table.

Line plots need a single state parameter and no categorical parameters. Otherwise, a table shows the actions of a few
states.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from conbo.html_pieces import line, table, text
from conbo.quasi_random import sobol_points
from conbo.rounding import BAND, NINETY_FIVE, number
from conbo.spaces import Categorical, Parameter, Space, Value
from conbo.value_text import number_in_steps, step_between, value_text

if TYPE_CHECKING:
    from conbo.policies.policy import Policy

DRAWN_STATES = 41  # number of states at which the policy is evaluated for a line plot
MOST_ROWS = 12  # largest number of states in a table


def policy_map(policy: "Policy") -> str:
    """Return the policy as HTML: line plots, or a table."""
    space = policy.belief.space
    return _drawings(policy) if _has_one_number(space) else _rows(policy)


def _has_one_number(space: Space) -> bool:
    """Return whether the policy can be drawn as lines: one state parameter, and no categorical parameters."""
    parameters = list(space.states.values())
    numbers = not any(isinstance(parameter, Categorical) for parameter in (*parameters, *space.actions.values()))
    return len(parameters) == 1 and numbers


def _drawings(policy: "Policy") -> str:
    space = policy.belief.space
    places = space.snap_states(np.linspace(0, 1, DRAWN_STATES)[:, None])
    if space.feasible_set is not None:
        places = places[space.feasible_set.has_action(places)]
    if not len(places):  # few states have a feasible action
        return _rows(policy)
    actions = policy.many(space.decode_states(places))
    heights = space.encode_actions(actions)
    ((state, over),) = space.states.items()
    pieces = []
    for column, (name, parameter) in enumerate(space.actions.items()):
        title = f"{_with_range(name, parameter)} over {_with_range(state, over)}"
        steps = ", ".join(value_text(parameter, action[name]) for action in actions[:: max(1, len(actions) // 4)])
        drawing = line(places[:, 0].tolist(), heights[:, column].tolist(), f"{name} over {state}: {steps}")
        pieces.append(f"<figure><figcaption>{text(title)}</figcaption>{drawing}</figure>")
    return "".join(pieces)


def _with_range(name: str, parameter: Parameter) -> str:
    ends: tuple[Value, ...] = (parameter.low, parameter.high)  # type: ignore[union-attr]
    low, high = (value_text(parameter, end) for end in ends)
    return f"{name} ({low} to {high})"


def _rows(policy: "Policy") -> str:
    space = policy.belief.space
    states = _typical_states(policy)
    predictions = policy.predict_many(states)
    header = [*space.states, *space.actions, "expected reward", BAND]
    step = step_between(p.mean for p in predictions) or 1.0
    rewards = [(number_in_steps(p.mean, step), number(NINETY_FIVE * p.std)) for p in predictions]
    cells = [
        [*_texts(space.states, state), *_texts(space.actions, p.action), *reward]
        for state, p, reward in zip(states, predictions, rewards, strict=True)
    ]
    return table(header, cells)


def _texts(parameters: Mapping[str, Parameter], values: Mapping[str, Value]) -> list[str]:
    return [value_text(parameter, values[name]) for name, parameter in parameters.items()]


def _typical_states(policy: "Policy") -> list[dict[str, Value]]:
    """Return all states if there are few, and otherwise quasi-random states that follow P[s]."""
    belief = policy.belief
    listed = belief.states.listed(MOST_ROWS)
    if listed is not None:
        return belief.space.decode_states(listed[0])
    drawn = belief.states.transform(sobol_points(MOST_ROWS, belief.n_state_dims, seed=0))
    return belief.space.decode_states(belief.space.snap_states(drawn[drawn[:, 0].argsort(kind="stable")]))
