"""Moves models and their data to another device."""

from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from conbo.errors import SettingError

Value = TypeVar("Value")


def usable_device(name: str) -> torch.device:
    """Return the device of this name, or raise SettingError if torch cannot use it on this machine."""
    try:
        device = torch.device(name)
        torch.zeros(1, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:  # torch raises different errors on different platforms
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SettingError(f"`device` must be one that torch can use here, but got {name!r}: {reason}") from error
    return device


def moved(value: Value, device: torch.device) -> Value:
    """Return a copy of a value with all its tensors on another device.

    The value may be a tensor, a module, an object with a method `to`, or a dataclass, list or tuple of such values,
    nested to any depth. Anything else is returned unchanged.
    """
    result: Value = _moved(value, device)
    return result


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.nn.Module):
        return deepcopy(value).to(device)  # a copy, because a module moves itself in place
    if isinstance(value, Tensor) or hasattr(value, "to"):
        return value.to(device)
    if isinstance(value, tuple | list):
        return type(value)(_moved(part, device) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return replace(value, **{name: _moved(part, device) for name, part in parts.items()})
    return value
