"""Load a simulator as it is where Numba is not installed."""

import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType

import pytest

COMPILED_TOO = ("conbo.compiler", "conbo.problems.random_streams")


def load_without_numba(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A second copy of the module in plain Python; the usual one is back in its place after the test."""
    monkeypatch.setitem(sys.modules, "numba", None)  # importing it now raises ImportError
    for module_name in (*COMPILED_TOO, name):
        spec = find_spec(module_name)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, module_name, module)
        spec.loader.exec_module(module)
    return module
