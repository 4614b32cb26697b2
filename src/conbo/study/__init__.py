"""The loop around an optimizer: evaluate, record, go on. Imported on first use: most of it needs torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conbo.study.run import RunSummary
    from conbo.study.stored import study_names
    from conbo.study.study import Study, open_study

_HOME = {"RunSummary": "run", "Study": "study", "open_study": "study", "study_names": "stored"}

__all__ = ["RunSummary", "Study", "open_study", "study_names"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
