"""Bridges to Ax, BoTorch and Optuna, each imported on first use, because Ax and Optuna are optional dependencies."""

from importlib import import_module
from types import ModuleType

__all__ = ["ax", "botorch", "optuna"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return __all__
