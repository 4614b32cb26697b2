"""Checks of settings, used by several classes. Error messages state the rule and the value that violates it."""

from collections.abc import Mapping
from typing import get_args

import numpy as np

from conbo.direction import Direction
from conbo.errors import SettingError
from conbo.spaces import Space
from conbo.state_distributions import Product, RecipeLike, Weights


def check_settings(space: object, direction: object, device: object) -> None:
    """Raise SettingError unless these three settings of a study are valid.

    `space` must be a Space, `direction` "maximize" or "minimize", and `device` a non-empty string.
    """
    if not isinstance(space, Space):
        raise SettingError(f"`space` must be a Space, but got {space!r}.")
    if direction not in get_args(Direction):
        raise SettingError(f"`direction` must be 'maximize' or 'minimize', but got {direction!r}.")
    if not isinstance(device, str) or not device:
        raise SettingError(f"`device` must be the name of a device, such as 'cpu' or 'cuda', but got {device!r}.")


def at_least(least: int, name: str, value: object) -> int:
    """Return the value of the setting `name` as an int; raise SettingError unless it is an integer >= `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise SettingError(f"`{name}` must be an integer of at least {least}, but got {name}={value!r}.")
    return int(value)


def refuse_given(settings: Mapping[str, object], owner: str) -> None:
    """Raise SettingError if the settings of a study include the space or the direction, which another library sets."""
    if given := settings.keys() & {"space", "direction"}:
        raise SettingError(f"`{min(given)}` must not be given, because {owner} sets it.")


def has_weights(recipe: RecipeLike, name: str) -> bool:
    """Return whether P[s] is given by weights for the values of the state parameter `name`."""
    marginals = recipe.marginals if isinstance(recipe, Product) else recipe
    return isinstance(marginals.get(name) if isinstance(marginals, Mapping) else marginals, Weights)


def with_new_choices(given: RecipeLike, present: RecipeLike, space: Space, name: str) -> RecipeLike:
    """Return the state distribution of a study whose parameter `name` gets new choices.

    It is the `given` distribution or, if that is None, the `present` one, which is the study's current distribution.
    Raises SettingError if `given` is None and the current distribution has weights for the choices of this parameter,
    because the new choices would have no weights.
    """
    if given is None and name in space.states and has_weights(present, name):
        raise SettingError(
            f"`state_distribution` must be given with new choices of '{name}', since P[s] has weights for its choices, "
            "but got none."
        )
    return present if given is None else given
