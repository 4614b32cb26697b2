"""Another library's search for the best action of one state, which `grid_search.py` runs in each state of a grid."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from conbo.spaces import Parameter, Point, Value

Parameters: TypeAlias = Mapping[str, Parameter]


class StateSearch(Protocol):
    """A library's search for the best action of one state."""

    def suggest(self, tried: Sequence[tuple[Point, float]], seed: int) -> dict[str, Value]:
        """The next action to evaluate, given the actions tried so far with their rewards."""

    def best(self, tried: Sequence[tuple[Point, float]]) -> dict[str, Value]:
        """The action that the library would recommend, given the actions tried so far with their rewards."""


def best_observed(tried: Sequence[tuple[Point, float]]) -> dict[str, Value]:
    """The action with the highest observed reward; `tried` holds pairs of an action and its reward."""
    return dict(max(tried, key=lambda pair: pair[1])[0])
