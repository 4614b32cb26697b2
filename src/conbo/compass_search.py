"""Compass search: a local search for the action with the highest value of a function, without derivatives.

Each round evaluates all neighbors of the current action in one call. A neighbor differs in one parameter: a number is
one step higher or lower (an integer by at least one), and a category is replaced by one of the others. If
some neighbors have higher values, the search moves to the best of them, or to the combination of all their changes if
that is better still. Otherwise, the step is halved.
"""

from collections.abc import Callable, Iterator

import numpy as np

from conbo.spaces import Array, Categorical, Integer, Space

FIRST_STEP, LAST_STEP = 1 / 8, 1 / 512  # first and last length of steps in the unit cube
MOST_SWEEPS = 60  # largest number of times that all neighbors are evaluated


def compass_search(space: Space, function: Callable[[Array], Array], start: Array) -> tuple[Array, float]:
    """Find a local maximum of a function of the action; return the action (d_x,), in the unit cube, and its value.

    Parameters
    ----------
    space
        The space that the actions belong to; its constraints are ignored.
    function
        Maps k actions (k, d_x) to values (k,), which are maximized.
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
    """Yield the neighbors of an action (d_x,), each of which differs from it in one parameter.

    A number moves up and down by `step` in the unit cube, but an integer changes by at least one.  A category is
    replaced by each of the others.
    """
    for column, parameter in enumerate(space.actions.values()):
        here = action[column]
        if isinstance(parameter, Categorical):
            places = [place for place in parameter.levels() if place != here]
        elif isinstance(parameter, Integer):
            lower, upper = (float(edge) for edge in parameter.cell(here))
            beyond = (upper - lower) / 100  # a move to the next integer, even if the step is shorter
            places = [min(here - step, lower - beyond), max(here + step, upper + beyond)]
        else:
            places = [here - step, here + step]
        for place in places:
            moved = action.copy()
            moved[column] = np.clip(place, 0.0, 1.0)
            yield space.snap_actions(moved)


def _together(space: Space, action: Array, better: Array) -> Array:
    """Combine the changes from an action (d_x,) to each of k better neighbors (k, d_x) into one action.

    The neighbors are sorted from the best to the worst.  If two of them change the same parameter, the change
    of the better one is used.
    """
    moved = action.copy()
    for other in better[::-1]:
        moved = np.where(other != action, other, moved)
    return space.snap_actions(moved)
