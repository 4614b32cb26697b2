"""Names of problems, as on the command line: loads the problem with a given name, and makes names readable.

==========================================  =========================================================
name                                        problem
==========================================  =========================================================
`branin`                                    a built-in problem
`branin:width=0.5,noise=1`                  a variant, made with these keyword arguments
`path/to/file.py:name`                      a `Problem` in a file of your own, or a function returning one
==========================================  =========================================================
"""

import ast
import importlib.util
import inspect
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from conbo import problems
from conbo.errors import SettingError
from conbo.experiments.global_problems import branin_global, rosenbrock_global
from conbo.problems.problem import Problem
from conbo.spaces import closest

GLOBAL = {"branin_global": branin_global, "rosenbrock_global": rosenbrock_global}
BUILT_IN = [*problems.SUMMARIES, *GLOBAL]


@lru_cache(maxsize=64)
def load_problem(text: str) -> Problem:
    """Load the problem with a name such as "branin", "branin:width=0.5" or "path/to/file.py:name"."""
    source, _, rest = text.rpartition(":") if ".py:" in text else text.partition(":")
    if source.endswith(".py"):
        return _from_file(Path(source), rest)
    if source not in BUILT_IN:
        raise SettingError(f"unknown problem {source!r}: {closest(source, BUILT_IN)}")
    build: Callable[..., Problem] = GLOBAL.get(source) or getattr(problems, source)
    try:
        return build(**_settings(text, rest))
    except TypeError as error:
        raise SettingError(f"'{source}' does not take the settings of '{text}': {error}.") from error


def _settings(text: str, settings: str) -> dict[str, Any]:
    """Parse settings such as "width=0.5,noise=1" into keyword arguments; error messages quote `text`, the full name."""
    pairs = [pair.partition("=") for pair in settings.split(",")] if settings else []
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        raise SettingError(f"settings must read `name=value`, but got '{wrong[0]}' in '{text}'.")
    return {name.strip(): _value(value.strip()) for name, _, value in pairs}


def _value(text: str) -> Any:
    """Evaluate a string as a Python literal; return the string unchanged if it is not one."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _from_file(path: Path, name: str) -> Problem:
    if not path.is_file():
        raise SettingError(f"a problem's file must exist, but '{path}' does not.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # a path that ends with .py always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise SettingError(f"'{path}' must define what the text after the colon names, but it has no {name!r}.")
    found = getattr(module, name)
    problem = found() if callable(found) and _needs_nothing(found) else found
    if not isinstance(problem, Problem):
        rule = "must be a Problem, or a function without arguments that returns one"
        raise SettingError(f"'{path}:{name}' {rule}, but is {found!r}.")
    return problem


def _needs_nothing(function: Callable[..., Any]) -> bool:
    """Whether a function can be called without arguments, unlike an objective."""
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):  # ValueError: a function that does not tell its arguments
        return False
    return True


def readable(problem: str) -> str:
    """The name of a problem in words: "branin:state_distribution=triangular" becomes "Branin, triangular"."""
    name, _, settings = problem.partition(":")
    words = re.sub(r"\w+=(?=[a-z])", "", settings)  # a word says by itself which setting it is, a number does not
    title = "networks" if name == "cifar_cnn_table" else name
    text = ", ".join(filter(None, (title, words.replace(",", ", "))))
    return (text[0].upper() + text[1:]).replace("_", " ").replace("=", " ")
