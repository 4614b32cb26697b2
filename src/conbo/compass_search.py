"""Search for the best action of a function that has no derivatives.

A compass search tries a step along every parameter in both directions. It moves if that helps, and otherwise halves the
step. It follows integers and categories, and evaluates all neighbors at once.
"""

from collections.abc import Callable, Iterator

import numpy as np

from conbo.spaces import Array, Categorical, Integer, Space

FIRST_STEP, LAST_STEP = 1 / 8, 1 / 512  # lengths of steps in the unit cube
MOST_SWEEPS = 60


def compass_search(space: Space, function: Callable[[Array], Array], start: Array) -> tuple[Array, float]:
    """Find an action (d_x,) of the unit cube that is no worse than its neighbors; return the action and its value.

    Parameters
    ----------
    space
        The space of the actions.
    function
        Maps actions (k, d_x) to values (k,), which are maximized.
    start
        The action (d_x,) at which the search begins.
    """
    best, value = start, float(function(start[None])[0])
    step = FIRST_STEP
    for _ in range(MOST_SWEEPS):
        neighbors = np.array(list(_neighbors(space, best, step))).reshape(-1, len(best))
        values = function(neighbors)
        better = [int(i) for i in np.argsort(-values) if values[i] > value]
        if not better:
            if step <= LAST_STEP:
                break
            step /= 2
            continue
        together = _together(space, best, neighbors[better])
        reached = float(function(together[None])[0])
        if reached > values[better[0]]:
            best, value = together, reached
        else:
            best, value = neighbors[better[0]], float(values[better[0]])
    return best, value


def _neighbors(space: Space, action: Array, step: float) -> Iterator[Array]:
    """The actions that differ from this one (d_x,) in one parameter: by a step or, in a category, by the choice."""
    for column, parameter in enumerate(space.actions.values()):
        here = action[column]
        if isinstance(parameter, Categorical):
            places = [place for place in parameter.levels() if place != here]
        elif isinstance(parameter, Integer):
            lower, upper = (float(edge) for edge in parameter.cell(here))
            beyond = (upper - lower) / 100  # reaches into the next integer, even if a step is shorter
            places = [min(here - step, lower - beyond), max(here + step, upper + beyond)]
        else:
            places = [here - step, here + step]
        for place in places:
            moved = action.copy()
            moved[column] = np.clip(place, 0.0, 1.0)
            yield space.snap_actions(moved)


def _together(space: Space, action: Array, better: Array) -> Array:
    """All helpful moves (k, d_x) combined; of two moves along one parameter, the better one is used."""
    moved = action.copy()
    for other in better[::-1]:
        moved = np.where(other != action, other, moved)
    return space.snap_actions(moved)
