"""The best trial of every state, for finitely many states."""

from collections.abc import Iterable
from typing import Any

from conbo.bound_states import StateDistribution
from conbo.direction import sign_of
from conbo.errors import SettingError
from conbo.spaces import Space, Value
from conbo.trials import Trial


def best_observed(
    space: Space, states: StateDistribution, completed: Iterable[Trial], maximize: bool
) -> list[dict[str, Any]]:
    """List every state with the action, the reward and the trial number of its best completed trial.

    Action, reward and trial number are None for a state without a completed trial.  A state of probability zero is
    listed only if it has a completed trial.  Raises SettingError if there are infinitely many states, or too many to
    list.
    """
    listed = states.listed()
    if listed is None:
        raise SettingError("the best observed action of every state needs finitely many states: use `policy()`.")
    best: dict[tuple[Value, ...], Trial | None] = {}
    for state in space.decode_states(listed[0]):
        best[tuple(state.values())] = None
    sign = sign_of(maximize)
    for trial in completed:
        known = best.get(key := tuple(trial.state.values()))
        if known is None or sign * trial.reward > sign * known.reward:  # type: ignore[operator]
            best[key] = trial
    return [
        {
            "state": dict(zip(space.states, key, strict=True)),
            "action": trial and dict(trial.action),
            "reward": trial and trial.reward,
            "number": trial and trial.number,
        }
        for key, trial in best.items()
    ]
