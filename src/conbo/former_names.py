"""Former names of settings, which are still accepted: in code with a warning, and in stored studies without one."""

import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

from conbo.errors import SettingError

Kernel = TypeVar("Kernel")


def input_warping_of(actions: str) -> str:
    """Convert a value of the former setting `actions` to a value of `input_warping`, its current name, and warn."""
    if actions not in ("auto", "straight"):
        raise SettingError(f"`actions` must be auto or straight, but got {actions!r}.")
    new = _warped(actions)
    _warn(f"`actions={actions!r}` is now `input_warping={new!r}`")
    return new


def state_kernel_of(states: Kernel) -> Kernel:
    """Return the value of `states`, the former name of `state_kernel`, unchanged, and warn about the former name."""
    _warn(f"`states={states!r}` is now `state_kernel={states!r}`")
    return states


def with_present_names(model: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored settings of a `GaussianProcess` under their current names.

    If conbo 0.1 stored them, newer settings are missing and get their `defaults`.  There is one exception: if the
    stored profile is not "auto", a single model is used, without relative actions, main effects and output warping, as
    in 0.1.
    """
    renamed = "states" in model and "state_kernel" not in model
    settings = {"state_kernel" if renamed and name == "states" else name: value for name, value in model.items()}
    return _from_0_1(settings, defaults) if "actions" in settings else settings


def _from_0_1(model: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `GaussianProcess` settings that were stored by conbo 0.1 to current ones.

    Newer settings get their `defaults`.  There is one exception: if the stored profile is not "auto", a single model
    without relative actions, main effects and output warping is used, as in 0.1.
    """
    settings = {name: value for name, value in model.items() if name != "actions"}
    single = {"relative_actions": "none", "main_effects": "none", "output_warping": "none", "members": 1}
    added = defaults if settings.get("profile") == "auto" else {**defaults, **single}
    return {**added, **settings, "input_warping": _warped(model["actions"])}


def _warped(actions: str) -> str:
    return "none" if actions == "straight" else "auto"


def _warn(change: str) -> None:
    """Warn the caller of `GaussianProcess(...)` that a setting has a new name; `change` begins the message."""
    warnings.warn(f"{change}; the old name is removed in conbo 0.5.", DeprecationWarning, stacklevel=5)
